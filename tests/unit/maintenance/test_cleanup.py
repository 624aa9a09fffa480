"""Cleanup: what it reports is what it deletes, and what anybody may still need stays."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path

import lance
import pytest

from omnigraph_spark import ConflictError, Graph, NotFoundError, OptionError, RecoveryError, StorageError
from omnigraph_spark.maintenance.cleanup import cleanup_graph
from omnigraph_spark.manifest.boundary import BOUNDARY_TAG, raise_boundary, read_boundary
from omnigraph_spark.manifest.layout import SCHEMA_LOCK_BRANCH
from omnigraph_spark.manifest.rows import EpochRow, epoch_row
from omnigraph_spark.storage.lance_commit import append_operation, commit_operation
from omnigraph_spark.storage.lance_errors import LanceConflictError
from omnigraph_spark.storage.seams import Seams
from omnigraph_spark.write.window import swap
from tests.places import Place, fingerprint, people, unchanged
from tests.rig.proxy import CountingProxy
from tests.rig.s3_server import S3Server
from tests.soundness import assert_sound
from tests.unit.maintenance.upkeep import PERSON, WEEK, authority, created, crowd, names, paths, person, table
from tests.writer_process import append, plan_of, stage_append, stage_plan, start


def clean(place: Place, *, ahead: int = WEEK, **policy: object) -> object:
    """Run cleanup with a clock that stands a week ahead, so that everything is older than every floor."""
    return cleanup_graph(authority(place, ahead=ahead), **{"dry_run": False, **policy})  # type: ignore[arg-type]


def tracked(root: str) -> set[str]:
    """Return every file below a graph that is not part of its schema or of a boundary."""
    return {name for name in fingerprint(root) if not name.startswith("_") or name.startswith("__manifest")}


def test_bad_policies_are_refused(local_root: Place) -> None:
    """No policy, one below the floor, and keeping nothing are refused with the reason; no byte changes."""
    graph = created(local_root)
    same = unchanged(local_root.uri)
    with pytest.raises(OptionError, match="needs a policy"):
        graph.cleanup()
    with pytest.raises(OptionError, match="below the safe floor of 90 s"):
        graph.cleanup(older_than=timedelta(seconds=89))
    with pytest.raises(OptionError, match="at least 1"):
        graph.cleanup(keep=0)
    same()


def test_open_records_and_schema_changes_stop_it(local_root: Place) -> None:
    """While a record is open cleanup names it and deletes nothing; likewise during a schema change."""
    graph = created(local_root)
    crowd(graph, commits=3)
    writer = authority(local_root)
    writer.sidecars.put(plan_of(writer, writer.open_txn(branch="main"), []).attempt("01OPEN"))
    with pytest.raises(RecoveryError, match="01OPEN"):
        clean(local_root, keep=1)
    writer.sidecars.delete("01OPEN")
    manifest = lance.dataset(f"{local_root.uri}/__manifest")
    manifest.create_branch(SCHEMA_LOCK_BRANCH)
    with pytest.raises(ConflictError, match="schema change"):
        clean(local_root, keep=1)


def test_the_report_is_what_happens(local_root: Place) -> None:
    """A dry run changes no byte and names every file; the real run deletes exactly what the report says."""
    graph = created(local_root)
    crowd(graph, commits=6)
    graph.optimize()
    same, before = unchanged(local_root.uri), tracked(local_root.uri)
    told = cleanup_graph(authority(local_root, ahead=WEEK), keep=2)
    same()
    assert paths(told.rows) == before
    assert told.dry_run
    assert {row.reason.partition(":")[0] for row in told.rows} == {"delete", "keep"}
    assert told.versions_deleted > 20
    assert told.to_arrow().num_rows == len(told.rows)
    assert "would delete" in repr(told)
    done = cleanup_graph(authority(local_root, ahead=WEEK), keep=2, dry_run=False)
    assert paths(done.deleted) == paths(told.deleted)
    assert before - tracked(local_root.uri) == paths(done.deleted)
    assert done.bytes_deleted == sum(row.bytes for row in done.deleted) > 0
    assert len(names(graph)) == 12
    assert_sound(local_root)


def test_retained_versions_read_and_the_others_say_so(any_root: Place) -> None:
    """The last N graph versions read as before; older ones are gone with a clear error; writes go on."""
    graph = created(any_root)
    crowd(graph, commits=5)
    kept = {c.graph_version: names(graph, version=c.graph_version) for c in graph.history(3)}
    gone = [c.graph_version for c in graph.history()[3:]]
    report = clean(any_root, keep=3)
    assert report.boundaries == {"main": min(kept)}  # type: ignore[attr-defined]
    for version, seen in kept.items():
        assert names(graph, version=version) == seen
    for version in gone:
        with pytest.raises(NotFoundError, match="cleaned up"):
            names(graph, version=version)
    crowd(graph, commits=1, first=9)
    assert len(names(graph)) == 12
    assert_sound(any_root)
    clean(any_root, keep=100)  # more than there is left: nothing to do, nothing breaks
    assert len(names(graph)) == 12


def test_age_and_count_both_retain(local_root: Place) -> None:
    """A version goes only when it is neither new enough nor among the last; nothing younger than the floor goes."""
    graph = created(local_root)
    crowd(graph, commits=4)
    assert not clean(local_root, older_than=3600, ahead=0).deleted  # type: ignore[attr-defined]
    young = cleanup_graph(authority(local_root, timeout=50, grace=50), keep=1)
    assert not any(row.kind == "version" for row in young.deleted)
    assert any("floor" in row.why for row in young.rows)
    both = cleanup_graph(authority(local_root, ahead=WEEK), keep=2, older_than=timedelta(days=30))
    assert not both.deleted
    assert cleanup_graph(authority(local_root, ahead=WEEK), keep=2, older_than=timedelta(days=1)).deleted


def test_a_branch_that_never_forked_a_table_still_reads(any_graph: Place) -> None:
    """A branch reads main's old version of a table; cleanup of main keeps it, and the branch's fork points."""
    builder = any_graph.builder
    builder.publish({PERSON: people("ann")})
    builder.create_branch("review/x")
    builder.create_branch("own")
    builder.publish({PERSON: people("eve")}, branch="own")
    graph = any_graph.open()
    for n in range(6):
        graph.append("Person", people(f"p{n}"))
    graph.optimize()
    report = clean(any_graph, keep=1)
    assert report.versions_deleted > 5  # type: ignore[attr-defined]
    assert names(any_graph.open(branch="review/x")) == ["ann"]
    assert names(any_graph.open(branch="own")) == ["ann", "eve"]
    assert len(names(graph)) == 7
    assert_sound(any_graph)
    report = clean(any_graph, keep=1)
    assert_sound(any_graph)
    assert names(any_graph.open(branch="review/x")) == ["ann"]


def test_a_branch_is_cleaned_like_main(any_graph: Place) -> None:
    """A branch's own chain is cut at its own boundary, which does not stand in the way of deleting the branch."""
    builder = any_graph.builder
    builder.publish({PERSON: people("ann")})
    builder.create_branch("team/own")
    builder.publish({PERSON: people("eve")}, branch="team/own")
    own = any_graph.open(branch="team/own")
    for n in range(4):
        own.append("Person", people(f"o{n}"))
    kept = {c.graph_version: names(own, version=c.graph_version) for c in own.history(2)}
    report = clean(any_graph, keep=2)
    gone = Counter((row.table, row.branch) for row in report.deleted if row.kind == "version")  # type: ignore[attr-defined]
    assert gone["__manifest", "team/own"] >= 4
    assert report.boundaries["team/own"] == min(kept)  # type: ignore[attr-defined]
    assert read_boundary(any_graph.reader().objects, any_graph.uri, branch="team/own") == min(kept)
    for version, seen in kept.items():
        assert names(own, version=version) == seen
    own.append("Person", people("after"))
    assert len(names(own)) == 7
    assert_sound(any_graph)
    any_graph.builder.manifest().branches.delete("team/own")
    assert names(any_graph.open()) == ["ann"]


