"""Which existing rows a task's rows replace or remove: found by id, exactly, and remembered by stable row id."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph_spark.storage.keyhash import hash_text
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.write.actions import MatchedFragment
from omnigraph_spark.write.key_runs import KeyRuns, Scratch, repeated
from omnigraph_spark.write.probe import FewTexts, View, key_rows, open_view
from omnigraph_spark.write.rowids import U64, RowIds
from omnigraph_spark.write.spill import TextIndex

_NONE = np.uint64(0xFFFFFFFFFFFFFFFF)
Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Matching:
    """For each row of a task: the row id and address of the existing row with its id, if there is one."""

    io: LanceIO
    view: View
    index: TextIndex
    few: FewTexts
    scratch: Scratch
    row_ids: U64 = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    addresses: U64 = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    def look_up(self) -> None:
        """Ask the table."""
        if not self.view.rows or not len(self.index):
            return
        dataset = open_view(self.io, self.view)
        for batch in key_rows(self.io, dataset, columns=("id",), among=self.few.all(), positions=True):
            asked, at = self.index.find(batch.column("id"))
            self.row_ids[at] = batch.column("_rowid").to_numpy()[asked]
            self.addresses[at] = batch.column("_rowaddr").to_numpy()[asked]

    def select(
        self, batches: Iterable[pa.RecordBatch], *, existing: bool, keep: Mask | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Stream the rows that exist already, or those that do not."""
        start = 0
        for batch in batches:
            wanted = self._wanted(slice(start, start + batch.num_rows), existing=existing, keep=keep)
            start += batch.num_rows
            if wanted.all():
                yield batch
            elif wanted.any():
                yield batch.filter(pa.array(wanted))

    def _wanted(self, rows: slice, *, existing: bool, keep: Mask | None) -> Mask:
        wanted: Mask = (self.row_ids[rows] != _NONE) == existing
        return wanted if keep is None else wanted & keep[rows]

    def fragments(self, staged: Sequence[str], *, keep: Mask | None = None) -> tuple[MatchedFragment, ...]:
        """Pair staged fragments of replacing rows with the row ids they take over, in row order."""
        chosen = np.flatnonzero(self._wanted(slice(None), existing=True, keep=keep))
        return matched_fragments(staged, RowIds(self.row_ids[chosen], self.addresses[chosen], self.view.version))

    def removed(self) -> tuple[RowIds, KeyRuns]:
        """Return the rows found, each once, and the hashes of their ids."""
        at = np.flatnonzero(self.row_ids != _NONE)
        keys = KeyRuns(self.scratch, distinct=True)
        for start in range(0, len(at), 1 << 17):
            keys.add(hash_text(self.index.take(at[start : start + (1 << 17)])))
        keys.close()
        return RowIds(self.row_ids[at], self.addresses[at], self.view.version).distinct(), keys


def matched_fragments(staged: Sequence[str], rows: RowIds) -> tuple[MatchedFragment, ...]:
    """Cut row ids, given in row order, into the shares of staged fragments."""
    out: list[MatchedFragment] = []
    start = 0
    for fragment in staged:
        end = start + int(json.loads(fragment)["physical_rows"])
        share = RowIds(rows.ids[start:end], rows.addresses[start:end], rows.at_version)
        out.append(MatchedFragment(fragment, share))
        start = end
    return tuple(out)


def matching(io: LanceIO, view: View, index: TextIndex, *, few: FewTexts, scratch: Scratch) -> Matching:
    """Prepare a lookup of indexed ids in a table."""
    rows = len(index)
    return Matching(io, view, index, few, scratch, scratch.blank(rows, fill=_NONE), scratch.blank(rows, fill=_NONE))


def last_of_each(index: TextIndex) -> Mask:
    """Say of each row whether it is the last one with its id."""
    keep = np.ones(len(index), dtype=bool)
    doubtful = repeated(index.keys.runs)
    if not len(doubtful):
        return keep
    _, at = index.keys.find(doubtful)
    at = np.unique(at)
    texts = np.array(index.take(at).to_pylist(), dtype=object)
    last: dict[object, int] = dict(zip(texts, at.tolist(), strict=True))  # later positions overwrite earlier ones
    keep[at] = [last[text] == position for text, position in zip(texts, at.tolist(), strict=True)]
    return keep


def winning(batches: Iterable[pa.RecordBatch], keep: Mask | None) -> Iterator[pa.RecordBatch]:
    """Stream the rows that no later row of the same input supersedes."""
    start = 0
    for batch in batches:
        yield batch if keep is None else batch.filter(pa.array(keep[start : start + batch.num_rows]))
        start += batch.num_rows
