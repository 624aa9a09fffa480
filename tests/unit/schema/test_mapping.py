"""Schema types in tables and in Spark."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from omnigraph_spark.errors import FormatError, SchemaError
from omnigraph_spark.schema.cast import to_table_batch
from omnigraph_spark.schema.catalog import Catalog, NodeType
from omnigraph_spark.schema.contract import check_contract
from omnigraph_spark.schema.mapping import (
    read_arrow_schema,
    spark_schema,
    spark_schema_of,
    table_arrow_schema,
    to_spark_batch,
)

EVERY_TYPE = """
node Doc {
  b: Bool? d: Date? e: enum(x, y)? f: F32? g: F64? i: I32? j: I64? p: Blob? s: String t: DateTime? u: U32?
  v: U64? w: Vector(2)? lb: [Bool]? ld: [Date]? lf: [F32]? li: [I32] ls: [String]? lt: [DateTime]? lu: [U64]?
}
edge Cites: Doc -> Doc { note: String? at: DateTime }
"""
UTC = pa.timestamp("us", tz="UTC")


def listed(data_type: pa.DataType, name: str = "item") -> pa.DataType:
    """A list type with a named, nullable element."""
    return pa.list_(pa.field(name, data_type))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """Types with every kind of property."""
    return check_contract(EVERY_TYPE, None, None, other_branches=False).catalog


@pytest.fixture(scope="module")
def doc(catalog: Catalog) -> NodeType:
    """The node type with every kind of property."""
    return catalog.node("Doc")


def test_table_schema_is_exactly_the_physical_one(doc: NodeType) -> None:
    """Ids first, properties by name, types and nullability as the format says."""
    blob = pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.string())])
    expected = pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("b", pa.bool_()),
            pa.field("d", pa.date32()),
            pa.field("e", pa.string()),
            pa.field("f", pa.float32()),
            pa.field("g", pa.float64()),
            pa.field("i", pa.int32()),
            pa.field("j", pa.int64()),
            pa.field("lb", listed(pa.bool_())),
            pa.field("ld", listed(pa.date32())),
            pa.field("lf", listed(pa.float32())),
            pa.field("li", listed(pa.int32()), nullable=False),
            pa.field("ls", listed(pa.string())),
            pa.field("lt", listed(pa.date64())),
            pa.field("lu", listed(pa.uint64())),
            pa.field("p", blob, metadata={"ARROW:extension:name": "lance.blob.v2"}),
            pa.field("s", pa.string(), nullable=False),
            pa.field("t", pa.date64()),
            pa.field("u", pa.uint32()),
            pa.field("v", pa.uint64()),
            pa.field("w", pa.list_(pa.field("item", pa.float32()), 2)),
        ]
    )
    # As text too: equality of Arrow types does not look at the names of list children.
    assert table_arrow_schema(doc).equals(expected, check_metadata=True)
    assert str(table_arrow_schema(doc)) == str(expected)


def test_edge_tables_have_both_ends_after_the_id(catalog: Catalog) -> None:
    """An edge table starts with id, src, dst, all required text."""
    schema = table_arrow_schema(catalog.edge("Cites"))
    assert schema.names == ["id", "src", "dst", "at", "note"]
    assert [schema.field(name).nullable for name in schema.names] == [False, False, False, False, True]


def test_spark_types(doc: NodeType) -> None:
    """Each schema type has its Spark type, with the schema's nullability."""
    types = {field.name: (field.dataType.simpleString(), field.nullable) for field in spark_schema(doc).fields}
    assert types == {
        "id": ("string", False),
        "b": ("boolean", True),
        "d": ("date", True),
        "e": ("string", True),
        "f": ("float", True),
        "g": ("double", True),
        "i": ("int", True),
        "j": ("bigint", True),
        "lb": ("array<boolean>", True),
        "ld": ("array<date>", True),
        "lf": ("array<float>", True),
        "li": ("array<int>", False),
        "ls": ("array<string>", True),
        "lt": ("array<timestamp>", True),
        "lu": ("array<decimal(20,0)>", True),
        "p": ("binary", True),
        "s": ("string", False),
        "t": ("timestamp", True),
        "u": ("bigint", True),
        "v": ("decimal(20,0)", True),
        "w": ("array<float>", True),
    }


