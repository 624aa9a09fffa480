"""Writing through the connector against Spark's parquet writer and pylance's own merge: same rows, alternating.

Run with ``make bench-write``; it writes ``docs/benchmarks/write.md``. ``SCALE=0.1`` runs it on a tenth of the rows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import lance
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.report import machine, ratio_rows
from omnigraph_spark import Graph

SCALE = float(os.environ.get("SCALE", "1"))
REPEATS = int(os.environ.get("REPEATS", "3"))
BASE, BULK = int(1_000_000 * SCALE), int(10_000_000 * SCALE)
UPSERT = int(2_000_000 * SCALE)
SCHEMA = """
node Place { name: String @key  size: F64?  rank: I64? }
edge Road: Place -> Place { length: F64?  lanes: I64? }
"""
TARGETS = {
    "append of nodes, ids checked against the table": 1.5,
    "append of edges, ends checked against the nodes": 2.0,
    "upsert, half of the rows new": 1.5,
}
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "write.md"


def session() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def places(spark: SparkSession, start: int, count: int) -> DataFrame:
    columns = ("format_string('p%015d', id) AS name", "sqrt(id) AS size", "id % 100 AS rank")
    return spark.range(start, start + count, numPartitions=2).selectExpr(*columns)


def roads(spark: SparkSession, count: int) -> DataFrame:
    ends = [
        f"format_string('p%015d', (id * {step}) % {BASE}) AS {name}" for name, step in (("src", 7919), ("dst", 104729))
    ]
    return spark.range(0, count, numPartitions=2).selectExpr(*ends, "sqrt(id) AS length", "id % 100 AS lanes")


def save(frame: DataFrame, root: Path, **options: str) -> None:
    frame.write.format("omnigraph").options(**options).mode("append").save(str(root))


def place_table(start: int, count: int) -> pa.Table:
    names = pa.array([f"p{n:015d}" for n in range(start, start + count)])
    numbers = np.arange(start, start + count)
    return pa.table({"name": names, "size": np.sqrt(numbers), "rank": numbers % 100})


def seeded(folder: Path, name: str, rows: int) -> Path:
    """Create a graph whose Place table holds so many rows."""
    root = folder / name
    graph = Graph.create(str(root), schema=SCHEMA)
    for start in range(0, rows, 1_000_000):
        graph.append("Place", place_table(start, min(1_000_000, rows - start)))
    return root


def on_copy(root: Path, work: Callable[[Path], None]) -> float:
    """Time work on a copy of a graph, so that every repeat starts from the same one."""
    copy = root.with_name(f"{root.name}-copy")
    shutil.copytree(root, copy)
    start = perf_counter()
    work(copy)
    took = perf_counter() - start
    shutil.rmtree(copy)
    return took


def timed(work: Callable[[], None]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def parquet(frame: DataFrame, folder: Path) -> float:
    return timed(lambda: frame.write.mode("overwrite").parquet(str(folder / "parquet")))


def pylance_merge(root: Path, folder: Path, rows: pa.Table) -> float:
    """Time a single-process merge_insert of the same rows into the same table, stable row ids on."""
    (table,) = (root / "nodes").iterdir()
    copy = folder / "plain"
    shutil.copytree(table, copy)
    dataset = lance.dataset(str(copy))
    source = rows.append_column("id", rows["name"]).select(dataset.schema.names).cast(dataset.schema)
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    took = timed(lambda: merge.execute(source))
    shutil.rmtree(copy)
    return took


def measure(spark: SparkSession, folder: Path) -> dict[str, tuple[list[float], list[float]]]:
    names = list(TARGETS)
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
    small, large = seeded(folder, "small", BASE), seeded(folder, "large", BULK)
    nodes, edges = places(spark, BASE, BULK), roads(spark, BULK)
    changed = places(spark, BULK - UPSERT // 2, UPSERT)
    plain = place_table(BULK - UPSERT // 2, UPSERT)
    for repeat in range(-1, REPEATS):
        found = [
            (on_copy(small, lambda root: save(nodes, root, node="Place")), parquet(nodes, folder)),
            (on_copy(small, lambda root: save(edges, root, edge="Road")), parquet(edges, folder)),
            (
                on_copy(large, lambda root: save(changed, root, node="Place", writeMode="merge")),
                pylance_merge(large, folder, plain),
            ),
        ]
        for name, (ours, theirs) in zip(names, found, strict=True):
            if repeat >= 0:  # the first round warms up
                times[name][0].append(ours)
                times[name][1].append(theirs)
    return times


def task_memory(rows: int, mode: str) -> int:
    """Return the peak of anonymous memory, in MiB, of a process that stages so many rows as one task."""
    return _printed("benchmarks.write_task", rows, mode, BULK)


def driver_memory(table_rows: int) -> int:
    """Return the peak of anonymous memory, in MiB, of a process that commits a staged upsert into so many rows."""
    return _printed("benchmarks.write_driver", table_rows, UPSERT // 10)


def _printed(module: str, *arguments: object) -> int:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(out.stdout.split()[-1])


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        spark = session()
        rows = ratio_rows(measure(spark, Path(name)), TARGETS)
        spark.stop()
    sizes = (BASE, BULK)
    driver = [driver_memory(n) for n in sizes]
    memory = [(mode, [task_memory(n, mode) for n in sizes]) for mode in ("append", "edges", "merge")]
    lines = [
        "# Writing, against Spark's parquet and pylance",
        "",
        f"Written by `make bench-write`. {machine()}.",
        "",
        f"Bulk: {BULK:,} rows from two partitions into a graph of {BASE:,} nodes, against Spark's parquet writer with",
        f"the same DataFrame. Upsert: {UPSERT:,} rows, half of them new, into {BULK:,}, against one process that calls",
        "pylance's `merge_insert` on a copy of the same table with the same rows in memory. Local disk, `local[2]`,",
        f"the two alternate, medians of {REPEATS} after one round of warming up. Read the ratios, not the seconds.",
        "",
        "| write | omnigraph | other | ratio | range | target |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        "Peak of anonymous memory of one staging task, libraries included: a process of its own that stages all rows",
        f"as one task against a table of {BULK:,} rows; a merge replaces half of them:",
        "",
        f"| task | {sizes[0]:,} rows | {sizes[1]:,} rows |",
        "|---|---|---|",
        *(f"| {mode} | {small} MiB | {large} MiB |" for mode, (small, large) in memory),
        "",
        f"The same of the driver, which commits an upsert of {UPSERT // 10:,} rows: {driver[0]} MiB into a table of",
        f"{sizes[0]:,} rows, {driver[1]} MiB into one of {sizes[1]:,}.",
        "",
    ]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
