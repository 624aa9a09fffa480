"""What tasks tell the driver about the keys they staged: eight bytes a row, so checks across tasks need no rows.

Small evidence travels in the task's message. Large evidence is written to ``__staging/<commit id>/`` of the graph and
read back run by run; it is removed when the write ends, and nothing ever depends on it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from omnigraph_spark.storage.keyhash import U64
from omnigraph_spark.storage.locations import join
from omnigraph_spark.storage.objects import ObjectStore
from omnigraph_spark.storage.parallel import run_parallel
from omnigraph_spark.write.key_runs import KeyRuns, Scratch

STAGING_DIR = "__staging"
_INLINE = 1 << 16  # hashes
_AT_ONCE = 4  # objects of 8 MiB a task holds in memory while it writes them


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Sorted runs of key hashes, inline or as objects; picklable."""

    count: int = 0
    inline: tuple[bytes, ...] = ()
    objects: tuple[str, ...] = ()

    def open(self, objects: ObjectStore, scratch: Scratch) -> list[U64]:
        """Return the runs; those of objects are kept in local files."""
        runs = [np.frombuffer(part, dtype=np.uint64) for part in self.inline]
        paths = [scratch.path() for _ in self.objects]
        run_parallel([partial(_copied, objects, uri, path) for uri, path in zip(self.objects, paths, strict=True)])
        return runs + [np.memmap(path, dtype=np.uint64, mode="r") for path in paths]


def _copied(objects: ObjectStore, uri: str, path: Path) -> None:
    path.write_bytes(objects.read(uri).data)


def pack(keys: KeyRuns, *, objects: ObjectStore, folder: str, name: str) -> Evidence:
    """Turn a task's noted keys into evidence."""
    if not len(keys):
        return Evidence()
    total = len(keys)
    if total <= _INLINE:
        return Evidence(total, inline=tuple(run.tobytes() for run in keys.runs))
    uris = [join(folder, f"{name}-{number}.keys") for number in range(len(keys.runs))]
    jobs = [partial(_written, objects, uri, run) for uri, run in zip(uris, keys.runs, strict=True)]
    for start in range(0, len(jobs), _AT_ONCE):
        run_parallel(jobs[start : start + _AT_ONCE])
    return Evidence(total, objects=tuple(uris))


def _written(objects: ObjectStore, uri: str, run: U64) -> None:
    objects.write(uri, run.tobytes())


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
