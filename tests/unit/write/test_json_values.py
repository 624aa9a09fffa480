"""JSON values in the columns of a table: they arrive exactly, or they are named."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from omnigraph_spark.schema.cast import to_table_batch
from omnigraph_spark.schema.catalog import Catalog
from tests.unit.write.jsonl_reading import catalog_of, only, read, refused, refused_one


def property_catalog(type_text: str) -> Catalog:
    """A catalog with one node type T that has one property p."""
    return catalog_of(f"node T {{ p: {type_text} }}")


def node(text: str) -> str:
    """A record of type T with p as JSON text."""
    return f'{{"type": "T", "data": {{"p": {text}}}}}\n'


def value_of(type_text: str, text: str) -> object:
    """What p becomes in the table, as the strict cast of the write path sees it."""
    catalog = property_catalog(type_text)
    (batch,) = read(node(text), catalog=catalog)
    rows = batch.rows.append_column("id", pa.array(["i"]))
    column = to_table_batch(rows, catalog.node("T")).column("p")
    assert column.equals(batch.rows.column("p"))
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return (column.cast(pa.int64()) if pa.types.is_date64(column.type) else column).to_pylist()[0]


ACCEPTED = [
    ("String?", '""', ""),
    ("String?", "null", None),
    ("String?", '"\\ud83d\\ude00"', "😀"),
    ("enum(x, y)?", '"x"', "x"),
    ("Bool?", "true", True),
    ("I32?", "-2147483648", -(2**31)),
    ("U32?", "4294967295", 2**32 - 1),
    ("I64?", "9223372036854775807", 2**63 - 1),
    ("U64?", "18446744073709551615", 2**64 - 1),
    ("F64?", "0.1", 0.1),
    ("F64?", "7", 7.0),
    ("F64?", str(2**60), 2.0**60),
    ("F64?", str(10**20), 1e20),
    ("F32?", str(2**30), 2.0**30),
    ("F32?", "0.5", 0.5),
    ("Date?", '"1969-12-31"', -1),
    ("Date?", "-1", -1),
    ("DateTime?", "1500", 1500),
    ("DateTime?", '"1970-01-01T00:00:01.5Z"', 1500),
    ("DateTime?", '"1970-01-01T00:00:01.500000Z"', 1500),
    ("DateTime?", '"1970-01-01T00:00:01.500000"', 1500),
    ("DateTime?", '"1970-01-01 00:00:01"', 1000),
    ("DateTime?", '"1970-01-01T01:00+01:00"', 0),
    ("DateTime?", '"1970-01-01T00:00-0030"', 30 * 60_000),
    ("[I32]?", "[1, null, 2]", [1, None, 2]),
    ("[String]?", "[]", []),
    ("[Bool]?", "[true]", [True]),
    ("Vector(2)?", "[1, 0.5]", [1.0, 0.5]),
    ("Blob?", '"base64:AAE="', {"data": b"\x00\x01", "uri": None}),
    ("Blob?", '"base64:"', {"data": b"", "uri": None}),
    ("Blob?", '"s3://bucket/key"', {"data": None, "uri": "s3://bucket/key"}),
    ("Blob?", "null", None),
]


@pytest.mark.parametrize(("type_text", "text", "expected"), ACCEPTED)
def test_accepted_values_arrive_exactly(type_text: str, text: str, expected: object) -> None:
    """A value arrives as it was written, in a type that the write path takes without change."""
    assert value_of(type_text, text) == expected


def test_dates_and_instants_may_be_mixed_with_numbers_and_in_lists() -> None:
    """Text, numbers and nulls in one column, and in one list, keep their rows."""
    catalog = catalog_of("node T { a: Date? b: DateTime? c: [Date]? d: [DateTime]? }")
    rows = only(
        {"type": "T", "data": {"a": 1, "b": "1970-01-01T00:00:02Z", "c": ["1970-01-02", 2, None], "d": None}},
        {"type": "T", "data": {"a": "1970-01-03", "b": 3, "c": None, "d": [5, "1970-01-01T00:00:00.006Z"]}},
        {"type": "T", "data": {"a": None, "b": None}},
        catalog=catalog,
    )
    assert rows.column("a").cast(pa.int32()).to_pylist() == [1, 2, None]
    assert rows.column("b").cast(pa.int64()).to_pylist() == [2000, 3, None]
    assert rows.column("c").cast(pa.list_(pa.int32())).to_pylist() == [[1, 2, None], None, None]
    assert rows.column("d").cast(pa.list_(pa.int64())).to_pylist() == [None, [5, 6], None]


REFUSED = [
    ("String?", "5", "type", "5"),
    ("String?", "true", "type", "true"),
    ("String?", "{}", "type", "{}"),
    ("String?", "NaN", "type", "NaN"),
    ("String?", '"\\ud800"', "text", '"\\ud800"'),
    ("enum(x, y)?", "1", "type", "1"),
    ("Bool?", "1", "type", "1"),
    ("Bool?", '"true"', "type", '"true"'),
    ("I32?", "2147483648", "integer-range", "2147483648"),
    ("I32?", str(2**70), "integer-range", str(2**70)),
    ("I32?", '"1"', "type", '"1"'),
    ("I32?", "true", "type", "true"),
    ("I32?", "1.5", "integer-fraction", "1.5"),
    ("I32?", "1.0", "integer-fraction", "1.0"),
    ("I32?", "1e2", "integer-fraction", "100.0"),
    ("I64?", str(2**63), "integer-range", str(2**63)),
    ("I64?", "9" * 5000, "type", "9" * 80 + "..."),
    ("U32?", "-1", "integer-range", "-1"),
    ("U64?", "-1", "integer-range", "-1"),
    ("U64?", str(2**64), "integer-range", str(2**64)),
    ("F64?", "NaN", "type", "NaN"),
    ("F64?", "-Infinity", "type", "-Infinity"),
    ("F64?", "1e999", "float-range", "Infinity"),
    ("F64?", '"1"', "type", '"1"'),
    ("F64?", "true", "type", "true"),
    ("F64?", str(2**53 + 1), "float-exact", str(2**53 + 1)),
    ("F64?", str(10**400), "float-exact", "1" + "0" * 79 + "..."),
    ("F32?", str(2**24 + 1), "float-exact", str(2**24 + 1)),
    ("F32?", "1e39", "float-range", "1e+39"),
    ("Date?", '"2024-02-30"', "date", '"2024-02-30"'),
    ("Date?", '"31.01.2024"', "date", '"31.01.2024"'),
    ("Date?", '"2024-01-31T00:00:00Z"', "date", '"2024-01-31T00:00:00Z"'),
    ("Date?", '"2024-01-31\\n"', "date", '"2024-01-31\\n"'),
    ("Date?", "2147483648", "date-range", "2147483648"),
    ("Date?", "1.5", "type", "1.5"),
    ("Date?", "true", "type", "true"),
    ("DateTime?", '"2024-01-31"', "datetime", '"2024-01-31"'),
    ("DateTime?", '"2024-01-31T24:00:00Z"', "datetime", '"2024-01-31T24:00:00Z"'),
    ("DateTime?", '"2024-01-31T12"', "datetime", '"2024-01-31T12"'),
    ("DateTime?", '"tomorrow"', "datetime", '"tomorrow"'),
    ("DateTime?", '"\\ud800"', "datetime", '"\\ud800"'),
    ("DateTime?", '"2024-01-31T12:00:00.0001Z"', "datetime-precision", '"2024-01-31T12:00:00.0001Z"'),
    ("DateTime?", '"2024-01-31T12:00:00.1230004"', "datetime-precision", '"2024-01-31T12:00:00.1230004"'),
    ("DateTime?", str(2**63 - 1), "datetime-range", str(2**63 - 1)),
    ("DateTime?", str(2**63), "datetime-range", str(2**63)),
    ("DateTime?", "1.5", "type", "1.5"),
    ("[I32]?", "5", "type", "5"),
    ("[I32]?", '"[1]"', "type", '"[1]"'),
    ("[I32]?", "[1, 1.5, 2.5]", "integer-fraction", "1.5"),
    ("[I32]?", "[1, [2]]", "type", "[2]"),
    ("[I32]?", f"[1, {2**31}]", "integer-range", str(2**31)),
    ("[I64]?", f"[1, {2**63}]", "integer-range", str(2**63)),
    ("[String]?", '["a", 5]', "type", "5"),
    ("[Date]?", '["a"]', "date", '"a"'),
    ("Vector(2)?", "[1]", "vector-length", "1"),
    ("Vector(2)?", "[1, 2, 3]", "vector-length", "3"),
    ("Vector(2)?", "[1, null]", "vector-null", None),
    ("Vector(2)?", '[1, "2"]', "type", '"2"'),
    ("Vector(2)?", "[1, true]", "type", "true"),
    ("Vector(2)?", "[1, NaN]", "type", "NaN"),
    ("Vector(2)?", "[1, 1e39]", "float-range", "1e+39"),
    ("Vector(2)?", "7", "type", "7"),
    ("Blob?", "5", "type", "5"),
    ("Blob?", '"base64:%%"', "blob-base64", '"base64:%%"'),
    ("Blob?", '"base64:AA"', "blob-base64", '"base64:AA"'),
    ("Blob?", '"hello"', "blob-uri", "hello"),
    ("Blob?", '""', "blob-uri", ""),
    ("Blob?", '"\\ud800"', "text", '"\\ud800"'),
]


@pytest.mark.parametrize(("type_text", "text", "rule", "value"), REFUSED)
def test_a_value_that_does_not_fit_is_named(type_text: str, text: str, rule: str, value: str | None) -> None:
    """Nothing becomes null, wraps or is rounded: the record, type, property, rule and value are named."""
    good = '{"type": "T"}\n'
    violation = refused_one(good * 3 + node(text) + good, catalog=property_catalog(type_text))
    assert (violation.rule, violation.type_name, violation.property) == (rule, "T", "p")
    assert violation.value == value
    assert violation.message.startswith("record 4, T.p: ")


def test_a_fault_does_not_hide_others_in_its_column() -> None:
    """Wrong types, overflows and misfits of one column are found together, and good rows are not blamed."""
    values: list[object] = [1, "x", 2**70, 2**31, 1.5, None, 7]
    text = "".join(node(json.dumps(value)) for value in values)
    found = {
        violation.message.split(",")[0]: violation.rule for violation in refused(text, catalog=property_catalog("I32?"))
    }
    assert found == {
        "record 2": "type",
        "record 3": "integer-range",
        "record 4": "integer-range",
        "record 5": "integer-fraction",
    }


def test_a_violation_names_the_id() -> None:
    """Where the record has an id, the violation has it too."""
    assert refused_one('{"type": "Plain", "data": {"id": "x", "note": 1}}').row_id == "x"
