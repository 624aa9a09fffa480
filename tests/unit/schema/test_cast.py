"""Strict conversion of rows to table columns."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from omnigraph_spark.errors import SchemaError, ValidationError
from omnigraph_spark.schema.cast import to_table_batch
from omnigraph_spark.schema.catalog import Catalog, NodeType
from omnigraph_spark.schema.contract import check_contract
from omnigraph_spark.schema.mapping import BLOB_STRUCT, table_arrow_schema


def node_with(body: str) -> NodeType:
    """A node type with a body."""
    catalog: Catalog = check_contract(f"node T {{ {body} }}", None, None, other_branches=False).catalog
    return catalog.node("T")


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    """A batch of columns with ids 'r0', 'r1' and so on, unless ids are given."""
    rows = len(next(iter(columns.values())))
    columns = {"id": pa.array([f"r{row}" for row in range(rows)], pa.string()), **columns}
    return pa.RecordBatch.from_pydict(columns)


def written(type_text: str, values: pa.Array) -> pa.Array:
    """Cast one column to a property type and return it."""
    node = node_with(f"p: {type_text}")
    result = to_table_batch(batch_of(p=values), node)
    assert result.schema.equals(table_arrow_schema(node), check_metadata=True)
    assert str(result.column("p").type) == str(table_arrow_schema(node).field("p").type)
    return result.column("p")


def numbers(array: pa.Array) -> list[object]:
    """Date64 values as milliseconds, since Python dates would drop the time."""
    return list(array.cast(pa.int64()).to_pylist())


def broken(type_text: str, values: pa.Array) -> ValidationError:
    """Return the error of casting one column."""
    with pytest.raises(ValidationError) as caught:
        written(type_text, values)
    return caught.value


ACCEPTED = [
    ("String?", pa.array(["a", None]), ["a", None]),
    ("String?", pa.array(["a", None], pa.large_string()), ["a", None]),
    ("String?", pa.array(["a", None], pa.string_view()), ["a", None]),
    ("String?", pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    ("String?", pa.array(["a", None], pa.large_string()).dictionary_encode(), ["a", None]),
    ("enum(x)?", pa.array(["x", None]), ["x", None]),
    ("Bool?", pa.array([True, None]), [True, None]),
    ("I32?", pa.array([-(2**31), 2**31 - 1, None], pa.int64()), [-(2**31), 2**31 - 1, None]),
    ("I32?", pa.array([2**31 - 1], pa.uint64()), [2**31 - 1]),
    ("I32?", pa.array([-128, 127], pa.int8()), [-128, 127]),
    ("I32?", pa.array([3.0, -(2.0**31), None]), [3, -(2**31), None]),
    ("I32?", pa.array([3.0], pa.float16()), [3]),
    ("I32?", pa.array([Decimal("3.00"), None], pa.decimal128(10, 2)), [3, None]),
    ("I64?", pa.array([-(2**63), 2**63 - 1]), [-(2**63), 2**63 - 1]),
    ("I64?", pa.array([2**63 - 1], pa.uint64()), [2**63 - 1]),
    ("I64?", pa.array([-(2.0**63), 2.0**62]), [-(2**63), 2**62]),
    ("U32?", pa.array([0, 2**32 - 1, None]), [0, 2**32 - 1, None]),
    ("U64?", pa.array([0, 2**64 - 1], pa.uint64()), [0, 2**64 - 1]),
    ("U64?", pa.array([2**63 - 1]), [2**63 - 1]),
    ("U64?", pa.array([Decimal(2**64 - 1), None], pa.decimal128(20, 0)), [2**64 - 1, None]),
    ("U64?", pa.array([Decimal(2**64 - 1)], pa.decimal256(60, 30)), [2**64 - 1]),
    ("F64?", pa.array([0.1, float("inf"), None]), [0.1, float("inf"), None]),
    ("F64?", pa.array([1.5], pa.float32()), [1.5]),
    ("F64?", pa.array([2**53, -(2**63), 2**62, None]), [2.0**53, -(2.0**63), 2.0**62, None]),
    ("F64?", pa.array([2**63], pa.uint64()), [2.0**63]),
    ("F32?", pa.array([0.1], pa.float64()), [pa.scalar(0.1, pa.float32()).as_py()]),
    ("F32?", pa.array([float("-inf"), 1e-300]), [float("-inf"), 0.0]),
    ("F32?", pa.array([2**24], pa.int32()), [2.0**24]),
    ("[I32]?", pa.array([[1, None], [], None]), [[1, None], [], None]),
    ("[I32]?", pa.array([[1], None], pa.large_list(pa.int64())), [[1], None]),
    ("[I32]?", pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None]),
    ("[I32]?", pa.array([[], None], pa.list_(pa.null())), [[], None]),
    ("[String]?", pa.array([["a", None]], pa.list_(pa.large_string())), [["a", None]]),
    ("[U64]?", pa.array([[Decimal(1)]], pa.list_(pa.decimal128(20, 0))), [[1]]),
    ("Vector(2)?", pa.array([[1.0, 2.0], None]), [[1.0, 2.0], None]),
    ("Vector(2)?", pa.array([None, [1, 2]], pa.list_(pa.int32())), [None, [1.0, 2.0]]),
    ("Vector(2)?", pa.array([[1.0, 2.0], None], pa.large_list(pa.float32())), [[1.0, 2.0], None]),
    ("Vector(2)?", pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)), [[1.0, 2.0], None]),
    ("Blob?", pa.array([b"x", b"", None]), [{"data": b"x", "uri": None}, {"data": b"", "uri": None}, None]),
    ("Blob?", pa.array([b"x"], pa.large_binary()), [{"data": b"x", "uri": None}]),
    ("Blob?", pa.array([b"x"], pa.binary_view()), [{"data": b"x", "uri": None}]),
    (
        "Blob?",
        pa.array([{"data": b"x"}, {"uri": "s3://b/k"}, None], BLOB_STRUCT),
        [{"data": b"x", "uri": None}, {"data": None, "uri": "s3://b/k"}, None],
    ),
]


@pytest.mark.parametrize(("type_text", "values", "expected"), ACCEPTED)
def test_accepted_values_arrive_unchanged(type_text: str, values: pa.Array, expected: list[object]) -> None:
    """Every accepted input layout arrives as the same values in the exact table type."""
    assert written(type_text, values).to_pylist() == expected


@pytest.mark.parametrize(("type_text", "values", "expected"), ACCEPTED)
def test_slices_arrive_as_their_rows(type_text: str, values: pa.Array, expected: list[object]) -> None:
    """A slice with an offset gives its own rows and no others, and so does an empty one."""
    padded = pa.concat_arrays([values, values, values])
    assert written(type_text, padded.slice(len(values), len(values))).to_pylist() == expected
    assert written(type_text, padded.slice(1, 0)).to_pylist() == []


def test_nan_passes() -> None:
    """Whether NaN is allowed is for the range rule to say."""
    assert str(written("F64", pa.array([float("nan")])).to_pylist()) == "[nan]"
    assert str(written("F32", pa.array([float("nan")])).to_pylist()) == "[nan]"


@pytest.mark.parametrize(
    ("values", "milliseconds"),
    [
        (pa.array([-1, 86_400_001, None], pa.int64()).view(pa.timestamp("ms")), [-1, 86_400_001, None]),
        (pa.array([-1, 2]).view(pa.timestamp("s", tz="UTC")), [-1000, 2000]),
        (pa.array([-1000, 1000]).view(pa.timestamp("us", tz="Europe/Berlin")), [-1, 1]),
        (pa.array([-1_000_000]).view(pa.timestamp("ns", tz="+05:30")), [-1]),
        (pa.array([5, None], pa.int64()).view(pa.date64()), [5, None]),
        (pa.array([(2**63 - 1) // 1000, -((2**63 - 1) // 1000)]).view(pa.date64()), None),
    ],
)
def test_instants_are_stored_as_milliseconds(values: pa.Array, milliseconds: list[object] | None) -> None:
    """Any unit and zone gives the same instant; without a zone it is UTC."""
    expected = numbers(values) if milliseconds is None else milliseconds
    assert numbers(written("DateTime?", values)) == expected
    padded = pa.concat_arrays([values, values]).slice(len(values))
    assert numbers(written("DateTime?", padded)) == expected


def test_dates_are_days() -> None:
    """A Date is a date32 and nothing else."""
    assert written("Date?", pa.array([-1, None], pa.int32()).view(pa.date32())).cast(pa.int32()).to_pylist() == [
        -1,
        None,
    ]


@pytest.mark.parametrize("type_text", ["String?", "I32?", "DateTime?", "Blob?", "Vector(2)?", "[Date]?"])
def test_a_column_of_the_null_type_is_all_nulls(type_text: str) -> None:
    """Spark's void columns are nulls of any type."""
    assert written(type_text, pa.nulls(2)).to_pylist() == [None, None]