def test_tags_and_tokens_keep_what_they_name(local_root: Place) -> None:
    """A tagged graph version, a tagged table version and a stream token's commit stay readable."""
    graph = created(local_root)
    crowd(graph, commits=2)
    tagged = graph.version
    lance.dataset(f"{local_root.uri}/__manifest").tags.create("audit", tagged)
    token = graph.append("Person", [person("token")], app_id="stream", txn_version=1)
    assert token is not None
    old = int(table(graph, PERSON).version)
    table(graph, PERSON).tags.create("model", old)
    crowd(graph, commits=3, first=5)
    clean(local_root, keep=1)
    assert names(graph, version=tagged) == ["p0", "p1", "q0", "q1"]
    assert "token" in names(graph, version=token.graph_version)
    assert table(graph, PERSON, version=old).count_rows() == 5
    assert_sound(local_root)


def test_what_dead_writers_staged_goes_after_a_week(local_root: Place) -> None:
    """Files no version uses stay while their writer may be at work, and go when it cannot; verify lists them."""
    graph = created(local_root)
    crowd(graph, commits=1)
    writer = authority(local_root)
    txn = writer.open_txn(branch="main")
    staged = stage_append(writer, txn, PERSON, ["dead"])
    evidence = Path(local_root.uri) / "__staging" / "01DEAD" / "keys"
    evidence.parent.mkdir(parents=True)
    evidence.write_bytes(b"12345678")
    young = clean(local_root, keep=9, ahead=0)
    assert not young.deleted  # type: ignore[attr-defined]
    assert [row.action for row in young.rows if row.orphan] == ["keep"] * 2  # type: ignore[attr-defined]
    found = [f for f in graph.verify(orphans=True).findings if f.check == "orphans"]
    assert len(found) == 2
    assert {f.severity for f in found} == {"warning"}
    old = clean(local_root, keep=9)
    assert sorted(row.bytes for row in old.deleted)[0] == 8  # type: ignore[attr-defined]
    assert len(old.deleted) == 2  # type: ignore[attr-defined]
    assert not evidence.exists()
    assert staged.rows == 1
    assert_sound(local_root)


