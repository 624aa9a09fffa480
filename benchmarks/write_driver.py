"""The driver's share of an upsert, as its own process: ``python -m benchmarks.write_driver TABLE_ROWS CHANGED_ROWS``.

Like Spark, one process plans the save, one stages and one commits, and they hand each other pickles; the peak of the
committing one is printed. The table is filled by yet another.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql.types import StructType

from benchmarks.write_task import AnonymousMemory, node_batches
from omnigraph_spark.options import Scope, parse_options
from omnigraph_spark.write.spark_writer import GraphWriter, begin_write

_COLUMNS = StructType().add("name", "string").add("size", "double").add("rank", "long")


def stage(root: str, table_rows: int, changed: int) -> None:
    """Stage an upsert, half of it new rows, and leave the writer and its message beside the graph."""
    options = parse_options({"path": root, "node": "Place", "writeMode": "merge"}, scope=Scope.WRITE)
    writer = begin_write(options, _COLUMNS, overwrite=False)
    message = writer.write(node_batches(table_rows - changed // 2, changed))
    Path(root + ".pickle").write_bytes(pickle.dumps((writer, message)))


def commit(root: str) -> None:
    """Commit what was staged and print the peak of anonymous memory in MiB."""
    writer, message = pickle.loads(Path(root + ".pickle").read_bytes())
    assert isinstance(writer, GraphWriter)
    with AnonymousMemory() as memory:
        writer.commit([message])
    print(memory.peak)


def main(table_rows: int, changed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder, "graph"))
        subprocess.run([sys.executable, "-m", "benchmarks.write_task", str(table_rows), "seed", root], check=True)
        for step in ("stage", "commit"):
            command = [sys.executable, "-m", "benchmarks.write_driver", str(table_rows), str(changed), step, root]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    if sys.argv[3:4] == ["stage"]:
        stage(sys.argv[4], int(sys.argv[1]), int(sys.argv[2]))
    elif sys.argv[3:4] == ["commit"]:
        commit(sys.argv[4])
    else:
        main(int(sys.argv[1]), int(sys.argv[2]))
