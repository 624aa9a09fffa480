"""A graph with a column of every type, and rows at the edges of each; the columns are spelled out by hand."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from omnigraph_spark import Graph
from tests.places import Place
from tests.rig.builder_schemas import GraphSchema, TableSpec, blob, node_columns, required

PG = """
node Thing {
    key: String @key
    bool_: Bool?
    i32: I32?
    i64: I64?
    u32: U32?
    u64: U64?
    f32: F32?
    f64: F64?
    date: Date?
    time: DateTime?
    kind: enum(big, small)?
    vector: Vector(2)?
    blob: Blob?
    strings: [String]?
    longs: [U64]?
    times: [DateTime]?
    flags: [Bool]?
}
"""

_ITEM = {"strings": pa.string(), "longs": pa.uint64(), "times": pa.date64(), "flags": pa.bool_()}
_PLAIN: dict[str, pa.DataType] = {
    "bool_": pa.bool_(),
    "i32": pa.int32(),
    "i64": pa.int64(),
    "u32": pa.uint32(),
    "u64": pa.uint64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "date": pa.date32(),
    "time": pa.date64(),
    "kind": pa.string(),
    "vector": pa.list_(pa.field("item", pa.float32()), 2),
    **{name: pa.list_(pa.field("item", kind)) for name, kind in _ITEM.items()},
}
_FIELDS = [required("key", pa.string()), blob("blob"), *[pa.field(name, kind) for name, kind in _PLAIN.items()]]
COLUMNS = node_columns(*sorted(_FIELDS, key=lambda f: f.name))
SCHEMA = GraphSchema(PG, "", "", (TableSpec("node:Thing", COLUMNS),))

_NOON = datetime(2026, 2, 28, 12, 30, 15, 123000, tzinfo=timezone.utc)
_BEFORE = datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=timezone.utc)

# As Spark and to_arrow return them.
FULL: dict[str, Any] = {
    "id": "full",
    "blob": b"\x00\x01\xff",
    "bool_": True,
    "date": date(2026, 2, 28),
    "f32": 0.5,
    "f64": 1e300,
    "flags": [True, None, False],
    "i32": -(2**31),
    "i64": 2**63 - 1,
    "key": "full",
    "kind": "big",
    "longs": [Decimal(2**64 - 1), Decimal(0)],
    "strings": ["ä", "", None],
    "time": _NOON,
    "times": [_NOON, None],
    "u32": 2**32 - 1,
    "u64": Decimal(2**64 - 1),
    "vector": [1.0, -2.5],
}
EDGES: dict[str, Any] = {
    **dict.fromkeys(FULL),
    "id": "edges",
    "key": "edges",
    "time": _BEFORE,
    "date": date(1, 1, 1),
    "strings": [],
    "u64": Decimal(2**63),
    "vector": [0.0, float("inf")],
}
NULLS: dict[str, Any] = {**dict.fromkeys(FULL), "id": "nulls", "key": "nulls"}
ROWS = [FULL, EDGES, NULLS]


def graph_of_all_types(place: Place) -> Place:
    """Create the graph through the package and put the rows in with Lance alone."""
    Graph.create(place.uri, schema=PG, storage=dict(place.storage))
    built = Place(place.uri, place.storage, SCHEMA)
    built.builder.publish({"node:Thing": pa.table([_column(f) for f in COLUMNS], schema=COLUMNS)})
    return built


def _column(field: pa.Field) -> pa.Array:
    values = [_stored(row[field.name], field.type) for row in ROWS]
    if pa.types.is_date64(field.type):
        return pa.array(values, pa.int64()).view(pa.date64())
    if pa.types.is_list(field.type) and pa.types.is_date64(field.type.value_type):
        stored = pa.array(values, pa.list_(pa.int64()))
        items = stored.flatten().view(pa.date64())
        return pa.ListArray.from_arrays(stored.offsets, items, type=field.type, mask=stored.is_null())
    return pa.array(values, field.type)


def _stored(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, list):
        return [_stored(item, kind.value_type) for item in value]
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, bytes):
        return {"data": value, "uri": None}
    return int(value) if isinstance(value, Decimal) else value
