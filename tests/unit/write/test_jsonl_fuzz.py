"""Any input at all: rows that fit their tables or a ValidationError, nothing else."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph_spark.errors import ValidationError
from omnigraph_spark.schema.cast import to_table_batch
from omnigraph_spark.write.json_stream import Source
from omnigraph_spark.write.jsonl import TypedRows
from tests.unit.write.jsonl_reading import catalog_of, read

EVERYTHING = catalog_of("""
node T { a: String? b: Bool? c: I32? d: U64? e: F32? f: F64? g: Date? h: DateTime? i: Blob? j: [I64]? k: Vector(2)? }
edge E: T -> T { w: [DateTime]? }
""")
BUDGET = settings(
    max_examples=300, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**66), 2**66)
    | st.floats()
    | st.text(st.characters())
    | st.sampled_from(["base64:AA==", "base64:!", "2024-01-31", "2024-01-31T10:00:00Z", "s3://b/k", "T", "\ud800"])
)


def lists_and_objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Containers of values."""
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)


ANY_JSON: st.SearchStrategy[Any] = st.recursive(SCALARS, lists_and_objects, max_leaves=6)
NODES = st.fixed_dictionaries(
    {"type": st.just("T")},
    optional={"data": st.dictionaries(st.sampled_from(["id", *"abcdefghijk"]), ANY_JSON, max_size=4)},
)
EDGES = st.fixed_dictionaries(
    {"edge": st.sampled_from(["E", "e"]), "from": SCALARS, "to": st.just("x")},
    optional={"data": st.dictionaries(st.sampled_from(["id", "w"]), ANY_JSON, max_size=2)},
)


def outcome(source: Source) -> list[TypedRows] | ValidationError:
    """The batches of a source, or the one error it may end with."""
    try:
        return read(source, catalog=EVERYTHING)
    except ValidationError as error:
        return error


def survives(source: Source) -> None:
    """Read; rows that come out fit their table, and nothing but a ValidationError comes out instead."""
    batches = outcome(source)
    if isinstance(batches, ValidationError):
        str(batches).encode("utf-8")
        assert batches.violations
        return
    for batch in batches:
        graph_type = EVERYTHING.by_key(batch.table_key)
        rows = batch.rows
        if "id" in rows.schema.names:
            rows = rows.drop_columns(["id"])
        rows = rows.append_column("id", pa.array(["x"] * rows.num_rows, pa.string()))
        assert to_table_batch(rows, graph_type).num_rows == len(batch.records)


@BUDGET
@given(st.lists(st.text(st.characters())))
def test_any_text_is_records_or_a_validation_error(lines: list[str]) -> None:
    """Arbitrary characters never crash the reader."""
    survives(lines)


@BUDGET
@given(st.binary())
def test_any_bytes_are_records_or_a_validation_error(data: bytes) -> None:
    """Arbitrary bytes never crash the reader."""
    survives(io.BytesIO(data))


@BUDGET
@given(st.lists(NODES | EDGES | ANY_JSON, max_size=5), st.sampled_from([None, 1]))
def test_any_json_is_records_or_a_validation_error(records: list[object], indent: int | None) -> None:
    """Arbitrary values in every place of a record never crash the reader, and what passes fits its table."""
    survives([json.dumps(record, indent=indent) for record in records])


@BUDGET
@given(st.lists(NODES | EDGES, max_size=3), st.data())
def test_cut_and_broken_records_are_a_validation_error(records: list[object], data: st.DataObject) -> None:
    """Real records with a piece cut out never crash the reader."""
    text = "\n".join(json.dumps(record) for record in records) + "\n"
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 5)))
    survives([text[:start] + text[end:]])
