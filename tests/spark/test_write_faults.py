"""A save whose commit, task or driver fails: the graph is as before or as after, and staged files are safe (INV-10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph_spark import StorageError, StorageForbiddenError
from tests.places import Place, people
from tests.rig.proxy import CountingProxy
from tests.rig.s3_server import S3Server
from tests.soundness import assert_sound
from tests.spark.faulty_source import register_faulty, save_faulty
from tests.spark.saving import data_files, ids, new_graph, persons, referenced_files, refused, save


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
    assert data_files(graph) == referenced_files(graph)
    graph.open(window_grace=0.2).append("Person", people("dee"))
    graph.open(window_grace=0.2).recover()
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
    graph.open().append("Person", people("bob"))
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
    assert len(list((Path(graph.uri) / "__recovery").iterdir())) == 1
    graph.open(window_grace=0.2).append("Person", people("dee"))
    rolled_forward = point != "arm:claimed"
    assert ids(graph) == (["ann", "bob", "cy", "dee"] if rolled_forward else ["ann", "dee"])
    assert_sound(graph)


def test_a_save_without_permission(spark: SparkSession, guarded_s3: S3Server) -> None:
    """A reader's save is refused by the store when a task writes: a typed error, and nothing changed."""
    place = new_graph(Place(f"s3://{guarded_s3.new_bucket()}/graph", guarded_s3.storage_options()))
    reader = replace(place, storage=guarded_s3.storage_options(identity="reader"))
    error = refused(
        place, StorageForbiddenError, lambda: save(persons(spark, "bob"), reader, node="Person"), match="graph/nodes/"
    )
    assert not error.retryable
    save(persons(spark, "bob"), place, node="Person")
    assert ids(place) == ["bob"]
    assert_sound(place)


def test_a_save_to_a_full_store(spark: SparkSession, s3_root: Place, proxy: CountingProxy) -> None:
    """No space for data files: a typed error and nothing changed; with space again the same save goes through."""
    place = new_graph(s3_root)
    crowded = replace(place, storage={**place.storage, "endpoint": proxy.endpoint})
    proxy.fail(status=507, times=1_000, key="/data/")
    refused(place, StorageError, lambda: save(persons(spark, "bob"), crowded, node="Person"), match="graph/nodes/")
    assert proxy.wait_fired()
    proxy.heal()
    save(persons(spark, "bob"), crowded, node="Person")
    assert ids(place) == ["bob"]
    assert_sound(place)
