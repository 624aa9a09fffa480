"""Graphs in need of upkeep, and a clock that stands a week ahead."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa

from omnigraph_spark import Graph
from omnigraph_spark.schema.mapping import table_arrow_schema
from omnigraph_spark.storage.lance_commit import stage_rows
from omnigraph_spark.storage.seams import Phase, Seams
from omnigraph_spark.write.actions import Append
from omnigraph_spark.write.publish import PublishAuthority
from tests.places import Place
from tests.writer_process import authority_for, plan_of

WEEK = 8 * 86_400_000_000  # a little more than a week, in microseconds
PERSON, KNOWS = "node:Person", "edge:Knows"
PG = """
node Person {
    name: String @key
    age: I32? @index
    bio: String? @index
    kind: enum(calm, loud)? @index
    face: Vector(4)? @index
    tags: [String]?
}
edge Knows: Person -> Person { since: I32? @index }
"""


def created(place: Place, *, pg: str = PG) -> Graph:
    """Create a graph of people who know each other."""
    return Graph.create(place.uri, schema=pg, storage=dict(place.storage))


def person(name: str, **values: object) -> dict[str, object]:
    """Return one row."""
    return {"name": name, "age": len(name), "bio": f"{name} likes tea", "kind": "calm", **values}


def crowd(graph: Graph, *, commits: int, first: int = 0) -> None:
    """Add people, two in each commit, who know each other."""
    for n in range(first, first + commits):
        with graph.transaction() as tx:
            tx.append("Person", [person(f"p{n}"), person(f"q{n}")])
            tx.append("Knows", [{"from": f"p{n}", "to": f"q{n}", "since": n}])


def authority(place: Place, *, ahead: int = 0, **arguments: Any) -> PublishAuthority:
    """Return a publish authority, by its clock so far in the future."""
    seams: Seams = arguments.pop("seams", None) or Seams()
    hook: Callable[[Phase, str], None] | None = arguments.pop("hook", None)
    seams = replace(seams, now_micros=lambda: time.time_ns() // 1_000 + ahead)
    if hook is not None:
        seams = replace(seams, hook=hook)
    waits = {"grace": 0.3, "timeout": 0.3, **arguments}
    return authority_for(place.uri, storage=dict(place.storage), seams=seams, **waits)


def many_fragments(place: Place, *, count: int, rows: int) -> None:
    """Append people in so many fragments, all in one commit."""
    writer = authority(place)
    txn = writer.open_txn(branch="main")
    schema = table_arrow_schema(txn.catalog.by_key(PERSON))
    dataset = writer.reader.io.open(txn.uri(PERSON), table=PERSON, version=txn.entry(PERSON).version)
    staged: list[str] = []
    for n in range(count):
        names = pa.array([f"f{n}-{k}" for k in range(rows)])
        columns = [names if f.name in ("id", "name") else pa.nulls(rows, f.type) for f in schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        staged += stage_rows(writer.reader.io, dataset, iter([batch]), schema=schema)
    writer.publish(plan_of(writer, txn, [Append(PERSON, tuple(staged), count * rows)]))


def table(graph: Graph, key: str, *, version: int | None = None) -> lance.LanceDataset:
    """Open a table of a graph on disk behind the package's back."""
    info = next(t for t in graph.tables() if t.key == key)
    return lance.dataset(f"{graph.uri}/{info.path}", version=version)


def names(graph: Graph, **arguments: Any) -> list[str]:
    """Return the ids of all people, sorted."""
    return sorted(graph.to_arrow("Person", columns=["id"], **arguments)["id"].to_pylist())


def once(action: Callable[[], object], *, at: str) -> Callable[[Phase, str], None]:
    """Return a hook that does something the first time a point is reached."""
    left = [action]

    def hook(phase: Phase, point: str) -> None:
        if f"{phase.value}:{point}" == at and left:
            left.pop()()

    return hook


def paths(rows: Iterable[Any]) -> set[str]:
    """Return the paths of report rows."""
    return {row.path for row in rows}
