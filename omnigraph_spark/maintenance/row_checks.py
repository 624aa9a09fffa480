"""Checks of a table's rows against its type, in one streamed pass.

Memory: eight bytes per row for each rule that compares rows with each other (ids, every ``@unique`` group, ``@card``),
plus a few batches; never the rows. Rows with equal hashes are compared by their text, in a second pass, before they are
reported. An absent end is certain from the hash alone; that a hash hides one has odds of one in 2^64 per pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.errors import ValidationError
from omnigraph_spark.maintenance.report import Examination, Reporting
from omnigraph_spark.schema.catalog import EdgeType, GraphType, NodeType
from omnigraph_spark.schema.declarations import Scalar
from omnigraph_spark.storage.keyhash import U64, hash_rows, hash_text
from omnigraph_spark.storage.lance_io import LanceIO, ScanSpec
from omnigraph_spark.write.evidence import contained
from omnigraph_spark.write.identity import key_ids, key_text
from omnigraph_spark.write.row_rules import check_rows

_BATCH_ROWS = 1 << 15
_CONFIRMED = 1_000  # groups of equal hashes whose text is compared; beyond that the hash is believed


class Watch(Protocol):
    """A check that sees every batch of a table once."""

    exam: Examination

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it looks at."""

    def see(self, batch: pa.RecordBatch) -> None:
        """Examine one batch."""


class HashBag:
    """A growing array of hashes, sized for the rows expected."""

    def __init__(self, expected: int) -> None:
        self._room: U64 = np.empty(max(expected, 1), dtype=np.uint64)
        self._used = 0

    def add(self, hashes: U64) -> None:
        """Append hashes."""
        end = self._used + len(hashes)
        if end > len(self._room):
            self._room = np.concatenate([self._room, np.empty(end, dtype=np.uint64)])
        self._room[self._used : end] = hashes
        self._used = end

    def sorted(self) -> U64:
        """Return the hashes in order, sorted in place."""
        used = self._room[: self._used]
        used.sort()
        return used


@dataclass(slots=True)
class RequiredWatch:
    """Columns that must have a value in every row."""

    exam: Examination
    columns: tuple[str, ...]

    def see(self, batch: pa.RecordBatch) -> None:
        """Look for nulls."""
        self.exam.look(batch.num_rows)
        for name in self.columns:
            column = batch.column(name)
            if column.null_count:
                message = f"the required column {name!r} has no value"
                _report(self.exam, batch, column.is_null(), message=message)


@dataclass(slots=True)
class KeyWatch:
    """A keyed node's id is its key."""

    exam: Examination
    graph_type: NodeType

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read."""
        return ("id", *self.graph_type.key)

    def see(self, batch: pa.RecordBatch) -> None:
        """Compare id and key."""
        self.exam.look(batch.num_rows)
        key = self.graph_type.key
        scalars = [self.graph_type.property_named(name).scalar for name in key]
        ids, values = batch.column("id"), [batch.column(name) for name in key]
        different = pc.not_equal(ids, key_ids(values, scalars=scalars))
        if len(key) > 1:
            # OmniGraph 0.8 takes the first key column alone for the id.
            different = pc.and_(different, pc.not_equal(ids, key_text(values[0], scalar=scalars[0])))
        # Only text has one spelling everywhere; another program may have written a number or date in its own.
        strict = scalars == [Scalar.STRING]
        message = f"its id is not its key ({', '.join(key)})"
        _report(self.exam, batch, different, message=message, error=strict)


@dataclass(slots=True)
class ValueWatch:
    """Enum, ``@range`` and ``@check``, by the evaluator every write uses."""

    exam: Examination
    graph_type: GraphType
    columns: tuple[str, ...]

    def see(self, batch: pa.RecordBatch) -> None:
        """Evaluate the rules."""
        first = self.exam.examined
        self.exam.look(batch.num_rows)
        try:
            check_rows(batch, self.graph_type, first_row=first)
        except ValidationError as e:
            for violation in e.violations:
                self.exam.error(violation.row_id or violation.property or "", violation.message)
            self.exam.more(e.total - len(e.violations))


@dataclass(slots=True)
class EndsWatch:
    """Both ends of every edge exist; ``ends`` maps src and dst to the sorted id hashes of their node table."""

    exam: Examination
    ends: Mapping[str, tuple[str, U64]]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read."""
        return ("id", *self.ends)

    def see(self, batch: pa.RecordBatch) -> None:
        """Look both ends up."""
        self.exam.look(batch.num_rows)
        for name, (node_type, ids) in self.ends.items():
            column = batch.column(name)
            absent = pc.and_(pa.array(~contained(hash_text(column), [ids])), column.is_valid())
            _report(self.exam, batch, absent, message=f"{name} is not found in {node_type}", shown=column)


