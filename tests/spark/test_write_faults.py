"""A save whose commit, task or driver fails: the graph is as before or as after, and staged files are safe (INV-10)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph_spark.options import Scope, parse_options
from omnigraph_spark.write.spark_writer import GraphWriter, begin_write
from tests.places import Place, fingerprint, people
from tests.soundness import assert_sound
from tests.spark.faulty_source import register_faulty, save_faulty
from tests.spark.saving import data_files, ids, new_graph, persons, referenced_files, save

ROOT = Path(__file__).parents[2]


@pytest.fixture
def graph(local_root: Place) -> Place:
    """A graph with one person."""
    place = new_graph(local_root)
    place.open().append("Person", people("ann"))
    return place


def fails(act: Callable[[], object]) -> str:
    """Run a save that must fail and return what Spark says."""
    # A worker that died is a raw Java error, anything raised in Python is Spark's own.
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize("fault", ["raise after", "exit after", "kill:retire:enter"])
def test_a_commit_whose_answer_is_lost_keeps_its_data(spark: SparkSession, graph: Place, fault: str) -> None:
    """INV-10: commit took effect and then raised or died; abort deletes nothing and the rows are there."""
    register_faulty(spark)
    fails(lambda: save_faulty(persons(spark, "bob", "cy", partitions=2), graph.uri, fault=fault, node="Person"))
    assert ids(graph) == ["ann", "bob", "cy"]
    assert spark.read.format("omnigraph").option("node", "Person").load(graph.uri).count() == 3
    assert data_files(graph) == referenced_files(graph)
    graph.open().recover()
    save(persons(spark, "dee"), graph, node="Person")
    assert ids(graph) == ["ann", "bob", "cy", "dee"]
    assert_sound(graph)


@pytest.mark.parametrize("fault", ["raise before", "exit before", "kill:validate:done"])
def test_a_commit_that_never_began_leaves_no_file(spark: SparkSession, graph: Place, fault: str) -> None:
    """Nothing was published and nobody can publish any more: abort removes what the tasks had staged."""
    register_faulty(spark)
    before = data_files(graph)
    fails(lambda: save_faulty(persons(spark, "bob", "cy", partitions=2), graph.uri, fault=fault, node="Person"))
    assert ids(graph) == ["ann"]
    assert data_files(graph) == before == referenced_files(graph)
    save(persons(spark, "bob"), graph, node="Person")
    assert ids(graph) == ["ann", "bob"]
    assert_sound(graph)


@pytest.mark.parametrize("point", ["arm:claimed", "effect:after:node:Person", "publish:enter"])
def test_a_commit_killed_in_the_window_is_resolved_by_the_next_write(
    spark: SparkSession, graph: Place, point: str
) -> None:
    """A record is open when abort runs, so it keeps every file; the next write recovers: before or after."""
    register_faulty(spark)
    frame = persons(spark, "bob", "cy", partitions=2)
    fails(lambda: save_faulty(frame, graph.uri, fault=f"kill:{point}", node="Person"))
    assert len(data_files(graph)) == 3
    save(persons(spark, "dee"), graph, node="Person", windowGrace="1")
    rolled_forward = point != "arm:claimed"
    assert ids(graph) == (["ann", "bob", "cy", "dee"] if rolled_forward else ["ann", "dee"])
    assert_sound(graph)


def test_abort_never_raises(spark: SparkSession, graph: Place) -> None:
    """Abort of a graph that is gone, or of messages it cannot understand, logs and returns; nothing is deleted."""
    options = parse_options({"path": graph.uri, "node": "Person"}, scope=Scope.WRITE)
    writer = begin_write(options, persons(spark, "x").schema, overwrite=False)
    message = writer.write(iter(people("bob").to_batches()))
    before = fingerprint(graph.uri)
    hidden = Path(graph.uri).rename(graph.uri + "-hidden")
    writer.abort([message, None])
    hidden.rename(graph.uri)
    broken = Path(graph.uri) / "__recovery" / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json"
    broken.parent.mkdir(exist_ok=True)
    broken.write_text("{")
    writer.abort([message, None])
    broken.unlink()
    assert fingerprint(graph.uri) == before
    assert isinstance(writer, GraphWriter)
    writer.abort([message, None])
    assert data_files(graph) == referenced_files(graph)
    assert_sound(graph)


def test_abort_never_raises_without_permission(
    spark: SparkSession, s3_root: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the store forbids everything, the abort of a failed save stays silent and keeps the files."""
    place = new_graph(s3_root)
    given = {"path": place.uri, "node": "Person", **place.options()}
    writer = begin_write(parse_options(given, scope=Scope.WRITE), persons(spark, "x").schema, overwrite=False)
    message = writer.write(iter(people("bob").to_batches()))
    forbidden = {**given, "storage.secret_access_key": "wrong"}
    stranger = parse_options(forbidden, scope=Scope.WRITE)
    from dataclasses import replace

    from omnigraph_spark.storage.config import StorageConfig

    writer.txn = replace(writer.txn, config=StorageConfig.resolve(stranger.storage))
    writer.abort([message])
    assert_sound(place)


ABORTS_FIRST = """
import pickle, sys
writer, messages = pickle.loads(bytes.fromhex(sys.stdin.readline().strip()))
from omnigraph_spark.errors import ConflictError
try:
    writer.commit(messages)
    print("committed")
except ConflictError as error:
    print(error.code, error.outcome.value)
"""


def test_a_commit_that_outlives_its_abort_cannot_publish(spark: SparkSession, graph: Place) -> None:
    """INV-10: abort deletes files only after no process can commit them: one that begins later is refused."""
    options = parse_options({"path": graph.uri, "node": "Person"}, scope=Scope.WRITE)
    writer = begin_write(options, persons(spark, "x").schema, overwrite=False)
    message = writer.write(iter(people("bob").to_batches()))
    import pickle

    order = pickle.dumps((writer, [message])).hex()
    writer.abort([message])
    done = subprocess.run(
        [sys.executable, "-c", ABORTS_FIRST], input=order, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["OG-CONFLICT", "not_committed"]
    assert ids(graph) == ["ann"]
    assert_sound(graph)


def test_abort_keeps_the_files_of_a_commit_that_still_runs(spark: SparkSession, graph: Place) -> None:
    """INV-10: a driver that stops waiting for a commit calls abort beside it; the commit still finds its files."""
    from omnigraph_spark.write.unpublished import commit_turn

    options = parse_options({"path": graph.uri, "node": "Person"}, scope=Scope.WRITE)
    writer = begin_write(options, persons(spark, "x").schema, overwrite=False)
    message = writer.write(iter(people("bob").to_batches()))
    with commit_turn(writer.txn.commit_id):
        writer.abort([message])
    assert len(data_files(graph)) == 2
    writer.commit([message])
    assert ids(graph) == ["ann", "bob"]
    assert_sound(graph)
