"""Failures that neighbours of this project have had, each as a test here, so that none of them can come back as ours.

Not here because there is no such operation yet: merging a branch back after a full reload (omnigraph #282) and false
conflicts on a shared merged parent (omnigraph #639).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph_spark import Graph
from omnigraph_spark.errors import KeyConflictError, OmnigraphError, Outcome, ReadSetChangedError, StorageError
from omnigraph_spark.read.snapshot import GraphReader, Moment
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.seams import Phase, Seams
from omnigraph_spark.write.sidecar import SidecarStore
from tests.places import Place, people
from tests.proof.registry import BASE, verb
from tests.proof.world import Killed, LocalTemplates, Mortal, Site
from tests.rig.proxy import CountingProxy
from tests.rig.s3_server import S3Server
from tests.soundness import assert_sound

NAMES = ["ada", "bob", "cyd", "dan"]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """The graph of the proofs."""
    return LocalTemplates(tmp_path).restore(BASE.name, BASE.build)


def names(site: Site) -> list[str]:
    """Return the names of all persons, sorted."""
    return sorted(site.handle().to_arrow("Person", columns=["id"])["id"].to_pylist())


def test_a_record_deleted_while_it_is_read(site: Site) -> None:
    """OmniGraph #330: a record that goes away between listing and reading is no error, to anybody."""
    mortal = Mortal(at_hook="publish:enter")
    with pytest.raises(Killed):
        verb("append").run(site.handle(mortal.seams()))
    reader = GraphReader.begin(site.uri, StorageConfig())
    (record,) = SidecarStore(site.uri, objects=reader.objects).operation_ids()
    path = Path(site.uri) / "__recovery" / f"{record}.json"
    gone: list[bytes] = []

    def hook(phase: Phase, point: str) -> None:
        if (phase, point) == (Phase.RECOVER, "enter") and not gone:
            gone.append(path.read_bytes())
            path.unlink()

    assert site.handle(Seams(hook=hook)).recover() == []
    path.write_bytes(gone[0])
    site.handle().recover()
    assert names(site) == [*NAMES, "eve"]
    assert_sound(site.uri)


@pytest.mark.parametrize("operation", ["delete", "delete.done"])
def test_tidying_up_after_the_commit_point_cannot_undo_it(site: Site, operation: str) -> None:
    """OmniGraph #495: whatever fails after the commit point, the commit stands, is reported, and nothing of it goes."""
    published: list[bool] = []

    def hook(phase: Phase, point: str) -> None:
        if (phase, point) == (Phase.RETIRE, "enter"):
            published.append(True)

    def fault(name: str, _target: str) -> None:
        if published and name == operation:
            raise StorageError("the store is full")

    verb("transaction").run(site.handle(Seams(hook=hook, fault=fault)))
    assert published
    assert "gus" in names(site)
    site.opened().recover()
    assert "gus" in names(site)
    assert_sound(site.uri)


def test_a_create_whose_answer_is_lost_leaves_the_graph(s3_root: Place, s3_server: S3Server) -> None:
    """OmniGraph #495: creating a graph never removes anything, also when its last answer does not come."""
    with CountingProxy(s3_server.endpoint) as proxy:
        proxy.drop_ack(1, key="__manifest/_versions/")
        storage = s3_server.storage_options(endpoint=proxy.endpoint)
        Graph.create(s3_root.uri, schema="node A { name: String @key }", storage=storage)
    assert s3_root.open().count("A") == 0
    assert_sound(s3_root)


def test_a_failed_write_does_not_wedge_its_handle(site: Site) -> None:
    """OmniGraph #694: whichever request of a write fails, the same handle writes on without being opened again."""
    failing: list[int] = []
    calls: list[str] = []

    def fault(operation: str, _target: str) -> None:
        calls.append(operation)
        if failing and len(calls) == failing[0]:
            failing.clear()
            raise StorageError("the store said no, once")

    graph = site.handle(Seams(fault=fault))
    graph.append("Person", [{"name": "first"}])
    expected = {*NAMES, "first"}
    for n in range(1, len(calls) + 1):
        calls.clear()
        failing[:] = [n]
        told = Outcome.COMMITTED
        try:
            graph.append("Person", [{"name": f"tried{n}"}])
        except OmnigraphError as error:
            told = error.outcome
        assert told is not Outcome.UNKNOWN
        graph.append("Person", [{"name": f"next{n}"}])
        expected |= {f"next{n}"} | ({f"tried{n}"} if told is Outcome.COMMITTED else set())
    graph.recover()
    assert set(names(site)) == expected
    assert_sound(site.uri)


@pytest.mark.parametrize("repeat", [False, True], ids=["once", "again"])
def test_a_record_beside_its_visible_commit_blocks_nobody(site: Site, *, repeat: bool) -> None:
    """OmniGraph #767: an armed record next to the commit it made: every open works, and the first one retires it."""
    mortal = Mortal(at_hook="retire:enter")
    with pytest.raises(Killed):
        verb("append once").run(site.handle(mortal.seams()))
    assert len(list((Path(site.uri) / "__recovery").glob("*.json"))) == 1
    if repeat:
        verb("append once").run(site.handle())
    assert Graph.open(site.uri, read_only=True).count("Person") == 5
    site.opened()
    assert not list((Path(site.uri) / "__recovery").glob("*.json"))
    assert names(site) == [*NAMES, "ike"]
    assert_sound(site.uri)


