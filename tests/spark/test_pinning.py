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

# Classic and Connect sessions cannot live in one process, so this one runs by itself.
CONNECT = """
import json, sys
from pyspark.sql import SparkSession
import omnigraph_spark as og
from tests.places import Place, people

uri = sys.argv[1]
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
builder = Place(uri).builder

def load(**options):
    return spark.read.format("omnigraph").options(node="Person", **options).load(uri)

frame = load()                       # found without registering
view = load(columns="id")
view.createOrReplaceTempView("people")
seen = [frame.count(), spark.sql("select count(*) from people").collect()[0][0]]
builder.publish({"node:Person": people("bob")})
seen += [frame.count(), frame.filter("id = 'bob'").count(), spark.sql("select count(*) from people").collect()[0][0]]
seen += [load().count()]
graph = og.Graph.open(uri, spark=spark)      # registers explicitly
bobs = graph.nodes("Person", where="id = 'bob'")
pinned, unused = graph.nodes("Person"), graph.nodes("Person")
fixed = load(versionAsOf=graph.version)
seen += [bobs.count(), pinned.count()]
builder.publish({"node:Person": people("cy")})
for i in range(40):                          # more plans than the server remembers
    spark.range(i).count()
seen += [fixed.count(), pinned.count(), unused.count(), spark.sql("select count(*) from people").collect()[0][0]]
try:
    graph.nodes("Persn")
    seen += ["no error"]
except og.NotFoundError as error:
    seen += [error.code]
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
    """INV-14 over Spark Connect: frames and views stay, a new load moves on, and errors are typed.

    A server analyses anew what is beyond the plans it remembers; what `Graph` returned, views, and reads that name
    their version stay put even then.
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
    assert json.loads(lines[0].removeprefix("SEEN ")) == [1, 1, 1, 0, 1, 2, 1, 2, 2, 2, 2, 1, "OG-NOT-FOUND"]
