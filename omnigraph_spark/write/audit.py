"""``_graph_commit_recoveries.lance``: one row for each recovery action, for people to read afterwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph_spark.errors import StorageError, StorageNotFoundError
from omnigraph_spark.manifest.layout import AUDIT_DIR
from omnigraph_spark.storage.lance_commit import append_operation, commit_operation, stage_rows
from omnigraph_spark.storage.lance_io import LanceIO, ScanSpec, create_dataset
from omnigraph_spark.storage.locations import join

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


def record(io: LanceIO, root: str, result: RecoveryResult) -> None:
    """Append an audit row unless this operation already has one."""
    uri = join(root, AUDIT_DIR)
    try:
        dataset = io.open(uri, table=AUDIT_DIR)
    except StorageNotFoundError:
        dataset = None
    if dataset is not None:
        seen = io.read(dataset, ScanSpec(columns=("operation_id",), filter=f"operation_id = '{result.operation_id}'"))
        if seen.num_rows:
            return
    rows = _rows(io, result.outcomes, result)
    if dataset is None:
        try:
            create_dataset(io, rows, uri, table=AUDIT_DIR)
            return
        except StorageError as e:
            if "already exists" not in e.message:
                raise
            dataset = io.open(uri, table=AUDIT_DIR)
    staged = stage_rows(io, dataset, iter(rows.to_batches()), schema=SCHEMA)
    commit_operation(io, dataset, append_operation(staged), table=AUDIT_DIR, properties={})


def _rows(io: LanceIO, outcomes: Sequence[TableOutcome], result: RecoveryResult) -> pa.Table:
    listed = [{"table_key": o.table_key, "from_version": o.from_version, "to_version": o.to_version} for o in outcomes]
    row = {
        "graph_commit_id": result.commit_id,
        "recovery_kind": result.kind,
        "recovery_for_actor": result.actor,
        "operation_id": result.operation_id,
        "sidecar_writer_kind": result.writer_kind,
        "per_table_outcomes_json": json.dumps(listed, separators=(",", ":")),
        "created_at": io.seams.now_micros(),
    }
    return pa.Table.from_pylist([row], schema=SCHEMA)