def test_null_vectors_have_null_children() -> None:
    """A null vector is a null list over null elements, wherever it stands."""
    array = written("Vector(2)?", pa.array([None, [1.0, 2.0], None, None]))
    assert array.values.to_pylist() == [None, None, 1.0, 2.0, None, None, None, None]


REFUSED = [
    ("I32", pa.array([1, 2**31]), "integer-range", "2147483648"),
    ("I32", pa.array([1, -(2**31) - 1]), "integer-range", "-2147483649"),
    ("I32", pa.array([1, 2**31], pa.uint32()), "integer-range", "2147483648"),
    ("I32", pa.array([1, 2.5]), "integer-fraction", "2.5"),
    ("I32", pa.array([1.0, float("nan")]), "integer-range", "nan"),
    ("I32", pa.array([1.0, 2.0**31]), "integer-range", "2147483648"),
    ("I32", pa.array([1.0, float("inf")]), "integer-range", "inf"),
    ("I32", pa.array([Decimal("1.0"), Decimal("1.5")]), "integer-fraction", "1.5"),
    ("I64", pa.array([1, 2**63], pa.uint64()), "integer-range", "9223372036854775808"),
    ("I64", pa.array([1.0, 2.0**63]), "integer-range", None),
    ("U32", pa.array([1, -1]), "integer-range", "-1"),
    ("U32", pa.array([1, 2**32]), "integer-range", "4294967296"),
    ("U64", pa.array([1, -1], pa.int8()), "integer-range", "-1"),
    ("U64", pa.array([Decimal(1), Decimal(2**64)]), "integer-range", "18446744073709551616"),
    ("U64", pa.array([1.0, 2.0**64]), "integer-range", None),
    ("F64", pa.array([1, 2**53 + 1]), "float-exact", "9007199254740993"),
    ("F64", pa.array([1, 2**63 - 1]), "float-exact", "9223372036854775807"),
    ("F64", pa.array([1, 2**64 - 1], pa.uint64()), "float-exact", "18446744073709551615"),
    ("F32", pa.array([1, 2**24 + 1]), "float-exact", "16777217"),
    ("F32", pa.array([1.0, 1e39]), "float-range", "1e+39"),
    ("F32", pa.array([1.0, -1e39]), "float-range", "-1e+39"),
    ("DateTime", pa.array([1000, 1001]).view(pa.timestamp("us", tz="UTC")), "datetime-precision", None),
    ("DateTime", pa.array([0, -1]).view(pa.timestamp("us")), "datetime-precision", None),
    ("DateTime", pa.array([0, 999_999]).view(pa.timestamp("ns")), "datetime-precision", None),
    ("DateTime", pa.array([0, 2**62]).view(pa.timestamp("s")), "datetime-range", None),
    ("DateTime", pa.array([0, -(2**63)]).view(pa.timestamp("ms")), "datetime-range", None),
    ("DateTime", pa.array([0, 2**62]).view(pa.date64()), "datetime-range", None),
    ("Vector(2)", pa.array([[1.0, 2.0], [1.0]]), "vector-length", "1"),
    ("Vector(2)", pa.array([[1.0, 2.0], []]), "vector-length", "0"),
    ("Vector(2)", pa.array([[1.0, 2.0], [1.0, 2.0, 3.0]]), "vector-length", "3"),
    ("Vector(2)", pa.array([[1.0, 2.0], [None, None]]), "vector-null", None),
    ("Vector(2)", pa.array([[1.0, 2.0], [1e39, 1e40]]), "float-range", "1e+39"),
    ("[I32]", pa.array([[1], [1, 2**31, 2**32]]), "integer-range", "2147483648"),
    ("[I32]", pa.array([[1], [2, 2.5]]), "integer-fraction", "2.5"),
    ("[DateTime]", pa.array([[0], [1]]).view(pa.list_(pa.timestamp("us"))), "datetime-precision", None),
    ("String", pa.array(["a", None]), "required", None),
    ("I32", pa.array([1, None]), "required", None),
    ("Blob", pa.array([b"a", None]), "required", None),
    ("Blob", pa.array([{"data": b"a"}, {"data": b"a", "uri": "s3://b/k"}], BLOB_STRUCT), "blob-content", None),
    ("Blob", pa.array([{"data": b"a"}, {}], BLOB_STRUCT), "blob-content", None),
    ("Blob", pa.array([{"uri": "s3://b/k"}, {"uri": "b/k"}], BLOB_STRUCT), "blob-uri", "b/k"),
    ("Vector(2)", pa.array([[1.0, 2.0], None]), "required", None),
    ("[I32]", pa.array([[1], None]), "required", None),
]