def test_a_commit_prepared_before_cleanup_loses(any_root: Place) -> None:
    """Lance's check passes over deleted versions; the fence makes a stalled swap lose all the same (INV-12)."""
    graph = created(any_root)
    crowd(graph, commits=2)
    stalled = authority(any_root)
    manifest = stalled.reader.manifest.open(branch="main")
    crowd(graph, commits=4, first=5)

    def die(operation: str, target: str) -> None:
        if operation == "delete" and "/data/" in target:
            raise StorageError("died before the files")

    with pytest.raises(StorageError, match="died"):
        cleanup_graph(authority(any_root, ahead=WEEK, seams=Seams(fault=die)), keep=1, dry_run=False)
    epoch = EpochRow("main", 999, "zombie", in_window=True, claimed_at=0)
    with pytest.raises(LanceConflictError):
        swap(stalled.reader.io, manifest, [epoch_row(epoch)])
    crowd(graph, commits=1, first=20)
    assert len(names(graph)) == 14
    assert_sound(any_root)


@pytest.mark.parametrize("stall", ["arm:armed", "publish:enter", "publish:enter, undone"])
def test_a_writer_stalled_across_a_cleanup_knows_its_fate(
    s3_root: Place, s3_server: S3Server, proxy: CountingProxy, stall: str
) -> None:
    """Its put of a deleted version succeeds, below the boundary; it does not count as a commit."""
    graph = created(s3_root)
    crowd(graph, commits=2)
    slow = Place(s3_root.uri, s3_server.storage_options(endpoint=proxy.endpoint))
    stalls = [stall.partition(",")[0]]

    def hold(phase: object, point: str) -> None:
        if f"{phase.value}:{point}" in stalls:  # type: ignore[attr-defined]
            stalls.clear()
            proxy.pause(kinds=["PUT"], key="__manifest/_versions/", count=1)

    writer = authority(slow, hook=hold)
    plan = stage_plan(writer, {PERSON: ["stalled"]})
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(writer.publish(plan)))
    thread.start()
    assert proxy.wait_held()
    last = graph.version
    if "undone" in stall:
        leave_residue(s3_root)
    authority(s3_root).recover()  # takes the window over, or finds a record whose writer never claimed
    crowd(graph, commits=3, first=5)
    clean(s3_root, keep=1, ahead=5_000_000)
    boundary = read_boundary(authority(s3_root).reader.objects, s3_root.uri, branch="main")
    assert last + 1 < boundary
    proxy.release()
    thread.join(timeout=60)
    (commit,) = answers
    # It committed once, truly: by recovery under its own commit id, or by its own second attempt.
    history = Counter(c.id for c in graph.history())
    assert history[commit.row.commit_id] == 1  # type: ignore[attr-defined]
    assert names(graph).count("stalled") == 1
    # And the put did land: the version it re-created is there, below the boundary, in nobody's history.
    back = [
        v["version"]
        for v in lance.dataset(f"{s3_root.uri}/__manifest", storage_options=options(s3_root)).version_refs()
    ]
    assert last + 1 in back
    assert_sound(s3_root)


def leave_residue(place: Place) -> None:
    """Leave an unpublished version of another fenced writer behind the stalled one's: recovery must undo both."""
    other = authority(place)
    txn = other.open_txn(branch="main")
    staged = stage_append(other, txn, PERSON, ["residue"])
    dataset = other.reader.io.open(txn.uri(PERSON), table=PERSON)
    properties = {"operation_id": "01OTHER", "epoch": "1"}
    commit_operation(other.reader.io, dataset, append_operation(staged.fragments), table=PERSON, properties=properties)


