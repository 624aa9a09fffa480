"""Optimize with a Spark session: tasks write the files, the driver alone commits."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from omnigraph_spark import StorageNotFoundError
from omnigraph_spark.maintenance.distribute import run_jobs, session_for
from omnigraph_spark.maintenance.optimize import Optimizer
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.lance_maintenance import IndexGap, IndexJob, IndexSpec
from omnigraph_spark.storage.lance_maintenance import Place as JobPlace
from tests.places import Place
from tests.soundness import assert_sound
from tests.unit.maintenance.upkeep import PERSON, authority, created, many_fragments, names, table


def test_tasks_compact_and_the_driver_commits(spark: SparkSession, any_root: Place) -> None:
    """Several compaction tasks and the index builds run as Spark jobs; the result is one commit each, and sound."""
    graph = created(any_root)
    many_fragments(any_root, count=24, rows=5)
    before, commits = names(graph), len(graph.history())
    spark.sparkContext.setJobGroup("optimize", "optimize")
    (found,) = Optimizer(authority(any_root), spark=session_for(spark), target_rows=40).run(["Person"])
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("optimize")) >= 2
    assert found.fragments_removed == 24
    assert 2 <= found.fragments_added <= 4
    assert "id_idx" in found.indexes_built
    assert len(graph.history()) == commits + 2
    assert names(graph) == before
    assert names(graph, where="id = 'f3-2'") == ["f3-2"]
    assert_sound(any_root)


def test_the_active_session_is_used(spark: SparkSession, local_root: Place) -> None:
    """Without a session given, the active one does the work."""
    graph = created(local_root)
    many_fragments(local_root, count=4, rows=2)
    spark.sparkContext.setJobGroup("active", "active")
    graph.optimize(types=["Person"])
    assert spark.sparkContext.statusTracker().getJobIdsForGroup("active")
    assert len(table(graph, PERSON).get_fragments()) == 1


def test_an_error_in_a_task_is_what_it_was(spark: SparkSession, local_root: Place) -> None:
    """A job that fails on an executor raises the typed error on the driver."""
    place = JobPlace(f"{local_root.uri}/nowhere", PERSON, 1, StorageConfig.resolve())
    with pytest.raises(StorageNotFoundError, match="nowhere"):
        run_jobs([IndexJob(place, IndexGap(IndexSpec("id", "BTREE"), (0,), ()))], spark=spark)
