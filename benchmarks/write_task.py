"""One staging task as a process of its own: ``python -m benchmarks.write_task ROWS append|edges|merge TABLE_ROWS``.

The table it stages against is filled by another process, so that only the task's own memory is seen.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from omnigraph_spark import Graph
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.write.draft import Draft, WriteIntent
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.stage import WriteMode, stage

SCHEMA = """
node Place { name: String @key  size: F64?  rank: I64? }
edge Road: Place -> Place { length: F64?  lanes: I64? }
"""
_BATCH = 10_000


def node_batches(start: int, rows: int) -> Iterator[pa.RecordBatch]:
    for at in range(start, start + rows, _BATCH):
        numbers = np.arange(at, min(at + _BATCH, start + rows))
        names = pa.array([f"p{n:015d}" for n in numbers])
        yield pa.record_batch({"name": names, "size": np.sqrt(numbers), "rank": numbers % 100})


def edge_batches(rows: int, *, nodes: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, rows, _BATCH):
        numbers = np.arange(at, min(at + _BATCH, rows))
        ends = {n: pa.array([f"p{v:015d}" for v in numbers * step % nodes]) for n, step in (("src", 7), ("dst", 11))}
        yield pa.record_batch({**ends, "length": np.sqrt(numbers), "lanes": numbers % 100})


class AnonymousMemory:
    """Watches the process's anonymous memory from a thread: file pages of spilled runs are not its own."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> AnonymousMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            status = Path("/proc/self/status").read_text(encoding="ascii")
            line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
            self.peak = max(self.peak, int(line.split()[1]) // 1024)


def seed(rows: int, root: str) -> None:
    names = pa.schema([("name", pa.string()), ("size", pa.float64()), ("rank", pa.int64())])
    graph = Graph.create(root, schema=SCHEMA)
    graph.append("Place", pa.RecordBatchReader.from_batches(names, node_batches(0, rows)))


def main(rows: int, mode: str, table_rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder, "graph"))
        subprocess.run([sys.executable, "-m", "benchmarks.write_task", str(table_rows), "seed", root], check=True)
        reader = GraphReader.begin(root, StorageConfig.resolve())
        draft = Draft.capture(PublishAuthority(reader), WriteIntent())
        if mode == "edges":
            job = draft.job(draft.txn.catalog.edge("Road"), WriteMode.APPEND, distributed=True)
            batches = edge_batches(rows, nodes=table_rows)
        else:
            job = draft.job(draft.txn.catalog.node("Place"), WriteMode(mode), distributed=True)
            batches = node_batches(table_rows if mode == "append" else table_rows - rows // 2, rows)
        with AnonymousMemory() as memory:
            part = stage(job, batches)
        assert part.rows == rows
        print(rows, mode, memory.peak)


if __name__ == "__main__":
    if sys.argv[2] == "seed":
        seed(int(sys.argv[1]), sys.argv[3])
    else:
        main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
