"""A Spark application whose tasks fail, hang, lose their executor or their driver, and leave notes of that behind.

``python -m tests.spark.faulty_job FOLDER SAVE...`` runs the named saves in one session, each into a graph FOLDER/SAVE,
and prints what each came to. Tasks note what they do in FOLDER/notes, so that tests see the fault, not only its result.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame, SparkSession

from tests.spark.faulty_source import register_faulty, save_faulty

Rows = Iterator[pa.RecordBatch]
HOSTS = ("127.0.0.1", "127.0.0.2")  # two, because Spark runs no speculative copy of a task on the host of the first
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.sql.shuffle.partitions": "2",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


def cluster(folder: Path) -> str:
    """Start a master and two workers in the driver's own Java process; executors are processes of their own."""
    SparkContext._ensure_initialized()
    java, gateway = SparkContext._jvm, SparkContext._gateway
    assert java is not None
    assert gateway is not None
    deploy, conf = java.org.apache.spark.deploy, java.org.apache.spark.SparkConf()
    master = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, conf)._1().address().toSparkURL()
    masters = gateway.new_array(java.java.lang.String, 1)
    masters[0] = master
    nothing = java.scala.Option.empty()
    for host in HOSTS:
        work = str(folder / f"worker-{host}")
        deploy.worker.Worker.startRpcEnvAndEndpoint(host, 0, 0, 1, 1024, masters, work, nothing, conf, nothing)
    return str(master)


def session(folder: Path, *, local: bool) -> SparkSession:
    """Start a session that notices slow tasks and dead executors soon."""
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = HOSTS[0]
    builder = SparkSession.builder.master("local[1]" if local else cluster(folder))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


# -- what tasks do ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Notes:
    """Files that say what each attempt of a save's tasks did, and the executor it ran on."""

    folder: str
    save: str

    def add(self, what: str) -> None:
        """Note what this attempt does now."""
        partition, number = attempt()
        Path(self.folder, f"{self.save}.{what}.{partition}.{number}").write_text(str(executor()))


def attempt() -> tuple[int, int]:
    """Return this task's partition and attempt."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.attemptNumber()


def executor() -> int:
    """Return the Java process this task runs in."""
    return parent_of(os.getppid())


def parent_of(pid: int) -> int:
    """Return the process that started another."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def noted(batches: Rows, *, notes: Notes, fault: Callable[[Notes], None], attempts: int) -> Rows:
    """Pass rows on; the first attempts of partition 1 meet the fault before the last of them."""
    notes.add("began")
    partition, number = attempt()
    before = next(batches)
    for batch in batches:
        yield before
        before = batch
    if partition == 1 and number < attempts:
        fault(notes)
    yield before
    notes.add("ended")


def fail(notes: Notes) -> None:
    """Fail the task."""
    notes.add("failed")
    raise RuntimeError("no luck")


def stall(notes: Notes) -> None:
    """Hang for ever."""
    notes.add("hung")
    hang()


def kill(notes: Notes) -> None:
    """Kill the executor."""
    notes.add("killed")
    os.kill(executor(), signal.SIGKILL)
    hang()


def report(notes: Notes, *, fifo: str) -> None:
    """Say which process is the driver, and hang."""
    notes.add("hung")
    Path(fifo).write_text(str(parent_of(executor())))
    hang()


def hang() -> None:
    """Wait for what never comes."""
    with tempfile.TemporaryDirectory() as folder:
        nobody = Path(folder) / "nobody"
        os.mkfifo(nobody)
        nobody.read_bytes()


# -- saves -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Save:
    """One save: how many rows, and what happens to how many attempts of its second task."""

    rows: int
    fault: Callable[[Notes], None] = fail
    attempts: int = 0
    speculative: bool = False


def frame(spark: SparkSession, save: Save, notes: Notes) -> DataFrame:
    """Return Person rows in two partitions, seen on their way by a function that may fail."""
    plain = spark.range(0, save.rows, 1, 2).selectExpr(f"concat('{notes.save}-', id) as name", "int(id) as age")
    upstream = functools.partial(noted, notes=notes, fault=save.fault, attempts=save.attempts)
    return plain.mapInArrow(upstream, plain.schema)


def main() -> None:
    """Run the named saves and print what came of them."""
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    # More rows than staging keeps in memory: a file is open when the fault comes.
    saves = {
        "retried": Save(80_000, fail, attempts=1),
        "hopeless": Save(80_000, fail, attempts=99),
        "speculative": Save(200, stall, attempts=1, speculative=True),
        "killed": Save(200, kill, attempts=1),
        "stuck": Save(80_000, functools.partial(report, fifo=str(folder / "reached")), attempts=99),
        "headless": Save(200),
    }
    spark = session(folder, local=names == ["headless"])
    register_faulty(spark)
    settings = spark.sparkContext._jsc.sc().conf()
    seen: dict[str, str] = {}
    for name in names:
        # Read by Spark when a stage begins: a copy of the last task may run beside it, or never.
        settings.set("spark.speculation.quantile", "0.5" if saves[name].speculative else "1.0")
        rows, root = frame(spark, saves[name], Notes(str(folder / "notes"), name)), str(folder / name)
        try:
            if name == "headless":
                save_faulty(rows, root, fault="kill driver:publish:enter", node="Person")
            else:
                rows.write.format("omnigraph").option("node", "Person").mode("append").save(root)
            seen[name] = "committed"
        except Exception as error:  # noqa: BLE001 - printed for the test to judge
            seen[name] = str(error)
        print("SEEN " + json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
