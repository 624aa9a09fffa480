"""Reading through the connector against Spark's own parquet reader: same rows, same run, alternating, medians of seven.

Run with ``make bench-read``; it writes ``docs/benchmarks/read.md``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.graphs import build_edges
from benchmarks.report import alternate, machine, ratio_rows
from omnigraph_spark.read.plan import plan_read
from omnigraph_spark.read.request import ReadRequest, Target
from omnigraph_spark.read.scan import scan
from omnigraph_spark.read.snapshot import GraphReader, Moment
from omnigraph_spark.storage.config import StorageConfig

ROWS = 2_000_000
TARGETS = {"full scan": 1.5, "two of five columns": 1.6, "filter selecting 1 %": 1.7}
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "read.md"


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def measure(spark: SparkSession, root: str, parquet: str) -> list[str]:
    def ours(**options: str) -> DataFrame:
        return spark.read.format("omnigraph").option("edge", "Road").options(**options).load(root)

    def theirs() -> DataFrame:
        return spark.read.parquet(parquet)

    cases = [
        ("full scan", lambda: _drain(ours()), lambda: _drain(theirs())),
        (
            "two of five columns",
            lambda: _drain(ours(columns="src,length")),
            lambda: _drain(theirs().select("src", "length")),
        ),
        (
            "filter selecting 1 %",
            lambda: _drain(ours(filter="lanes = 7")),
            lambda: _drain(theirs().where("lanes = 7")),
        ),
    ]
    return ratio_rows(alternate(cases, repeats=7), TARGETS)


def task_memory(root: str) -> tuple[int, int]:
    """Return the peak memory, in MiB, of a process that reads a whole table as one task: as it is, and malloc tamed."""
    tamed = {f"MALLOC_{name}_THRESHOLD_": str(1 << 20) for name in ("MMAP", "TRIM")}
    command = [sys.executable, "-m", "benchmarks.read", "--task", root]
    peaks = []
    for extra in ({}, tamed):
        out = subprocess.run(command, env={**os.environ, **extra}, check=True, capture_output=True, text=True)
        peaks.append(int(out.stdout.split()[-1]))
    return peaks[0], peaks[1]


def read_as_task(root: str) -> None:
    reader = GraphReader.begin(root, StorageConfig.resolve())
    plan = plan_read(reader, ReadRequest(target=Target(edge="Road"), moment=Moment(), partitions=1))
    rows = sum(batch.num_rows for split in plan.splits for batch in scan(plan, split))
    # VmHWM, not ru_maxrss: the latter is inherited from the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    print(rows, int(peak.split()[1]) // 1024)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small")
        graph = build_edges(small, rows=ROWS)
        assert graph.count("Road") == ROWS
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        parquet = str(Path(folder, "parquet"))
        spark.read.format("omnigraph").option("edge", "Road").load(str(small)).write.parquet(parquet)
        rows = measure(spark, str(small), parquet)
        spark.stop()
        memory = [(ROWS, task_memory(str(small)))]
        for times in (4, 16):
            larger = Path(folder, f"times-{times}")
            build_edges(larger, rows=times * ROWS, fragments=times * 4)
            memory.append((times * ROWS, task_memory(str(larger))))
    lines = [
        "# Reading, against Spark's parquet",
        "",
        f"Written by `make bench-read`. {machine()}.",
        "",
        f"{ROWS:,} rows of five columns (three 16-character strings, a double, a long) on a local disk, `local[2]`,",
        "sink `noop`; after two rounds of warming up the two readers alternate, each figure is the median of seven.",
        "These machines are noisy: read the ratios, and their range, not the seconds.",
        "",
        "| read | omnigraph | parquet | ratio | range | target |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        "`Graph.count()` answers from the manifest and reads no data file (asserted in `tests/cost`).",
        "",
        "Peak memory (VmHWM, libraries included) of one reading task: a process of its own, the whole table in one",
        "split. `malloc` keeps some of what a task has freed, which levels off; the last column is without that",
        "(`MALLOC_MMAP_THRESHOLD_` and `MALLOC_TRIM_THRESHOLD_` at 1 MiB). `tests/cost/test_read_memory.py` asserts",
        "that the peak does not grow with the table.",
        "",
        "| rows | peak memory | peak of what is in use |",
        "|---|---|---|",
        *(f"| {count:,} | {peak} MiB | {used} MiB |" for count, (peak, used) in memory),
        "",
    ]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        read_as_task(sys.argv[2])
    else:
        main()
