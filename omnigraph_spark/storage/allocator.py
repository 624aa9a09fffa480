"""Freed memory goes back to the system: glibc keeps it per thread, and a long task would seem to grow with its rows."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


@functools.cache
def _trim() -> Callable[[int], int] | None:
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


def give_back() -> None:
    """Return what was freed, in a millisecond or two; does nothing where the C library has no such call."""
    trim = _trim()
    if trim is not None:
        trim(0)
