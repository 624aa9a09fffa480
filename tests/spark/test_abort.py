"""Staged files of a failed save: deleted only when nobody published them and nobody can any more (INV-10).

The writer is called as Spark calls it, without Spark, so that every order of commit and abort can be arranged.
"""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from omnigraph_spark import ConflictError, StorageForbiddenError, StorageUnreachableError
from omnigraph_spark.options import Scope, parse_options
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.objects import ObjectStore
from omnigraph_spark.storage.seams import Phase, Seams
from omnigraph_spark.write.draft import Draft, WriteIntent
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.settings import WindowSettings
from omnigraph_spark.write.spark_writer import GraphWriter, begin_write
from omnigraph_spark.write.stage import WriteMode, stage
from omnigraph_spark.write.unpublished import commit_turn
from tests.places import Place, fingerprint, people
from tests.rig.s3_server import Identity, S3Server
from tests.soundness import assert_sound
from tests.spark.saving import data_files, ids, new_graph, referenced_files

ROOT = Path(__file__).parents[2]
COLUMNS = StructType([StructField("name", StringType()), StructField("age", IntegerType())])


@pytest.fixture
def graph(local_root: Place) -> Place:
    """A graph with one person."""
    place = new_graph(local_root)
    place.open().append("Person", people("ann"))
    return place


def staged(place: Place, *names: str) -> tuple[GraphWriter, Any]:
    """Begin a save of persons and run its task."""
    options = parse_options({"path": place.uri, "node": "Person", **place.options()}, scope=Scope.WRITE)
    writer = begin_write(options, COLUMNS, overwrite=False)
    return writer, writer.write(iter(people(*names).to_batches()))


def turn_of(writer: GraphWriter) -> Path:
    """Return the file that stands for the right to publish."""
    assert writer.turn is not None
    return writer.turn


# -- abort -----------------------------------------------------------------------------------------------------------


def test_abort_deletes_what_was_staged(graph: Place) -> None:
    """Nothing was published: the staged files go, messages of failed tasks do not disturb, and the lock file goes."""
    writer, message = staged(graph, "bob")
    assert len(data_files(graph) - referenced_files(graph)) == 1
    assert turn_of(writer).exists()
    writer.abort([message, None])
    assert data_files(graph) == referenced_files(graph)
    assert not turn_of(writer).exists()
    assert_sound(graph)


def hide(graph: Path) -> Callable[[], object]:
    """Move a graph away."""
    hidden = graph.rename(f"{graph}-hidden")
    return lambda: hidden.rename(graph)


def spoil(graph: Path) -> Callable[[], object]:
    """Leave a record nobody can read."""
    broken = graph / "__recovery" / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json"
    broken.parent.mkdir(exist_ok=True)
    broken.write_text("{")
    return broken.unlink


@pytest.mark.parametrize("trouble", [hide, spoil])
def test_abort_never_raises(
    graph: Place, caplog: pytest.LogCaptureFixture, trouble: Callable[[Path], Callable[[], object]]
) -> None:
    """Abort of a graph that is gone, or whose records say nothing, says so in the log and deletes nothing."""
    writer, message = staged(graph, "bob")
    before = fingerprint(graph.uri)
    heal = trouble(Path(graph.uri))
    with caplog.at_level(logging.WARNING, logger="omnigraph_spark"):
        writer.abort([message, None])
    heal()
    assert "abort keeps staged files" in caplog.text
    assert fingerprint(graph.uri) == before
    assert not turn_of(writer).exists()
    assert_sound(graph)


@pytest.mark.parametrize("identity", ["reader", "nobody"])
def test_abort_never_raises_without_permission(
    guarded_s3: S3Server, caplog: pytest.LogCaptureFixture, identity: Identity
) -> None:
    """A store that refuses to delete, or even to read, makes abort keep the files silently; it did refuse."""
    bucket = guarded_s3.new_bucket()
    place = new_graph(Place(f"s3://{bucket}/graph", guarded_s3.storage_options()))
    writer, message = staged(place, "bob")
    stranger = StorageConfig.resolve(guarded_s3.storage_options(identity=identity))
    with pytest.raises(StorageForbiddenError):
        ObjectStore(stranger).delete(f"{place.uri}/anything")
    mine = ObjectStore(StorageConfig.resolve(place.storage))
    before = {found.name for found in mine.walk(place.uri)}
    writer.txn = replace(writer.txn, config=stranger)
    with caplog.at_level(logging.WARNING, logger="omnigraph_spark"):
        writer.abort([message])
    assert ("StorageForbiddenError" in caplog.text) == (identity == "nobody")  # a reader gets as far as the deletes
    assert {found.name for found in mine.walk(place.uri)} == before
    assert sum("/data/" in name for name in before if not name.startswith("__manifest")) == 1
    assert_sound(place)


# -- commit and abort in every order -----------------------------------------------------------------------------------

