"""What the proxy does to traffic: delay it, cap it, hold it, lose it, answer it wrongly."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Mode = Literal["hang", "reset"]
Action = Literal["stop", "drop", "fail"]


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests a rule is about: these kinds, and this text in `bucket/key` (or a listing's prefix)."""

    kinds: tuple[str, ...] = ()
    key: str = ""

    def covers(self, *, kind: str, target: str) -> bool:
        """Whether a request is one of them; no kinds means all kinds."""
        return (not self.kinds or kind in self.kinds) and self.key in target


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: at the k-th matching request counted from when the rule was set, for `times` requests."""

    action: Action
    k: int
    match: Match
    stored: bool = False
    mode: Mode = "hang"
    status: int = 500
    times: int = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to one request."""

    forward: bool = True
    answer: bool = True
    status: int = 0
    mode: Mode = "hang"
    fires: bool = False


PASS = Verdict()


class Cap:
    """Bounds the requests in flight; the others queue in order of arrival."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self.active = 0
        self.peak = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Take a slot, waiting for one if needed."""
        if self._queue or (self.limit is not None and self.active >= self.limit):
            slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(slot)
            await slot
            return
        self._take()

    def leave(self) -> None:
        """Give the slot back."""
        self.active -= 1
        self._admit()

    def set(self, limit: int | None) -> None:
        """Change the limit; queued requests that now fit go on."""
        self.limit = limit
        self._admit()

    def _take(self) -> None:
        self.active += 1
        self.peak = max(self.peak, self.active)

    def _admit(self) -> None:
        while self._queue and (self.limit is None or self.active < self.limit):
            self._take()
            self._queue.popleft().set_result(None)


class Signal:
    """Lets a task wait until something it can compute has become true."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def poke(self) -> None:
        """Say that something changed; free when nobody waits."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool], *, timeout: float) -> bool:
        """Wait until the condition holds; False when time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not condition():
            if loop.time() >= deadline:
                return False
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.append(future)
            await asyncio.wait([future], timeout=deadline - loop.time())
        return True


class Rules:
    """All rules in force. Every method runs on the proxy's one event loop."""

    def __init__(self) -> None:
        self.latency = 0.0
        self.jitter = 0.0
        self.cap = Cap()
        self.healed = asyncio.Event()
        self.signal = Signal()
        self.fired = 0
        self._random = random.Random(0)
        self._faults: list[tuple[Fault, list[int]]] = []
        self._stopped: Verdict | None = None
        self._pauses: list[tuple[Match, list[int]]] = []
        self._held: deque[asyncio.Event] = deque()

    @property
    def held(self) -> int:
        """How many requests are being held now."""
        return len(self._held)

    def add_fault(self, fault: Fault) -> None:
        """Put a fault in force."""
        self._faults.append((fault, [0]))

    def add_pause(self, match: Match, *, count: int | None) -> None:
        """Hold the next `count` matching requests, or all of them."""
        self._pauses.append((match, [-1 if count is None else count]))

    def judge(self, *, kind: str, target: str) -> Verdict:
        """Decide a request's fate, at its arrival."""
        if self._stopped is not None:
            return self._stopped
        verdict = PASS
        for fault, seen in self._faults:
            if not fault.match.covers(kind=kind, target=target):
                continue
            seen[0] += 1
            if fault.k <= seen[0] < fault.k + fault.times and verdict is PASS:
                verdict = self._fire(fault)
        return verdict

    def _fire(self, fault: Fault) -> Verdict:
        if fault.action == "fail":
            return Verdict(forward=fault.stored, status=fault.status, fires=True)
        if fault.action == "stop":
            self._stopped = Verdict(forward=False, answer=False, mode=fault.mode)
        return Verdict(forward=fault.stored, answer=False, mode=fault.mode, fires=True)

    async def hold(self, *, kind: str, target: str) -> None:
        """Wait for release if a pause covers the request."""
        for match, left in self._pauses:
            if left[0] and match.covers(kind=kind, target=target):
                left[0] -= 1
                gate = asyncio.Event()
                self._held.append(gate)
                self.signal.poke()
                await gate.wait()
                return

    async def delay(self) -> None:
        """Wait for the injected latency."""
        if self.latency or self.jitter:
            await asyncio.sleep(self.latency + self._random.uniform(0.0, self.jitter))

    def release(self, count: int | None) -> None:
        """Let the oldest `count` held requests go; None: all of them, and hold no more."""
        if count is None:
            self._pauses.clear()
        for _ in range(self.held if count is None else min(count, self.held)):
            self._held.popleft().set()

    def heal(self) -> None:
        """Remove every fault and pause, let held requests go and close the connections left hanging."""
        self._faults.clear()
        self._stopped = None
        self.fired = 0
        self.release(None)
        self.healed.set()
        self.healed = asyncio.Event()

    def seal(self) -> None:
        """Note that a fault has had its whole effect."""
        self.fired += 1
        self.signal.poke()
