"""64-bit hashes of text columns, vectorised: the compact evidence by which equal keys find each other.

Equal rows have equal hashes; unequal ones almost never do. Callers that act on a match compare the text itself before
they believe it, so a collision costs a look, never a row. The function is part of nothing on disk.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

_SEED = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_FINISH = np.uint64(0xC4CEB9FE1A85EC53)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def hash_text(column: pa.Array | pa.ChunkedArray) -> U64:
    """Hash each value of a string column; null hashes like the empty text."""
    if isinstance(column, pa.ChunkedArray):
        parts = [hash_text(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)
    array = column if pa.types.is_large_string(column.type) else column.cast(pa.large_string())
    count = len(array)
    if count == 0:
        return np.empty(0, dtype=np.uint64)
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[array.offset : array.offset + count + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    # Eight spare bytes let the last word of the last value be read whole; what lies beyond a value is masked away.
    padded = np.zeros(last - first + 8, dtype=np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(data, dtype=np.uint8)[first:last]
    words = np.ndarray(shape=(last - first + 1,), dtype="<u8", buffer=padded, strides=(1,))
    state = (lengths.astype(np.uint64) + np.uint64(1)) * _SEED
    at, left = starts - first, lengths
    # Words that every value fills need neither a mask nor a choice of rows; keys are often all of one length.
    for _ in range(int(lengths.min()) // 8):
        state = _mixed(state ^ words[at])
        at, left = at + 8, left - 8
    live = np.flatnonzero(left > 0)
    while len(live):
        keep = np.minimum(left[live], 8).astype(np.uint64) * np.uint64(8)
        word = words[at[live]] & (_ALL >> (np.uint64(64) - keep))
        state[live] = _mixed(state[live] ^ word)
        live = live[left[live] > 8]
        at, left = at + 8, left - 8
    return _mixed(state ^ (state >> np.uint64(29)))


def hash_rows(columns: Sequence[pa.Array]) -> U64:
    """Hash rows of several text columns; the order of the columns matters."""
    state = hash_text(columns[0])
    for column in columns[1:]:
        state = _mixed(state * _FINISH ^ hash_text(column))
    return state


def distinct(hashes: U64) -> U64:
    """Return each hash once, sorted; several times faster than ``numpy.unique``, which builds a hash table first."""
    return _each_once(np.sort(hashes))


def distinct_of_sorted(runs: U64) -> U64:
    """Return each hash once, sorted, of sorted runs one after the other: a stable sort merges them."""
    return _each_once(np.sort(runs, kind="stable"))


def _each_once(ordered: U64) -> U64:
    if len(ordered) < 2:
        return ordered
    first = np.empty(len(ordered), dtype=bool)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def _mixed(state: U64) -> U64:
    """Mix words, in one new array and one for the shifts: these columns are large, and allocation is what costs."""
    mixed: U64 = state >> np.uint64(32)
    mixed ^= state
    mixed *= _MIX
    shifted = mixed >> np.uint64(29)
    mixed ^= shifted
    mixed *= _FINISH
    np.right_shift(mixed, np.uint64(32), out=shifted)
    mixed ^= shifted
    return mixed
