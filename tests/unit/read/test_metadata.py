"""The graph about itself: commits, branches, tables, files, recoveries."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph_spark.read.metadata import SCHEMAS, metadata_rows
from omnigraph_spark.read.snapshot import Moment
from tests.places import Place, people

KEY = "node:Person"


def _rows(place: Place, table: str, **moment: Any) -> list[dict[str, Any]]:
    found = metadata_rows(place.reader(), Moment(**moment), table=table)
    assert found.schema == SCHEMAS[table]
    listed: list[dict[str, Any]] = found.to_pylist()
    return listed


def test_commits_are_listed_oldest_first(any_graph: Place) -> None:
    """One row a commit, with its parent, branch, version and actor."""
    commit = any_graph.builder.publish({KEY: people("ann")}, actor="etl")
    genesis, newest = _rows(any_graph, "commits")
    assert (newest["commit_id"], newest["parent"], newest["actor"]) == (commit, genesis["commit_id"], "etl")
    assert (newest["branch"], newest["graph_version"], newest["details"]) == ("main", 4, "{}")
    assert len(_rows(any_graph, "commits", version=3)) == 1


def test_branches_show_their_heads(any_graph: Place) -> None:
    """One row a branch, with its parent, version and head commit."""
    any_graph.builder.create_branch("a/b")
    commit = any_graph.builder.publish({KEY: people("ann")}, branch="a/b")
    main, branch = _rows(any_graph, "branches")
    assert (main["name"], main["graph_version"], main["parent"]) == ("main", 3, None)
    assert branch == {"name": "a/b", "parent": "main", "parent_version": 3, "graph_version": 4, "head": commit}


def test_tables_and_files_are_those_of_the_version(any_graph: Place) -> None:
    """Tables show the pinned versions; files list every data file with live and deleted rows."""
    builder = any_graph.builder
    builder.publish({KEY: people("ann", "bob")})
    builder.publish({KEY: people("cy")})
    builder.delete_rows(KEY, predicate="id = 'bob'")
    person = next(t for t in _rows(any_graph, "tables") if t["table_key"] == KEY)
    assert (person["version"], person["rows"], person["path"]) == (4, 2, "nodes/40d76f1f51639ec0")
    files = _rows(any_graph, "files")
    assert [(f["table_key"], f["fragment"], f["rows"], f["deleted_rows"]) for f in files] == [
        (KEY, 0, 1, 1),
        (KEY, 1, 1, 0),
    ]
    assert all(f["bytes"] > 0 and f["file"].endswith(".lance") for f in files)
    assert len(_rows(any_graph, "files", version=4)) == 1


def test_recoveries_are_empty_until_one_happens(local_graph: Place) -> None:
    """The audit table appears with the first recovery; its rows are read as they are."""
    assert _rows(local_graph, "recoveries") == []
    schema = SCHEMAS["recoveries"].set(6, pa.field("created_at", pa.timestamp("us")))
    row = dict.fromkeys(schema.names, "x") | {"created_at": 0}
    audit = pa.Table.from_pylist([row], schema=schema)
    lance.write_dataset(audit, f"{local_graph.uri}/_graph_commit_recoveries.lance")
    assert [r["operation_id"] for r in _rows(local_graph, "recoveries")] == ["x"]


@pytest.mark.parametrize("table", sorted(SCHEMAS))
def test_every_metadata_table_is_typed_when_empty_or_not(local_graph: Place, table: str) -> None:
    """The columns of a metadata table do not depend on its rows."""
    _rows(local_graph, table)
