"""Creating a graph: one owner, the documented layout, and clear refusals after a crash."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import lance
import pytest

from omnigraph_spark import AlreadyExistsError, Graph, OmnigraphError, SchemaError
from omnigraph_spark.errors import StorageError
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.seams import Seams
from omnigraph_spark.write.create import create_graph
from tests.places import Place, people, unchanged
from tests.rig import builder_rows as spec
from tests.rig.builder import SCHEMA_FILES
from tests.rig.builder_rows import Pin
from tests.rig.builder_schemas import EXAMPLE_A, EXAMPLE_B, GraphSchema
from tests.rig.race import race

RACERS = 4


class Crash(Exception):
    """Stands for a process that died."""


def _create(place: Place, actor: str) -> str:
    try:
        Graph.create(place.uri, schema=EXAMPLE_A.pg_text, storage=dict(place.storage), actor=actor)
    except AlreadyExistsError:
        return ""
    return actor


def _crashing_create(root: str, stop_before: int) -> list[str]:
    """Create a graph but die at one durable step; return the steps that were reached."""
    steps: list[str] = []

    def fault(operation: str, target: str) -> None:
        if operation.endswith(".done"):
            return
        if len(steps) == stop_before:
            raise Crash
        steps.append(f"{operation} {target.removeprefix(root)}")

    seams = Seams(fault=fault)
    reader = GraphReader.begin(root, StorageConfig.resolve(), seams=seams)
    with contextlib.suppress(Crash):
        create_graph(reader, EXAMPLE_A.pg_text, seams=seams)
    return steps


@pytest.mark.parametrize("schema", [EXAMPLE_A, EXAMPLE_B], ids=["A", "B"])
def test_a_created_graph_has_the_documented_layout(any_root: Place, schema: GraphSchema) -> None:
    """Plain pylance finds the tables where and how the format says, and the contract files byte for byte."""
    graph = Graph.create(any_root.uri, schema=schema.pg_text, storage=dict(any_root.storage), actor="init")
    twin = any_root.under("twin", schema=schema).built().builder
    options = dict(any_root.storage) or None
    for table in schema.tables:
        found = lance.dataset(f"{any_root.uri}/{spec.table_path(table.table_key)}", storage_options=options)
        assert (found.version, found.count_rows()) == (1, 0)
        assert found.schema.equals(twin.open_table(table.table_key).schema, check_metadata=True)
        _assert_pinned_format(found)
    manifest = lance.dataset(f"{any_root.uri}/__manifest", storage_options=options)
    _assert_pinned_format(manifest)
    assert manifest.schema.metadata == {b"omnigraph:internal_schema_version": b"4"}
    assert manifest.schema.remove_metadata().equals(spec.MANIFEST_SCHEMA, check_metadata=True)
    objects = graph._begin().objects
    texts = [objects.read(f"{any_root.uri}/{name}").data.decode() for name in SCHEMA_FILES]
    assert texts == [schema.pg_text, schema.ir_text, schema.state_text]


def _assert_pinned_format(dataset: lance.LanceDataset) -> None:
    assert dataset.data_storage_version == "2.2"
    assert dataset.has_stable_row_ids
    assert not [key for key in dataset.config() if "auto_cleanup" in key]


def test_a_created_graph_has_the_documented_rows(any_root: Place) -> None:
    """The first manifest version holds a registration and a version row per type, and the genesis pair."""
    graph = Graph.create(any_root.uri, schema=EXAMPLE_A.pg_text, storage=dict(any_root.storage), actor="init")
    builder = any_root.builder
    found = {row["object_id"]: row for row in builder.manifest_rows()}
    assert len(found) == 10
    for table in EXAMPLE_A.tables:
        key, path = table.table_key, spec.table_path(table.table_key)
        file = builder.store.object_path(spec.manifest_file(path, version=1))
        metadata = {"manifest_path": file, "manifest_size": None, "e_tag": None, "naming_scheme": "V2"}
        assert found.pop(key) == spec.table_row(key)
        version = spec.table_version_row(Pin(key, path, 1, None, 0), metadata=metadata)
        assert found.pop(version["object_id"]) == version
    head = graph.head
    assert head is not None
    assert (head.graph_version, head.parent, head.actor) == (1, None, "init")
    assert set(found) == {head.id, "graph_head:main"}


def test_a_created_graph_takes_publishes_of_others(any_root: Place) -> None:
    """The builder, which knows only the format, publishes onto our graph and we read it."""
    graph = Graph.create(any_root.uri, schema=EXAMPLE_A.pg_text, storage=dict(any_root.storage))
    any_root.builder.publish({"node:Person": people("ann")})
    assert (graph.version, graph.count("Person")) == (2, 1)
    assert graph.to_arrow("Person", columns=["name"]).to_pylist() == [{"name": "ann"}]


def test_one_of_many_creators_wins(any_root: Place) -> None:
    """Ownership is one conditional put: of N processes exactly one creates, the others are refused."""
    winners = [w for w in race(partial(_create, any_root), [f"p{i}" for i in range(RACERS)]) if w]
    assert len(winners) == 1
    head = any_root.open().head
    assert head is not None
    assert head.actor == winners[0]


def test_an_existing_graph_is_refused(local_graph: Place) -> None:
    """Creating over a graph is AlreadyExistsError and changes nothing."""
    check = unchanged(local_graph.uri)
    with pytest.raises(AlreadyExistsError, match="already holds a graph") as caught:
        Graph.create(local_graph.uri, schema=EXAMPLE_A.pg_text)
    assert "Graph.open" in caught.value.hint
    check()


def test_every_crash_leaves_something_a_second_create_explains(tmp_path: Path) -> None:
    """Die before each durable step: nothing opens, and a second create succeeds or refuses with what to remove."""
    total = len(_crashing_create(str(tmp_path / "whole"), stop_before=99))
    assert total == 3 + 4 + 1
    for stop in range(total):
        root = str(tmp_path / f"crash-{stop}")
        steps = _crashing_create(root, stop_before=stop)
        assert len(steps) == stop
        with pytest.raises(OmnigraphError, match="not an OmniGraph graph"):
            Graph.open(root)
        if stop == 0:
            Graph.create(root, schema=EXAMPLE_A.pg_text)
            continue
        check = unchanged(root)
        with pytest.raises(AlreadyExistsError, match=r"_schema\.pg.*but no __manifest") as caught:
            Graph.create(root, schema=EXAMPLE_A.pg_text)
        assert f"remove everything under {root}" in caught.value.hint
        check()


def test_left_over_tables_are_refused(local_root: Place) -> None:
    """A dataset where a table belongs stops the create, and the hint says what to remove."""
    lance.write_dataset(people("x"), f"{local_root.uri}/{spec.table_path('node:Person')}")
    with pytest.raises(AlreadyExistsError, match="already holds a dataset") as caught:
        Graph.create(local_root.uri, schema=EXAMPLE_A.pg_text)
    assert "Remove everything under" in caught.value.hint


def test_an_invalid_schema_touches_nothing(local_root: Place) -> None:
    """The schema is checked before the path is claimed."""
    with pytest.raises(SchemaError, match="line 1"):
        Graph.create(local_root.uri, schema="node Person { name: Strin }")
    assert not Path(local_root.uri).exists()


def test_a_schema_may_come_from_a_file(local_root: Place, tmp_path: Path) -> None:
    """A path names a file of schema text; one that cannot be read is a SchemaError with the path."""
    file = tmp_path / "graph.pg"
    file.write_text(EXAMPLE_A.pg_text)
    assert (
        Graph.create(local_root.uri, schema=file).schema.table_keys() == Graph.open(local_root.uri).schema.table_keys()
    )
    with pytest.raises(SchemaError, match=r"absent\.pg"):
        Graph.create(str(tmp_path / "other"), schema=str(tmp_path / "absent.pg"))
    (tmp_path / "binary.pg").write_bytes(b"\xff\xfe")
    with pytest.raises(SchemaError, match="not UTF-8"):
        Graph.create(str(tmp_path / "other"), schema=tmp_path / "binary.pg")


def test_a_path_inside_a_file_is_a_storage_error(tmp_path: Path) -> None:
    """Where no directory can be made the error is typed and names the path."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="file/graph"):
        Graph.create(str(tmp_path / "file" / "graph"), schema=EXAMPLE_A.pg_text)
