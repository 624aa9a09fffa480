"""Schema types in Lance tables and in Spark: one table, both directions start here.

What a table stores and what Spark reads differ for unsigned integers, DateTime, Vector and Blob. The
Spark type is what Spark itself makes of the Arrow type it reads, so the two cannot drift apart. Writing
is in ``cast``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph_spark.errors import FormatError, SchemaError
from omnigraph_spark.schema.catalog import GraphType, nearest
from omnigraph_spark.schema.declarations import PropertyType, Scalar
from omnigraph_spark.schema.lists import is_list_like, relist

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Exactly these two children: tables made by OmniGraph have no others, and appending more is refused.
BLOB_STRUCT = pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.string())])
BLOB_METADATA = {"ARROW:extension:name": "lance.blob.v2"}

# scalar: (in the Lance table, as Spark reads it). Vectors and lists are built from these by the two
# functions below.
_ARROW: dict[Scalar, tuple[pa.DataType, pa.DataType]] = {
    Scalar.STRING: (pa.string(), pa.string()),
    Scalar.BOOL: (pa.bool_(), pa.bool_()),
    Scalar.I32: (pa.int32(), pa.int32()),
    Scalar.I64: (pa.int64(), pa.int64()),
    Scalar.U32: (pa.uint32(), pa.int64()),
    Scalar.U64: (pa.uint64(), pa.decimal128(20, 0)),
    Scalar.F32: (pa.float32(), pa.float32()),
    Scalar.F64: (pa.float64(), pa.float64()),
    Scalar.DATE: (pa.date32(), pa.date32()),
    # Milliseconds with the time of day: this is what the table format calls Date64.
    Scalar.DATETIME: (pa.date64(), pa.timestamp("us", tz="UTC")),
    Scalar.BLOB: (BLOB_STRUCT, pa.binary()),
    Scalar.VECTOR: (pa.float32(), pa.float32()),
}


def table_type(property_type: PropertyType) -> pa.DataType:
    """Return the Arrow type of a property's column in its Lance table."""
    stored = _ARROW[property_type.scalar][0]
    if property_type.dimension is not None:
        return pa.list_(pa.field("item", stored), property_type.dimension)
    return pa.list_(pa.field("item", stored)) if property_type.is_list else stored


def read_type(property_type: PropertyType) -> pa.DataType:
    """Return the Arrow type in which Spark reads a property."""
    read = _ARROW[property_type.scalar][1]
    nested = property_type.is_list or property_type.dimension is not None
    return pa.list_(pa.field("element", read)) if nested else read


def table_arrow_schema(graph_type: GraphType) -> pa.Schema:
    """Return the exact schema of a type's Lance table."""
    fields = [pa.field(name, pa.string(), nullable=False) for name in graph_type.system_columns]
    for property in graph_type.properties:
        metadata = BLOB_METADATA if property.scalar is Scalar.BLOB else None
        fields.append(pa.field(property.name, table_type(property.type), nullable=property.nullable, metadata=metadata))
    return pa.schema(fields)


def read_arrow_schema(graph_type: GraphType, *, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the Arrow schema of a read: all columns in table order, or the named ones in the order given."""
    fields = [pa.field(name, pa.string(), nullable=False) for name in graph_type.system_columns]
    fields += [pa.field(p.name, read_type(p.type), nullable=p.nullable) for p in graph_type.properties]
    if columns is None:
        return pa.schema(fields)
    known = {field.name: field for field in fields}
    for name in columns:
        if name not in known:
            message = f"{graph_type.name} has no column {name!r}{nearest(name, among=list(known))}"
            raise SchemaError(message, rule="unknown-column")
    return pa.schema([known[name] for name in columns])


def spark_schema(graph_type: GraphType, *, columns: Sequence[str] | None = None) -> StructType:
    """Return the Spark schema of a read of a type; needs pyspark."""
    return spark_schema_of(read_arrow_schema(graph_type, columns=columns))


def spark_schema_of(schema: pa.Schema) -> StructType:
    """Return the Spark schema that Spark expects such Arrow batches for; needs pyspark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def to_spark_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a scanned batch in exactly the given read schema: columns, order, types and nullability.

    Raises FormatError where the stored data does not fit, such as a null in a required column.
    """
    arrays = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            raise FormatError(f"the scan returned no column {field.name!r}")
        column = batch.column(at)
        if column.null_count and not field.nullable:
            raise FormatError(f"the stored column {field.name!r} holds nulls, but the schema requires values")
        try:
            arrays.append(_readable(column, data_type=field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise FormatError(
                f"the stored column {field.name!r} of {column.type} cannot be read as {field.type}: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _readable(array: pa.Array, *, data_type: pa.DataType) -> pa.Array:
    if is_list_like(array.type) and is_list_like(data_type):
        values = _readable(array.flatten(), data_type=data_type.value_type)
        return relist(array, values, data_type=data_type)
    if pa.types.is_date64(array.type) and pa.types.is_timestamp(data_type):
        # A cast would go by whole days; the bits are milliseconds.
        return array.view(pa.timestamp("ms", tz=data_type.tz)).cast(data_type)
    return array if array.type == data_type else array.cast(data_type)
