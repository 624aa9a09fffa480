"""The fold: from rows to the tables, the head and the history of a graph."""

from __future__ import annotations

import random

import pytest

from omnigraph_spark.errors import FormatError
from omnigraph_spark.manifest.layout import V4
from omnigraph_spark.manifest.state import GraphState, fold
from tests.places import Place, knows, people
from tests.rig import builder_rows as spec
from tests.rig.builder_rows import Lineage, Pin, Row

KEY = "node:Person"
META = {"manifest_path": "x"}


def _fold(found: list[Row], *, branch: str = "main") -> GraphState:
    shuffled = random.Random(7).sample(found, len(found))
    return fold(spec.to_table(shuffled), layout=V4, branch=branch, graph_version=9)


def _version(version: int, *, rows: int = 0, branch: str | None = None) -> Row:
    return spec.table_version_row(Pin(KEY, spec.table_path(KEY), version, branch, rows), metadata=META)


def test_the_greatest_version_wins_whatever_its_branch() -> None:
    """Per table the greatest version is the graph's; the branch column plays no part in the choice."""
    state = _fold([spec.table_row(KEY), _version(2, rows=2, branch="b"), _version(10, rows=9), _version(9, rows=8)])
    entry = state.tables[KEY]
    assert (entry.version, entry.row_count, entry.branch, entry.path) == (10, 9, None, "nodes/40d76f1f51639ec0")
    assert state.published_versions(KEY) == {2, 9, 10}


@pytest.mark.parametrize(("tombstone", "visible"), [(4, True), (5, False), (6, False)])
def test_a_tombstone_hides_versions_up_to_its_own(tombstone: int, visible: bool) -> None:
    """A table is dropped when its tombstone is at or above its newest version."""
    state = _fold([spec.table_row(KEY), _version(5), spec.tombstone_row(KEY, version=tombstone)])
    assert (KEY in state.tables) is visible
    assert state.registered == {KEY: "nodes/40d76f1f51639ec0"}


def test_unknown_kinds_are_skipped() -> None:
    """A row of a kind we do not know changes nothing, whatever it holds."""
    known = [spec.table_row(KEY), _version(1)]
    odd = spec.manifest_row("future:1", object_type="future_kind", metadata="not json", table_key=KEY, table_version=99)
    assert _fold([*known, odd]).tables == _fold(known).tables


@pytest.mark.parametrize(
    ("damage", "names"),
    [
        ([spec.table_row(KEY) | {"location": None}], "node:Person"),
        ([_version(1)], "never registered"),
        ([spec.table_row(KEY), _version(1) | {"row_count": None}], r"\$00000000000000000001"),
        ([spec.table_row(KEY), _version(1) | {"metadata": None}], r"\$00000000000000000001"),
        ([spec.table_row(KEY), _version(1) | {"metadata": "{"}], r"\$00000000000000000001"),
        ([spec.table_row(KEY), _version(1) | {"table_version": None}], "table_version"),
        ([spec.tombstone_row(KEY, version=1) | {"table_version": None}], "table_tombstone"),
    ],
)
def test_damaged_rows_are_format_errors(damage: list[Row], names: str) -> None:
    """A row that lacks what the format requires is refused, and named."""
    with pytest.raises(FormatError, match=names):
        _fold(damage)


def test_the_head_is_the_greatest_commit() -> None:
    """The head is the maximum of (graph version, time, id) over all commits; the head rows play no part."""
    commits = [
        Lineage("01C", 7, 100),
        Lineage("01B", 7, 200),
        Lineage("01A", 7, 200, branch="b", parent="01C"),
        Lineage("01Z", 3, 999),
    ]
    found = [row for c in commits for row in spec.lineage_rows(c)]
    state = _fold([*{row["object_id"]: row for row in found}.values()])
    assert state.head is not None
    assert state.head.commit_id == "01B"
    assert [c.commit_id for c in state.commits()] == ["01Z", "01C", "01A", "01B"]
    found_by_id = state.commit("01A")
    assert found_by_id is not None
    assert (found_by_id.branch, found_by_id.parent) == ("b", "01C")
    assert state.commit("graph_head:main") is None


def test_an_empty_manifest_has_no_head() -> None:
    """No rows: no tables, no head, no window."""
    state = _fold([])
    assert (state.tables, state.head, state.epoch, state.commits()) == ({}, None, None, [])


def test_the_fold_agrees_with_the_builder(local_graph: Place) -> None:
    """After real publishes, deletes and a drop, our fold and the builder's see the same tables and head."""
    builder = local_graph.builder
    builder.publish({KEY: people("ann", "bob"), "edge:Knows": knows(("ann", "bob"))}, actor="etl")
    builder.delete_rows(KEY, predicate="id = 'bob'")
    builder.tombstone("edge:WorksAt")
    builder.compact_manifest()
    state = local_graph.reader().manifest.open().state
    ours = {k: Pin(k, e.path, e.version, e.branch, e.row_count) for k, e in state.tables.items()}
    assert ours == builder.snapshot()
    assert state.head is not None
    assert state.head.commit_id == builder.head()
    commits = state.commits()
    assert [c.parent for c in commits] == [None, *[c.commit_id for c in commits[:-1]]]
    assert [c.actor for c in commits] == [None, "etl", None, None]
