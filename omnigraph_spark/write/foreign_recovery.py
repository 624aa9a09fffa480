"""Acting on a record of OmniGraph 0.8 under our window: the same Restore, publish and audit row as for our own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from omnigraph_spark.errors import RecoveryError
from omnigraph_spark.manifest.rows import CommitRow
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.storage.parallel import run_parallel
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write.audit import RecoveryResult, TableOutcome, marked, recovered_before
from omnigraph_spark.write.effect import MovedTable, TableHead, live_count
from omnigraph_spark.write.foreign import STAGING_FILES, Decision, ForeignRecord, ForeignTable, decide, survey
from omnigraph_spark.write.lineage import publish_rows

if TYPE_CHECKING:
    from omnigraph_spark.write.recover import Recovery


def resolve_foreign(recovery: Recovery, record: ForeignRecord, state: GraphState) -> RecoveryResult:
    """Roll a record of OmniGraph's forward or back, as OmniGraph itself would at its next open."""
    done = recovered_before(state, record.operation_id)
    if done is not None:
        return done
    if record.writer_kind == "SchemaApply":
        _refuse_staged_schema(recovery, record)
    jobs = [partial(survey, recovery.io, recovery.store.root, pin, state) for pin in record.pins]
    tables = run_parallel(jobs, counter=recovery.io.counter)
    decision = decide(record, tables)
    if decision is Decision.BACK:
        return _roll_back(recovery, record, tables, state)
    moved = [_at_head(t) for t in tables] if decision is Decision.FORWARD else []
    commit = recovery.commit_on(state, moved, merged=record.merged_parent if moved else None)
    outcomes = [TableOutcome(t.pin.table_key, t.pin.expected, t.head) for t in tables]
    return _land(recovery, record, state, moved=moved, commit=_marked(commit, record, "RolledForward", outcomes))


def _refuse_staged_schema(recovery: Recovery, record: ForeignRecord) -> None:
    staged = [name for name in recovery.sidecars.root_files() if name in STAGING_FILES]
    if staged:
        raise RecoveryError(
            f"The recovery record {record.uri} belongs to a schema change whose files are still staged: "
            + ", ".join(staged),
            hint="Open the graph once with OmniGraph 0.8, which finishes or undoes the schema change.",
        )


def _roll_back(
    recovery: Recovery, record: ForeignRecord, tables: Sequence[ForeignTable], state: GraphState
) -> RecoveryResult:
    targets = [(t.target(), _head_of(t)) for t in tables if _restorable(t)]
    restored = recovery.restore([(pin, head) for pin, head in targets if head is not None], record=record.operation_id)
    recovery.io.seams.hook(Phase.RECOVER, "restored")
    outcomes = [TableOutcome(t.pin.table_key, t.head, t.published) for t in tables]
    commit = _marked(recovery.commit_on(state, restored), record, "RolledBack", outcomes)
    return _land(recovery, record, state, moved=restored, commit=commit)


def _restorable(table: ForeignTable) -> bool:
    """A fork the graph does not use yet is left alone unless something landed on it."""
    return table.entry is not None and (table.moved or table.entry.branch == table.pin.branch)


def _head_of(table: ForeignTable) -> TableHead | None:
    return TableHead(table.target(), table.dataset, ()) if table.dataset is not None else None


def _at_head(table: ForeignTable) -> MovedTable:
    pin = table.target()
    if table.dataset is None:
        raise RecoveryError(f"{pin.table_key} is gone")
    return MovedTable(pin.table_key, pin.path, pin.branch, table.head, live_count(table.dataset))


def _marked(commit: CommitRow, record: ForeignRecord, kind: str, outcomes: Sequence[TableOutcome]) -> CommitRow:
    result = RecoveryResult(
        commit_id=commit.commit_id,
        kind=kind,
        actor=record.actor,
        operation_id=record.operation_id,
        writer_kind=record.writer_kind,
        outcomes=tuple(outcomes),
    )
    return marked(commit, result)


def _land(
    recovery: Recovery, record: ForeignRecord, state: GraphState, *, moved: Sequence[MovedTable], commit: CommitRow
) -> RecoveryResult:
    recovery.io.seams.hook(Phase.RECOVER, f"resolving:{record.operation_id}")
    rows = publish_rows(recovery.store.root, state, commit, moved=moved, epoch=recovery.window.epoch)
    return recovery.land(commit, rows)