@dataclass(slots=True)
class GroupWatch:
    """Rows with equal values in some columns: at most ``maximum`` of them, at least ``minimum`` where there are any."""

    exam: Examination
    columns: tuple[str, ...]
    bag: HashBag
    maximum: int | None = 1
    minimum: int = 0

    def see(self, batch: pa.RecordBatch) -> None:
        """Note the hashes of the rows that have all the columns."""
        texts = self.texts(batch)
        self.exam.look(texts.num_rows)
        if texts.num_rows:
            self.bag.add(hash_rows([texts.column(at) for at in range(texts.num_columns)]))

    def texts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns as text, without the rows a null exempts."""
        arrays = [_text(batch.column(name)) for name in self.columns]
        texts = pa.RecordBatch.from_arrays(arrays, names=list(self.columns))
        for array in arrays:
            if array.null_count:
                keep = arrays[0].is_valid()
                for other in arrays[1:]:
                    keep = pc.and_(keep, other.is_valid())
                return texts.filter(keep)
        return texts

    def settle(self, io: LanceIO, dataset: lance.LanceDataset) -> U64:
        """Judge the groups after the last batch; returns the sorted hashes of all rows."""
        hashes = self.bag.sorted()
        suspects = self._suspects(hashes)
        if len(suspects):
            self.exam.more(max(0, len(suspects) - _CONFIRMED))
            self._confirm(io, dataset, suspects[:_CONFIRMED])
        return hashes

    def _suspects(self, hashes: U64) -> U64:
        found: list[U64] = []
        if self.maximum is not None and len(hashes) > self.maximum:
            # In sorted order, a value with more than m rows is the one that meets itself m places further.
            found.append(hashes[self.maximum :][hashes[self.maximum :] == hashes[: -self.maximum or None]])
        if self.minimum > 1 and len(hashes):
            values, counts = np.unique(hashes, return_counts=True)
            found.append(values[counts < self.minimum])
        return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.uint64)

    def _confirm(self, io: LanceIO, dataset: lance.LanceDataset, suspects: U64) -> None:
        names = list(self.columns)
        counted: pa.Table | None = None
        for batch in io.batches(dataset, ScanSpec(columns=self.columns, batch_size=_BATCH_ROWS)):
            texts = self.texts(batch)
            if not texts.num_rows:
                continue
            hashes = hash_rows([texts.column(at) for at in range(texts.num_columns)])
            part = pa.Table.from_batches([texts.filter(pa.array(contained(hashes, [suspects])))])
            part = part.append_column("rows", pa.array(np.ones(part.num_rows, dtype=np.int64)))
            both = part if counted is None else pa.concat_tables([counted, part])
            # Grouped after every batch, so a value that fills the table takes one row here.
            counted = both.group_by(names).aggregate([("rows", "sum")]).rename_columns([*names, "rows"])
        for group in counted.to_pylist() if counted is not None else ():
            self._judge(group.pop("rows"), group)

    def _judge(self, count: int, group: Mapping[str, str]) -> None:
        shown = ", ".join(f"{name} {value!r}" for name, value in group.items())
        subject = ", ".join(str(value) for value in group.values())
        if self.maximum is not None and count > self.maximum:
            self.exam.error(subject, f"{shown}: {count} rows, at most {self.maximum} allowed")
        elif count < self.minimum:
            self.exam.error(subject, f"{shown}: {count} rows, at least {self.minimum} required")


def watch_rows(io: LanceIO, dataset: lance.LanceDataset, watches: Sequence[Watch], *, reads: Examination) -> None:
    """Stream the columns the checks need through all of them; a file that cannot be read is a finding of ``reads``."""
    wanted = {name for watch in watches for name in watch.columns}
    columns = tuple(name for name in dataset.schema.names if name in wanted)
    if not columns:
        return
    with Reporting(reads):
        for batch in io.batches(dataset, ScanSpec(columns=columns, batch_size=_BATCH_ROWS)):
            reads.look(batch.num_rows)
            for watch in watches:
                with Reporting(watch.exam):
                    watch.see(batch)


def _report(
    exam: Examination,
    batch: pa.RecordBatch,
    wrong: pa.Array,
    *,
    message: str,
    shown: pa.Array | None = None,
    error: bool = True,
) -> None:
    rows = pc.indices_nonzero(pc.fill_null(wrong, pa.scalar(value=False)))
    for row in rows.slice(0, exam.room).to_pylist():
        row_id = str(batch.column("id")[row].as_py())
        value = "" if shown is None else f" {shown[row].as_py()!r}"
        add = exam.error if error else exam.warn
        add(row_id, f"row {row_id!r}:{value} {message}")
        rows = rows.slice(1)
    exam.more(len(rows))


def _text(array: pa.Array) -> pa.Array:
    """Return values as text that is equal exactly when they are."""
    if pa.types.is_date64(array.type):
        return array.view(pa.int64()).cast(pa.string())  # a cast would drop the time of day
    return array.cast(pa.string())


def rule_columns(graph_type: GraphType) -> tuple[str, ...]:
    """Return the columns enum, ``@range`` and ``@check`` look at, or nothing without such rules."""
    enums = [p.name for p in graph_type.properties if p.enum_values is not None]
    ruled = [*(r.property for r in graph_type.ranges), *(c.property for c in graph_type.checks)]
    return ("id", *dict.fromkeys([*enums, *ruled])) if enums or ruled else ()


def group_columns(graph_type: GraphType) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every group whose values may occur once: the id, a key of several columns, each ``@unique``."""
    yield "unique-id", ("id",)
    if isinstance(graph_type, NodeType) and len(graph_type.key) > 1:
        yield "unique-key", graph_type.key
    for group in graph_type.unique:
        yield "unique", group


def cardinality_of(graph_type: GraphType) -> tuple[int, int | None] | None:
    """Return ``@card`` bounds that can be broken by a source with edges."""
    if not isinstance(graph_type, EdgeType):
        return None
    minimum, maximum = graph_type.cardinality.minimum, graph_type.cardinality.maximum
    return (minimum, maximum) if minimum > 1 or maximum is not None else None