def test_read_schema_is_what_spark_expects(catalog: Catalog) -> None:
    """Spark's own Arrow schema for the Spark schema is the read schema, to the last flag."""
    for graph_type in catalog.types:
        wanted = to_arrow_schema(spark_schema(graph_type), timezone="UTC")
        assert str(read_arrow_schema(graph_type)) == str(wanted)
        assert read_arrow_schema(graph_type).equals(wanted)


def test_columns_choose_and_order(doc: NodeType) -> None:
    """Named columns come in the order given; naming none gives none."""
    assert read_arrow_schema(doc, columns=["u", "id"]).names == ["u", "id"]
    assert spark_schema(doc, columns=["t"]).names == ["t"]
    assert read_arrow_schema(doc, columns=()).names == []


def test_an_unknown_column_is_refused(doc: NodeType) -> None:
    """The message names the column and the known ones."""
    with pytest.raises(SchemaError, match=r"Doc has no column 'idd'; did you mean 'id'\?"):
        read_arrow_schema(doc, columns=["idd"])


def test_spark_schema_of_any_read_schema() -> None:
    """Schemas with extra columns map the same way."""
    schema = spark_schema_of(pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("t", UTC)]))
    assert schema.simpleString() == "struct<n:bigint,t:timestamp>"


def test_the_mapping_imports_without_pyspark() -> None:
    """Plain Arrow users need no Spark: importing every schema module loads no pyspark."""
    code = (
        "import sys, types\n"
        "package = types.ModuleType('omnigraph_spark'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['omnigraph_spark'] = package\n"
        "import omnigraph_spark.schema.cast, omnigraph_spark.schema.contract\n"
        "assert not any(name.startswith('pyspark') for name in sys.modules)\n"
    )
    root = Path(sys.modules[NodeType.__module__].__file__ or "").parents[1]
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)


