"""What tasks tell the driver about the keys they staged: eight bytes a row, so checks across tasks need no rows.

Small evidence travels in the task's message. Large evidence is written to ``__staging/<commit id>/`` of the graph and
read back run by run; it is removed when the write ends, and nothing ever depends on it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from omnigraph_spark.storage.keyhash import U64
from omnigraph_spark.storage.locations import join
from omnigraph_spark.storage.objects import ObjectStore
from omnigraph_spark.write.key_runs import KeyRuns, Scratch

STAGING_DIR = "__staging"
_INLINE = 1 << 16  # hashes


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Sorted runs of key hashes, inline or as objects; picklable."""

    count: int = 0
    inline: tuple[bytes, ...] = ()
    objects: tuple[str, ...] = ()

    def open(self, objects: ObjectStore, scratch: Scratch) -> list[U64]:
        """Return the runs; those of objects are kept in local files."""
        runs = [np.frombuffer(part, dtype=np.uint64) for part in self.inline]
        for uri in self.objects:
            path = scratch.path()
            path.write_bytes(objects.read(uri).data)
            runs.append(np.memmap(path, dtype=np.uint64, mode="r"))
        return runs


def pack(keys: KeyRuns, *, objects: ObjectStore, folder: str, name: str) -> Evidence:
    """Turn a task's noted keys into evidence."""
    if not len(keys):
        return Evidence()
    total = len(keys)
    if total <= _INLINE:
        return Evidence(total, inline=tuple(run.tobytes() for run in keys.runs))
    uris = []
    for number, run in enumerate(keys.runs):
        uri = join(folder, f"{name}-{number}.keys")
        objects.write(uri, run.tobytes())
        uris.append(uri)
    return Evidence(total, objects=tuple(uris))


def staging_folder(root: str, commit_id: str) -> str:
    """Return where a write's evidence objects go."""
    return join(root, STAGING_DIR, commit_id)


@dataclass(slots=True)
class EvidenceReader:
    """Opens evidence once per check, however many parts there are."""

    objects: ObjectStore
    scratch: Scratch
    _opened: dict[int, list[U64]] = field(default_factory=dict)

    def runs(self, parts: Iterable[Evidence]) -> list[U64]:
        """Return all runs of some parts."""
        out: list[U64] = []
        for part in parts:
            if id(part) not in self._opened:
                self._opened[id(part)] = part.open(self.objects, self.scratch)
            out.extend(self._opened[id(part)])
        return out


def contained(hashes: U64, runs: Sequence[U64]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Say of each hash whether any sorted run holds it."""
    hit = np.zeros(len(hashes), dtype=bool)
    for run in runs:
        if len(run):
            at = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            hit |= run[at] == hashes
    return hit
