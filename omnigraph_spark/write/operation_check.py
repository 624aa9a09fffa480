"""Checks over all tasks of one operation: their own findings, ids and unique values given twice, unique values held.

Suspicion comes from hashes and is settled on the staged rows themselves. Everything found is reported at once, sorted
and capped, with the total.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.errors import KeyConflictError, ValidationError, Violation
from omnigraph_spark.schema.catalog import GraphType
from omnigraph_spark.schema.faults import MAX_SHOWN
from omnigraph_spark.storage.keyhash import U64, hash_text
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.lance_staged import staged_batches
from omnigraph_spark.write.evidence import EvidenceReader
from omnigraph_spark.write.gate import Faults
from omnigraph_spark.write.key_runs import repeated
from omnigraph_spark.write.rowids import RowIds
from omnigraph_spark.write.stage import StagedPart
from omnigraph_spark.write.stage_checks import unique_table

_KEY_RULES = {"key-conflict", "duplicate-id", "unique"}


def raise_faults(faults: Faults, *, what: str) -> None:
    """Raise everything found, as the most telling class of error."""
    if not faults.total:
        return
    count = "1 violation" if faults.total == 1 else f"{faults.total} violations"
    only_keys = {v.rule for v in faults.violations} <= _KEY_RULES
    cls = KeyConflictError if only_keys else ValidationError
    raise cls(f"{what}: {count}", violations=faults.violations, total=faults.total)


@dataclass(slots=True)
class OperationCheck:
    """The parts of one operation on one table, checked together."""

    io: LanceIO
    evidence: EvidenceReader
    graph_type: GraphType
    uri: str
    parts: Sequence[StagedPart]

    def run(self) -> None:
        """Raise ValidationError, or KeyConflictError when only keys are at fault, listing every violation."""
        faults = Faults()
        for part in self.parts:
            faults.add(part.violations, total=part.violation_total)
        if not faults.total:
            self._repeated_ids(faults)
            for number, columns in enumerate(self.graph_type.unique):
                self._repeated_unique(number, columns, faults)
                self._held_unique(number, columns, faults)
        raise_faults(faults, what=f"Rows of {self.graph_type.name} break its rules")

    def _staged(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for part in self.parts:
            yield from staged_batches(self.io, self.uri, part.fragments, columns=columns)

    def _repeated_ids(self, faults: Faults) -> None:
        suspects = repeated(self.evidence.runs(part.keys for part in self.parts))
        if not len(suspects) or not any(part.fragments for part in self.parts):
            return  # a delete may name an id twice
        ids = [_among(batch.column("id"), suspects) for batch in self._staged(("id",))]
        for text, count in _counted(pa.chunked_array(ids, pa.string())):
            message = f"{self.graph_type.name} {text!r} is given {count} times in one write"
            faults.add([_violation("duplicate-id", self.graph_type.name, "id", text, message)])

    def _repeated_unique(self, number: int, columns: Sequence[str], faults: Faults) -> None:
        suspects = repeated(self.evidence.runs(part.uniques[number] for part in self.parts if part.uniques))
        if not len(suspects):
            return
        wanted = pa.array(suspects)
        tables = [unique_table(batch, columns) for batch in self._staged(_columns(columns))]
        rows = pa.concat_tables([t.filter(pc.is_in(t["hash"], value_set=wanted)) for t in tables])
        grouped = rows.group_by(["hash", "value"]).aggregate([("id", "min"), ("id", "max"), ("id", "count")])
        for row in grouped.filter(pc.greater(grouped["id_count"], 1)).to_pylist():
            faults.add([self._unique(columns, row["value"], row["id_min"], row["id_max"])])

    def _held_unique(self, number: int, columns: Sequence[str], faults: Faults) -> None:
        packed = [part.unique_hits[number] for part in self.parts if len(part.unique_hits) > number]
        tables = [pa.ipc.open_stream(data).read_all() for data in packed if data]
        if not tables:
            return
        pairs = pa.concat_tables(tables)
        # A row that this same operation replaces no longer holds its old value.
        replaced = RowIds.concat([m.rows for part in self.parts for m in part.matched]).ids
        held = pairs.filter(pa.array(~np.isin(pairs["row_id"].to_numpy(), replaced)))
        for row in held.slice(0, MAX_SHOWN).to_pylist():
            faults.add([self._unique(columns, row["value"], row["id"], row["held_by"])])
        faults.total += max(0, held.num_rows - MAX_SHOWN)

    def _unique(self, columns: Sequence[str], value: str, row_id: str, other: str) -> Violation:
        shown = value.replace("\x1f", ", ")
        name = f"{self.graph_type.name}.{','.join(columns)}"
        message = f"@unique violation on {name}: {shown!r} of {row_id!r} is also held by {other!r}"
        return _violation("unique", self.graph_type.name, ",".join(columns), row_id, message, value=shown)


def _columns(columns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(("id", *columns)))


def _among(texts: pa.Array, suspects: U64) -> pa.Array:
    mask = np.isin(hash_text(texts), suspects)
    return texts.cast(pa.string()).filter(pa.array(mask))


def _counted(texts: pa.ChunkedArray) -> Iterable[tuple[str, int]]:
    counts = pc.value_counts(texts)
    many = counts.filter(pc.greater(counts.field("counts"), 1))
    return [(row["values"], row["counts"]) for row in many.to_pylist()]


def _violation(
    rule: str, type_name: str, property: str, row_id: str, message: str, *, value: str | None = None
) -> Violation:
    shown = row_id if value is None else value
    return Violation(rule=rule, type_name=type_name, property=property, row_id=row_id, value=shown, message=message)
