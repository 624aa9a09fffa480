"""What the interpreter and the C library do with memory by themselves, where that costs time or looks like growth."""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
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


def spare_imports() -> None:
    """Keep what is imported out of garbage collections, in Spark's Python workers only.

    A reused worker runs a full collection after every task; with Lance and Arrow loaded that walks through some hundred
    thousand objects that will never be garbage, 40 ms each time.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        gc.freeze()
