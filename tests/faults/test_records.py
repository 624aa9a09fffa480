"""Records nobody can read, records of living writers, and when recovery runs by itself: at a read-write open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph_spark import Graph
from omnigraph_spark.errors import RecoveryError, StorageUnreachableError
from omnigraph_spark.storage.seams import Phase, Seams
from tests.places import Place, unchanged
from tests.soundness import assert_sound
from tests.writer_process import append, authority_for, stage_plan

PERSON = "node:Person"


class Death(BaseException):
    """Ends a writer in this process as a kill would: nothing of it runs afterwards."""


def die_at(place: Place, point: str, rows: dict[str, list[str]], *, grace: float = 60.0) -> str:
    """Leave what a writer leaves that is killed at a point; its storage ends at that moment. Returns its record."""
    dead: list[bool] = []

    def hook(phase: Phase, at: str) -> None:
        if f"{phase.value}:{at}" == point:
            dead.append(True)
            raise Death

    def fault(_operation: str, _target: str) -> None:
        if dead:
            raise StorageUnreachableError("dead")

    authority = authority_for(place.uri, storage=place.storage, seams=Seams(hook=hook, fault=fault), grace=grace)
    plan = stage_plan(authority, rows)
    before = set(authority.sidecars.operation_ids())
    with pytest.raises(Death):
        authority.publish(plan)
    (name,) = set(authority.sidecars.operation_ids()) - before
    return name


def bad_records(name: str) -> dict[str, str]:
    """Return the text of one bad record per kind."""
    good = {"schema_version": 2, "operation_id": name, "branch": None, "writer_kind": "Load", "tables": []}
    return {
        "corrupt": "{",
        "not-an-object": "[]",
        "newer": json.dumps({**good, "schema_version": 3}),
        "foreign-name": json.dumps({**good, "operation_id": "01SOMETHINGELSE"}),
        "damaged-plan": json.dumps({**good, "plan": {"pins": 3}}),
    }


@pytest.mark.parametrize("kind", list(bad_records("")))
def test_a_bad_record_is_loud_and_kept(local_graph: Place, kind: str) -> None:
    """Every recovery names the file and keeps it; reads work, writes work, and other branches open and write."""
    local_graph.builder.create_branch("dev")
    name = "01JZ0Q9Y7N4T1V8C2R5M6K3BAD"
    local_graph.builder.store.write(f"__recovery/{name}.json", text=bad_records(name)[kind])
    authority = authority_for(local_graph.uri, grace=0.2)
    with pytest.raises(RecoveryError, match=name):
        authority.recover()
    with pytest.raises(RecoveryError, match=name):
        local_graph.open(window_grace=0.2)
    assert local_graph.open(read_only=True).to_arrow("Person").num_rows == 0
    append(local_graph.uri, {PERSON: ["a"]})
    dev = local_graph.open(branch="dev", window_grace=0.2)
    assert dev.to_arrow("Person").num_rows == 0
    assert authority.sidecars.operation_ids() == [name]
    authority.sidecars.delete(name)
    assert_sound(local_graph)


def test_a_bad_record_does_not_hide_a_good_one(local_graph: Place) -> None:
    """The good records of the branch are resolved before the bad one is raised."""
    die_at(local_graph, "publish:enter", {PERSON: ["a"]})
    local_graph.builder.store.write("__recovery/00BAD.json", text="{")
    with pytest.raises(RecoveryError, match="00BAD"):
        authority_for(local_graph.uri, grace=0.2).recover()
    assert local_graph.open(read_only=True).to_arrow("Person")["id"].to_pylist() == ["a"]


def test_a_takeover_meets_the_bad_record_of_the_dead_owner(local_graph: Place) -> None:
    """The record of the owner that was taken over cannot be read: every write is refused until a person removed it."""
    name = die_at(local_graph, "publish:enter", {PERSON: ["a"]})
    authority = authority_for(local_graph.uri, grace=0.2)
    local_graph.builder.store.write(f"__recovery/{name}.json", text="{")
    for grace in (0.2, 60.0):  # the second finds the window free: the debt came with it, so it need not take over
        with pytest.raises(RecoveryError, match=name):
            append(local_graph.uri, {PERSON: ["b"]}, grace=grace, patience=5.0)
    assert local_graph.open(read_only=True).to_arrow("Person")["id"].to_pylist() == []
    authority.sidecars.delete(name)
    # The dead writer's unpublished version names an older epoch: it is undone, never published.
    append(local_graph.uri, {PERSON: ["c"]}, grace=60.0, patience=5.0)
    assert local_graph.open(read_only=True).to_arrow("Person")["id"].to_pylist() == ["c"]
    assert_sound(local_graph)


def test_a_takeover_leaves_writers_that_wait_alone(local_graph: Place) -> None:
    """Only the displaced owner's record is resolved: one that never claimed has no effects, and may be alive."""
    waiting = die_at(local_graph, "arm:armed", {PERSON: ["w"]})
    owner = die_at(local_graph, "publish:enter", {PERSON: ["a"]})
    authority = authority_for(local_graph.uri, grace=0.2)
    assert authority.sidecars.operation_ids() == sorted([waiting, owner])
    append(local_graph.uri, {PERSON: ["b"]}, grace=0.2)
    assert authority.sidecars.operation_ids() == [waiting]
    assert sorted(local_graph.open(read_only=True).to_arrow("Person")["id"].to_pylist()) == ["a", "b"]
    authority.recover()
    assert authority.sidecars.operation_ids() == []
    assert_sound(local_graph)


