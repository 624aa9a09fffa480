"""What a recovery did, twice: in its graph commit (so that it is never done again) and as a row for people to read.

The row goes to ``_graph_commit_recoveries.lance``. The commit is the authority: a recovery killed before the row was
written is recognised by ``recovery_of``, and only the row is added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from omnigraph_spark.errors import StorageError, StorageNotFoundError
from omnigraph_spark.manifest.layout import AUDIT_DIR
from omnigraph_spark.manifest.rows import CommitRow, optional_text
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.storage.lance_commit import append_operation, commit_operation, stage_rows
from omnigraph_spark.storage.lance_errors import LanceConflictError
from omnigraph_spark.storage.lance_io import LanceIO, ScanSpec, create_dataset
from omnigraph_spark.storage.locations import join
from omnigraph_spark.write.lineage import RECOVERY_KIND, RECOVERY_OF

_MOST_TRIES = 10

SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("recovery_kind", pa.string(), nullable=False),
        pa.field("recovery_for_actor", pa.string()),
        pa.field("operation_id", pa.string(), nullable=False),
        pa.field("sidecar_writer_kind", pa.string(), nullable=False),
        pa.field("per_table_outcomes_json", pa.string(), nullable=False),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """Where recovery found a table and where it left it."""

    table_key: str
    from_version: int
    to_version: int


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """One recovery action."""

    commit_id: str
    kind: str
    actor: str | None
    operation_id: str
    writer_kind: str
    outcomes: tuple[TableOutcome, ...]


def marked(commit: CommitRow, result: RecoveryResult) -> CommitRow:
    """Return a recovery's commit with what it did written into it."""
    extra = {
        **commit.extra,
        RECOVERY_OF: result.operation_id,
        RECOVERY_KIND: result.kind,
        "recovery_for_actor": result.actor,
        "recovery_writer_kind": result.writer_kind,
        "recovery_outcomes": _listed(result.outcomes),
    }
    return replace(commit, extra=extra)


def result_of(commit: CommitRow) -> RecoveryResult:
    """Read back what a recovery's commit says."""
    extra = commit.extra
    listed = extra.get("recovery_outcomes")
    items = listed if isinstance(listed, list) else []
    actor = extra.get("recovery_for_actor")
    return RecoveryResult(
        commit_id=commit.commit_id,
        kind=str(extra[RECOVERY_KIND]),
        actor=str(actor) if actor is not None else None,
        operation_id=str(extra[RECOVERY_OF]),
        writer_kind=str(extra.get("recovery_writer_kind", "Load")),
        outcomes=tuple(TableOutcome(o["table_key"], o["from_version"], o["to_version"]) for o in items),
    )


def read_audit(rows: Sequence[Mapping[str, object]]) -> list[RecoveryResult]:
    """Read audit rows back, oldest first."""
    found = sorted(rows, key=lambda row: str(row["created_at"]))
    return [
        RecoveryResult(
            commit_id=str(row["graph_commit_id"]),
            kind=str(row["recovery_kind"]),
            actor=optional_text(row["recovery_for_actor"]),
            operation_id=str(row["operation_id"]),
            writer_kind=str(row["sidecar_writer_kind"]),
            outcomes=tuple(TableOutcome(**o) for o in json.loads(str(row["per_table_outcomes_json"]))),
        )
        for row in found
    ]


def recovered_before(state: GraphState, operation_id: str) -> RecoveryResult | None:
    """Return what an earlier recovery of the same record did, or None."""
    if not state.recovered(operation_id):
        return None
    for commit in reversed(state.commits()):
        if commit.extra.get(RECOVERY_OF) == operation_id:
            return result_of(commit)
    return None


def record(io: LanceIO, root: str, result: RecoveryResult) -> None:
    """Append an audit row unless this operation already has one."""
    uri = join(root, AUDIT_DIR)
    for attempt in range(_MOST_TRIES):
        try:
            if _append(io, uri, result):
                return
        except LanceConflictError:
            # Recovery of another branch was faster; look again, so that no operation ever gets two rows.
            io.seams.wait(io.seams.jitter(attempt=attempt))
    raise StorageError(f"{uri} is too busy to record the recovery of {result.operation_id}", retryable=True)


def _append(io: LanceIO, uri: str, result: RecoveryResult) -> bool:
    rows = _rows(io, result.outcomes, result)
    try:
        dataset = io.open(uri, table=AUDIT_DIR)
    except StorageNotFoundError:
        try:
            create_dataset(io, rows, uri, table=AUDIT_DIR)
        except StorageError as e:
            if "already exists" not in e.message:
                raise
            return False
        return True
    wanted = result.operation_id.replace("'", "''")
    seen = io.read(dataset, ScanSpec(columns=("operation_id",), filter=f"operation_id = '{wanted}'"))
    if not seen.num_rows:
        staged = stage_rows(io, dataset, iter(rows.to_batches()), schema=SCHEMA)
        commit_operation(io, dataset, append_operation(staged), table=AUDIT_DIR, properties={})
    return True


def _rows(io: LanceIO, outcomes: Sequence[TableOutcome], result: RecoveryResult) -> pa.Table:
    row = {
        "graph_commit_id": result.commit_id,
        "recovery_kind": result.kind,
        "recovery_for_actor": result.actor,
        "operation_id": result.operation_id,
        "sidecar_writer_kind": result.writer_kind,
        "per_table_outcomes_json": json.dumps(_listed(outcomes), separators=(",", ":")),
        "created_at": io.seams.now_micros(),
    }
    return pa.Table.from_pylist([row], schema=SCHEMA)


def _listed(outcomes: Sequence[TableOutcome]) -> list[dict[str, object]]:
    return [{"table_key": o.table_key, "from_version": o.from_version, "to_version": o.to_version} for o in outcomes]
