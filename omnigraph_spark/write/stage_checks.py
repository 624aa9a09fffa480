"""What a task asks of the base about the rows it stages: ids taken, unique values taken, ends that exist.

Each question is one pass over a key column, or one predicate when the keys are few; memory is bounded by the task's own
keys. A hash that matches is only a suspicion for ids and unique values: the texts are compared before a row is
refused. An edge's end is accepted by its 64-bit hash alone; with a billion nodes one wrong acceptance has a chance of
5e-11 per missing end, and ``verify`` compares texts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.errors import Violation
from omnigraph_spark.schema.catalog import GraphType
from omnigraph_spark.schema.faults import MAX_SHOWN
from omnigraph_spark.storage.keyhash import hash_rows, hash_text
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.lance_staged import staged_batches
from omnigraph_spark.storage.parallel import run_parallel
from omnigraph_spark.write.gate import RowGate, tuple_texts
from omnigraph_spark.write.key_runs import KeyRuns, Scratch
from omnigraph_spark.write.probe import FewTexts, View, key_rows, open_view

_MOST_SUSPECTS = 10_000


@dataclass(slots=True)
class BaseChecks:
    """The questions of one task; answers are gathered here."""

    io: LanceIO
    graph_type: GraphType
    gate: RowGate
    scratch: Scratch
    target: View
    ends: Mapping[str, View]
    taken: list[Violation] = field(default_factory=list)
    taken_total: int = 0
    unresolved: dict[str, KeyRuns] = field(default_factory=dict)
    _suspects: list[pa.Array] = field(default_factory=list)
    _unique: dict[int, list[pa.Table]] = field(default_factory=dict)

    # -- ids ---------------------------------------------------------------------------------------------------------

    def find_taken(self) -> None:
        """Look for base rows that may have an id of ours."""
        if not self.target.rows or not len(self.gate.ids):
            return
        dataset = open_view(self.io, self.target)
        found = 0
        for batch in key_rows(self.io, dataset, columns=("id",), among=self.gate.few_ids.all()):
            asked, _ = self.gate.ids.find(hash_text(batch.column("id")))
            if len(asked):
                self._suspects.append(batch.column("id").take(pa.array(np.unique(asked))))
                found += len(self._suspects[-1])
            if found > _MOST_SUSPECTS:
                return

    def confirm_taken(self, staged: Sequence[str]) -> None:
        """Compare the suspected ids with the staged ones, and report those that are the same."""
        if not self._suspects:
            return
        suspects = pa.concat_arrays(self._suspects)
        for batch in staged_batches(self.io, self.target.uri, staged, columns=("id",)):
            ids = batch.column("id").cast(pa.string())
            same = ids.filter(pc.is_in(ids, value_set=suspects))
            self.taken_total += len(same)
            for row_id in same.slice(0, max(0, MAX_SHOWN - len(self.taken))).to_pylist():
                self.taken.append(taken_violation(self.graph_type.name, row_id))

    # -- ends --------------------------------------------------------------------------------------------------------

    def resolve_ends(self) -> None:
        """Find which ends of the staged edges exist; the others are left for the whole write to resolve."""
        by_view: dict[View, list[str]] = {}
        for end in self.gate.ends:
            by_view.setdefault(self.ends[end], []).append(end)
        jobs = [functools.partial(self._resolve, view, ends) for view, ends in by_view.items()]
        run_parallel(jobs, counter=self.io.counter)

    def _resolve(self, view: View, ends: Sequence[str]) -> None:
        found = {end: np.zeros(len(self.gate.ends[end]), dtype=bool) for end in ends}
        if view.rows and any(len(f) for f in found.values()):
            dataset = open_view(self.io, view)
            among = _together([self.gate.few_ends[end] for end in ends])
            for batch in key_rows(self.io, dataset, columns=("id",), among=among):
                hashes = hash_text(batch.column("id"))
                for end in ends:
                    _, slots = self.gate.ends[end].find(hashes)
                    found[end][slots] = True
        for end in ends:
            self.unresolved[end] = _left(self.gate.ends[end], found[end], self.scratch)

    # -- unique groups -----------------------------------------------------------------------------------------------

    def find_unique(self) -> None:
        """Look for base rows that may hold a unique value of ours."""
        if not self.target.rows:
            return
        dataset = open_view(self.io, self.target) if self.graph_type.unique else None
        for number, columns in enumerate(self.graph_type.unique):
            keys = self.gate.uniques[number]
            if not len(keys) or dataset is None:
                continue
            for batch in key_rows(self.io, dataset, columns=_with_id(columns), positions=True):
                rows = unique_table(batch, columns)
                asked, _ = keys.find(rows["hash"].combine_chunks().to_numpy())
                if len(asked):
                    self._unique.setdefault(number, []).append(rows.take(pa.array(np.unique(asked))))

    def unique_hits(self, own_rows: Callable[[], Iterable[pa.RecordBatch]]) -> tuple[bytes, ...]:
        """Pair base rows with the staged rows of another id that claim the same values, per unique group."""
        out: list[bytes] = []
        for number, columns in enumerate(self.graph_type.unique):
            base = self._unique.get(number)
            if not base:
                out.append(b"")
                continue
            held = pa.concat_tables(base)
            wanted = held["hash"].combine_chunks()
            ours = [unique_table(batch, columns) for batch in own_rows()]
            mine = pa.concat_tables([t.filter(pc.is_in(t["hash"], value_set=wanted)) for t in ours])
            pairs = mine.select(["hash", "value", "id"]).join(
                held.rename_columns({"id": "held_by"}), keys=["hash", "value"], join_type="inner"
            )
            out.append(_packed(pairs.filter(pc.not_equal(pairs["id"], pairs["held_by"]))))
        return tuple(out)

    def staged_rows(self, staged: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read back what unique groups need of the staged rows."""
        columns = sorted({"id", *(c for group in self.graph_type.unique for c in group)})
        return staged_batches(self.io, self.target.uri, staged, columns=columns)


def taken_violation(type_name: str, row_id: str) -> Violation:
    """Say that an id exists already."""
    return Violation(
        rule="key-conflict",
        type_name=type_name,
        property="id",
        row_id=row_id,
        value=row_id,
        message=f"{type_name} {row_id!r} already exists",
    )


def unique_table(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Table:
    """Return, of the rows whose unique group has no null, hash, value as text, id, and position where it is known."""
    texts, present = tuple_texts(batch, columns)
    value = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, "\x1f")
    data = {"hash": pa.array(hash_rows(texts)), "value": value, "id": batch.column("id").cast(pa.string())}
    if "_rowid" in batch.schema.names:
        data["row_id"] = batch.column("_rowid")
    return pa.table(data).filter(present)


def _with_id(columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(("id", *columns)))


def _together(parts: Sequence[FewTexts]) -> pa.Array | None:
    texts = [part.all() for part in parts]
    known = [t for t in texts if t is not None]
    return pc.unique(pa.concat_arrays(known)) if len(known) == len(texts) else None


def _left(keys: KeyRuns, found: np.ndarray[tuple[int], np.dtype[np.bool_]], scratch: Scratch) -> KeyRuns:
    left = KeyRuns(scratch, distinct=True)
    start = 0
    for run in keys.runs:
        left.add(np.asarray(run[~found[start : start + len(run)]]))
        start += len(run)
    left.close()
    return left


def _packed(table: pa.Table) -> bytes:
    if not table.num_rows:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
