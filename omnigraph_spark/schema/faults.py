"""Rows that break a rule, found column by column and reported together.

Strict casts find faults as index arrays, never row by row; only the few that are shown become Python objects.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.errors import ValidationError, Violation

MAX_SHOWN = 100
_MAX_VALUE_TEXT = 80


@dataclass(frozen=True, slots=True)
class Fault:
    """The rows of one column that break one rule, with the value at fault in each where there is one."""

    rule: str
    reason: str
    rows: pa.Int64Array
    values: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class Cast:
    """A column cast to its table type, or what kept it from being so."""

    array: pa.Array
    faults: tuple[Fault, ...] = ()


class WrongTypeError(Exception):
    """A whole column has a type that cannot stand for the wanted one."""


def fault_where(mask: pa.Array, *, rule: str, reason: str, values: pa.Array | None = None) -> tuple[Fault, ...]:
    """Return the fault of the rows where a mask is true, or nothing; a null in the mask counts as false."""
    rows = pc.indices_nonzero(pc.fill_null(mask, pa.scalar(value=False))).cast(pa.int64())
    if not len(rows):
        return ()
    return (Fault(rule, reason, rows, None if values is None else values.take(rows)),)


class FaultReport:
    """Collects the faults of one batch; all are counted, the first hundred are kept."""

    def __init__(self, type_name: str, *, ids: pa.Array | None, first_row: int) -> None:
        self.type_name = type_name
        self.ids = ids
        self.first_row = first_row
        self.total = 0
        self.violations: list[Violation] = []

    def add_column(self, property: str, *, rule: str, reason: str) -> None:
        """Report a fault of a column as a whole."""
        self.total += 1
        if len(self.violations) < MAX_SHOWN:
            message = f"{self.type_name}.{property}: {reason}"
            self.violations.append(Violation(rule=rule, type_name=self.type_name, property=property, message=message))

    def add_rows(self, property: str, *, fault: Fault) -> None:
        """Report the rows of a fault."""
        self.total += len(fault.rows)
        for at in range(min(len(fault.rows), MAX_SHOWN - len(self.violations))):
            row = fault.rows[at].as_py()
            value = None if fault.values is None else _shown(fault.values[at])
            row_id = None if self.ids is None else self.ids[row].as_py()
            named = f"row {self.first_row + row}" + ("" if row_id is None else f" (id {row_id!r})")
            said = "" if value is None else f"{value} "
            self.violations.append(
                Violation(
                    rule=fault.rule,
                    type_name=self.type_name,
                    property=property,
                    row_id=row_id,
                    value=value,
                    message=f"{self.type_name}.{property}, {named}: {said}{fault.reason}",
                )
            )

    def raise_if_any(self) -> None:
        """Raise ValidationError when anything was reported."""
        if self.total:
            count = "1 violation" if self.total == 1 else f"{self.total} violations"
            message = f"rows do not fit {self.type_name}: {count}"
            raise ValidationError(message, violations=self.violations, total=self.total)


def _shown(value: pa.Scalar) -> str:
    try:
        text = str(value.cast(pa.string()).as_py())
    except pa.ArrowException:
        text = str(value)
    return text if len(text) <= _MAX_VALUE_TEXT else f"{text[:_MAX_VALUE_TEXT]}..."