def options(place: Place) -> dict[str, str]:
    """Return storage options as Lance takes them."""
    return place.reader().io.options


def test_the_boundary_only_rises(any_root: Place) -> None:
    """It is a Lance tag on main; a lower one leaves it where it is; a graph never cleaned has none."""
    created(any_root)
    objects = any_root.reader().objects
    root = any_root.uri
    assert read_boundary(objects, root, branch="main") == 0
    assert raise_boundary(objects, root, branch="main", version=2, size=0, now=1) == 2
    assert raise_boundary(objects, root, branch="main", version=1, size=0, now=2) == 2
    assert read_boundary(objects, root, branch="main") == 2
    manifest = lance.dataset(f"{root}/__manifest", storage_options=options(any_root) if any_root.storage else None)
    assert manifest.tags.list()[BOUNDARY_TAG]["version"] == 2


def test_verify_notices_a_boundary_nobody_can_read(local_root: Place) -> None:
    """A boundary beyond the branch, and one whose version is gone, are errors."""
    graph = created(local_root)
    crowd(graph, commits=3)
    clean(local_root, keep=1)
    assert graph.verify().ok
    objects = local_root.reader().objects
    raise_boundary(objects, local_root.uri, branch="main", version=10_000, size=0, now=1)
    report = graph.verify()
    assert [f.check for f in report.findings] == ["boundary"]
    assert not report.ok


def test_cleanup_beside_a_writer(local_root: Place) -> None:
    """A process writes all the time while cleanup deletes behind it: every commit stands, the graph is sound."""
    graph = created(local_root, pg="node Person { name: String @key  age: I32? }")
    writes = [{PERSON: [f"w{n}"]} for n in range(25)]
    process = start(local_root.uri, {"writes": writes})
    deleted = 0
    while process.poll() is None:
        try:
            deleted += clean(local_root, keep=2, ahead=2_000_000).versions_deleted  # type: ignore[attr-defined]
        except RecoveryError:
            continue  # the writer's record was there for the whole grace: it is refused, as it must be
    out, _ = process.communicate(timeout=60)
    assert out.count('"commit"') == 25, out
    assert len(names(graph)) == 25
    deleted += clean(local_root, keep=2, ahead=2_000_000).versions_deleted  # type: ignore[attr-defined]
    assert deleted > 40
    assert_sound(local_root)


@pytest.mark.parametrize("dry_run", [True, False])
def test_each_manifest_is_read_at_most_once(
    s3_graph: Place, s3_server: S3Server, proxy: CountingProxy, *, dry_run: bool
) -> None:
    """Cleanup asks the store for no version's manifest twice: deleted or kept, with an index, of a branch or named."""
    graph = s3_graph.open()
    for n in range(12):
        append(s3_graph.uri, {PERSON: [f"p{n}"]}, storage=dict(s3_graph.storage))
    graph.optimize()
    s3_graph.builder.create_branch("side")
    s3_graph.builder.publish({PERSON: people("zoe")}, branch="side")
    for n in range(12, 24):
        append(s3_graph.uri, {PERSON: [f"p{n}"]}, storage=dict(s3_graph.storage))
    newest = graph.version
    slow = Place(s3_graph.uri, s3_server.storage_options(endpoint=proxy.endpoint))
    proxy.reset()
    report = cleanup_graph(authority(slow, ahead=WEEK), keep=3, dry_run=dry_run)
    assert report.versions_deleted > 50
    assert any("/_indices/" in row.path for row in report.rows)
    assert {row.branch for row in report.rows if row.kind == "version"} == {"main", "side"}
    reads = Counter(r.key for r in proxy.requests() if r.kind == "GET" and "/_versions/" in r.key)
    assert {key: count for key, count in reads.items() if count > 1} == {}
    versions = {f"pre/graph/{row.path}" for row in report.rows if row.kind == "version"}
    assert set(reads) >= versions  # the law is about them: none was read past the proxy
    others = [r for r in proxy.requests() if r.kind != "DELETE" and r.key not in reads]
    assert len(others) < 60, Counter(r.kind for r in others)
    assert graph.version == newest if dry_run else graph.version > newest  # the fence


def test_a_read_only_handle_cannot_clean(local_root: Place) -> None:
    """Maintenance is writing."""
    created(local_root)
    with pytest.raises(OptionError, match="read-only"):
        Graph.open(local_root.uri, read_only=True).cleanup(keep=1)
