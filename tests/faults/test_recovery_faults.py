"""Recovery is killed at each of its own steps, or runs twice at once: run again, it ends where one clean run would."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from omnigraph_spark import Graph
from omnigraph_spark.errors import RecoveryError
from omnigraph_spark.storage.seams import Phase
from tests.faults.test_kill_writer import THREE, ids
from tests.soundness import assert_sound
from tests.writer_process import SCHEMA, append, authority_for, start

# Where the writer dies decides what recovery has to do: one table at least has not landed, or all have.
BACK, FORWARD = "effect:before:node:Person", "publish:enter"
STEPS = [
    (BACK, "arm:claimed"),
    (BACK, "recover:begin"),
    (BACK, "recover:restored:node:Company"),
    (BACK, "recover:restored"),
    (BACK, "recover:published"),
    (BACK, "recover:decided"),
    (BACK, "recover:audited"),
    (FORWARD, "recover:begin"),
    (FORWARD, "recover:published"),
    (FORWARD, "recover:audited"),
]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A fresh graph of three node types."""
    uri = str(tmp_path / "g")
    Graph.create(uri, schema=SCHEMA)
    return uri


class AuditRow:
    """One row of the audit table, by attribute."""

    def __init__(self, row: dict[str, object]) -> None:
        self.recovery_kind = str(row["recovery_kind"])
        self.writer_kind = str(row["sidecar_writer_kind"])
        self.actor = row["recovery_for_actor"]
        self.operation_id = str(row["operation_id"])
        self.outcomes = json.loads(str(row["per_table_outcomes_json"]))


def audit_rows(root: str, storage: dict[str, str] | None = None) -> list[AuditRow]:
    """Return every audit row of a graph."""
    authority = authority_for(root, storage=storage)
    dataset = authority.reader.io.open(f"{root}/_graph_commit_recoveries.lance", table="audit")
    return [AuditRow(row) for row in dataset.to_table().to_pylist()]


@pytest.mark.parametrize(("writer", "step"), STEPS)
def test_killed_recovery_is_finished_by_the_next(root: str, writer: str, step: str) -> None:
    """Recovery killed at any step and run again leaves one result, one audit row and no record."""
    dead = start(root, {"writes": [THREE], "die": writer})
    dead.communicate(timeout=60)
    recoverer = start(root, {"recover": True, "die": step, "grace": 0.2})
    recoverer.communicate(timeout=60)
    assert recoverer.returncode == -signal.SIGKILL
    authority_for(root, grace=0.2).recover()
    survived = ids(root, "Person") == ["dead"]
    assert survived or writer == BACK
    assert (ids(root, "City") == ["dead"]) == (ids(root, "Company") == ["dead"]) == survived
    kinds = {r.recovery_kind for r in audit_rows(root) if r.operation_id and r.outcomes}
    assert kinds == ({"RolledForward"} if survived else {"RolledBack"})
    assert len({r.operation_id for r in audit_rows(root)}) == len(audit_rows(root))
    assert_sound(root)
    assert authority_for(root, grace=0.2).recover() == []


def test_two_recoverers_at_once(root: str) -> None:
    """Two processes recover the same record at once: one does it, both succeed, one audit row."""
    start(root, {"writes": [THREE], "die": BACK}).communicate(timeout=60)
    pair = [start(root, {"recover": True, "grace": 0.3}) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in pair]
    assert all(process.returncode == 0 for process in pair), outputs
    assert [r["kind"] for out in outputs for r in json.loads(out)].count("RolledBack") >= 1
    assert_sound(root)
    assert len({r.operation_id for r in audit_rows(root)}) == len(audit_rows(root))


def test_a_stopped_recoverer_changes_nothing_when_it_wakes(root: str) -> None:
    """A recoverer fenced between its Restores and its publish: its residue is undone and never published."""
    start(root, {"writes": [THREE], "die": BACK}).communicate(timeout=60)
    paused = start(root, {"recover": True, "stop": "recover:restored", "grace": 0.2})
    os.waitpid(paused.pid, os.WUNTRACED)
    append(root, {"node:Person": ["next"]}, grace=0.2)
    paused.send_signal(signal.SIGCONT)
    paused.communicate(timeout=60)
    append(root, {"node:City": ["next"], "node:Company": ["next"]}, grace=0.2)
    assert ids(root, "Person") == ids(root, "City") == ids(root, "Company") == ["next"]
    authority_for(root, grace=0.2).recover()
    assert_sound(root)


def test_versions_outside_the_protocol_are_not_guessed(root: str) -> None:
    """A record on a table somebody wrote to without the protocol is kept, loudly: neither side's rows are undone."""
    start(root, {"writes": [THREE], "die": BACK}).communicate(timeout=60)
    authority = authority_for(root, grace=0.2)
    entry = authority.open_txn(branch="main").entry("node:City")
    dataset = authority.reader.io.open(f"{root}/{entry.path}", table="node:City")
    dataset.delete("id = 'nobody'")
    with pytest.raises(RecoveryError, match="no writer of this protocol"):
        authority.recover()
    assert len(authority.sidecars.operation_ids()) == 1
    assert ids(root, "City") == []


def test_recovery_hook_points_are_the_ones_tested(root: str) -> None:
    """The list above names real points: a plain recovery passes through all of them."""
    start(root, {"writes": [THREE], "die": BACK}).communicate(timeout=60)
    seen: list[str] = []

    def hook(phase: Phase, point: str) -> None:
        seen.append(f"{phase.value}:{point}")

    authority_for(root, grace=0.2, hook=hook).recover()
    for writer, step in STEPS:
        assert writer == FORWARD or any(s.startswith(step) for s in seen), step
