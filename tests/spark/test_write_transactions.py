"""`Graph.transaction` over several DataFrames, in a classic session and over Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph_spark import OptionError, SchemaError, ValidationError
from tests.places import Place, people
from tests.soundness import assert_sound
from tests.spark.saving import (
    PERSON,
    commits,
    data_files,
    ids,
    new_graph,
    pairs,
    persons,
    referenced_files,
    refused,
    witnessed,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def graph(local_root: Place) -> Place:
    """A graph with one person."""
    place = new_graph(local_root)
    place.open().append("Person", people("ann"))
    return place


@pytest.mark.parametrize("nodes_first", [True, False])
def test_frames_of_one_transaction_are_one_commit(spark: SparkSession, graph: Place, nodes_first: bool) -> None:
    """Nodes and the edges that name them, several partitions each, in either order, beside Arrow data."""
    before = commits(graph)
    friends = persons(spark, "bob", "cy", age=2, partitions=3)
    edges = pairs(spark, ("ann", "bob"), ("bob", "cy")).repartition(2)
    with graph.open(spark=spark).transaction(actor="etl", message="both") as tx:
        if nodes_first:
            tx.append("Person", friends)
        tx.merge("Knows", edges)
        if not nodes_first:
            tx.append("Person", friends)
        tx.append("Note", [{"id": "n", "text": "from a dict"}])
    assert commits(graph) == before + 1
    assert tx.commit_info is not None
    assert (tx.commit_info.actor, tx.commit_info.message) == ("etl", "both")
    assert (ids(graph), ids(graph, "Knows")) == (["ann", "bob", "cy"], ["ann-bob", "bob-cy"])
    assert_sound(graph)


def test_later_frames_see_earlier_ones(spark: SparkSession, graph: Place) -> None:
    """A merge in the same transaction replaces rows that were staged before it; deletes by DataFrame work too."""
    handle = graph.open(spark=spark)
    with handle.transaction() as tx:
        tx.append("Person", persons(spark, "bob", "cy", age=1, partitions=2))
        tx.merge("Person", persons(spark, "cy", "dee", age=2, partitions=2))
        tx.overwrite("Note", spark.createDataFrame([], "id string, text string"))
    ages = {row["id"]: row["age"] for row in handle.to_arrow("Person").to_pylist()}
    assert ages == {"ann": None, "bob": 1, "cy": 2, "dee": 2}
    with handle.transaction() as tx:
        assert tx.delete_ids("Person", persons(spark, "bob", "cy", "none").select("name")) == 2
    assert ids(graph) == ["ann", "dee"]
    assert_sound(graph)


def test_an_exception_publishes_nothing(spark: SparkSession, graph: Place) -> None:
    """An error in the block, or rows that break a rule, leave the graph and its files as they were."""

    def broken_block() -> None:
        with graph.open(spark=spark).transaction() as tx:
            tx.append("Person", persons(spark, "bob", partitions=2))
            raise OptionError("the caller changed its mind")

    def dangling() -> None:
        with graph.open(spark=spark).transaction() as tx:
            tx.append("Person", persons(spark, "bob"))
            tx.append("Knows", pairs(spark, ("bob", "nobody")))

    refused(graph, OptionError, broken_block, match="changed its mind")
    refused(graph, ValidationError, dangling, match="'nobody' not found in Person")
    assert data_files(graph) == referenced_files(graph)
    assert data_files(graph, "Knows") == set()


def test_wrong_frames_are_refused_before_any_task(spark: SparkSession, graph: Place, tmp_path: Path) -> None:
    """Columns and mixed operations are judged before a row is computed."""
    witness = tmp_path / "ran"
    frame = witnessed(spark.createDataFrame([("bob", 1)], "name string, agee int"), witness)
    handle = graph.open(spark=spark)
    refused(graph, SchemaError, lambda: handle.append("Person", frame), match="did you mean 'age'")

    def mixed() -> None:
        with handle.transaction() as tx:
            tx.append("Note", [{"text": "t"}])
            tx.delete_ids("Person", witnessed(persons(spark, "ann").select("name"), witness))

    refused(graph, OptionError, mixed, match="never both")
    assert not witness.exists()


def test_a_repeated_transaction_runs_no_task(spark: SparkSession, graph: Place, tmp_path: Path) -> None:
    """A transaction that has been applied returns the first commit and computes nothing."""
    handle = graph.open(spark=spark)
    first = handle.append("Person", persons(spark, "bob"), app_id="job", txn_version=1)
    again = handle.append("Person", witnessed(persons(spark, "bob"), tmp_path / "ran"), app_id="job", txn_version=1)
    assert first is not None
    assert again is not None
    assert first.id == again.id
    assert not (tmp_path / "ran").exists()
    assert_sound(graph)


# Classic and Connect sessions cannot live in one process, so this one runs by itself.
CONNECT = f"""
import json, sys
from pyspark.sql import SparkSession
import omnigraph_spark as og
from omnigraph_spark.errors import typed_errors

builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
uri, seen = sys.argv[1], []
graph = og.Graph.open(uri, spark=spark)
people = spark.createDataFrame([("bob", 1), ("cy", 2)], "{PERSON}")
knows = spark.createDataFrame([("ann", "bob"), ("bob", "cy")], "src string, dst string").repartition(2)
with graph.transaction(actor="remote") as tx:
    tx.append("Knows", knows)
    tx.append("Person", people.repartition(3))
seen += [graph.count("Person"), graph.count("Knows"), tx.commit_info.actor]
more = spark.createDataFrame([("cy", 9), ("dee", 9)], "{PERSON}")
more.write.format("omnigraph").options(node="Person", writeMode="merge").mode("append").save(uri)
seen += [graph.nodes("Person", where="age = 9").count()]

def code(act):
    try:
        with typed_errors():
            act()
    except og.OmnigraphError as error:
        return error.code
    return "no error"

dangling = spark.createDataFrame([("dee", "nobody")], "src string, dst string")
seen += [code(lambda: graph.append("Knows", dangling))]
seen += [code(lambda: dangling.write.format("omnigraph").option("edge", "Knows").mode("append").save(uri))]
seen += [code(lambda: people.write.format("omnigraph").option("node", "Persn").mode("append").save(uri))]
seen += [code(lambda: graph.append("Person", people))]
gone = spark.createDataFrame([("bob",)], "id string")
gone.write.format("omnigraph").options(node="Person", writeMode="delete").mode("append").save(uri)
seen += [graph.count("Person"), graph.count("Knows")]
spark.stop()
print("SEEN " + json.dumps(seen))
"""


def test_transactions_and_saves_over_connect(graph: Place) -> None:
    """Over Spark Connect: a transaction over two frames, a merge, typed errors from tasks and commit, a delete."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_TESTING"] = "1"  # Spark then takes any free port; its usual one may belong to another server
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CONNECT, graph.uri],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    assert lines, done.stderr[-3000:]
    codes = ["OG-VALIDATION", "OG-VALIDATION", "OG-NOT-FOUND", "OG-KEY-CONFLICT"]
    assert json.loads(lines[0].removeprefix("SEEN ")) == [3, 2, "remote", 2, *codes, 3, 0]
    assert_sound(graph)
