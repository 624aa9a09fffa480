"""Several processes doing the same thing at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
_PATIENCE_SECONDS = 60.0
_line: list[Barrier] = []


def race(job: Callable[[T], R], inputs: Sequence[T]) -> list[R]:
    """Run one new process per input, all released at once; return the results in input order."""
    context = get_context("spawn")
    line = context.Barrier(len(inputs))
    with context.Pool(len(inputs), initializer=_line_up, initargs=(line,)) as pool:
        results = pool.map(partial(_run, job), inputs, chunksize=1)
        pool.close()
        pool.join()
    return results


def _line_up(line: Barrier) -> None:
    _line.append(line)


def _run(job: Callable[[T], R], value: T) -> R:
    _line[0].wait(_PATIENCE_SECONDS)
    return job(value)
