"""INV-14: a reader sees one graph version for the life of its DataFrame."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import omnigraph_spark as og
from tests.places import Place, people

KEY = "node:Person"
ROOT = Path(__file__).parents[2]

# Classic and Connect sessions cannot live in one process, so this one runs by itself. Its server remembers few plans.
CONNECT = """
import json, sys
from functools import reduce
from pyspark.sql import SparkSession
import omnigraph_spark as og
from tests.places import Place, people

uri = sys.argv[1]
builder = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.connect.session.planCache.maxSize", "4").getOrCreate()
graph = Place(uri).builder
seen = {}

def reader(**options):
    return spark.read.format("omnigraph").options(**options)

def rows(frames):                            # in one job
    named = [frame.selectExpr(f"'{name}' as name", "1 as one") for name, frame in frames.items()]
    return dict(reduce(lambda a, b: a.union(b), named).groupBy("name").count().collect())

def forget():
    for i in range(5):
        spark.range(i).schema

plain = reader(node="Person").load(uri)      # found without registering
reader(node="Person", columns="id").load(uri).createOrReplaceTempView("people")
spark.sql(f"CREATE TEMPORARY VIEW people_sql USING omnigraph OPTIONS (path '{uri}', node 'Person')")
early = {"plain": plain, "view": spark.table("people"), "sql": spark.table("people_sql")}
plain.schema
graph.publish({"node:Person": people("bob")})
seen["remembered"] = rows(early)
forget()
seen["forgotten"] = rows(early)

og.register(spark)
og.register(spark)
again = reader(node="Person")
late = {
    "unused": again.load(uri),
    "by keyword": spark.read.load(uri, format="OmniGraph", node="Person", BRANCH="main"),
    "own schema": reader(node="Person", columns="id").schema("id string").load(uri),
    "time ahead": reader(node="Person", uri=uri, timestamp="2999-01-01").load(),
    "graph": og.Graph.open(uri, spark=spark).nodes("Person"),
    "commits": reader(table="commits").load(uri),
}
used = {name: frame for name, frame in late.items() if name != "unused"}
seen["late"] = rows(used)
graph.publish({"node:Person": people("cy")})
forget()
seen["late, forgotten"] = rows({**late, "again": again.load(uri)})

seen["another format"] = spark.read.load("README.md", format="text").columns
try:
    reader(node="Person").load("nowhere")
except Exception as error:
    seen["refused"] = [type(error).__name__, "OG-NOT-FOUND" in str(error)]
try:
    og.Graph.open(uri, spark=spark).nodes("Persn")
except og.NotFoundError as error:
    seen["typed"] = error.code
spark.stop()
print("SEEN " + json.dumps(seen))
"""


def test_a_frame_and_a_view_keep_their_version(spark: SparkSession, local_graph: Place) -> None:
    """INV-14: commits between actions change neither a frame, nor frames made from it, nor a temp view."""
    builder = local_graph.builder
    builder.publish({KEY: people("ann")})
    frame = spark.read.format("omnigraph").option("node", "Person").load(local_graph.uri)
    frame.createOrReplaceTempView("people_now")
    options = f"OPTIONS (path '{local_graph.uri}', node 'Person')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW people_sql USING omnigraph {options}")
    derived = frame.filter("id <> 'x'")

    def counts() -> list[int]:
        in_sql = [spark.sql(f"select count(*) from {v}").collect()[0][0] for v in ("people_now", "people_sql")]
        return [frame.count(), derived.count(), frame.union(frame).distinct().count(), *in_sql]

    for name in ("bob", "cy"):
        assert counts() == [1, 1, 1, 1, 1]
        builder.publish({KEY: people(name)})
    assert counts() == [1, 1, 1, 1, 1]
    assert spark.read.format("omnigraph").option("node", "Person").load(local_graph.uri).count() == 3


def test_a_frame_is_pinned_when_it_is_made(spark: SparkSession, local_graph: Place) -> None:
    """INV-14: what lands between making a frame and its first action is not in it, for metadata tables too."""
    builder = local_graph.builder
    graph = og.Graph.open(local_graph.uri, spark=spark)
    people_frame = graph.nodes("Person")
    commits = spark.read.format("omnigraph").option("table", "commits").load(local_graph.uri)
    builder.publish({KEY: people("ann")})
    assert (people_frame.count(), commits.count()) == (0, 1)
    assert graph.nodes("Person").count() == 1


def test_two_frames_of_one_view_agree(spark: SparkSession, local_graph: Place) -> None:
    """INV-14: frames made at different times from one pinned `Graph` view join without a tear."""
    builder = local_graph.builder
    builder.publish({KEY: people("ann", "bob")})
    view = og.Graph.open(local_graph.uri, spark=spark).at()
    first = view.nodes("Person")
    builder.delete_rows(KEY, predicate="id = 'bob'")
    second = view.nodes("Person")
    assert first.join(second, "id").count() == 2


def test_connect_keeps_the_version_too(local_graph: Place) -> None:
    """INV-14 over Spark Connect: once registered, every load stays, also when the server has forgotten its plan.

    The unregistered load is the control: it moves on once forgotten, so the others stay for our reason.
    """
    local_graph.builder.publish({KEY: people("ann")})
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CONNECT, local_graph.uri],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    assert lines, done.stderr[-3000:]
    late = {"by keyword": 2, "own schema": 2, "time ahead": 2, "graph": 2, "commits": 3}
    assert json.loads(lines[0].removeprefix("SEEN ")) == {
        "remembered": {"plain": 1, "view": 1, "sql": 1},
        "forgotten": {"plain": 2, "view": 1, "sql": 1},
        "late": late,
        "late, forgotten": {**late, "unused": 2, "again": 3},
        "another format": ["value"],
        "refused": ["AnalysisException", True],
        "typed": "OG-NOT-FOUND",
    }
