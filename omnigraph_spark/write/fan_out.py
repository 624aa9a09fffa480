"""One DataFrame, many tables: a column names the type of each row.

A task keeps each type's rows in a local file and stages one type after the other. Columns that a type does not have
must be null in its rows; a value there is an error, never dropped. Faults of all tables leave in one error.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.errors import KeyConflictError, OptionError, SchemaError, ValidationError, Violation
from omnigraph_spark.schema.catalog import GraphType, nearest
from omnigraph_spark.write.gate import Faults
from omnigraph_spark.write.key_runs import Scratch
from omnigraph_spark.write.operation_check import raise_faults
from omnigraph_spark.write.spill import RowSpill
from omnigraph_spark.write.stage import StagedPart, StageJob, WriteMode, stage

NO_TABLE = ""  # the table of rows that name no type, or have a value where their type has no column


def check_fan_out(types: Sequence[GraphType], columns: pa.Schema, *, column: str) -> None:
    """Refuse a DataFrame without the type column, or with columns that no type has, before any task runs."""
    names = columns.names
    if column not in names:
        raise OptionError(f"The type column {column!r} is not in the DataFrame{nearest(column, among=names)}")
    kind = columns.field(column).type if names.count(column) == 1 else None
    if kind is None or not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise OptionError(f"The type column {column!r} must be one column of text, not {kind or 'two columns'}")
    known = dict.fromkeys(name for graph_type in types for name in graph_type.columns)
    ends = {"from", "to"} if any(graph_type.kind == "edge" for graph_type in types) else set()
    for name in names:
        if name != column and name not in known and name not in ends:
            raise SchemaError(
                f"No type has a column {name!r}{nearest(name, among=list(known))}",
                rule="unknown-column",
                hint="Rename the column or leave it out.",
            )
        if names.count(name) > 1:
            raise SchemaError(f"the column {name!r} is given twice", rule="duplicate-column")


def stage_by_type(
    jobs: Mapping[str, StageJob], batches: Iterable[pa.RecordBatch], *, column: str
) -> Iterator[StagedPart]:
    """Stage a task's rows, each in the table its type column names; tables without rows are left alone."""
    faults = Faults()
    with Scratch() as scratch:
        kept: dict[str, RowSpill] = {}
        for batch in batches:
            for name, rows in _split(batch, column=column, faults=faults, known=jobs):
                if name not in kept:
                    kept[name] = RowSpill(rows.schema, scratch)
                kept[name].add(rows)
        for name, spill in kept.items():
            spill.close()
            yield stage(jobs[name], _narrowed(spill, jobs[name].graph_type, faults))
    if faults.total:
        found = tuple(faults.violations)
        yield StagedPart(NO_TABLE, WriteMode.APPEND, 0, violations=found, violation_total=faults.total)


def refuse_strays(parts: Sequence[StagedPart]) -> None:
    """Raise what all tasks found wrong with rows before they reached a table."""
    faults = Faults()
    for part in parts:
        faults.add(part.violations, total=part.violation_total)
    raise_faults(faults, what="Rows do not fit the type they name")


def one_error(refusals: Sequence[ValidationError]) -> ValidationError:
    """Return one error with the faults of several tables: all are counted, each table shows some of its own."""
    if len(refusals) == 1:
        return refusals[0]
    # Spark keeps only the text, and that lists a few: in turn from each table, so that no table hides another.
    turns = itertools.zip_longest(*(error.violations for error in refusals))
    listed = [violation for turn in turns for violation in turn if violation is not None]
    total = sum(error.total for error in refusals)
    only_keys = all(isinstance(error, KeyConflictError) for error in refusals)
    cls = KeyConflictError if only_keys else ValidationError
    return cls(
        f"Rows of several types break their rules: {total} violations",
        violations=listed[: ValidationError.shown],
        total=total,
    )


def _split(
    batch: pa.RecordBatch, *, column: str, faults: Faults, known: Mapping[str, StageJob]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    at = batch.schema.get_field_index(column)
    types = batch.column(at).cast(pa.string())
    rest = batch.remove_column(at)
    for value in pc.unique(types).to_pylist():
        name = value if value in known else _folded(value, known)
        mask = types.is_null() if value is None else pc.fill_null(pc.equal(types, value), pa.scalar(value=False))
        rows = rest.filter(mask)
        if name is None:
            listed = nearest(str(value), among=list(known)) if value is not None else ""
            message = f"{rows.num_rows} rows name the type {value!r} in {column!r}{listed}"
            violation = Violation(rule="unknown-type", type_name=str(value), property=column, message=message)
            faults.add([violation], total=rows.num_rows)
        else:
            yield name, rows


def _folded(value: str | None, known: Mapping[str, StageJob]) -> str | None:
    found = [name for name in known if value is not None and name.casefold() == value.casefold()]
    return found[0] if len(found) == 1 else None


def _narrowed(spill: RowSpill, graph_type: GraphType, faults: Faults) -> Iterator[pa.RecordBatch]:
    """Leave out the columns of other types, after making sure that they are empty."""
    ends = {"from", "to"} if graph_type.kind == "edge" else set()
    strange = [n for n in spill.schema.names if n not in graph_type.columns and n not in ends]
    for batch in spill.batches():
        for name in strange:
            filled = batch.num_rows - batch.column(name).null_count
            if filled:
                message = f"{filled} rows of {graph_type.name} have a value in {name!r}, which it does not have"
                violation = Violation(rule="unknown-column", type_name=graph_type.name, property=name, message=message)
                faults.add([violation], total=filled)
        yield batch.drop_columns(strange) if strange else batch
