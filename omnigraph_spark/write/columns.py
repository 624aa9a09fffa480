"""Which columns an operation takes, told from their names and types alone: before any task runs, without a row.

The test is the way every row takes into its table, walked with no rows, so that it cannot disagree with it.
"""

from __future__ import annotations

import pyarrow as pa

from omnigraph_spark.errors import SchemaError
from omnigraph_spark.schema.cast import to_table_batch
from omnigraph_spark.schema.catalog import GraphType, nearest
from omnigraph_spark.schema.declarations import PropertyType, Scalar
from omnigraph_spark.schema.faults import WrongTypeError
from omnigraph_spark.schema.strict_values import cast_strictly
from omnigraph_spark.storage.seams import DEFAULT_SEAMS
from omnigraph_spark.write.identity import identified


def refuse_columns(columns: pa.Schema, graph_type: GraphType, *, delete: bool) -> None:
    """Refuse columns no row of which could be taken.

    Raises:
        SchemaError: A column is unknown or given twice, or a delete names its rows by anything but id or key.
        ValidationError: A required column is missing, or a column has a wrong type.
    """
    repeated = next((name for name in columns.names if columns.names.count(name) > 1), None)
    if repeated is not None:
        raise SchemaError(f"the column {repeated!r} is given twice", rule="duplicate-column")
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in columns], schema=columns)
    if delete:
        _refuse_delete(empty, graph_type)
        return
    shaped, _ = identified(empty, graph_type, seams=DEFAULT_SEAMS)
    to_table_batch(shaped, graph_type)


def _refuse_delete(empty: pa.RecordBatch, graph_type: GraphType) -> None:
    known, names = ("id", *graph_type.key), empty.schema.names
    strange = next((name for name in names if name not in known), None)
    hint = "Select the id column before the delete."
    if strange is not None:
        message = f"A delete of {graph_type.name} has no use for the column {strange!r}{nearest(strange, among=known)}"
        raise SchemaError(message, rule="delete-columns", hint=hint)
    if "id" not in names and (not graph_type.key or set(graph_type.key) - set(names)):
        message = f"A delete of {graph_type.name} needs the column id" + (
            ", or its whole key" if graph_type.key else ""
        )
        raise SchemaError(message, rule="delete-columns", hint=hint)
    wanted = {p.name: p.type for p in graph_type.properties} | {"id": PropertyType(Scalar.STRING)}
    for name in names:
        try:
            cast_strictly(empty.column(name), to=wanted[name])
        except (WrongTypeError, pa.ArrowException) as e:
            kind = f"a column of {empty.column(name).type} cannot be read as {wanted[name].text}"
            raise SchemaError(f"{graph_type.name}.{name}: {kind}", rule="type", hint="Cast the column.") from e
