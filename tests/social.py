"""A small graph with every kind of rule, for tests of writes, and the proofs they share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph_spark import Graph, OmnigraphError, ValidationError
from omnigraph_spark.errors import Outcome
from tests.soundness import assert_sound

SOCIAL = """
node Person {
    name: String @key
    age: I32? @range(age, 0..150)
    email: String? @unique
    status: enum(active, away)?
    code: String? @check(code, "^[A-Z]+$")
    score: F64? @range(score, 0.0..1.0)
    face: Vector(2)?
}
node Company { name: String @key }
node Note { text: String }
node Place { town: String  street: String  @key(town, street) }
node Day { day: Date @key }
node Number { n: I64 @key  note: String? }
edge Knows: Person -> Person { kind: enum(friend, foe)? }
edge WorksAt: Person -> Company @card(0..1)
edge Owns: Person -> Company @card(1..2)
edge Likes: Person -> Person { weight: F64?  @unique(src, dst) }
edge About: Note -> Person
"""
TYPES = ("Person", "Company", "Note", "Place", "Day", "Number", "Knows", "WorksAt", "Owns", "Likes", "About")


def social(root: Path, *, name: str = "graph") -> Graph:
    """Create an empty social graph below a directory."""
    return Graph.create(str(root / name), schema=SOCIAL)


def persons(*names: str, **columns: Any) -> list[dict[str, Any]]:
    """Return Person rows; the named columns are the same in each."""
    return [{"name": name, **columns} for name in names]


def edges(*pairs: tuple[str, str], **columns: Any) -> list[dict[str, Any]]:
    """Return edges whose id is ``src-dst``."""
    return [{"id": f"{a}-{b}", "src": a, "dst": b, **columns} for a, b in pairs]


def ids(graph: Graph, type_name: str) -> list[str]:
    """Return the ids of a type, sorted."""
    found: list[str] = graph.to_arrow(type_name, columns=["id"])["id"].to_pylist()
    return sorted(found)


def by_id(graph: Graph, type_name: str) -> dict[str, dict[str, Any]]:
    """Return the rows of a type by id."""
    return {row["id"]: row for row in graph.to_arrow(type_name).to_pylist()}


def contents(graph: Graph) -> dict[str, dict[str, dict[str, Any]]]:
    """Return all rows of all types."""
    return {name: by_id(graph, name) for name in TYPES}


def staged_files(graph: Graph) -> set[str]:
    """Return every data file, detached version and piece of key evidence of a graph on disk."""
    root = Path(graph.uri)
    kept = [
        p
        for p in root.rglob("*")
        if p.is_file() and (p.parent.name == "data" or p.match("_versions/d*.manifest") or "__staging" in p.parts)
    ]
    return {str(p.relative_to(root)) for p in kept}


@contextlib.contextmanager
def refused(
    graph: Graph, error: type[OmnigraphError], *, rule: str | None = None, row: str | None = None
) -> Iterator[pytest.ExceptionInfo[OmnigraphError]]:
    """Assert that the block is refused by this error, that nothing changed, and that the next write works."""
    version, before, files = graph.version, graph.tables(), staged_files(graph)
    with pytest.raises(error) as caught:
        yield caught
    assert type(caught.value) is error
    assert caught.value.outcome is Outcome.NOT_COMMITTED
    if rule is not None:
        assert isinstance(caught.value, ValidationError)
        found = [v for v in caught.value.violations if v.rule == rule]
        assert found, caught.value.violations
        assert row is None or any(v.row_id == row for v in found), found
        assert all(v.message in str(caught.value) for v in caught.value.violations[:20])
    assert graph.version == version
    assert graph.tables() == before
    assert staged_files(graph) == files
    graph.append("Note", [{"id": f"after-{version}", "text": "still works"}])
    assert graph.version > version
    assert_sound(graph.uri)
