"""Rules a row can be checked against by itself: enum, ``@range``, ``@check``; in the task, a column at a time."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.errors import SchemaError
from omnigraph_spark.schema.catalog import GraphType, Property
from omnigraph_spark.schema.declarations import CheckConstraint, RangeConstraint
from omnigraph_spark.schema.faults import Fault, FaultReport, fault_where


def check_rows(batch: pa.RecordBatch, graph_type: GraphType, *, first_row: int = 0) -> None:
    """Check a batch that is already in its table's schema; raises ValidationError naming every fault."""
    report = FaultReport(graph_type.name, ids=batch.column("id"), first_row=first_row)
    for property in graph_type.properties:
        if property.enum_values is not None:
            _add(report, property.name, _enum(batch.column(property.name), property, graph_type))
    for bounds in graph_type.ranges:
        _add(report, bounds.property, _range(batch.column(bounds.property), bounds, graph_type))
    for check in graph_type.checks:
        _add(report, check.property, _check(batch.column(check.property), check, graph_type))
    report.raise_if_any()


def _add(report: FaultReport, name: str, faults: tuple[Fault, ...]) -> None:
    for fault in faults:
        report.add_rows(name, fault=fault)


def _enum(column: pa.Array, property: Property, graph_type: GraphType) -> tuple[Fault, ...]:
    allowed = pa.array(list(property.enum_values or ()), pa.string())
    strange = pc.and_(column.is_valid(), pc.invert(pc.is_in(column, value_set=allowed)))
    reason = (
        f"is an invalid enum value for {graph_type.name}.{property.name}; allowed: {', '.join(allowed.to_pylist())}"
    )
    return fault_where(strange, rule="enum", reason=reason, values=column)


def _range(column: pa.Array, bounds: RangeConstraint, graph_type: GraphType) -> tuple[Fault, ...]:
    if pa.types.is_nested(column.type):
        return ()
    values = column.cast(pa.float64(), safe=False)
    name = f"@range violation on {graph_type.name}.{bounds.property}"
    found = fault_where(pc.is_nan(values), rule="range", reason=f"is not a number ({name})", values=column)
    if bounds.minimum is not None:
        below = pc.less(values, float(bounds.minimum))
        found += fault_where(below, rule="range", reason=f"is below {bounds.minimum} ({name})", values=column)
    if bounds.maximum is not None:
        above = pc.greater(values, float(bounds.maximum))
        found += fault_where(above, rule="range", reason=f"is above {bounds.maximum} ({name})", values=column)
    return found


def _check(column: pa.Array, check: CheckConstraint, graph_type: GraphType) -> tuple[Fault, ...]:
    name = f"@check violation on {graph_type.name}.{check.property}"
    try:
        matches = pc.match_substring_regex(column, check.pattern)
    except pa.ArrowInvalid as e:
        raise SchemaError(f"The pattern of {graph_type.name}.{check.property} is not valid: {e}", rule="check") from e
    reason = f"does not match {check.pattern!r} ({name})"
    return fault_where(pc.invert(matches), rule="check", reason=reason, values=column)
