"""Row kinds of ``__manifest`` and their encoding: the on-disk contract.

Values here are built by publish and create, and decoded by the fold. JSON is compact with OmniGraph's key order;
optional keys are omitted, never null. Kinds we do not know are skipped by readers, so both sides may add their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph_spark.errors import FormatError
from omnigraph_spark.manifest.layout import MAIN, Layout

TABLE = "table"
TABLE_VERSION = "table_version"
TABLE_TOMBSTONE = "table_tombstone"
GRAPH_COMMIT = "graph_commit"
GRAPH_HEAD = "graph_head"
WRITER_EPOCH = "writer_epoch"
STREAM_TXN = "stream_txn"


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One row, before it becomes Arrow."""

    object_id: str
    object_type: str
    location: str | None = None
    metadata: str | None = None
    table_key: str = ""
    table_version: int | None = None
    table_branch: str | None = None
    row_count: int | None = None


@dataclass(frozen=True, slots=True)
class CommitRow:
    """A graph commit as recorded in the manifest."""

    commit_id: str
    branch: str
    graph_version: int
    created_at: int
    parent: str | None = None
    merged_parent: str | None = None
    actor: str | None = None
    extra: Mapping[str, object] = field(default_factory=dict)

    def order(self) -> tuple[int, int, str]:
        """Return the tuple whose maximum is the head of a branch."""
        return (self.graph_version, self.created_at, self.commit_id)


@dataclass(frozen=True, slots=True)
class EpochRow:
    """Who is, or was last, in the write window of a branch."""

    branch: str
    number: int
    operation_id: str
    in_window: bool
    claimed_at: int
    actor: str | None = None
    owed: tuple[str, ...] = ()  # displaced owners whose records nobody has resolved yet


@dataclass(frozen=True, slots=True)
class TokenRow:
    """The last transaction version an application applied on a branch."""

    branch: str
    app_id: str
    txn_version: int
    commit_id: str


def compact(value: Mapping[str, object]) -> str:
    """Render JSON as OmniGraph does: no spaces, insertion order, raw UTF-8, no absent keys."""
    present = {k: v for k, v in value.items() if v is not None}
    return json.dumps(present, ensure_ascii=False, separators=(",", ":"))


def stored_branch(branch: str) -> str | None:
    """Return a branch as columns hold it: main is null."""
    return None if branch == MAIN else branch


def table_row(layout: Layout, table_key: str) -> ManifestRow:
    """Register a table."""
    return ManifestRow(layout.table_id(table_key), TABLE, location=layout.table_path(table_key), table_key=table_key)


def version_row(
    layout: Layout, table_key: str, *, version: int, rows: int, branch: str | None, manifest_path: str
) -> ManifestRow:
    """Publish a table version."""
    # All four keys are written, null when unknown: the one JSON of the format that spells nulls out.
    details = {"manifest_path": manifest_path, "manifest_size": None, "e_tag": None, "naming_scheme": "V2"}
    return ManifestRow(
        layout.version_id(table_key, version),
        TABLE_VERSION,
        metadata=json.dumps(details, separators=(",", ":")),
        table_key=table_key,
        table_version=version,
        table_branch=branch,
        row_count=rows,
    )


def commit_rows(commit: CommitRow) -> list[ManifestRow]:
    """Return the two lineage rows of a graph commit: the commit and its branch's head."""
    details: dict[str, object] = {
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "actor_id": commit.actor,
        "created_at": commit.created_at,
        **commit.extra,
    }
    row = ManifestRow(
        commit.commit_id,
        GRAPH_COMMIT,
        metadata=compact(details),
        table_version=commit.graph_version,
        table_branch=stored_branch(commit.branch),
    )
    return [row, head_row(commit.branch, head=commit.commit_id, parent=commit.parent)]


