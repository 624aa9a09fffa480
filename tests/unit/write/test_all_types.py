"""Every column type through every verb: what was written is what is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph_spark import Graph, OptionError
from tests.all_types import EDGES, FULL, NULLS, PG, ROWS
from tests.social import by_id
from tests.soundness import assert_sound

EXPECTED = {row["id"]: row for row in ROWS}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """An empty graph with a column of every type."""
    return Graph.create(str(tmp_path / "graph"), schema=PG)


def given(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as a caller writes it: the id comes from the key."""
    return {name: value for name, value in row.items() if name != "id"}


@pytest.mark.parametrize("verb", ["append", "merge", "overwrite"])
def test_rows_of_every_type(graph: Graph, verb: str) -> None:
    """The values at the edges of each type come back as they went in."""
    getattr(graph, verb)("Thing", [given(row) for row in ROWS])
    assert by_id(graph, "Thing") == EXPECTED
    assert_sound(graph.uri)


def test_what_is_read_can_be_written_back(graph: Graph) -> None:
    """The Arrow table that a read returns is input for every verb, ids included."""
    graph.append("Thing", [given(row) for row in ROWS])
    table = graph.to_arrow("Thing")
    graph.merge("Thing", table)
    assert by_id(graph, "Thing") == EXPECTED
    graph.overwrite("Thing", table)
    assert by_id(graph, "Thing") == EXPECTED
    assert_sound(graph.uri)


def test_an_update_keeps_the_other_columns(graph: Graph) -> None:
    """Setting one property leaves every other of its row as it was, blobs and vectors too."""
    graph.append("Thing", [given(row) for row in ROWS])
    graph.update("Thing", set={"i32": 5}, where="true")
    assert by_id(graph, "Thing") == {key: row | {"i32": 5} for key, row in EXPECTED.items()}
    assert_sound(graph.uri)


@pytest.mark.parametrize("name", sorted(set(FULL) - {"id", "key"}))
def test_an_update_sets_every_type(graph: Graph, name: str) -> None:
    """Any property can be set to a value and to null."""
    graph.append("Thing", [given(NULLS), given(EDGES)])
    graph.update("Thing", set={name: FULL[name]}, where="key = 'nulls'")
    assert by_id(graph, "Thing") == {"nulls": NULLS | {name: FULL[name]}, "edges": EDGES}
    graph.update("Thing", set={name: None}, where="true")
    assert by_id(graph, "Thing") == {"nulls": NULLS, "edges": EDGES | {name: None}}
    assert_sound(graph.uri)


def test_large_whole_numbers_as_python_ints(graph: Graph) -> None:
    """A U64 may be given as the number it is."""
    graph.append("Thing", [{"key": "k", "u64": 2**64 - 1, "longs": [2**64 - 1]}])
    graph.update("Thing", set={"u64": 2**63}, where="u64 is not null")
    row = by_id(graph, "Thing")["k"]
    assert (int(row["u64"]), [int(n) for n in row["longs"]]) == (2**63, [2**64 - 1])
    assert_sound(graph.uri)


def test_rows_with_blobs_are_written_once_per_transaction(graph: Graph) -> None:
    """A transaction that would have to copy blobs it staged itself says so; nothing is committed by halves."""
    graph.append("Thing", [given(FULL)])
    with graph.transaction() as tx:
        tx.merge("Thing", [given(FULL) | {"i32": 1}])
        tx.append("Thing", [given(NULLS)])
        with pytest.raises(OptionError, match="Blob"):
            tx.update("Thing", set={"i32": 2}, where="true")
    assert by_id(graph, "Thing") == {"full": FULL | {"i32": 1}, "nulls": NULLS}
    assert_sound(graph.uri)
