"""Counts of what an operation asked of storage; always on, the number tests assert is the number users see.

``OpCounter`` belongs to one operation (an open, a commit, a recovery). Plain-object requests are counted where they
are made; Lance reports its own requests per session, and the difference over the operation is added at the end.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from omnigraph_spark.storage.seams import Phase


@dataclass(slots=True)
class OpCounter:
    """Counters of one operation; thread-safe, because independent requests run in parallel."""

    objects: Counter[str] = field(default_factory=Counter)
    opens: Counter[str] = field(default_factory=Counter)
    commits: Counter[str] = field(default_factory=Counter)
    lance_reads: int = 0
    lance_writes: int = 0
    stages: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count_object(self, verb: str, *, kind: str) -> None:
        """Count one plain-object request, e.g. ``("put", kind="recovery")``."""
        with self._lock:
            self.objects[f"{kind}.{verb}"] += 1

    def count_open(self, table: str) -> None:
        """Count one dataset open by table key."""
        with self._lock:
            self.opens[table] += 1

    def count_commit(self, table: str) -> None:
        """Count one Lance commit by table key."""
        with self._lock:
            self.commits[table] += 1

    def count_lance(self, *, reads: int, writes: int) -> None:
        """Add requests Lance made."""
        with self._lock:
            self.lance_reads += reads
            self.lance_writes += writes

    def count_stage(self, hops: int = 1) -> None:
        """Count serial stages: groups of requests that had to wait for the group before them."""
        with self._lock:
            self.stages += hops

    @property
    def storage_ops(self) -> int:
        """All requests this operation made."""
        return sum(self.objects.values()) + self.lance_reads + self.lance_writes

    def as_dict(self) -> Mapping[str, object]:
        """Render for logs and commit results."""
        return {
            "storage_ops": self.storage_ops,
            "storage_stages": self.stages,
            "objects": dict(sorted(self.objects.items())),
            "opens": dict(sorted(self.opens.items())),
            "commits": dict(sorted(self.commits.items())),
            "lance_reads": self.lance_reads,
            "lance_writes": self.lance_writes,
        }


class PhaseClock:
    """Seconds spent in each phase of one write; times of a phase add up over attempts."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seconds: dict[Phase, float] = {}

    def add(self, phase: Phase, seconds: float) -> None:
        """Add time measured elsewhere, e.g. by tasks."""
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds

    @contextlib.contextmanager
    def measure(self, phase: Phase) -> Iterator[None]:
        """Time a block."""
        started = self._monotonic()
        try:
            yield
        finally:
            self.add(phase, self._monotonic() - started)

    def seconds(self) -> dict[str, float]:
        """Return phase name → seconds, in the order of the phases."""
        return {phase.value: self._seconds[phase] for phase in Phase if phase in self._seconds}