@pytest.mark.parametrize(("type_text", "values", "rule", "value"), REFUSED)
def test_values_that_do_not_fit_are_refused(type_text: str, values: pa.Array, rule: str, value: str | None) -> None:
    """The second row breaks one rule; type, property, id, rule and value are reported, and nothing is written."""
    error = broken(type_text, values)
    (violation,) = error.violations
    assert (error.total, violation.rule, violation.type_name) == (1, rule, "T")
    assert (violation.property, violation.row_id) == ("p", "r1")
    assert "T.p, row 1 (id 'r1'): " in violation.message
    if value is not None:
        assert violation.value == value
        assert value in violation.message
    assert broken(type_text, pa.concat_arrays([values, values]).slice(len(values))).violations == error.violations


WRONG_TYPES = [
    ("String?", pa.array([1])),
    ("String?", pa.array([b"a"])),
    ("enum(x)?", pa.array([True])),
    ("Bool?", pa.array([1])),
    ("Bool?", pa.array(["true"])),
    ("I32?", pa.array(["1"])),
    ("I32?", pa.array([True])),
    ("I64?", pa.array([1]).view(pa.timestamp("ms"))),
    ("F64?", pa.array(["1"])),
    ("F64?", pa.array([Decimal("1.5")])),
    ("Date?", pa.array([0]).view(pa.timestamp("us"))),
    ("Date?", pa.array([0]).view(pa.date64())),
    ("Date?", pa.array(["2020-01-01"])),
    ("DateTime?", pa.array([0], pa.int32()).view(pa.date32())),
    ("DateTime?", pa.array([0])),
    ("DateTime?", pa.array(["2020-01-01T00:00:00Z"])),
    ("Blob?", pa.array(["base64:AA=="])),
    ("Blob?", pa.array([b"aa"], pa.binary(2))),
    ("Blob?", pa.array([{"data": b"a"}], pa.struct([BLOB_STRUCT[0]]))),
    ("Vector(2)?", pa.array([1.0])),
    ("Vector(2)?", pa.array([["1", "2"]])),
    ("[I32]?", pa.array([1])),
    ("[I32]?", pa.array([["1"]])),
    ("[String]?", pa.array([[["a"]]])),
    ("[I32]?", pa.array([[1]], pa.list_view(pa.int32()))),
    ("String?", pa.array([{"a": 1}])),
]


