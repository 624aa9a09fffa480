"""What tests may replace: time, ids, randomness, phase hooks and fault points.

Nothing else in the package reads a clock, mints an id or rolls a die, so one seed can drive a whole run. ``Seams`` is a
parameter with one default, ``Seams()``; the phase names here are the only spelling of the write path's steps.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from ulid import ULID


class Phase(str, Enum):
    """The steps of a write, in order, and recovery; the same words in code, logs, metrics, docs and tests."""

    CAPTURE = "capture"
    STAGE = "stage"
    VALIDATE = "validate"
    ARM = "arm"
    EFFECT = "effect"
    PUBLISH = "publish"
    RETIRE = "retire"
    RECOVER = "recover"


def _new_id() -> str:
    return str(ULID())


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _no_hook(_phase: Phase, _point: str) -> None:
    return None


def _no_fault(_operation: str, _target: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Seams:
    """Injected sources of everything that is not a function of the input."""

    now_micros: Callable[[], int] = lambda: time.time_ns() // 1_000
    monotonic: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = _wait
    new_id: Callable[[], str] = _new_id
    random: random.Random = field(default_factory=random.Random)
    # For ids: taken from the system each time, because forked workers would share a generator's state.
    entropy: Callable[[int], bytes] = os.urandom
    # called as hook(phase, point) when a phase is entered and at the named points inside it
    hook: Callable[[Phase, str], None] = _no_hook
    # called as fault(operation, target) before each durable request; raising stands for a store that failed
    fault: Callable[[str, str], None] = _no_fault

    def jitter(self, *, attempt: int, base: float = 0.02, cap: float = 1.0) -> float:
        """Return a full-jitter backoff for an attempt number counted from 0."""
        return self.random.uniform(0.0, min(cap, base * (2.0 ** min(attempt, 10))))


DEFAULT_SEAMS = Seams()
