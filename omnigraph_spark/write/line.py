"""Where a waiting writer stands among the others: near its turn it looks often, far from it seldom.

Records are named by time, so their names are a line. In a crowd a writer sleeps for about half the turns before it, so
a hundred waiting writers cost a branch about as many looks as a few, and the longest waiting look first. A place is a
hint for sleeping and nothing else: nobody is kept from a free window by it, and a dead writer's record only makes the
others sleep a little longer. The line is read only after several owners came and went, so a write that meets no crowd
lists nothing (INV-11).
"""

from __future__ import annotations

from omnigraph_spark.errors import StorageError
from omnigraph_spark.manifest.rows import EpochRow
from omnigraph_spark.storage.seams import Seams
from omnigraph_spark.write.sidecar import SidecarStore

_CROWD = 3  # owners that came and went while we waited
_SHARE = 0.5  # of the expected wait is slept through at once
_LONGEST = 5.0  # seconds


class Line:
    """One writer's place, as well as it can tell."""

    def __init__(self, sidecars: SidecarStore, *, operation_id: str, seams: Seams) -> None:
        self._sidecars = sidecars
        self._operation_id = operation_id
        self._seams = seams
        self._first: tuple[int, float] | None = None

    def rest(self, epoch: EpochRow) -> float:
        """Return how long to sleep at least before looking at the window again."""
        now = self._seams.monotonic()
        if self._first is None:
            self._first = (epoch.number, now)
        number, since = self._first
        turns = epoch.number - number
        if turns < _CROWD:
            return 0.0
        try:
            before = sum(name < self._operation_id for name in self._sidecars.operation_ids())
        except StorageError:
            return 0.0  # the next look meets the same store, and reports it if it stays so
        return min(_LONGEST, _SHARE * before * (now - since) / turns)
