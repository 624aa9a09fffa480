"""The graph about itself: commits, branches, tables, files and recoveries as rows.

Rows are computed once, when the DataFrame is made, and travel with it; they are small (one row a commit, branch, table
or data file), and a DataFrame of them never changes under its reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from omnigraph_spark.errors import StorageNotFoundError
from omnigraph_spark.manifest.layout import AUDIT_DIR
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.read.snapshot import GraphReader, Moment, Snapshot
from omnigraph_spark.storage.lance_io import ScanSpec, fragment_infos
from omnigraph_spark.storage.locations import join
from omnigraph_spark.storage.parallel import run_parallel

# In the schema of every metadata table: the branch and graph version its moment resolved to.
BRANCH_KEY, VERSION_KEY = "omnigraph.branch", "omnigraph.graph_version"

_TIME = pa.timestamp("us", tz="UTC")

SCHEMAS: dict[str, pa.Schema] = {
    "commits": pa.schema(
        [
            pa.field("commit_id", pa.string()),
            pa.field("parent", pa.string()),
            pa.field("merged_parent", pa.string()),
            pa.field("branch", pa.string()),
            pa.field("graph_version", pa.int64()),
            pa.field("actor", pa.string()),
            pa.field("message", pa.string()),
            pa.field("created_at", _TIME),
            pa.field("details", pa.string()),
        ]
    ),
    "branches": pa.schema(
        [
            pa.field("name", pa.string()),
            pa.field("parent", pa.string()),
            pa.field("parent_version", pa.int64()),
            pa.field("graph_version", pa.int64()),
            pa.field("head", pa.string()),
        ]
    ),
    "tables": pa.schema(
        [
            pa.field("table_key", pa.string()),
            pa.field("kind", pa.string()),
            pa.field("type", pa.string()),
            pa.field("version", pa.int64()),
            pa.field("rows", pa.int64()),
            pa.field("branch", pa.string()),
            pa.field("path", pa.string()),
        ]
    ),
    "files": pa.schema(
        [
            pa.field("table_key", pa.string()),
            pa.field("fragment", pa.int64()),
            pa.field("file", pa.string()),
            pa.field("rows", pa.int64()),
            pa.field("deleted_rows", pa.int64()),
            pa.field("bytes", pa.int64()),
        ]
    ),
    "recoveries": pa.schema(
        [
            pa.field("graph_commit_id", pa.string()),
            pa.field("recovery_kind", pa.string()),
            pa.field("recovery_for_actor", pa.string()),
            pa.field("operation_id", pa.string()),
            pa.field("sidecar_writer_kind", pa.string()),
            pa.field("per_table_outcomes_json", pa.string()),
            pa.field("created_at", _TIME),
        ]
    ),
}


def metadata_rows(reader: GraphReader, moment: Moment, *, table: str) -> pa.Table:
    """Return a metadata table of the graph at a moment."""
    snapshot, state = reader.resolve(moment)
    build: dict[str, Callable[[], list[dict[str, object]]]] = {
        "commits": lambda: _commits(state),
        "branches": lambda: _branches(reader),
        "tables": lambda: _tables(snapshot),
        "files": lambda: _files(reader, snapshot),
        "recoveries": lambda: _recoveries(reader),
    }
    told = {BRANCH_KEY: state.branch, VERSION_KEY: str(snapshot.graph_version)}
    return pa.Table.from_pylist(build[table](), schema=SCHEMAS[table].with_metadata(told))


def _commits(state: GraphState) -> list[dict[str, object]]:
    return [
        {
            "commit_id": c.commit_id,
            "parent": c.parent,
            "merged_parent": c.merged_parent,
            "branch": c.branch,
            "graph_version": c.graph_version,
            "actor": c.actor,
            "message": c.extra.get("message"),
            "created_at": c.created_at,
            "details": json.dumps(dict(c.extra), ensure_ascii=False),
        }
        for c in state.commits()
    ]


def _branches(reader: GraphReader) -> list[dict[str, object]]:
    refs = reader.manifest.branches()
    opened = run_parallel([partial(_state_of, reader, ref.name) for ref in refs])
    return [
        {
            "name": ref.name,
            "parent": ref.parent,
            "parent_version": ref.parent_version,
            "graph_version": state.graph_version,
            "head": state.head.commit_id if state.head else None,
        }
        for ref, state in zip(refs, opened, strict=True)
    ]


def _state_of(reader: GraphReader, branch: str) -> GraphState:
    return reader.manifest.open(branch=branch).state


def _tables(snapshot: Snapshot) -> list[dict[str, object]]:
    return [
        {
            "table_key": e.table_key,
            "kind": e.kind,
            "type": e.type_name,
            "version": e.version,
            "rows": e.row_count,
            "branch": e.branch,
            "path": e.path,
        }
        for e in snapshot.tables.values()
    ]


def _files(reader: GraphReader, snapshot: Snapshot) -> list[dict[str, object]]:
    entries = list(snapshot.tables.values())
    opened = run_parallel([partial(reader.open_table, snapshot, entry) for entry in entries])
    return [
        {
            "table_key": entry.table_key,
            "fragment": info.fragment_id,
            "file": name,
            "rows": info.rows,
            "deleted_rows": info.deletions,
            "bytes": info.size,
        }
        for entry, dataset in zip(entries, opened, strict=True)
        for info in fragment_infos(dataset)
        for name in info.files
    ]


def _recoveries(reader: GraphReader) -> list[dict[str, object]]:
    try:
        dataset = reader.io.open(join(reader.root, AUDIT_DIR), table=AUDIT_DIR)
    except StorageNotFoundError:
        return []
    rows = reader.io.read(dataset, ScanSpec(columns=tuple(SCHEMAS["recoveries"].names)))
    listed: list[dict[str, object]] = rows.to_pylist()
    return listed
