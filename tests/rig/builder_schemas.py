"""Two ready schemas, with every file of the contract and the physical columns spelled out by hand.

A: Person and Company, Knows and WorksAt. B: Doc and Cites, with every column type worth a test.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

_FOLDER = Path(__file__).with_name("schemas")


@dataclass(frozen=True)
class TableSpec:
    """A table key such as `node:Person` and its Arrow schema."""

    table_key: str
    schema: pa.Schema


@dataclass(frozen=True)
class GraphSchema:
    """The three schema files as text, and the tables they mean, nodes first."""

    pg_text: str
    ir_text: str
    state_text: str
    tables: tuple[TableSpec, ...]

    def table(self, table_key: str) -> TableSpec:
        """Return the spec of one table."""
        return next(spec for spec in self.tables if spec.table_key == table_key)


def node_columns(*properties: pa.Field) -> pa.Schema:
    """Return a node table's schema; properties come in byte order of their names."""
    return pa.schema([required("id", pa.string()), *properties])


def edge_columns(*properties: pa.Field) -> pa.Schema:
    """Return an edge table's schema; properties come in byte order of their names."""
    ends = [required(name, pa.string()) for name in ("id", "src", "dst")]
    return pa.schema([*ends, *properties])


def required(name: str, kind: pa.DataType) -> pa.Field:
    """Return a column that is never null."""
    return pa.field(name, kind, nullable=False)


def blob(name: str) -> pa.Field:
    """Return a nullable blob column: two children, told apart by its field metadata."""
    children = pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.string())])
    return pa.field(name, children, metadata={"ARROW:extension:name": "lance.blob.v2"})


def state_text(ir_hash: str) -> str:
    """Return the text of `__schema_state.json` for a hash."""
    state = {"format_version": 1, "schema_ir_hash": ir_hash, "schema_identity_version": 1}
    return json.dumps(state, indent=2)


def compact_ir(name: str) -> str:
    """Return a ready schema's IR as it is hashed: one line."""
    return (_FOLDER / f"{name}.ir.json").read_text(encoding="utf-8")


def _ready(name: str, *, ir_hash: str, tables: tuple[TableSpec, ...]) -> GraphSchema:
    pretty = json.dumps(json.loads(compact_ir(name)), ensure_ascii=False, indent=2)
    source = (_FOLDER / f"{name}.pg").read_text(encoding="utf-8")
    return GraphSchema(source, pretty, state_text(ir_hash), tables)


EXAMPLE_A_HASH = "sha256:e37013207fea258e1168975dae0d8a540c99e9f0aaa47da43171bed900a51a95"
EXAMPLE_A = _ready(
    "example_a",
    ir_hash=EXAMPLE_A_HASH,
    tables=(
        TableSpec("node:Company", node_columns(required("name", pa.string()))),
        TableSpec("node:Person", node_columns(pa.field("age", pa.int32()), required("name", pa.string()))),
        TableSpec("edge:Knows", edge_columns(pa.field("since", pa.date32()))),
        TableSpec("edge:WorksAt", edge_columns()),
    ),
)

EXAMPLE_B_HASH = "sha256:2aad3bd2f348ab781c132919e0cec53a070a7e7c086a5a54bc8deadb551464c1"
EXAMPLE_B = _ready(
    "example_b",
    ir_hash=EXAMPLE_B_HASH,
    tables=(
        TableSpec(
            "node:Doc",
            node_columns(
                pa.field("embedding", pa.list_(pa.field("item", pa.float32()), 3)),
                blob("payload"),
                pa.field("published", pa.date64()),
                pa.field("score", pa.float64()),
                required("slug", pa.string()),
                required("status", pa.string()),
                pa.field("tags", pa.list_(pa.field("item", pa.string()))),
                required("title", pa.string()),
            ),
        ),
        TableSpec("edge:Cites", edge_columns(pa.field("note", pa.string()))),
    ),
)
