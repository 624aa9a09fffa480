"""The gate every row passes on its way into a table: identified, cast, checked, its keys noted.

It runs in the task, a batch at a time. Faults are collected, not raised, so that one write reports all of them; once
there is one, nothing more of this task is staged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.errors import ValidationError, Violation
from omnigraph_spark.schema.cast import to_table_batch
from omnigraph_spark.schema.catalog import EdgeType, GraphType
from omnigraph_spark.schema.declarations import PropertyType, Scalar
from omnigraph_spark.schema.faults import MAX_SHOWN
from omnigraph_spark.schema.strict_values import cast_strictly
from omnigraph_spark.storage.keyhash import U64, hash_rows, hash_text
from omnigraph_spark.storage.seams import Seams
from omnigraph_spark.write.columns import refuse_columns
from omnigraph_spark.write.identity import identified
from omnigraph_spark.write.key_runs import KeyRuns, Scratch
from omnigraph_spark.write.probe import FewTexts
from omnigraph_spark.write.row_rules import check_rows

_BATCH_ROWS, _BATCH_BYTES = 1 << 16, 8 << 20


def _coalesced(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches of one schema: Spark sends ten thousand rows at a time, and every step has its fixed cost."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if waiting and (rows >= _BATCH_ROWS or size >= _BATCH_BYTES or batch.schema != waiting[0].schema):
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


class Faults:
    """Violations found so far: all are counted, a bounded number is kept."""

    def __init__(self) -> None:
        self.total = 0
        self.violations: list[Violation] = []

    def absorb(self, error: ValidationError) -> None:
        """Take over what a check found."""
        self.add(error.violations, total=error.total)

    def add(self, violations: Sequence[Violation], *, total: int | None = None) -> None:
        """Add violations; ``total`` counts those that are not listed too."""
        self.total += len(violations) if total is None else total
        self.violations.extend(violations[: max(0, MAX_SHOWN - len(self.violations))])


def tuple_texts(batch: pa.RecordBatch, columns: Sequence[str]) -> tuple[list[pa.Array], pa.Array]:
    """Return the columns of a unique group as text, and which rows have all of them."""
    arrays = [batch.column(name) for name in columns]
    present = arrays[0].is_valid()
    for array in arrays[1:]:
        present = pc.and_(present, array.is_valid())
    return [a if pa.types.is_string(a.type) else _text(a) for a in arrays], present


def _text(array: pa.Array) -> pa.Array:
    if pa.types.is_date64(array.type):
        return array.view(pa.int64()).cast(pa.string())
    return array.cast(pa.string())


def tuple_hashes(batch: pa.RecordBatch, columns: Sequence[str]) -> U64:
    """Hash the tuples of a unique group; rows with a null are left out."""
    texts, present = tuple_texts(batch, columns)
    hashes = hash_rows(texts)
    return hashes if present.true_count == len(present) else hashes[present.to_numpy(zero_copy_only=False)]


class RowGate:
    """Admits input batches of one type."""

    def __init__(self, graph_type: GraphType, *, scratch: Scratch, seams: Seams, note_ids: bool = True) -> None:
        """Admit rows; ``note_ids`` is off where the caller indexes the ids anyway and brings its own ``ids``."""
        self._type = graph_type
        self._seams = seams
        self._note_ids = note_ids
        self.rows = 0
        self.faults = Faults()
        self.all_fresh = True
        self.ids = KeyRuns(scratch)
        self.few_ids = FewTexts()
        self.uniques = [KeyRuns(scratch) for _ in graph_type.unique]
        ends = ("src", "dst") if isinstance(graph_type, EdgeType) else ()
        self.ends = {end: KeyRuns(scratch, distinct=True) for end in ends}
        self.few_ends = {end: FewTexts() for end in ends}

    def stream(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Admit batches one by one; after a fault, only look for more faults."""
        for batch in _coalesced(batches):
            admitted = self._admit(batch)
            if admitted is not None and not self.faults.total:
                yield admitted
        for keys in (self.ids, *self.uniques, *self.ends.values()):
            keys.close()

    def ids_only(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Array]:
        """Return the ids that batches of a delete name, by ``id`` or by key; other columns are refused."""
        for batch in batches:
            refuse_columns(batch.schema, self._type, delete=True)
            self.rows += batch.num_rows
            only_id = batch.schema.names == ["id"]
            shaped = batch if only_id else identified(batch, self._type, seams=self._seams)[0]
            ids = cast_strictly(shaped.column("id"), to=PropertyType(Scalar.STRING)).array
            if ids.null_count:
                message = f"{self._type.name}.id: a delete needs an id in every row"
                self.faults.add([Violation(rule="null-key", type_name=self._type.name, property="id", message=message)])
                ids = ids.drop_null()
            self.few_ids.add(ids)
            yield ids

    def _admit(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        first, self.rows = self.rows, self.rows + batch.num_rows
        try:
            shaped, fresh = identified(batch, self._type, seams=self._seams, first_row=first)
            rows = to_table_batch(shaped, self._type, first_row=first)
            check_rows(rows, self._type, first_row=first)
        except ValidationError as e:
            self.faults.absorb(e)
            return None
        self._note(rows, fresh=fresh)
        return rows

    def _note(self, rows: pa.RecordBatch, *, fresh: bool) -> None:
        if not fresh:
            self.all_fresh = False
            if self._note_ids:
                self.ids.add(hash_text(rows.column("id")))
            self.few_ids.add(rows.column("id"))
        for columns, keys in zip(self._type.unique, self.uniques, strict=True):
            keys.add(tuple_hashes(rows, columns))
        for end, keys in self.ends.items():
            keys.add(hash_text(rows.column(end)))
            self.few_ends[end].add(rows.column(end))
