"""The fold: rows of one ``__manifest`` version become the state of the graph.

Per table the greatest published version wins and a tombstone at or above it hides the table; the branch column plays no
part in that choice. Work is vectorised and lineage is decoded only when asked for, so a fold over a long history costs
a scan, not a parse. Unknown row kinds are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.errors import FormatError
from omnigraph_spark.manifest import rows as kinds
from omnigraph_spark.manifest.layout import Layout
from omnigraph_spark.manifest.rows import CommitRow, EpochRow, ManifestRow, TokenRow


@dataclass(frozen=True, slots=True)
class TableEntry:
    """Where a visible table is and which version of it belongs to the graph."""

    table_key: str
    path: str
    version: int
    branch: str | None
    row_count: int
    e_tag: str | None = None

    @property
    def kind(self) -> str:
        """``node`` or ``edge``."""
        return self.table_key.partition(":")[0]

    @property
    def type_name(self) -> str:
        """The bare type name."""
        return self.table_key.partition(":")[2]


@dataclass(frozen=True, slots=True)
class GraphState:
    """One folded manifest version of one branch."""

    layout: Layout
    branch: str
    graph_version: int
    tables: Mapping[str, TableEntry]
    registered: Mapping[str, str]
    tombstones: Mapping[str, int]
    head: CommitRow | None
    epoch: EpochRow | None
    rows: pa.Table = field(repr=False)

    def commits(self) -> list[CommitRow]:
        """Decode every visible commit, oldest first."""
        found = [kinds.decode_commit(r) for r in _of_kind(self.rows, kinds.GRAPH_COMMIT)]
        return sorted(found, key=CommitRow.order)

    def commit(self, commit_id: str) -> CommitRow | None:
        """Look one commit up by id."""
        matches = self.rows.filter(pc.equal(self.rows["object_id"], commit_id))
        for row in _of_kind(matches, kinds.GRAPH_COMMIT):
            return kinds.decode_commit(row)
        return None

    def recovered(self, operation_id: str) -> bool:
        """Say whether some recovery has resolved an operation's record."""
        return bool(pc.any(pc.match_substring(self.rows["metadata"], f'"recovery_of":"{operation_id}"')).as_py())

    def token(self, app_id: str) -> TokenRow | None:
        """Look up what an application last applied on this branch."""
        matches = self.rows.filter(pc.equal(self.rows["object_id"], f"stream_txn:{self.branch}:{app_id}"))
        for row in _of_kind(matches, kinds.STREAM_TXN):
            return kinds.decode_token(row, branch=self.branch)
        return None

    def published_versions(self, table_key: str) -> set[int]:
        """Return every version of a table that any visible row publishes."""
        mask = pc.and_(
            pc.equal(self.rows["object_type"], kinds.TABLE_VERSION),
            pc.equal(self.rows["table_key"], table_key),
        )
        return {int(v) for v in self.rows.filter(mask)["table_version"].to_pylist() if v is not None}


def fold(rows: pa.Table, *, layout: Layout, branch: str, graph_version: int) -> GraphState:
    """Fold all rows of one manifest version."""
    registered: dict[str, str] = {}
    for row in _of_kind(rows, kinds.TABLE):
        if row.location is None:
            raise FormatError(f"Manifest row {row.object_id!r} registers a table without a location")
        registered[row.table_key] = row.location
    tombstones: dict[str, int] = {}
    for row in _greatest(rows, kinds.TABLE_TOMBSTONE):
        tombstones[row.table_key] = _version(row)
    tables: dict[str, TableEntry] = {}
    for row in _greatest(rows, kinds.TABLE_VERSION):
        entry = _entry(row, registered)
        if tombstones.get(entry.table_key, -1) < entry.version:
            tables[entry.table_key] = entry
    return GraphState(
        layout=layout,
        branch=branch,
        graph_version=graph_version,
        tables=dict(sorted(tables.items())),
        registered=registered,
        tombstones=tombstones,
        head=_head(rows),
        epoch=_epoch(rows, branch),
        rows=rows,
    )


def _entry(row: ManifestRow, registered: Mapping[str, str]) -> TableEntry:
    path = registered.get(row.table_key)
    if path is None:
        raise FormatError(f"Manifest row {row.object_id!r} publishes a table that was never registered")
    if row.row_count is None or row.metadata is None:
        raise FormatError(f"Manifest row {row.object_id!r} lacks its row count or metadata")
    details = kinds.load_json(row.metadata, object_id=row.object_id)
    return TableEntry(
        table_key=row.table_key,
        path=path,
        version=_version(row),
        branch=row.table_branch,
        row_count=row.row_count,
        e_tag=kinds.optional_text(details.get("e_tag")),
    )


def _version(row: ManifestRow) -> int:
    if row.table_version is None:
        raise FormatError(f"Manifest row {row.object_id!r} lacks its version")
    return row.table_version


def _head(rows: pa.Table) -> CommitRow | None:
    commits = rows.filter(pc.equal(rows["object_type"], kinds.GRAPH_COMMIT))
    if commits.num_rows == 0:
        return None
    newest = commits.filter(pc.equal(commits["table_version"], pc.max(commits["table_version"])))
    return max((kinds.decode_commit(r) for r in _rows(newest)), key=CommitRow.order, default=None)


def _epoch(rows: pa.Table, branch: str) -> EpochRow | None:
    matches = rows.filter(pc.equal(rows["object_id"], f"writer_epoch:{branch}"))
    for row in _of_kind(matches, kinds.WRITER_EPOCH):
        return kinds.decode_epoch(row)
    return None


def _of_kind(rows: pa.Table, kind: str) -> Iterator[ManifestRow]:
    return _rows(rows.filter(pc.equal(rows["object_type"], kind)))


def _greatest(rows: pa.Table, kind: str) -> Iterator[ManifestRow]:
    """Yield, per table key, the row of a kind with the greatest version."""
    chosen = rows.filter(pc.equal(rows["object_type"], kind))
    if chosen.num_rows == 0:
        return
    if chosen["table_version"].null_count:
        raise FormatError(f"A {kind} row of the manifest lacks its version")
    newest = chosen.group_by("table_key").aggregate([("table_version", "max")])
    wanted = dict(zip(newest["table_key"].to_pylist(), newest["table_version_max"].to_pylist(), strict=True))
    limits = pa.array([wanted[k] for k in chosen["table_key"].to_pylist()], type=pa.uint64())
    yield from _rows(chosen.filter(pc.equal(chosen["table_version"], limits)))


def _rows(rows: pa.Table) -> Iterator[ManifestRow]:
    names = [f.name for f in rows.schema if f.name != "base_objects"]
    for values in rows.select(names).to_pylist():
        yield ManifestRow(**values)
