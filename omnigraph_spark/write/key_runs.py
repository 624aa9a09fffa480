"""Key hashes of any number of rows in bounded memory: sorted runs, spilled to local files beyond the first.

A task notes the keys of its rows here while they stream through it, then looks existing rows up against them. Runs hold
a million hashes each; whatever their number, memory holds one run being filled and what a lookup touches.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from omnigraph_spark.storage.allocator import give_back
from omnigraph_spark.storage.keyhash import U64, distinct, distinct_of_sorted

RUN_ROWS = 1 << 20
_MERGING_AT_ONCE = 4  # pieces of two runs each
Positions = NDArray[np.int64]


class Scratch:
    """A local directory for what does not fit in memory; gone when the task ends."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files = 0

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the directory."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def path(self) -> Path:
        """Return the path of a new file."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="omnigraph-")
        self._files += 1
        return Path(self._folder.name) / f"{self._files}"

    def blank(self, count: int, *, fill: np.uint64) -> U64:
        """Return an array to fill in; a large one is backed by a file."""
        if count <= RUN_ROWS:
            return np.full(count, fill, dtype=np.uint64)
        array = np.memmap(self.path(), dtype=np.uint64, mode="w+", shape=(count,))
        array[:] = fill
        return array

    def keep(self, values: U64 | Positions) -> NDArray[np.generic]:
        """Move an array out of memory; it reads as before."""
        path = self.path()
        values.tofile(path)
        return np.memmap(path, dtype=values.dtype, mode="r")


class Sieve:
    """Rules most foreign hashes out before they are searched for: a bit for each 27-bit prefix, so always 16 MiB.

    A table is usually much larger than what a task writes, so nearly all of its keys end here at a few instructions
    each. Up to some twenty million keys the sieve stops most of the others; beyond that it stops fewer, and only time
    is lost.
    """

    _FEW = 1 << 14  # keys; searching among so few is faster than filling the sieve

    def __init__(self, runs: Sequence[U64]) -> None:
        self._bits: NDArray[np.uint8] | None = None
        if sum(len(run) for run in runs) > self._FEW:
            self._bits = np.zeros(1 << 24, dtype=np.uint8)
            for run in runs:
                byte, bit = self._place(run)
                np.bitwise_or.at(self._bits, byte, bit)

    def likely(self, hashes: U64) -> Positions:
        """Return the indices of hashes that may be among the keys: all that are, and a few that are not."""
        if self._bits is None:
            return np.arange(len(hashes))
        byte, bit = self._place(hashes)
        return np.flatnonzero(self._bits[byte] & bit)

    @staticmethod
    def _place(hashes: U64) -> tuple[Positions, NDArray[np.uint8]]:
        bit = np.left_shift(np.uint8(1), (hashes >> np.uint64(37)).astype(np.uint8) & np.uint8(7), dtype=np.uint8)
        return (hashes >> np.uint64(40)).view(np.int64), bit


class KeyRuns:
    """The hashes of one key of a task's rows, and optionally at which row each was."""

    def __init__(self, scratch: Scratch, *, distinct: bool = False, positions: bool = False) -> None:
        self._scratch = scratch
        self._distinct = distinct
        self._positions = positions
        self._waiting: list[U64] = []
        self._waiting_rows = 0
        self._rows = 0
        self.runs: list[U64] = []
        self._at: list[Positions] = []
        self._sieve: Sieve | None = None

    def add(self, hashes: U64) -> None:
        """Note the keys of the next rows."""
        for start in range(0, len(hashes), RUN_ROWS):
            part = hashes[start : start + RUN_ROWS]
            if self._waiting_rows + len(part) > RUN_ROWS:
                self._cut()
            self._waiting.append(part)
            self._waiting_rows += len(part)

    def close(self) -> None:
        """Finish the last run."""
        self._cut()

    def __len__(self) -> int:
        return sum(len(run) for run in self.runs)

    def find(self, hashes: U64) -> tuple[Positions, Positions]:
        """Return pairs (index into ``hashes``, row or slot of an equal key); all of them, so collisions lose nothing.

        The second is the row's position when positions are kept, else its slot counted over all runs.
        """
        if self._sieve is None:
            self._sieve = Sieve(self.runs)
        likely = self._sieve.likely(hashes)
        order = likely[np.argsort(hashes[likely])]
        wanted = hashes[order]
        asked: list[Positions] = []
        found: list[Positions] = []
        before = 0
        for number, run in enumerate(self.runs):
            low = np.searchsorted(run, wanted, side="left")
            hit = np.flatnonzero(run[np.minimum(low, len(run) - 1)] == wanted)
            slots, places = low[hit], order[hit]
            if not self._distinct:
                high = np.searchsorted(run, wanted[hit], side="right")
                slots, places = _ranges(slots, high), np.repeat(places, high - slots)
            asked.append(places)
            found.append(self._at[number][slots] if self._positions else slots + before)
            before += len(run)
        none = np.empty(0, dtype=np.int64)
        return (np.concatenate(asked), np.concatenate(found)) if asked else (none, none)

    def _cut(self) -> None:
        if not self._waiting_rows:
            return
        self._sieve = None
        hashes = np.concatenate(self._waiting)
        at: Positions = np.empty(0, dtype=np.int64)
        if self._positions:
            order = np.argsort(hashes)
            at = (order + self._rows).astype(np.int64)
            run = hashes[order]
        else:
            run = distinct(hashes) if self._distinct else np.sort(hashes)
        self._rows += len(hashes)
        if self._distinct and self.runs:
            # The same few keys again and again, as the ends of edges are, stay one run.
            both = distinct_of_sorted(np.concatenate([self.runs[-1], run]))
            if len(both) <= RUN_ROWS:
                self.runs.pop(), self._at.pop()
                run = both
        if self.runs:
            run = self._scratch.keep(run)  # type: ignore[assignment]
            at = self._scratch.keep(at) if self._positions else at  # type: ignore[assignment]
        self.runs.append(run)
        self._at.append(at)
        self._waiting, self._waiting_rows = [], 0
        give_back()


def _ranges(low: Positions, high: Positions) -> Positions:
    """Return all integers of the half-open ranges, one range after the other."""
    counts = high - low
    total = int(counts.sum())
    if not total:
        return np.empty(0, dtype=np.int64)
    shift = np.repeat(low - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    ranges: Positions = np.arange(total, dtype=np.int64) + shift
    return ranges


def repeated(runs: Sequence[U64]) -> U64:
    """Return the hashes that occur more than once over sorted runs, merged range by range in bounded memory."""
    total = sum(len(run) for run in runs)
    pieces = max(1, -(-total // (2 * RUN_ROWS)))
    # Hashes are uniform, so equal ranges of values hold about equally many.
    bounds = [np.uint64((1 << 64) // pieces * n) for n in range(1, pieces)]
    cuts = [[0, *np.searchsorted(run, bounds).tolist(), len(run)] for run in runs]

    def among(piece: int) -> U64:
        parts = [run[c[piece] : c[piece + 1]] for run, c in zip(runs, cuts, strict=True)]
        # A stable sort sees that its input is made of sorted runs and merges them.
        together = np.sort(np.concatenate([np.empty(0, dtype=np.uint64), *parts]), kind="stable")
        same = together[1:] == together[:-1]
        return distinct(together[1:][same])

    with ThreadPoolExecutor(max_workers=_MERGING_AT_ONCE) as pool:
        return np.concatenate(list(pool.map(among, range(pieces))))
