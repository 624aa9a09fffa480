"""Graphs to damage, and the damage: always on the real files, never through the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from omnigraph_spark import Graph, VerifyReport
from omnigraph_spark.maintenance.verify import verify_graph
from tests.places import Place, knows, people
from tests.rig import builder_rows as rows
from tests.rig.builder_schemas import EXAMPLE_B, GraphSchema, TableSpec

PERSON, KNOWS, DOC, CITES = "node:Person", "edge:Knows", "node:Doc", "edge:Cites"


def social(place: Place) -> Place:
    """Three people, two of them deleted rows' neighbours, and their edges; also on a branch of its own."""
    builder = place.builder
    builder.publish({PERSON: people("ann", "bob", "cy", "dan"), KNOWS: knows(("ann", "bob"), ("bob", "cy"))}, actor="a")
    builder.delete_rows(PERSON, predicate="id = 'dan'")
    return place


def docs(place: Place) -> Place:
    """A graph of example B, which has every rule, with two sound documents and an edge."""
    built = Place(place.uri, place.storage, EXAMPLE_B).built()
    built.builder.publish({DOC: doc_rows(id=["a", "b"], slug=["a", "b"])})
    built.builder.publish({CITES: knows(("a", "b"))})
    return built


def doc_rows(**columns: list[Any]) -> pa.Table:
    """Return Doc rows; columns left out hold something sound."""
    count = len(columns["id"])
    filled = {"status": ["open"] * count, "title": [f"t{i}" for i in columns["id"]], **columns}
    if "slug" not in filled:
        filled["slug"] = filled["id"]
    return pa.table(filled)


def created(place: Place, pg: str, specs: Mapping[str, pa.Schema]) -> Place:
    """Create a graph by the package from schema text, for the builder to fill."""
    Graph.create(place.uri, schema=pg, storage=dict(place.storage))
    tables = tuple(TableSpec(key, schema) for key, schema in specs.items())
    return Place(place.uri, place.storage, GraphSchema(pg, "", "", tables))


def verify(place: Place, **arguments: Any) -> VerifyReport:
    """Verify without opening first: an opened graph would refuse some damage by itself."""
    return verify_graph(place.reader(), **arguments)


def spoke(report: VerifyReport) -> set[tuple[str, str, str]]:
    """Return which checks found something, of which severity, on which table."""
    return {(f.check, f.severity, f.table_key) for f in report.findings}


def table_dir(place: Place, table_key: str) -> Path:
    """Return a table's directory."""
    return Path(place.uri, rows.table_path(table_key))


def commit_row(commit_id: str, version: int, **details: Any) -> rows.Row:
    """Return a graph_commit row that says anything."""
    metadata = json.dumps({"created_at": rows.now_micros(), **details})
    return rows.manifest_row(commit_id, object_type="graph_commit", table_version=version, metadata=metadata)


def merge(place: Place, *changed: rows.Row) -> None:
    """Put rows into the manifest as they are."""
    manifest = place.builder.manifest()
    merge = manifest.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
    merge.conflict_retries(0).use_index(False).execute(rows.to_table(changed))


def publish_dataset(place: Place, table_key: str, dataset: lance.LanceDataset) -> None:
    """Publish whatever version a table has come to."""
    builder = place.builder
    pin = builder.snapshot()[table_key]
    moved = rows.Pin(table_key, pin.path, dataset.version, pin.branch, dataset.count_rows())
    builder.publish_rows([rows.table_version_row(moved, metadata={})])
