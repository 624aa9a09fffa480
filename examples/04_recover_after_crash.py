"""A writer is killed with ``kill -9`` in the middle of a commit over two tables; the next one cleans up after it.

The killed writer leaves a record of its plan in ``__recovery/``. Whoever writes next finishes the plan or undoes it, so
nobody ever sees half of it, and leaves an audit row. Needs no Spark.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from pathlib import Path

import omnigraph_spark as og

SCHEMA = """
node Person { name: String @key }
node City { title: String @key }
"""


def write_forever(root: str) -> None:
    """Commit two tables together, again and again, until somebody kills us."""
    graph = og.Graph.open(root, actor="unlucky")
    n = 0
    while True:
        with graph.transaction() as tx:
            tx.append("Person", [{"name": f"person {os.getpid()}.{n}"}])
            tx.append("City", [{"title": f"city {os.getpid()}.{n}"}])
        n += 1


def kill_in_the_middle(root: str) -> Path:
    """Start a writer and kill it at a moment when its record exists; returns the record it leaves."""
    records = Path(root, "__recovery")
    for _ in range(50):
        writer = multiprocessing.get_context("spawn").Process(target=write_forever, args=(root,))
        writer.start()
        while not list(records.glob("*.json")):
            assert writer.is_alive()
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        left = list(records.glob("*.json"))
        if left:
            return left[0]
    raise RuntimeError("the writer was always faster than the signal")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder) / "graph")
        og.Graph.create(root, schema=SCHEMA)
        record = kill_in_the_middle(root)
        print(f"killed; its record: {record.name}")
        before = og.Graph.open(root, read_only=True)
        print(f"a reader sees {before.count('Person')} people and {before.count('City')} cities")
        # A read-write open recovers; a dead owner of the window is waited for as long as the grace.
        graph = og.Graph.open(root, actor="next", window_grace=1.0)
        graph.append("Person", [{"name": "alive"}])
        print(f"afterwards {graph.count('Person') - 1} people and {graph.count('City')} cities: both or neither")
        for row in graph.recoveries():
            print(f"audit: {row.kind} of {row.operation_id} by {row.actor}: {row.outcomes}")
        print(f"records left: {len(list(record.parent.glob('*.json')))}; {graph.verify()!r}")


if __name__ == "__main__":
    main()