@pytest.mark.parametrize(("type_text", "values"), WRONG_TYPES)
def test_a_wrong_type_is_refused_as_a_column(type_text: str, values: pa.Array) -> None:
    """A column of another kind is one violation, also without rows, and never becomes nulls."""
    for given in (values, values.slice(0, 0)):
        (violation,) = broken(type_text, given).violations
        assert (violation.rule, violation.property, violation.row_id) == ("type", "p", None)
        assert f"cannot be written as {type_text}" in violation.message


def test_a_missing_nullable_column_is_null() -> None:
    """Left-out nullable properties of every kind are nulls."""
    node = node_with("a: String? b: Blob? c: Vector(2)? d: [DateTime]? e: U64?")
    rows = to_table_batch(pa.RecordBatch.from_pydict({"id": ["1", "2"]}), node).to_pylist()
    assert rows == [{"id": str(n), "a": None, "b": None, "c": None, "d": None, "e": None} for n in (1, 2)]


def test_a_missing_required_column_is_refused() -> None:
    """Left-out required columns are one violation each, the id among them."""
    node = node_with("a: String b: I32?")
    with pytest.raises(ValidationError) as caught:
        to_table_batch(pa.RecordBatch.from_pydict({"b": [1]}), node)
    assert [(v.rule, v.property) for v in caught.value.violations] == [("required", "a"), ("required", "id")]


