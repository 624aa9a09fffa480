"""Every type comes out of storage as it went in."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa

from omnigraph_spark import Graph
from tests.all_types import COLUMNS, FULL, ROWS, graph_of_all_types
from tests.places import Place
from tests.rig.builder_schemas import EXAMPLE_B


def test_every_type_round_trips(any_root: Place) -> None:
    """Values at the edges of every type, nulls, lists with nulls, blobs and vectors come back unchanged."""
    graph = graph_of_all_types(any_root).open()
    assert graph.to_arrow("Thing").to_pylist() == ROWS
    assert graph.to_arrow("Thing").schema.names == COLUMNS.names


def test_each_column_can_be_read_alone(local_root: Place) -> None:
    """A projection of one column, whatever its type, equals that column of the whole."""
    graph = graph_of_all_types(local_root).open()
    for name in FULL:
        assert graph.to_arrow("Thing", columns=[name]).to_pylist() == [{name: row[name]} for row in ROWS]


def test_filters_know_the_types(local_root: Place) -> None:
    """Predicates on unsigned numbers, times, lists and nulls choose the right rows."""
    graph = graph_of_all_types(local_root).open()
    for where, found in {
        "u64 >= 9223372036854775808": ["full", "edges"],
        "time < timestamp '1970-01-01 00:00:00'": ["edges"],
        "date = date '2026-02-28'": ["full"],
        "array_has(strings, 'ä')": ["full"],
        "f64 is null": ["edges", "nulls"],
        "kind = 'big' and not (i32 > 0)": ["full"],
    }.items():
        assert [r["id"] for r in graph.to_arrow("Thing", columns=["id"], where=where).to_pylist()] == found, where


def test_a_graph_of_omnigraph_with_blobs_and_vectors_reads(local_root: Place) -> None:
    """Example B as OmniGraph lays it out: embedding, payload, DateTime, enum, list and required columns."""
    place = Place(local_root.uri, schema=EXAMPLE_B).built()
    blobs = EXAMPLE_B.table("node:Doc").schema.field("payload").type
    rows = pa.table(
        {
            "id": ["a", "b"],
            "slug": ["a", "b"],
            "title": ["A", "B"],
            "status": ["open", "closed"],
            "embedding": pa.array([[1, 2, 3], None], pa.list_(pa.float32(), 3)),
            "payload": pa.array([{"data": b"x" * 100_000, "uri": None}, None], blobs),
            "published": pa.array([1_767_225_600_123, None]).view(pa.date64()),
            "tags": [["t", "u"], None],
        }
    )
    place.builder.publish({"node:Doc": rows, "edge:Cites": pa.table({"id": ["e"], "src": ["a"], "dst": ["b"]})})
    first, second = Graph.open(place.uri).to_arrow("Doc").to_pylist()
    assert first == {
        "id": "a",
        "embedding": [1.0, 2.0, 3.0],
        "payload": b"x" * 100_000,
        "published": datetime(2026, 1, 1, 0, 0, 0, 123000, tzinfo=timezone.utc),
        "score": None,
        "slug": "a",
        "status": "open",
        "tags": ["t", "u"],
        "title": "A",
    }
    assert (second["embedding"], second["payload"], second["published"], second["tags"]) == (None, None, None, None)
    assert place.open().to_arrow("Cites").to_pylist() == [{"id": "e", "src": "a", "dst": "b", "note": None}]