def test_a_record_of_a_deleted_branch_stops_no_write(site: Site) -> None:
    """OmniGraph PR #203: a record whose branch is gone does not stop writes, opens or recovery."""
    record = {
        "schema_version": 2,
        "operation_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "started_at": "1",
        "branch": "gone",
        "actor_id": "somebody",
        "writer_kind": "Load",
        "tables": [],
        "plan": {},
    }
    folder = Path(site.uri) / "__recovery"
    folder.mkdir(exist_ok=True)
    (folder / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json").write_text(json.dumps(record))
    verb("append").run(site.handle())
    site.opened().recover()
    verb("append once").run(site.handle())
    assert names(site) == [*NAMES, "eve", "ike"]
    assert_sound(site.uri)


def test_cleanup_keeps_what_a_branch_inherits(local_graph: Place) -> None:
    """OmniGraph PR #344: versions a branch still reads from its parent survive a cleanup of the parent."""
    local_graph.builder.publish({"node:Person": people("ann")})
    local_graph.builder.create_branch("lazy")
    graph = local_graph.open()
    for name in ("x", "y", "z"):
        graph.append("Person", people(name))
    site = Site(local_graph.uri)
    report = site.handle().cleanup(keep=1, dry_run=False)
    assert report.deleted
    assert local_graph.open(branch="lazy").to_arrow("Person")["id"].to_pylist() == ["ann"]
    assert_sound(local_graph)


def test_a_second_attempt_writes_every_row_again(site: Site) -> None:
    """lance-ray #5290: an attempt that is undone and made again commits all rows, though the input is read once."""
    batches = [pa.RecordBatch.from_pylist([{"name": f"r{n}"}]) for n in range(5)]
    reads: list[int] = []

    def once() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            reads.append(number)
            yield batch

    refused = ["commit"]

    def fault(operation: str, _target: str) -> None:
        if operation in refused:
            refused.clear()
            raise StorageError("once")

    data = pa.RecordBatchReader.from_batches(batches[0].schema, once())
    graph = site.handle(Seams(fault=fault))
    with pytest.raises(StorageError):
        graph.append("Person", data)
    again = pa.RecordBatchReader.from_batches(batches[0].schema, once())
    taken: list[bool] = []

    def hook(phase: Phase, point: str) -> None:
        # Somebody takes the window over while this attempt is in it, so that it must be made again.
        if (phase, point) == (Phase.EFFECT, "enter") and not taken:
            taken.append(True)
            verb("append").run(site.handle())

    site.handle(Seams(hook=hook)).append("Person", again)
    assert taken
    assert names(site) == sorted([*NAMES, "eve", *(f"r{n}" for n in range(5))])
    assert reads == [*range(5), *range(5)]
    assert_sound(site.uri)


def test_the_base_is_the_version_that_was_read(site: Site) -> None:
    """lance-spark #344: a change between reading and committing is noticed; nothing is silently overwritten."""

    def hook(phase: Phase, point: str) -> None:
        if (phase, point) == (Phase.VALIDATE, "enter"):
            Graph(site.uri, moment=Moment()).update("Person", set={"age": 1}, where="name = 'bob'")

    with pytest.raises(OmnigraphError) as caught:
        verb("update").run(site.handle(Seams(hook=hook)))
    assert (caught.value.code, caught.value.outcome) == ("OG-CONFLICT", Outcome.NOT_COMMITTED)
    assert site.handle().to_arrow("Person", where="name = 'bob'")["age"].to_pylist() == [1]
    assert_sound(site.uri)


def test_two_merges_of_the_same_new_keys(site: Site) -> None:
    """lance-spark #812: two merges that both insert one key: one commits, the other is refused, one row."""

    def hook(phase: Phase, point: str) -> None:
        if (phase, point) == (Phase.ARM, "enter"):
            Graph(site.uri, moment=Moment()).merge("Person", [{"name": "new", "age": 1}])

    with pytest.raises(ReadSetChangedError):
        site.handle(Seams(hook=hook)).merge("Person", [{"name": "new", "age": 2}])
    assert names(site).count("new") == 1
    with pytest.raises(KeyConflictError):
        site.handle().append("Person", [{"name": "new"}])
    assert_sound(site.uri)


@pytest.mark.parametrize("died", [None, "publish:enter", "retire:enter"])
def test_a_replayed_batch_is_applied_once(site: Site, died: str | None) -> None:
    """Paimon #9666: a batch that is replayed after its commit, told or not, does not count twice."""
    for attempt in range(3):
        mortal = Mortal(at_hook=died if attempt == 0 else None)
        try:
            graph = site.handle(mortal.seams())
            graph.append("Person", [{"name": "batch"}], app_id="stream", txn_version=7)
        except Killed:
            continue
    assert names(site).count("batch") == 1
    commits = [c for c in site.handle().history() if c.tables and c.actor is None]
    assert len([c for c in commits if "node:Person" in c.tables]) == 1
    site.opened().recover()
    assert_sound(site.uri)


def test_a_writer_asleep_through_a_cleanup_is_not_told_a_lie(site: Site) -> None:
    """SlateDB #352: what a writer that slept through a cleanup is told is what a reader sees."""

    def hook(phase: Phase, point: str) -> None:
        if (phase, point) == (Phase.PUBLISH, "enter") and asleep:
            asleep.clear()
            for name in ("x", "y", "z"):
                site.handle().append("Person", [{"name": name}])
            site.handle().cleanup(keep=1, dry_run=False)

    asleep = [True]
    verb("append").run(site.handle(Seams(hook=hook)))
    assert not asleep
    assert names(site) == sorted([*NAMES, "eve", "x", "y", "z"])
    assert_sound(site.uri)
