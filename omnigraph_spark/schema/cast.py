"""Rows from users and Spark to exactly the columns of a table.

Strict by contract: a value either arrives in the table as it was given or the batch is refused with every
fault named. Nothing becomes null, wraps or is cut on the way.
"""

from __future__ import annotations

import pyarrow as pa

from omnigraph_spark.errors import SchemaError
from omnigraph_spark.schema.catalog import GraphType, nearest
from omnigraph_spark.schema.declarations import PropertyType, Scalar
from omnigraph_spark.schema.faults import FaultReport, WrongTypeError, fault_where
from omnigraph_spark.schema.mapping import table_arrow_schema
from omnigraph_spark.schema.strict_values import cast_strictly, decoded, to_strings

_ID_TYPE = PropertyType(Scalar.STRING)


def to_table_batch(batch: pa.RecordBatch, graph_type: GraphType, *, first_row: int = 0) -> pa.RecordBatch:
    """Return a batch in exactly the schema of a type's table, or refuse it.

    Columns may come in any order and in any accepted Arrow type. A nullable property may be left out;
    ``id`` (and ``src``, ``dst`` for edges) must be there. ``first_row`` is the number of the first row in
    messages.

    Raises:
        SchemaError: A column is unknown or given twice.
        ValidationError: Values, nulls or types do not fit; all are counted, up to 100 are listed.
    """
    _refuse_strange_columns(batch.schema.names, graph_type=graph_type)
    schema = table_arrow_schema(graph_type)
    types = {property.name: property.type for property in graph_type.properties}
    report = FaultReport(graph_type.name, ids=_ids(batch), first_row=first_row)
    arrays = [_column(batch, field=field, to=types.get(field.name, _ID_TYPE), report=report) for field in schema]
    report.raise_if_any()
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _refuse_strange_columns(names: list[str], *, graph_type: GraphType) -> None:
    known = graph_type.columns
    for at, name in enumerate(names):
        if name not in known:
            message = f"{graph_type.name} has no column {name!r}{nearest(name, among=known)}"
            raise SchemaError(message, rule="unknown-column", hint="Rename the column or leave it out.")
        if name in names[:at]:
            raise SchemaError(f"the column {name!r} is given twice", rule="duplicate-column")


def _ids(batch: pa.RecordBatch) -> pa.Array | None:
    at = batch.schema.get_field_index("id")
    if at < 0:
        return None
    try:
        return to_strings(decoded(batch.column(at))).array
    except (WrongTypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _column(batch: pa.RecordBatch, *, field: pa.Field, to: PropertyType, report: FaultReport) -> pa.Array:
    at = batch.schema.get_field_index(field.name)
    nothing = pa.nulls(batch.num_rows, field.type)
    if at < 0:
        if not field.nullable:
            report.add_column(field.name, rule="required", reason="the required column is missing")
        return nothing
    column = batch.column(at)
    try:
        cast = cast_strictly(column, to=to)
    except (WrongTypeError, pa.ArrowNotImplementedError):
        reason = f"a column of {column.type} cannot be written as {to.text}"
        report.add_column(field.name, rule="type", reason=reason)
        return nothing
    except pa.ArrowInvalid as error:
        report.add_column(field.name, rule="size", reason=f"the column cannot be written: {error}")
        return nothing
    for fault in cast.faults:
        report.add_rows(field.name, fault=fault)
    if not field.nullable and cast.array.null_count:
        system = field.name in ("id", "src", "dst") and to is _ID_TYPE
        rule, reason = ("null-key", "is null") if system else ("required", "is null, but a value is required")
        for fault in fault_where(cast.array.is_null(), rule=rule, reason=reason):
            report.add_rows(field.name, fault=fault)
    return cast.array