def head_row(branch: str, *, head: str, parent: str | None) -> ManifestRow:
    """Return the contention row every publish of a branch rewrites."""
    details = {"head_commit_id": head, "parent_commit_id": parent}
    return ManifestRow(f"graph_head:{branch}", GRAPH_HEAD, metadata=compact(details))


def epoch_row(epoch: EpochRow) -> ManifestRow:
    """Return the window row of a branch."""
    details = {
        "operation_id": epoch.operation_id,
        "in_window": epoch.in_window,
        "actor": epoch.actor,
        "claimed_at": epoch.claimed_at,
        "owed": list(epoch.owed) or None,
    }
    return ManifestRow(
        f"writer_epoch:{epoch.branch}", WRITER_EPOCH, metadata=compact(details), table_version=epoch.number
    )


def token_row(token: TokenRow) -> ManifestRow:
    """Return the idempotency row of an application on a branch."""
    return ManifestRow(
        f"stream_txn:{token.branch}:{token.app_id}",
        STREAM_TXN,
        metadata=compact({"commit_id": token.commit_id}),
        table_version=token.txn_version,
    )


def rows_to_arrow(layout: Layout, rows: Iterable[ManifestRow]) -> pa.Table:
    """Encode rows with the full column set, as the row-level CAS requires."""
    listed = list(rows)
    schema = layout.arrow_schema()
    columns = []
    for f in schema:
        values = [None if f.name == "base_objects" else getattr(row, f.name) for row in listed]
        columns.append(pa.array(values, type=f.type))
    return pa.Table.from_arrays(columns, schema=schema)


def load_json(text: str | None, *, object_id: str) -> dict[str, object]:
    """Decode a row's metadata, naming the row when it is damaged."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError) as e:
        raise FormatError(f"Manifest row {object_id!r} holds malformed metadata") from e
    if not isinstance(value, dict):
        raise FormatError(f"Manifest row {object_id!r} holds malformed metadata")
    return value


def optional_text(value: object) -> str | None:
    """Return text, or None for anything else."""
    return value if isinstance(value, str) else None


_COMMIT_KEYS = {"parent_commit_id", "merged_parent_commit_id", "actor_id", "created_at"}


def decode_commit(row: ManifestRow) -> CommitRow:
    """Decode a ``graph_commit`` row."""
    details = load_json(row.metadata, object_id=row.object_id)
    created = details.get("created_at")
    if not isinstance(created, int) or row.table_version is None:
        raise FormatError(f"Graph commit {row.object_id!r} lacks its time or version")
    return CommitRow(
        commit_id=row.object_id,
        branch=row.table_branch or MAIN,
        graph_version=row.table_version,
        created_at=created,
        parent=optional_text(details.get("parent_commit_id")),
        merged_parent=optional_text(details.get("merged_parent_commit_id")),
        actor=optional_text(details.get("actor_id")),
        extra={k: v for k, v in details.items() if k not in _COMMIT_KEYS},
    )


def decode_epoch(row: ManifestRow) -> EpochRow:
    """Decode a ``writer_epoch`` row."""
    details = load_json(row.metadata, object_id=row.object_id)
    claimed, owed = details.get("claimed_at"), details.get("owed")
    return EpochRow(
        branch=row.object_id.removeprefix("writer_epoch:"),
        number=row.table_version or 0,
        operation_id=str(details.get("operation_id", "")),
        in_window=details.get("in_window") is True,
        claimed_at=claimed if isinstance(claimed, int) else 0,
        actor=optional_text(details.get("actor")),
        owed=tuple(str(i) for i in owed) if isinstance(owed, list) else (),
    )


def decode_token(row: ManifestRow, *, branch: str) -> TokenRow:
    """Decode a ``stream_txn`` row."""
    details = load_json(row.metadata, object_id=row.object_id)
    return TokenRow(
        branch=branch,
        app_id=row.object_id.removeprefix(f"stream_txn:{branch}:"),
        txn_version=row.table_version or 0,
        commit_id=str(details.get("commit_id", "")),
    )