def stored_batch(doc: NodeType) -> pa.RecordBatch:
    """Two stored rows, one with every value at an edge and one with none, as a scan returns them."""
    schema = table_arrow_schema(doc)
    values: dict[str, list[object]] = {
        "id": ["1", "2"],
        "b": [True, None],
        "d": [-1, None],
        "e": ["x", None],
        "f": [1.5, None],
        "g": [float("inf"), None],
        "i": [-(2**31), None],
        "j": [2**63 - 1, None],
        "lb": [[True, None], None],
        "ld": [[0], None],
        "lf": [[], None],
        "li": [[1, None], []],
        "ls": [["é"], None],
        "lt": [[-1, None], None],
        "lu": [[2**64 - 1], None],
        "p": [b"\x00", None],
        "s": ["", "😀"],
        "t": [86_400_001, None],
        "u": [2**32 - 1, None],
        "v": [2**64 - 1, None],
        "w": [[1.0, 2.0], None],
    }
    arrays = []
    for field in schema:
        if field.name == "p":
            arrays.append(pa.array(values["p"], pa.large_binary()))
        elif field.name == "lt":
            milliseconds = pa.array(values["lt"], pa.list_(pa.int64()))
            arrays.append(milliseconds.view(listed(pa.date64())))
        elif field.name in ("t", "d"):
            plain = pa.int64() if field.name == "t" else pa.int32()
            arrays.append(pa.array(values[field.name], plain).view(field.type))
        else:
            arrays.append(pa.array(values[field.name], field.type))
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def shown(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """Rows as Python values, instants and dates as their numbers."""
    numbers = {"t": pa.int64(), "d": pa.int32(), "lt": pa.list_(pa.int64()), "ld": pa.list_(pa.int32())}
    rows = {}
    for name in batch.schema.names:
        column = batch.column(name)
        rows[name] = (column.cast(numbers[name]) if name in numbers else column).to_pylist()
    return [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]


FIRST: dict[str, object] = {
    "id": "1",
    "b": True,
    "d": -1,
    "e": "x",
    "f": 1.5,
    "g": float("inf"),
    "i": -(2**31),
    "j": 2**63 - 1,
    "lb": [True, None],
    "ld": [0],
    "lf": [],
    "li": [1, None],
    "ls": ["é"],
    "lt": [-1000, None],
    "lu": [Decimal(2**64 - 1)],
    "p": b"\x00",
    "s": "",
    "t": 86_400_001_000,
    "u": 2**32 - 1,
    "v": Decimal(2**64 - 1),
    "w": [1.0, 2.0],
}
SECOND: dict[str, object] = {**dict.fromkeys(FIRST), "id": "2", "s": "😀", "li": []}


def test_stored_rows_read_as_spark_expects(doc: NodeType) -> None:
    """Every type arrives in exactly the read schema with its value, and nulls stay nulls."""
    read = to_spark_batch(stored_batch(doc), read_arrow_schema(doc))
    assert str(read.schema) == str(read_arrow_schema(doc))
    assert [str(column.type) for column in read.columns] == [str(field.type) for field in read.schema]
    assert shown(read) == [FIRST, SECOND]


@pytest.mark.parametrize(("offset", "length"), [(0, 0), (0, 1), (1, 1), (2, 0)])
def test_slices_read_as_their_rows(doc: NodeType, offset: int, length: int) -> None:
    """Offsets inside a batch, and no rows at all, change nothing."""
    part = stored_batch(doc).slice(offset, length)
    read = to_spark_batch(part, read_arrow_schema(doc))
    assert shown(read) == [FIRST, SECOND][offset : offset + length]


def test_reads_choose_and_order_columns(doc: NodeType) -> None:
    """The schema decides; metadata columns of a scan are cast like any other."""
    scanned = stored_batch(doc).append_column("_rowid", pa.array([7, 8], pa.uint64()))
    schema = pa.schema([*read_arrow_schema(doc, columns=["u", "id"]), pa.field("_rowid", pa.int64())])
    rows = to_spark_batch(scanned, schema).to_pylist()
    assert rows == [{"u": 2**32 - 1, "id": "1", "_rowid": 7}, {"u": None, "id": "2", "_rowid": 8}]


def test_reads_accept_plain_binary_and_large_strings(doc: NodeType) -> None:
    """The scanner's choice of offset width does not matter."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["1"], pa.large_string()), pa.array([b"x"], pa.binary())], names=["id", "p"]
    )
    read = to_spark_batch(batch, read_arrow_schema(doc, columns=["id", "p"]))
    assert read.to_pylist() == [{"id": "1", "p": b"x"}]


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("s", pa.array(["a", None]), "holds nulls"),
        ("t", pa.array([2**62]).view(pa.date64()), "cannot be read"),
        ("p", pa.array([{"position": 1}]), "cannot be read"),
        ("u", pa.array(["x"]), "cannot be read"),
    ],
)
def test_stored_data_that_does_not_fit_is_a_format_error(
    doc: NodeType, column: str, values: pa.Array, said: str
) -> None:
    """Reading never guesses: the column at fault is named."""
    batch = pa.RecordBatch.from_arrays([values], names=[column])
    with pytest.raises(FormatError, match=said):
        to_spark_batch(batch, read_arrow_schema(doc, columns=[column]))


def test_a_missing_column_is_a_format_error(doc: NodeType) -> None:
    """A scan that lacks a column of the schema is refused."""
    with pytest.raises(FormatError, match="no column 'u'"):
        to_spark_batch(stored_batch(doc).select(["id"]), read_arrow_schema(doc, columns=["u"]))


def test_rows_survive_a_lance_table(doc: NodeType, tmp_path: Path) -> None:
    """What is read can be written, stored by Lance and read again unchanged, Blob and Vector included."""
    given = to_spark_batch(stored_batch(doc), read_arrow_schema(doc))
    table = pa.Table.from_batches([to_table_batch(given, doc)])
    dataset = lance.write_dataset(table, str(tmp_path / "t.lance"), data_storage_version="2.2")
    scanned = dataset.scanner(blob_handling="all_binary").to_table().combine_chunks().to_batches()[0]
    assert shown(to_spark_batch(scanned, read_arrow_schema(doc))) == [FIRST, SECOND]
