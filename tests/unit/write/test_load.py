"""Loads of OmniGraph JSON records, in every mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph_spark import Graph, KeyConflictError, ValidationError
from tests.social import by_id, edges, ids, persons, social
from tests.soundness import assert_sound


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """A social graph with three persons and two friendships; whatever the test did, it must be sound in the end."""
    g = social(tmp_path)
    with g.transaction() as tx:
        tx.append("Person", persons("ada", "bob", "cyn", age=30))
        tx.append("Knows", edges(("ada", "bob"), ("bob", "cyn")))
    yield g
    assert_sound(g.uri)


RECORDS = [
    '{"edge": "Knows", "from": "dan", "to": "ada", "data": {"id": "k1", "kind": "foe"}}',
    '{"type": "Person", "data": {"name": "dan", "age": 5}}',
    '{"type": "Note", "data": {"text": "hi"}}',
]


def test_load_in_every_mode(graph: Graph) -> None:
    """Append adds, merge replaces by id, overwrite replaces the types the records name and no others."""
    result = graph.load(RECORDS, mode="append")
    assert (result.nodes_loaded, result.edges_loaded) == ({"Note": 1, "Person": 1}, {"Knows": 1})
    assert result.commit is not None
    with pytest.raises(KeyConflictError):
        graph.load(RECORDS, mode="append")
    graph.load(['{"type": "Person", "data": {"name": "dan"}}'], mode="merge")
    assert by_id(graph, "Person")["dan"]["age"] is None
    graph.load(['{"edge": "Knows", "from": "ada", "to": "cyn", "data": {"id": "k2"}}'], mode="overwrite")
    assert ids(graph, "Knows") == ["k2"]
    assert (graph.count("Person"), graph.count("Note")) == (4, 1)


def test_load_of_nothing_commits_nothing(graph: Graph) -> None:
    """An empty source is not an error and no commit."""
    before = graph.version
    assert graph.load([], mode="overwrite").commit is None
    assert graph.version == before


def test_in_a_merge_load_the_last_record_of_an_edge_wins(graph: Graph) -> None:
    """An edge id that comes twice in one merge load is one edge, as its last record says, and counts once."""
    graph.append("Company", [{"name": "acme"}])
    edge = '{"edge": "Owns", "from": "%s", "to": "acme", "data": {"id": "o"}}'
    graph.load([edge % "ada", edge % "bob", edge % "cyn"], mode="merge")
    assert by_id(graph, "Owns")["o"]["src"] == "cyn"
    with pytest.raises(ValidationError, match="source 'cyn' has 0 edges, min 1"):
        graph.load([edge % "ada", edge % "bob"], mode="merge")


def test_a_superseded_record_holds_no_unique_value(graph: Graph) -> None:
    """Only the record that wins must fit the unique values of the table."""
    like = '{"edge": "Likes", "from": "%s", "to": "%s", "data": {"id": "%s"}}'
    graph.load([like % ("ada", "bob", "l1")], mode="append")
    graph.load([like % ("ada", "bob", "l2"), like % ("ada", "cyn", "l2")], mode="merge")
    assert {i: r["dst"] for i, r in by_id(graph, "Likes").items()} == {"l1": "bob", "l2": "cyn"}


def test_load_on_a_missing_branch(graph: Graph) -> None:
    """A branch is never created by the way."""
    with pytest.raises(Exception, match="nowhere"):
        graph.load(RECORDS, mode="append", branch="nowhere")
