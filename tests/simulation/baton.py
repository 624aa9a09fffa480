"""Actors as threads of which exactly one runs at a time: whoever holds the baton runs to its next seam.

Time is virtual: a wait ends when the clock gets there, and the clock moves only when nobody can run. An actor that is
killed raises at its seam and at every later one, so nothing it does afterwards lands, as with a dead process.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ulid import ULID

from omnigraph_spark.storage.seams import Phase, Seams
from tests.proof.world import Killed

_PATIENCE = 60.0  # real seconds between two seams; more means a deadlock
_EPOCH = 86_400_000_000  # a day ahead of the real clock, so that what is on disk is old enough for cleanup


@dataclass
class Clock:
    """Virtual seconds."""

    now: float = 0.0
    _wall: int = field(default_factory=lambda: time.time_ns() // 1_000 + _EPOCH)
    _reads: int = 0

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self.now

    def micros(self) -> int:
        """Wall time; never the same twice."""
        self._reads += 1
        return self._wall + int(self.now * 1_000_000) + self._reads


class Actor:
    """One thread of work."""

    def __init__(self, name: str, work: Callable[[Seams], None], *, clock: Clock, rng: random.Random) -> None:
        self.name = name
        self.at = "start"
        self.wakes = 0.0
        self.done = False
        self.doomed = False
        self.error: BaseException | None = None
        self._work = work
        self._clock = clock
        self._rng = rng
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def run(self) -> str:
        """Hand the baton over until it comes back; returns where the actor is now."""
        self._go.release()
        assert self._back.acquire(timeout=_PATIENCE), f"{self.name} did not come back from {self.at}"
        if self.done:
            self._thread.join()
        return self.at

    def kill(self) -> None:
        """End the actor where it is."""
        self.doomed = True
        while not self.done:
            self.run()

    def seams(self) -> Seams:
        """Return what this actor's code runs on."""
        return Seams(
            now_micros=self._clock.micros,
            monotonic=self._clock.monotonic,
            wait=self._wait,
            new_id=self._new_id,
            random=random.Random(self._rng.random()),
            entropy=self._rng.randbytes,
            hook=self._hook,
            fault=self._fault,
        )

    def _main(self) -> None:
        self._go.acquire()
        try:
            if not self.doomed:
                self._work(self.seams())
        except Killed:
            pass
        except BaseException as e:  # noqa: BLE001 - raised again by whoever runs the schedule
            self.error = e
        self.done, self.at = True, "done"
        self._back.release()

    def _stop(self, at: str) -> None:
        if not self.doomed:
            self.at = at
            self._back.release()
            self._go.acquire()
        if self.doomed:
            raise Killed

    def _hook(self, phase: Phase, point: str) -> None:
        self._stop(f"{phase.value}:{point}")

    def _fault(self, operation: str, target: str) -> None:
        self._stop(f"{operation} {target.rsplit('/', 1)[-1]}")

    def _wait(self, seconds: float) -> None:
        self.wakes = self._clock.now + seconds
        self._stop("wait")

    def _new_id(self) -> str:
        stamp = self._clock.micros() // 1_000
        return str(ULID.from_bytes(stamp.to_bytes(6, "big") + self._rng.randbytes(10)))


def awake(actors: Sequence[Actor], clock: Clock) -> list[Actor]:
    """Return who can run; when nobody can, move the clock to the next who will."""
    living = [a for a in actors if not a.done]
    if living and all(a.wakes > clock.now for a in living):
        clock.now = min(a.wakes for a in living)
    return [a for a in living if a.wakes <= clock.now]