def test_a_debt_outlives_the_one_who_took_it_over(local_graph: Place) -> None:
    """A takeover dies before it resolved its predecessor: whoever comes next answers for both."""
    first = die_at(local_graph, "publish:enter", {PERSON: ["a"]})
    second = die_at(local_graph, "arm:claimed", {PERSON: ["b"]}, grace=0.2)
    authority = authority_for(local_graph.uri, grace=0.2)
    epoch = authority.reader.manifest.open(branch="main").state.epoch
    assert epoch is not None
    assert (epoch.operation_id, epoch.owed) == (second, (first,))
    append(local_graph.uri, {PERSON: ["c"]}, grace=0.2)
    assert authority.sidecars.operation_ids() == []
    assert sorted(local_graph.open(read_only=True).to_arrow("Person")["id"].to_pylist()) == ["a", "c"]
    assert_sound(local_graph)


@pytest.mark.parametrize("point", ["arm:armed", "effect:enter", "publish:enter", "retire:enter"])
def test_a_read_write_open_recovers(any_graph: Place, point: str) -> None:
    """What a dead writer left is finished or undone at the next read-write open, whatever branch is opened."""
    authority = authority_for(any_graph.uri, storage=any_graph.storage)
    name = die_at(any_graph, point, {PERSON: ["a"]})
    assert authority.sidecars.operation_ids() == [name]
    any_graph.builder.create_branch("dev")
    any_graph.open(branch="dev", window_grace=0.3)
    assert authority.sidecars.operation_ids() == []
    rows = any_graph.open(read_only=True).to_arrow("Person")["id"].to_pylist()
    assert rows == (["a"] if point in {"publish:enter", "retire:enter"} else [])
    assert_sound(any_graph)


def test_a_read_only_open_never_recovers(local_graph: Place) -> None:
    """Not one byte changes."""
    die_at(local_graph, "publish:enter", {PERSON: ["a"]})
    check = unchanged(local_graph.uri)
    graph = local_graph.open(read_only=True)
    assert graph.to_arrow("Person").num_rows == 0
    check()


def test_an_open_waits_for_living_writers(local_graph: Place) -> None:
    """A record that goes away by itself within the grace is its writer's own business: no epoch is spent on it."""
    authority = authority_for(local_graph.uri)
    plan = stage_plan(authority, {PERSON: ["a"]}).attempt("01LIVING")
    authority.sidecars.put(plan)
    looks: list[float] = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            authority.sidecars.delete("01LIVING")

    opener = authority_for(local_graph.uri, seams=Seams(wait=wait), grace=30.0)
    assert opener.recover_at_open(branch="main") == []
    assert len(looks) == 3
    assert opener.open_txn(branch="main").epoch == 0


def test_an_open_lists_once_and_a_write_never(local_graph: Place) -> None:
    """INV-11: one listing at a read-write open, none in steady state."""
    opener = authority_for(local_graph.uri)
    opener.recover_at_open(branch="main")
    assert opener.reader.io.counter.objects == {"recovery.list": 1}
    writer = authority_for(local_graph.uri)
    writer.publish(stage_plan(writer, {PERSON: ["a"]}))
    assert writer.reader.io.counter.objects["recovery.list"] == 0
    assert writer.reader.io.counter.objects["recovery.get"] == 0


def test_each_branch_is_recovered_under_its_own_window(tmp_path: Path) -> None:
    """Records of two branches: each is resolved on its branch, and the other branch's epoch does not move for it."""
    place = Place(str(tmp_path / "g")).built()
    place.builder.create_branch("dev")
    authority = authority_for(place.uri, grace=0.2)
    for branch in ("main", "dev"):
        record = {"schema_version": 2, "operation_id": f"01{branch}", "branch": None if branch == "main" else branch}
        place.builder.write_sidecar({**record, "writer_kind": "Load", "tables": [], "actor_id": branch})
    results = authority.recover()
    assert [(r.operation_id, r.kind) for r in results] == [("01dev", "RolledForward"), ("01main", "RolledForward")]
    assert authority_for(place.uri).open_txn(branch="main").epoch == 1
    assert authority_for(place.uri).open_txn(branch="dev").epoch == 1
    assert [c.actor for c in Graph.open(place.uri, branch="dev").history()].count("omnigraph:recovery") == 1
    assert_sound(place)


def test_an_open_among_writers_at_work_leaves_their_records_alone(local_graph: Place) -> None:
    """While others go in and out of the window, a record may be a living writer's that waits: no open undoes it."""
    waiting = die_at(local_graph, "arm:armed", {PERSON: ["w"]})
    authority = authority_for(local_graph.uri)
    looks = 0

    def wait(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        append(local_graph.uri, {PERSON: [f"busy{looks}"]})

    opening = authority_for(local_graph.uri, seams=Seams(wait=wait), grace=60.0)
    assert opening.recover_at_open(branch="main") == []
    assert looks == 1
    assert authority.sidecars.operation_ids() == [waiting]
    authority.recover()
    assert_sound(local_graph)
