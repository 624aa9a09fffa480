"""One process without Spark, against deltalake and plain pylance: the same rows, the same run, alternating.

Run with ``make bench-delta``; it writes ``docs/benchmarks/delta.md``. Neither of the two checks keys, ends or other
tables; the ratios say what those checks and a commit over a whole graph cost.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import deltalake
import lance
import numpy as np
import pyarrow as pa

from benchmarks.report import machine
from omnigraph_spark import Graph

ROWS = int(os.environ.get("ROWS", "1000000"))
CHANGED = ROWS // 10
REPEATS = int(os.environ.get("REPEATS", "5"))
SCHEMA = "node Place { name: String @key  size: F64?  rank: I64? }"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "delta.md"


def places(start: int, count: int) -> pa.Table:
    numbers = np.arange(start, start + count)
    names = pa.array([f"p{n:015d}" for n in numbers])
    return pa.table({"name": names, "rank": numbers % 100, "size": np.sqrt(numbers)})


class Contender:
    """One way to store rows: append, merge half new rows by name, read everything."""

    def __init__(self, folder: Path) -> None:
        self.root = str(folder / type(self).__name__)

    def append(self, rows: pa.Table) -> None:
        raise NotImplementedError

    def merge(self, rows: pa.Table) -> None:
        raise NotImplementedError

    def read(self) -> int:
        raise NotImplementedError


class Omnigraph(Contender):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.graph = Graph.create(self.root, schema=SCHEMA)

    def append(self, rows: pa.Table) -> None:
        self.graph.append("Place", rows)

    def merge(self, rows: pa.Table) -> None:
        self.graph.merge("Place", rows)

    def read(self) -> int:
        return int(self.graph.to_arrow("Place").num_rows)


class Pylance(Contender):
    def append(self, rows: pa.Table) -> None:
        mode = "append" if Path(self.root).exists() else "create"
        lance.write_dataset(rows, self.root, mode=mode, data_storage_version="2.2", enable_stable_row_ids=True)

    def merge(self, rows: pa.Table) -> None:
        found = lance.dataset(self.root).merge_insert("name")
        found.when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def read(self) -> int:
        return int(lance.dataset(self.root).to_table().num_rows)


class Delta(Contender):
    def append(self, rows: pa.Table) -> None:
        deltalake.write_deltalake(self.root, rows, mode="append")

    def merge(self, rows: pa.Table) -> None:
        table = deltalake.DeltaTable(self.root)
        merging = table.merge(rows, predicate="t.name = s.name", source_alias="s", target_alias="t")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    def read(self) -> int:
        return int(deltalake.DeltaTable(self.root).to_pyarrow_table().num_rows)


def timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def one_round(folder: Path) -> dict[str, dict[str, float]]:
    base, more = places(0, ROWS), places(ROWS, ROWS)
    changed = places(2 * ROWS - CHANGED // 2, CHANGED)
    out: dict[str, dict[str, float]] = {}
    for kind in (Omnigraph, Pylance, Delta):
        found = kind(folder)
        found.append(base)
        times = {"append": timed(lambda found=found: found.append(more))}  # type: ignore[misc]
        times["merge"] = timed(lambda found=found: found.merge(changed))  # type: ignore[misc]
        times["read"] = timed(lambda found=found: found.read())  # type: ignore[misc]
        assert found.read() == 2 * ROWS + CHANGED // 2
        out[kind.__name__] = times
    return out


def main() -> None:
    rounds = []
    for _ in range(REPEATS + 1):
        folder = Path(tempfile.mkdtemp())
        rounds.append(one_round(folder))
        shutil.rmtree(folder)
    rows = []
    for verb in ("append", "merge", "read"):
        medians = {kind: statistics.median(r[kind][verb] for r in rounds[1:]) for kind in rounds[0]}
        ours = medians["Omnigraph"]
        rows.append(
            f"| {verb} | {ours:.2f} s | {medians['Pylance']:.2f} s ({ours / medians['Pylance']:.2f}) "
            f"| {medians['Delta']:.2f} s ({ours / medians['Delta']:.2f}) |"
        )
    lines = [
        "# One process, against pylance and deltalake",
        "",
        f"Written by `make bench-delta`. {machine()}, deltalake {deltalake.__version__}.",
        "",
        f"{ROWS:,} rows appended to {ROWS:,}; {CHANGED:,} rows merged by key, half of them new; all rows read into",
        f"Arrow. Local disk, median of {REPEATS} after one round of warming up; in brackets our time over theirs.",
        "Ours also refuses existing keys, checks every value, and commits through the graph's manifest.",
        "",
        "| verb | omnigraph | pylance | deltalake |",
        "|---|---|---|---|",
        *rows,
        "",
    ]
    PAGE.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
