"""From a branch, version, time or commit to one snapshot, and what `Graph` says about it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from omnigraph_spark import Graph, NotFoundError, OptionError
from omnigraph_spark.options import parse_time
from tests.places import Place, knows, people

KEY = "node:Person"


def _names(graph: Graph, **arguments: object) -> list[str]:
    rows = graph.to_arrow("Person", columns=["name"], **arguments)  # type: ignore[arg-type]
    return sorted(row["name"] for row in rows.to_pylist())


def test_every_way_to_name_a_moment_finds_the_same_version(any_graph: Place) -> None:
    """Version, commit id and timestamp of one commit read the same rows; no choice reads the latest."""
    builder = any_graph.builder
    first = builder.publish({KEY: people("ann")}, actor="a1")
    builder.publish({KEY: people("bob")})
    graph = any_graph.open()
    commit = next(c for c in graph.history() if c.id == first)
    assert _names(graph) == ["ann", "bob"]
    assert _names(graph, version=commit.graph_version) == ["ann"]
    assert _names(graph, commit=first) == ["ann"]
    assert _names(graph, timestamp=commit.created_at) == ["ann"]
    assert _names(graph, timestamp=commit.created_at.isoformat()) == ["ann"]
    assert _names(graph, timestamp=commit.created_at - timedelta(microseconds=1)) == []


def test_a_view_is_pinned_and_a_handle_is_not(local_graph: Place) -> None:
    """INV-14: `at` keeps its version while commits land; an open handle moves with its branch."""
    builder = local_graph.builder
    builder.publish({KEY: people("ann")})
    graph = local_graph.open()
    view = graph.at()
    builder.publish({KEY: people("bob")})
    assert (view.version, view.count("Person"), _names(view)) == (4, 1, ["ann"])
    assert (graph.version, graph.count("Person"), _names(graph)) == (5, 2, ["ann", "bob"])
    assert view.read_only
    assert view.head is not None
    assert view.head.id == graph.history()[1].id


def test_a_branch_is_read_at_its_own_head_and_through_its_fork(local_graph: Place) -> None:
    """Reading a branch by name, version, commit or time sees its own lineage."""
    builder = local_graph.builder
    before = builder.publish({KEY: people("ann")})
    builder.create_branch("review/x")
    own = builder.publish({KEY: people("bob")}, branch="review/x")
    builder.publish({KEY: people("cy")})
    graph = local_graph.open(branch="review/x")
    assert _names(graph) == ["ann", "bob"]
    assert _names(graph, commit=before) == ["ann"]
    assert _names(graph, version=4) == ["ann"]
    assert _names(local_graph.open(), branch="review/x") == ["ann", "bob"]
    assert _names(local_graph.open(), commit=own) == ["ann", "bob"]  # found on the branch that has it
    assert graph.at(timestamp="2999-01-01").version == 5
    assert [c.branch for c in graph.history()] == ["review/x", "main", "main"]
    assert [c.branch for c in graph.history(1, branch="main")] == ["main"]
    assert [(b.name, b.parent, b.graph_version, b.head) for b in graph.branches()] == [
        ("main", None, 5, builder.head()),
        ("review/x", "main", 5, own),
    ]


def test_tables_and_counts_come_from_the_manifest(local_graph: Place) -> None:
    """`tables` and `count` are what the graph version pins, also after a table's files are gone."""
    builder = local_graph.builder
    builder.publish({KEY: people("ann", "bob"), "edge:Knows": knows(("ann", "bob"))})
    builder.remove_table_dir(KEY)
    graph = local_graph.open()
    assert (graph.count("Person"), graph.count("Knows"), graph.count("node:Company")) == (2, 1, 0)
    assert [(t.key, t.kind, t.type, t.version, t.rows, t.branch) for t in graph.tables()] == [
        ("edge:Knows", "edge", "Knows", 2, 1, None),
        ("edge:WorksAt", "edge", "WorksAt", 1, 0, None),
        ("node:Company", "node", "Company", 1, 0, None),
        ("node:Person", "node", "Person", 2, 2, None),
    ]


def test_history_tells_who_and_when(local_graph: Place) -> None:
    """Commits come newest first with their parents, actors and times."""
    commit = local_graph.builder.publish({KEY: people("ann")}, actor="etl")
    newest, genesis = local_graph.open().history()
    assert (newest.id, newest.parent, newest.actor, newest.graph_version) == (commit, genesis.id, "etl", 4)
    assert genesis.created_at <= newest.created_at <= datetime.now(timezone.utc)


def test_before_the_first_commit_there_is_nothing(local_graph: Place) -> None:
    """A time before the graph existed names the first commit's time."""
    with pytest.raises(NotFoundError, match=r"no commit at or before 2001-01-01.*first commit is of"):
        local_graph.open().at(timestamp="2001-01-01")


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00.000001+00:00", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("2026-01-01 00:00:00.123456", 1767225600123456),
        ("1767225600123", 1767225600123000),
    ],
)
def test_times_are_exact(text: str, micros: int) -> None:
    """ISO 8601 with or without a zone, or milliseconds, to the microsecond; no zone means UTC."""
    assert parse_time("timestampAsOf", text) == micros


def test_moments_exclude_each_other(local_graph: Place) -> None:
    """Two ways to name a moment at once are refused."""
    with pytest.raises(OptionError, match="versionAsOf and commit exclude"):
        local_graph.open().at(version=3, commit="01X")