COMMIT = """
import pickle, sys
from omnigraph_spark.errors import ConflictError
writer, messages = pickle.loads(bytes.fromhex(sys.stdin.readline().strip()))
try:
    writer.commit(messages)
    print("committed")
except ConflictError as error:
    print(error.code, error.outcome.value)
"""


def test_a_commit_after_its_abort_cannot_publish(graph: Place) -> None:
    """Abort deletes files only after no process can commit them: one that begins later is refused."""
    writer, message = staged(graph, "bob")
    order = pickle.dumps((writer, [message])).hex()
    writer.abort([message])
    done = subprocess.run(
        [sys.executable, "-c", COMMIT], input=order, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["OG-CONFLICT", "not_committed"]
    assert ids(graph) == ["ann"]
    assert not turn_of(writer).exists()
    assert_sound(graph)


def test_a_commit_that_waits_while_its_write_ends_cannot_publish(graph: Place) -> None:
    """A commit that waits for the lock finds, when it gets it, that the write has ended meanwhile, and is refused."""
    writer, message = staged(graph, "bob")
    inode, refusals = f":{turn_of(writer).stat().st_ino} ", list[ConflictError]()

    def commit() -> None:
        try:
            writer.commit([message])
        except ConflictError as e:
            refusals.append(e)

    waiting = threading.Thread(target=commit)
    with commit_turn(turn_of(writer), commit_id=writer.txn.commit_id):
        waiting.start()
        while not any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()):
            assert waiting.is_alive()
    waiting.join()
    assert [refusal.outcome.value for refusal in refusals] == ["not_committed"]
    assert ids(graph) == ["ann"]


def test_abort_keeps_the_files_of_a_commit_that_still_runs(graph: Place) -> None:
    """A driver that stops waiting for a commit calls abort beside it; the commit still finds its files."""
    writer, message = staged(graph, "bob")
    running = commit_turn(turn_of(writer), commit_id=writer.txn.commit_id)
    running.__enter__()
    writer.abort([message])
    assert len(data_files(graph) - referenced_files(graph)) == 1
    assert not running.__exit__(InterruptedError, InterruptedError(), None)
    writer.commit([message])
    assert ids(graph) == ["ann", "bob"]
    assert not turn_of(writer).exists()
    assert_sound(graph)


def test_abort_after_a_commit_keeps_everything(graph: Place) -> None:
    """The answer of a commit was lost: abort finds the write ended and its commit published, and deletes nothing."""
    writer, message = staged(graph, "bob")
    writer.commit([message])
    before = fingerprint(graph.uri)
    writer.abort([message])
    turn_of(writer).touch()  # as if the commit had died before it removed the file: now only the manifest can tell
    writer.abort([message])
    assert fingerprint(graph.uri) == before
    assert not turn_of(writer).exists()
    assert ids(graph) == ["ann", "bob"]
    assert_sound(graph)


# -- a publish that fails ----------------------------------------------------------------------------------------------


def failing_publish(place: Place, point: str) -> None:
    """Publish one person through a draft whose store stops answering at a point of the protocol."""

    def hook(phase: Phase, name: str) -> None:
        if f"{phase.value}:{name}" == point:
            raise StorageUnreachableError("no answer")

    reader = GraphReader.begin(place.uri, StorageConfig.resolve(place.storage), seams=Seams(hook=hook))
    draft = Draft.capture(PublishAuthority(reader, WindowSettings(grace=0.2)), WriteIntent())
    job = draft.job(draft.txn.catalog.resolve("Person"), WriteMode.APPEND, distributed=False)
    draft.add(job, [stage(job, people("bob").to_batches())])
    with pytest.raises(StorageUnreachableError, match="no answer") as caught:
        draft.publish()
    # The error claims that nothing was committed; the draft must not believe it.
    assert caught.value.outcome.value == "not_committed"


@pytest.mark.parametrize("point", ["publish:enter", "retire:enter"])
def test_a_publish_that_may_have_landed_keeps_its_files(graph: Place, point: str) -> None:
    """An error says "not committed" but a record or the manifest knows the write: its files stay and its rows come."""
    failing_publish(graph, point)
    assert len(data_files(graph)) == 2
    graph.open(window_grace=0.2).append("Person", people("cy"))
    graph.open(window_grace=0.2).recover()
    assert ids(graph) == ["ann", "bob", "cy"]
    assert data_files(graph) == referenced_files(graph)
    assert_sound(graph)


@pytest.mark.parametrize("point", ["arm:enter", "arm:armed", "arm:claimed", "effect:enter"])
def test_a_publish_that_did_not_land_leaves_no_file(graph: Place, point: str) -> None:
    """Neither a record nor the manifest knows the write: its files go at once."""
    failing_publish(graph, point)
    assert data_files(graph) == referenced_files(graph)
    assert ids(graph) == ["ann"]
    graph.open(window_grace=0.2).append("Person", people("cy"))
    assert_sound(graph)
