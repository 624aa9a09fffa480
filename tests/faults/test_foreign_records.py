"""Records OmniGraph 0.8 left are resolved as OmniGraph would; and what OmniGraph does to ours is recognised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph_spark.errors import RecoveryError
from omnigraph_spark.storage.seams import Phase
from tests.faults.test_recovery_faults import audit_rows
from tests.places import Place, people
from tests.soundness import assert_sound
from tests.writer_process import authority_for, stage_plan

OPERATION = "01JZ0Q9Y7N4T1V8C2R5M6K3WXB"
PERSON, COMPANY = "node:Person", "node:Company"


@dataclass(frozen=True)
class Case:
    """A dead OmniGraph writer: how many commits it made per table, and what must come of it."""

    writer_kind: str
    commits: dict[str, int]
    expect: str
    generation: int = 2
    confirmed: bool = False


CASES = [
    Case("Load", {PERSON: 1, COMPANY: 1}, "RolledForward"),
    Case("Mutation", {PERSON: 1, COMPANY: 1}, "RolledForward"),
    Case("Load", {PERSON: 1, COMPANY: 0}, "RolledBack"),
    Case("Load", {PERSON: 2, COMPANY: 1}, "RolledBack"),
    Case("Mutation", {PERSON: 0, COMPANY: 0}, "RolledBack"),
    Case("Optimize", {PERSON: 2, COMPANY: 1}, "RolledForward"),
    Case("EnsureIndices", {PERSON: 3}, "RolledForward"),
    Case("Optimize", {PERSON: 2, COMPANY: 0}, "RolledBack"),
    Case("BranchMerge", {PERSON: 2}, "RolledForward", confirmed=True),
    Case("BranchMerge", {PERSON: 2}, "RolledBack"),
    Case("BranchMerge", {PERSON: 2}, "RolledForward", generation=1),
    Case("SchemaApply", {PERSON: 1}, "RolledBack"),
]


def record(place: Place, case: Case, *, branch: str | None = None) -> dict[str, Any]:
    """Return the document OmniGraph writes before its first commit."""
    pins = place.builder.snapshot()
    tables = []
    for key, count in case.commits.items():
        table: dict[str, Any] = {
            "table_key": key,
            "table_path": place.builder.uri(pins[key].path),
            "expected_version": pins[key].version,
            "post_commit_pin": pins[key].version + 1,
        }
        if case.confirmed:
            table["confirmed_version"] = pins[key].version + count
        tables.append(table)
    return {
        "schema_version": case.generation,
        "operation_id": OPERATION,
        "started_at": "1782900012345678",
        "branch": branch,
        "actor_id": "loader",
        "writer_kind": case.writer_kind,
        "tables": tables,
    }


def crash(place: Place, case: Case) -> None:
    """Do what a dead OmniGraph writer did: the record, then table commits, and no publish."""
    place.builder.write_sidecar(record(place, case))
    for key, count in case.commits.items():
        for n in range(count):
            uri = place.builder.uri(place.builder.snapshot()[key].path)
            schema = place.schema.table(key).schema
            rows = pa.Table.from_pylist([{"id": f"{key}{n}", "name": f"{key}{n}"}], schema=schema)
            lance.write_dataset(rows, uri, mode="append")


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.writer_kind}-{sum(c.commits.values())}-{c.expect}")
def test_a_record_is_resolved_by_its_kind(local_graph: Place, case: Case) -> None:
    """Strict, loose and confirmed records roll forward or back by their versions, all tables together."""
    crash(local_graph, case)
    (result,) = authority_for(local_graph.uri, grace=0.2).recover()
    assert (result.kind, result.actor, result.writer_kind) == (case.expect, "loader", case.writer_kind)
    graph = local_graph.open(read_only=True)
    for key, count in case.commits.items():
        rows = graph.to_arrow(key.partition(":")[2]).num_rows
        assert rows == (count if case.expect == "RolledForward" else 0)
    assert graph.head is not None
    assert graph.head.actor == "omnigraph:recovery"
    (row,) = audit_rows(local_graph.uri)
    assert (row.recovery_kind, row.actor, row.writer_kind) == (case.expect, "loader", case.writer_kind)
    assert {o["table_key"] for o in row.outcomes} == set(case.commits)
    assert_sound(local_graph)
    assert authority_for(local_graph.uri).recover() == []


def test_a_record_of_a_finished_publish_is_only_retired(local_graph: Place) -> None:
    """The publish had landed and only the file was left: a lineage commit, an audit row, no table moves."""
    document = record(local_graph, Case("Load", {PERSON: 1}, ""))
    local_graph.builder.publish({PERSON: people("a")})
    before = local_graph.builder.snapshot()
    local_graph.builder.write_sidecar(document)
    (result,) = authority_for(local_graph.uri, grace=0.2).recover()
    assert result.kind == "RolledForward"
    assert local_graph.builder.snapshot() == before
    assert_sound(local_graph)


def test_a_staged_schema_change_is_refused(local_graph: Place) -> None:
    """Schema files still staged: loud, the record kept, nothing moved, reads work."""
    crash(local_graph, Case("SchemaApply", {PERSON: 1}, ""))
    local_graph.builder.store.write("_schema.pg.staging", text="node Other { name: String @key }")
    authority = authority_for(local_graph.uri, grace=0.2)
    with pytest.raises(RecoveryError, match=r"_schema\.pg\.staging"):
        authority.recover()
    assert authority.sidecars.operation_ids() == [OPERATION]
    assert local_graph.open(read_only=True).to_arrow("Person").num_rows == 0


@pytest.mark.parametrize("damage", [{"tables": 3}, {"writer_kind": "Chisel"}, {"tables": [{"table_key": PERSON}]}])
def test_a_damaged_record_is_refused(local_graph: Place, damage: dict[str, object]) -> None:
    """A record that cannot be understood is named, kept, and nothing is done."""
    local_graph.builder.write_sidecar({**record(local_graph, Case("Load", {PERSON: 1}, "")), **damage})
    authority = authority_for(local_graph.uri, grace=0.2)
    before = local_graph.builder.snapshot()
    with pytest.raises(RecoveryError, match=OPERATION):
        authority.recover()
    assert authority.sidecars.operation_ids() == [OPERATION]
    assert local_graph.builder.snapshot() == before


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "omnigraph"])
def test_a_record_of_a_deleted_branch_is_discarded_once(local_graph: Place, *, ours: bool) -> None:
    """Discarded with an audit row and a commit on main; run twice = run once."""
    document = record(local_graph, Case("Load", {PERSON: 1}, ""), branch="gone")
    if ours:
        document["plan"] = {}
    local_graph.builder.write_sidecar(document)
    (result,) = authority_for(local_graph.uri, grace=0.2).recover()
    assert (result.kind, result.actor) == ("OrphanedBranchDiscarded", "loader")
    local_graph.builder.write_sidecar(document)
    (again,) = authority_for(local_graph.uri, grace=0.2).recover()
    assert again == result
    assert len(audit_rows(local_graph.uri)) == 1
    assert len([c for c in local_graph.open().history() if c.actor == "omnigraph:recovery"]) == 1
    assert_sound(local_graph)


def other_process(place: Place, act: Callable[[], None]) -> Callable[[Phase, str], None]:
    """Return a hook that acts once, when our writer is about to publish."""
    todo = [act]

    def hook(phase: Phase, _point: str) -> None:
        if phase is Phase.PUBLISH and todo:
            todo.pop()()

    return hook


def omnigraph_publishes(place: Place, *, restore: bool, keep_record: bool = False) -> None:
    """Do what an OmniGraph process does to a live record of ours: publish HEAD, or restore and publish that."""
    builder = place.builder
    moved = []
    for key in (COMPANY, PERSON):
        pin = builder.snapshot()[key]
        if restore:
            builder.open_pin(pin).restore()  # type: ignore[no-untyped-call]
        head = lance.dataset(builder.uri(pin.path))
        moved.append(builder._version_row(builder._moved(pin, dataset=head)))
    builder.publish_rows(moved, actor="omnigraph:recovery")
    if not keep_record:
        store = authority_for(place.uri).sidecars
        for operation_id in store.operation_ids():
            store.delete(operation_id)


@pytest.mark.parametrize("keep_record", [False, True])
def test_rolled_forward_by_omnigraph_is_committed(local_graph: Place, *, keep_record: bool) -> None:
    """OmniGraph publishes our effects under its own commit id: we report that commit and write nothing twice."""
    hook = other_process(local_graph, lambda: omnigraph_publishes(local_graph, restore=False, keep_record=keep_record))
    authority = authority_for(local_graph.uri, grace=0.5, hook=hook)
    commit = authority.publish(stage_plan(authority, {PERSON: ["a"], COMPANY: ["a"]}))
    graph = local_graph.open(read_only=True)
    assert graph.to_arrow("Person")["id"].to_pylist() == ["a"]
    assert commit.row.actor == "omnigraph:recovery"
    assert commit.row.commit_id in {c.id for c in graph.history()}
    assert_sound(local_graph)
    authority_for(local_graph.uri, grace=60.0, patience=2.0).publish(
        stage_plan(authority_for(local_graph.uri), {PERSON: ["b"]})
    )  # the window was left, nobody has to wait for a grace


def test_rolled_back_by_omnigraph_is_tried_again(local_graph: Place) -> None:
    """OmniGraph restores our effects: the write goes again under a new operation id and commits once."""
    hook = other_process(local_graph, lambda: omnigraph_publishes(local_graph, restore=True))
    authority = authority_for(local_graph.uri, grace=0.5, hook=hook)
    plan = stage_plan(authority, {PERSON: ["a"], COMPANY: ["a"]})
    commit = authority.publish(plan)
    assert (commit.row.commit_id, commit.attempts) == (plan.commit_id, 2)
    graph = local_graph.open(read_only=True)
    assert graph.to_arrow("Person")["id"].to_pylist() == graph.to_arrow("Company")["id"].to_pylist() == ["a"]
    assert_sound(local_graph)
