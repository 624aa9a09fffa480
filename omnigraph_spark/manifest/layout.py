"""Spelling of everything on disk that depends on the format generation: ids, paths, columns, the stamp.

These are the switch points between OmniGraph's stamps; all other code asks a ``Layout`` and never builds an id itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from omnigraph_spark.errors import FormatError

MANIFEST_DIR = "__manifest"
RECOVERY_DIR = "__recovery"
AUDIT_DIR = "_graph_commit_recoveries.lance"
STAMP_KEY = "omnigraph:internal_schema_version"
MAIN = "main"
SCHEMA_LOCK_BRANCH = "__schema_apply_lock__"
PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}

_FNV64_OFFSET = 0xCBF29CE484222325
_FNV64_PRIME = 0x100000001B3


def type_name_hash(name: str) -> str:
    """Return the 16-digit FNV-1a-64 of a bare type name, which names its directory."""
    value = _FNV64_OFFSET
    for byte in name.encode():
        value = ((value ^ byte) * _FNV64_PRIME) % (1 << 64)
    return f"{value:016x}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Formulas of one format generation."""

    stamp: int

    def table_path(self, table_key: str) -> str:
        """Return a table's directory relative to the graph root."""
        kind, _, name = table_key.partition(":")
        folder = {"node": "nodes", "edge": "edges"}[kind]
        return f"{folder}/{type_name_hash(name)}"

    def table_id(self, table_key: str) -> str:
        """Return the object id of a table's registration row."""
        return table_key

    def version_id(self, table_key: str, version: int) -> str:
        """Return the object id of a published table version."""
        return f"{table_key}${version:020d}"

    def tombstone_id(self, table_key: str, version: int) -> str:
        """Return the object id of a table's tombstone."""
        return f"{table_key}$tombstone${version:020d}"

    def arrow_schema(self) -> pa.Schema:
        """Return the manifest's columns, in order, with the primary-key mark the row-level CAS depends on."""
        return pa.schema(
            [
                pa.field("object_id", pa.string(), nullable=False, metadata=PRIMARY_KEY),
                pa.field("object_type", pa.string(), nullable=False),
                pa.field("location", pa.string()),
                pa.field("metadata", pa.string()),
                pa.field("base_objects", pa.list_(pa.field("item", pa.string()))),
                pa.field("table_key", pa.string(), nullable=False),
                pa.field("table_version", pa.uint64()),
                pa.field("table_branch", pa.string()),
                pa.field("row_count", pa.uint64()),
            ]
        )


V4 = Layout(stamp=4)
_SUPPORTED = {4: V4}


def layout_for(stamp_text: str | None) -> Layout:
    """Return the layout of a stamp read from storage; refuse lower and higher ones with what to do."""
    # A missing or malformed stamp counts as 1, as OmniGraph reads it.
    stamp = int(stamp_text) if stamp_text is not None and stamp_text.isdigit() else 1
    found = _SUPPORTED.get(stamp)
    if found is not None:
        return found
    newest = max(_SUPPORTED)
    if stamp < newest:
        raise FormatError(
            f"The graph has storage stamp {stamp}; this version reads stamp {newest}",
            hint="Export the graph with the OmniGraph release that wrote it and load it into a new graph.",
        )
    raise FormatError(
        f"The graph has storage stamp {stamp}, newer than the {newest} this version reads",
        hint="Upgrade omnigraph-spark, or export the graph and load it into a new one.",
    )


def branch_uri(base: str, branch: str | None) -> str:
    """Return the dataset URI of a Lance branch of the dataset at ``base``."""
    if branch is None or branch == MAIN:
        return base
    return "/".join([base, "tree", *branch.split("/")])


def branch_ref_uri(base: str, branch: str) -> str:
    """Return the URI of the file that says a Lance branch exists."""
    return f"{base}/_refs/branches/{branch.replace('/', '%2F')}.json"


def manifest_file_path(dataset_path: str, version: int) -> str:
    """Return the path of a version's Lance manifest, as OmniGraph records it (V2 naming)."""
    return f"{dataset_path}/_versions/{(1 << 64) - 1 - version:020d}.manifest"