def test_column_order_does_not_matter_and_extra_metadata_is_dropped() -> None:
    """The result has exactly the table's columns in table order."""
    node = node_with("a: String? b: I32")
    field = pa.field("b", pa.int64(), nullable=False, metadata={"SPARK::metadata::json": "{}"})
    schema = pa.schema([field, pa.field("id", pa.string())], metadata={"x": "y"})
    result = to_table_batch(pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"])], schema=schema), node)
    assert result.schema.equals(table_arrow_schema(node), check_metadata=True)
    assert result.to_pylist() == [{"id": "x", "a": None, "b": 1}]


def test_an_unknown_column_is_refused_with_the_nearest() -> None:
    """A misspelt column never gets lost."""
    node = node_with("name: String")
    with pytest.raises(SchemaError, match=r"T has no column 'nmae'; did you mean 'name'\?") as caught:
        to_table_batch(pa.RecordBatch.from_pydict({"id": ["1"], "nmae": ["x"]}), node)
    assert caught.value.rule == "unknown-column"


def test_a_column_given_twice_is_refused() -> None:
    """Which of two equal names counts is never guessed."""
    batch = pa.RecordBatch.from_arrays([pa.array(["1"]), pa.array(["2"])], names=["id", "id"])
    with pytest.raises(SchemaError, match="'id' is given twice"):
        to_table_batch(batch, node_with(""))


def test_null_ids_are_null_keys() -> None:
    """A null id, src or dst has its own rule and is found by row number."""
    text = "node T {} edge E: T -> T"
    edge = check_contract(text, None, None, other_branches=False).catalog.edge("E")
    batch = pa.RecordBatch.from_pydict(
        {"id": ["1", None], "src": pa.array(["a", "b"], pa.large_string()), "dst": pa.array([None, "d"])}
    )
    with pytest.raises(ValidationError) as caught:
        to_table_batch(batch, edge, first_row=100)
    found = [(v.rule, v.property, v.row_id, v.message) for v in caught.value.violations]
    assert found == [
        ("null-key", "dst", "1", "E.dst, row 100 (id '1'): is null"),
        ("null-key", "id", None, "E.id, row 101: is null"),
    ]


def test_edge_columns_are_plain_required_text() -> None:
    """The ends of an edge are cast like its id."""
    edge = check_contract("node T {} edge E: T -> T", None, None, other_branches=False).catalog.edge("E")
    ends = {"id": ["1"], "src": pa.array(["a"]).dictionary_encode(), "dst": pa.array(["b"], pa.large_string())}
    result = to_table_batch(pa.RecordBatch.from_pydict(ends), edge)
    assert result.schema.equals(table_arrow_schema(edge))
    with pytest.raises(ValidationError) as caught:
        to_table_batch(pa.RecordBatch.from_pydict({**ends, "src": [1]}), edge)
    assert caught.value.violations[0].rule == "type"


def test_all_faults_are_counted_and_a_hundred_listed() -> None:
    """Every fault of every column counts; the list stays short."""
    node = node_with("a: I32 b: String")
    rows = 1000
    batch = batch_of(a=pa.array([2**40] * rows), b=pa.array([None] * rows, pa.string()))
    with pytest.raises(ValidationError, match="rows do not fit T: 2000 violations") as caught:
        to_table_batch(batch, node)
    assert caught.value.total == 2000
    assert len(caught.value.violations) == 100


def test_faults_of_several_columns_are_reported_together() -> None:
    """One round trip is enough to see everything that is wrong."""
    node = node_with("a: I32 b: String c: Date? d: Vector(2)?")
    batch = batch_of(
        a=pa.array([1, 2**31]), b=pa.array([None, "x"]), c=pa.array(["x", "y"]), d=pa.array([[1.0], [None, 1.0]])
    )
    with pytest.raises(ValidationError) as caught:
        to_table_batch(batch, node)
    found = {(v.rule, v.property, v.row_id) for v in caught.value.violations}
    assert found == {
        ("integer-range", "a", "r1"),
        ("required", "b", "r0"),
        ("type", "c", None),
        ("vector-length", "d", "r0"),
        ("vector-null", "d", "r1"),
    }


def test_an_empty_batch_keeps_the_table_schema() -> None:
    """No rows in, no rows out, exact columns."""
    node = node_with("a: Vector(3) b: Blob? c: [U64]")
    empty = pa.RecordBatch.from_pylist(
        [], schema=pa.schema({"id": pa.string(), "a": pa.list_(pa.float64()), "c": pa.list_(pa.int8())})
    )
    result = to_table_batch(empty, node)
    assert result.num_rows == 0
    assert result.schema.equals(table_arrow_schema(node), check_metadata=True)
