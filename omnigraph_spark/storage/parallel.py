"""Run independent requests at once: one group is one serial stage of an operation, however many requests it holds.

Every job of a group runs to its end even when one fails, so no request is left in flight behind the caller's back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from omnigraph_spark.storage.counters import OpCounter

T = TypeVar("T")
_MOST_AT_ONCE = 16


class Together:
    """A group of unlike jobs: ``with Together() as group: a = group.start(f)``; afterwards all have finished."""

    def __init__(self, *, counter: OpCounter | None = None) -> None:
        self._pool = ThreadPoolExecutor(max_workers=_MOST_AT_ONCE)
        if counter is not None:
            counter.count_stage()

    def __enter__(self) -> Together:
        return self

    def start(self, job: Callable[[], T]) -> Future[T]:
        """Start a job; read its result after the block."""
        return self._pool.submit(job)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)


def run_parallel(jobs: Sequence[Callable[[], T]], *, counter: OpCounter | None = None, hops: int = 1) -> list[T]:
    """Run like jobs concurrently and return their results in order; the first failure in job order is raised.

    ``hops`` is how many requests of one job wait for each other.
    """
    if counter is not None and jobs:
        counter.count_stage(hops)
    if len(jobs) <= 1:
        return [job() for job in jobs]
    with Together() as group:
        futures = [group.start(job) for job in jobs]
    return [future.result() for future in futures]
