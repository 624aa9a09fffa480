"""Names and manifest rows of format v4, written from its description and from nothing else.

The package under test has its own code for all of this; the two must agree without sharing any.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from ulid import ULID

STAMP_KEY = "omnigraph:internal_schema_version"
STAMP = 4
CONFIG: dict[str, str | None] = {"table_version_management": "true"}

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1

Row = dict[str, Any]

MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.string(), False, {"lance-schema:unenforced-primary-key": "true"}),
        pa.field("object_type", pa.string(), False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("item", pa.string()))),
        pa.field("table_key", pa.string(), False),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.string()),
        pa.field("row_count", pa.uint64()),
    ]
)


@dataclass(frozen=True)
class Pin:
    """A table as one graph version sees it; branch None is main."""

    table_key: str
    path: str
    version: int
    branch: str | None
    row_count: int


@dataclass(frozen=True)
class Lineage:
    """What the two lineage rows of a commit say."""

    commit_id: str
    manifest_version: int
    created_at: int
    branch: str | None = None
    parent: str | None = None
    merged_parent: str | None = None
    actor: str | None = None


def type_hash(name: str) -> str:
    """Return the directory name of a type: FNV-1a, 64 bits, 16 hex digits."""
    value = _FNV_OFFSET
    for byte in name.encode():
        value = ((value ^ byte) * _FNV_PRIME) & _MASK
    return f"{value:016x}"


def table_path(table_key: str) -> str:
    """Return a table's directory relative to the root."""
    kind, _, name = table_key.partition(":")
    return f"{kind}s/{type_hash(name)}"


def tree_path(path: str, *, branch: str | None) -> str:
    """Return where a dataset's branch lives; main is the dataset itself."""
    return path if branch is None else f"{path}/tree/{branch}"


def manifest_file(path: str, *, version: int) -> str:
    """Return the path of the Lance manifest of one version of the dataset at `path`."""
    return f"{path}/_versions/{_MASK - version:020d}.manifest"


def new_id() -> str:
    """Return a new ULID."""
    return str(ULID())


def now_micros() -> int:
    """Return the wall clock in microseconds."""
    return time.time_ns() // 1000


def manifest_row(object_id: str, *, object_type: str, **columns: Any) -> Row:
    """Return a row with every column, null or empty unless given."""
    row: Row = dict.fromkeys(MANIFEST_SCHEMA.names)
    return row | {"object_id": object_id, "object_type": object_type, "table_key": ""} | columns


def table_row(table_key: str) -> Row:
    """Return the row that registers a table."""
    location = table_path(table_key)
    return manifest_row(table_key, object_type="table", location=location, table_key=table_key)


def table_version_row(pin: Pin, *, metadata: Mapping[str, Any]) -> Row:
    """Return the row that publishes a version of a table."""
    return manifest_row(
        f"{pin.table_key}${pin.version:020d}",
        object_type="table_version",
        metadata=_compact(metadata),
        table_key=pin.table_key,
        table_version=pin.version,
        table_branch=pin.branch,
        row_count=pin.row_count,
    )


def tombstone_row(table_key: str, *, version: int) -> Row:
    """Return the row that drops a table at and below a version."""
    return manifest_row(
        f"{table_key}$tombstone${version:020d}",
        object_type="table_tombstone",
        table_key=table_key,
        table_version=version,
    )


def lineage_rows(lineage: Lineage) -> list[Row]:
    """Return the commit's row and its branch's head row."""
    commit = {
        "parent_commit_id": lineage.parent,
        "merged_parent_commit_id": lineage.merged_parent,
        "actor_id": lineage.actor,
        "created_at": lineage.created_at,
    }
    head = {"head_commit_id": lineage.commit_id, "parent_commit_id": lineage.parent}
    return [
        manifest_row(
            lineage.commit_id,
            object_type="graph_commit",
            metadata=_compact(_present(commit)),
            table_version=lineage.manifest_version,
            table_branch=lineage.branch,
        ),
        manifest_row(
            f"graph_head:{lineage.branch or 'main'}",
            object_type="graph_head",
            metadata=_compact(_present(head)),
        ),
    ]


def to_table(rows: Iterable[Row]) -> pa.Table:
    """Return rows as a table with the manifest's exact schema."""
    return pa.Table.from_pylist(list(rows), schema=MANIFEST_SCHEMA)


def fold(rows: Iterable[Row]) -> dict[str, Pin]:
    """Return the visible tables: greatest version per key, unless a tombstone is at or above it."""
    paths: dict[str, str] = {}
    latest: dict[str, Row] = {}
    tombstones: dict[str, int] = {}
    for row in rows:
        key, version = row["table_key"], row["table_version"]
        if row["object_type"] == "table":
            paths[key] = row["location"]
        elif row["object_type"] == "table_version" and version > latest.get(key, _NEVER)["table_version"]:
            latest[key] = row
        elif row["object_type"] == "table_tombstone":
            tombstones[key] = max(version, tombstones.get(key, 0))
    return {
        key: Pin(key, paths[key], row["table_version"], row["table_branch"], row["row_count"])
        for key, row in sorted(latest.items())
        if tombstones.get(key, 0) < row["table_version"]
    }


def head_commit(rows: Iterable[Row]) -> str | None:
    """Return the id of the head: the greatest (manifest version, created_at, id) of all commits."""
    commits = [
        (row["table_version"], json.loads(row["metadata"])["created_at"], row["object_id"])
        for row in rows
        if row["object_type"] == "graph_commit"
    ]
    return str(max(commits)[2]) if commits else None


_NEVER: Row = {"table_version": -1}


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
