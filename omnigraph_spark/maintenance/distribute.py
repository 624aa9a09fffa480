"""Where maintenance jobs run: as Spark tasks when there is a session, else in a few local threads.

Jobs only write files (INV-02). A failed or repeated task leaves files nobody refers to, and its answer counts once.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from omnigraph_spark.errors import OptionError, typed_errors
from omnigraph_spark.storage.parallel import run_parallel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

R_co = TypeVar("R_co", covariant=True)
_ANSWER = pa.schema([("at", pa.int64()), ("answer", pa.binary())])
_LOCAL_AT_ONCE = 4


class Job(Protocol[R_co]):
    """Work that can be sent elsewhere; picklable."""

    def run(self) -> R_co:
        """Do it."""


def run_jobs(jobs: Sequence[Job[R_co]], *, spark: SparkSession | None) -> list[R_co]:
    """Run jobs and return their answers in order."""
    if spark is not None and jobs:
        return _on_executors(jobs, spark)
    done: list[R_co] = []
    for first in range(0, len(jobs), _LOCAL_AT_ONCE):
        done += run_parallel([job.run for job in jobs[first : first + _LOCAL_AT_ONCE]])
    return done


def session_for(given: SparkSession | None) -> SparkSession | None:
    """Return the given session, or the active one where Spark is in use at all; None means local threads."""
    if given is not None:
        if importlib.util.find_spec("pandas") is None:
            raise OptionError(
                "Running maintenance on executors needs pandas, which Spark requires for Arrow functions",
                hint="pip install pandas, or leave spark out to run it in this process.",
            )
        return given
    if "pyspark.sql" not in sys.modules or importlib.util.find_spec("pandas") is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _on_executors(jobs: Sequence[Job[R_co]], spark: SparkSession) -> list[R_co]:
    rows = [(at, bytearray(pickle.dumps(job))) for at, job in enumerate(jobs)]
    with typed_errors():
        frame = spark.createDataFrame(rows, "at bigint, job binary").repartition(len(rows), "at")
        found = frame.mapInArrow(_running(), "at bigint, answer binary").collect()
    answers: dict[int, R_co] = {int(row["at"]): pickle.loads(bytes(row["answer"])) for row in found}
    return [answers[at] for at in range(len(jobs))]


def _running() -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at, job in zip(batch.column("at").to_pylist(), batch.column("job").to_pylist(), strict=True):
                answer = pickle.dumps(pickle.loads(job).run())
                yield pa.RecordBatch.from_arrays(
                    [pa.array([at], pa.int64()), pa.array([answer], pa.binary())], schema=_ANSWER
                )

    return run
