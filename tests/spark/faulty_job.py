"""A Spark application whose tasks fail, hang or lose their executor; prints what each save came to.

``python -m tests.spark.faulty_job MASTER ROOT SAVE...`` runs the named saves in one session.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

Rows = Iterator[pa.RecordBatch]
Upstream = Callable[[Rows], Rows]


def session(master: str) -> SparkSession:
    """Start a session that notices slow tasks and dead executors soon."""
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(master)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.speculation": str(master.startswith("spark:")).lower(),
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "100ms",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def attempt() -> tuple[int, int]:
    """Return this task's partition and attempt."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.attemptNumber()


def fail_first(batches: Rows) -> Rows:
    """Fail the first attempt of partition 1 after most of its rows have gone down."""
    seen = 0
    for batch in batches:
        yield batch
        seen += batch.num_rows
        if attempt() == (1, 0) and seen > 25_000:
            raise RuntimeError("the first attempt fails")


def fail_always(batches: Rows) -> Rows:
    """Fail every attempt of partition 1 at its end."""
    yield from batches
    if attempt()[0] == 1:
        raise RuntimeError("no luck")


def hang_first(batches: Rows) -> Rows:
    """Hang the first attempt of partition 1 for ever."""
    yield from batches
    if attempt() == (1, 0):
        hang()


def kill_first(batches: Rows) -> Rows:
    """Kill the executor under the first attempt of partition 1."""
    yield from batches
    if attempt() == (1, 0):
        daemon = os.getppid()
        os.kill(parent_of(daemon), signal.SIGKILL)
        hang()


def stuck(batches: Rows, *, fifo: str) -> Rows:
    """Say which process runs the driver, once rows have been staged, and hang."""
    yield from batches
    Path(fifo).write_text(str(parent_of(os.getppid())))
    hang()


def hang() -> None:
    """Wait for what never comes."""
    with tempfile.TemporaryDirectory() as folder:
        nobody = Path(folder) / "nobody"
        os.mkfifo(nobody)
        nobody.read_bytes()


def parent_of(pid: int) -> int:
    """Return the process that started another."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def frame(spark: SparkSession, prefix: str, *, rows: int, upstream: Upstream | None) -> DataFrame:
    """Return Person rows in two partitions, seen by an upstream stage on their way."""
    plain = spark.range(0, rows, 1, 2).selectExpr(f"concat('{prefix}-', id) as name", "int(id) as age")
    return plain if upstream is None else plain.mapInArrow(upstream, plain.schema)


def saves(spark: SparkSession, fifo: str) -> dict[str, DataFrame]:
    """Return the frame of each save by its name."""
    return {
        "retried": frame(spark, "retried", rows=60_000, upstream=fail_first),
        "hopeless": frame(spark, "hopeless", rows=60_000, upstream=fail_always),
        "next": frame(spark, "next", rows=1, upstream=None),
        "speculative": frame(spark, "speculative", rows=200, upstream=hang_first),
        "killed": frame(spark, "killed", rows=200, upstream=kill_first),
        "stuck": frame(spark, "stuck", rows=60_000, upstream=functools.partial(stuck, fifo=fifo)),
    }


def main() -> None:
    """Run the named saves and print what came of them."""
    master, root, *names = sys.argv[1:]
    spark = session(master)
    frames = saves(spark, names[-1])
    seen: dict[str, object] = {}
    for name in names:
        if name not in frames:
            continue
        try:
            frames[name].write.format("omnigraph").option("node", "Person").mode("append").save(root)
            seen[name] = "committed"
        except Exception as error:  # noqa: BLE001 - printed for the test to judge
            seen[name] = str(error)
    print("SEEN " + json.dumps(seen), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
