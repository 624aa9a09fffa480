"""Six processes write one graph at once; every write commits, and history is one line.

Run with ``make example FILE=examples/03_concurrent_writers.py``, or plainly: it needs no Spark.
"""

from __future__ import annotations

import itertools
import multiprocessing
import tempfile
from pathlib import Path

import omnigraph_spark as og

SCHEMA = """
node Person { name: String @key }
edge Knows: Person -> Person
"""
WRITERS, WRITES = 6, 3


def write(root: str, writer: int) -> list[str]:
    """Commit a few transactions of two tables each, without any coordination but the graph itself."""
    graph = og.Graph.open(root, actor=f"writer-{writer}")
    commits = []
    for n in range(WRITES):
        with graph.transaction(message=f"write {n}") as tx:
            tx.append("Person", [{"name": f"person {writer}.{n}"}])
            tx.append("Knows", [{"src": f"person {writer}.{n}", "dst": "root"}])
        assert tx.commit_info is not None
        commits.append(tx.commit_info.id)
    return commits


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder) / "graph")
        graph = og.Graph.create(root, schema=SCHEMA)
        graph.append("Person", [{"name": "root"}])
        with multiprocessing.get_context("spawn").Pool(WRITERS) as pool:
            done = pool.starmap(write, [(root, n) for n in range(WRITERS)])
        history = graph.history()
        for commit in history[:6]:
            moved = ", ".join(f"{key} → {version}" for key, version in commit.tables.items())
            print(f"version {commit.graph_version:3}  epoch {commit.epoch}  {commit.actor}: {moved}")
        print(f"... {len(history)} commits, {sum(len(d) for d in done)} of {WRITERS * WRITES} writes committed")
        linear = all(child.parent == parent.id for child, parent in itertools.pairwise(history))
        print(f"one linear history: {linear}; people: {graph.count('Person')}; {graph.verify()!r}")


if __name__ == "__main__":
    main()
