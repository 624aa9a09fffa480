"""Sets of stable row ids: compact in memory, in a task's message and in a sidecar.

Row positions do not survive compaction and stable row ids do, so plans name rows by id. Where a position is known for
the base version it travels along, and saves resolving the ids when the table has not moved since.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omnigraph_spark.storage.keyhash import distinct

U64 = NDArray[np.uint64]


def _pack(values: U64) -> str:
    """Delta-encode and compress; sorted ids of neighbouring rows shrink to a few bits each."""
    deltas = np.diff(values, prepend=np.uint64(0))
    return base64.b64encode(zlib.compress(deltas.tobytes(), 6)).decode()


def _unpack(text: str) -> U64:
    deltas = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint64)
    return np.cumsum(deltas, dtype=np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class RowIds:
    """Stable row ids with, for one table version, the address of each; order is kept."""

    ids: U64
    addresses: U64
    at_version: int = 0

    @classmethod
    def empty(cls) -> RowIds:
        """Return the empty set."""
        none = np.empty(0, dtype=np.uint64)
        return cls(none, none)

    @classmethod
    def concat(cls, parts: Sequence[RowIds]) -> RowIds:
        """Join sets in order."""
        if not parts:
            return cls.empty()
        versions = {p.at_version for p in parts}
        # Positions of different versions do not mix; without a common version they are resolved anew.
        at_version = versions.pop() if len(versions) == 1 else 0
        ids = np.concatenate([p.ids for p in parts])
        return cls(ids, np.concatenate([p.addresses for p in parts]), at_version)

    def __len__(self) -> int:
        return len(self.ids)

    def distinct(self) -> RowIds:
        """Return each row once, sorted by id."""
        ids, first = np.unique(self.ids, return_index=True)
        return RowIds(ids, self.addresses[first], self.at_version)

    def to_json(self) -> dict[str, object]:
        """Encode for a sidecar."""
        return {
            "count": len(self.ids),
            "codec": "delta-zlib-u64",
            "ids": _pack(self.ids),
            "addresses": _pack(self.addresses),
            "at_version": self.at_version,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> RowIds:
        """Decode from a sidecar."""
        version = value.get("at_version")
        at_version = version if isinstance(version, int) else 0
        return cls(_unpack(str(value["ids"])), _unpack(str(value["addresses"])), at_version)


def offsets_by_fragment(addresses: U64) -> dict[int, list[int]]:
    """Group row addresses into fragment id → offsets: one owner per fragment."""
    ordered = distinct(addresses)
    fragments, offsets = ordered >> np.uint64(32), ordered & np.uint64(0xFFFFFFFF)
    cuts = np.flatnonzero(np.diff(fragments)) + 1
    groups = np.split(offsets, cuts) if len(offsets) else []
    firsts = fragments[np.concatenate([[0], cuts])] if len(offsets) else []
    return {int(f): g.tolist() for f, g in zip(firsts, groups, strict=True)}
