from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from tests.rig import builder, builder_rows
from tests.rig.builder import GraphBuilder
from tests.rig.builder_rows import Pin
from tests.rig.builder_schemas import (
    EXAMPLE_A,
    EXAMPLE_A_HASH,
    EXAMPLE_B,
    EXAMPLE_B_HASH,
    GraphSchema,
    compact_ir,
)
from tests.rig.proxy import CountingProxy
from tests.rig.s3_server import S3Server

PERSON = "nodes/40d76f1f51639ec0"


def people(*names: str) -> pa.Table:
    """Return rows for node:Person."""
    return pa.table({"id": list(names), "name": list(names)})


def ids(dataset: lance.LanceDataset) -> set[str]:
    """Return the ids a dataset holds."""
    return set(dataset.to_table(columns=["id"])["id"].to_pylist())


def only(found: list[dict[str, Any]], object_id: str) -> dict[str, Any]:
    """Return the one row with an id."""
    (row,) = [row for row in found if row["object_id"] == object_id]
    return row


@pytest.fixture
def graph(tmp_path: Path) -> GraphBuilder:
    """A fresh graph of example A on disk."""
    return GraphBuilder(str(tmp_path / "g")).create()


def test_the_builder_does_not_know_the_package() -> None:
    """No module of the rig imports the package under test."""
    for file in Path(builder.__file__).parent.glob("*.py"):
        tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        names = [
            name
            for node in tree
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        ]
        assert not [name for name in names if name.startswith(("omnigraph_spark", "pyspark_omnigraph"))]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Person", "40d76f1f51639ec0"),
        ("Company", "7cb4e55c59663b1c"),
        ("Knows", "602a25a3bd0b455b"),
        ("WorksAt", "844eefbe5068b644"),
        ("Doc", "e0b75f19922bd915"),
        ("Cites", "56e255e2fda95137"),
    ],
)
def test_directory_hashes_are_as_documented(name: str, expected: str) -> None:
    """A type's directory is the FNV-1a hash of its bare name."""
    assert builder_rows.type_hash(name) == expected


@pytest.mark.parametrize(
    ("name", "schema", "expected", "size"),
    [("example_a", EXAMPLE_A, EXAMPLE_A_HASH, 1206), ("example_b", EXAMPLE_B, EXAMPLE_B_HASH, 2285)],
)
def test_schema_hashes_are_as_documented(name: str, schema: GraphSchema, expected: str, size: int) -> None:
    """The IR file, made compact again, has the documented size and hash, which the state file holds."""
    compact = json.dumps(json.loads(schema.ir_text), ensure_ascii=False, separators=(",", ":"))
    assert compact == compact_ir(name)
    assert len(compact.encode()) == size
    assert f"sha256:{hashlib.sha256(compact.encode()).hexdigest()}" == expected
    assert json.loads(schema.state_text)["schema_ir_hash"] == expected


def test_a_new_graph_is_laid_out_as_documented(graph: GraphBuilder) -> None:
    """Three schema files, a dataset per type, and nothing else."""
    root = Path(graph.root)
    assert sorted(entry.name for entry in root.iterdir()) == [
        "__manifest",
        "__schema_state.json",
        "_schema.ir.json",
        "_schema.pg",
        "edges",
        "nodes",
    ]
    assert (root / "_schema.pg").read_text(encoding="utf-8") == EXAMPLE_A.pg_text
    assert (root / "_schema.ir.json").read_text(encoding="utf-8") == EXAMPLE_A.ir_text
    assert sorted(path.name for path in (root / "edges").iterdir()) == [
        "602a25a3bd0b455b",
        "844eefbe5068b644",
    ]


def test_a_new_manifest_is_at_version_three(graph: GraphBuilder) -> None:
    """Create, config, stamp: three versions; the stamp is 4 and the genesis commit pins version 1."""
    dataset = lance.dataset(f"{graph.root}/__manifest")
    assert dataset.version == 3
    assert dataset.config() == {"table_version_management": "true"}
    assert dataset.schema.metadata == {b"omnigraph:internal_schema_version": b"4"}
    assert dataset.schema.remove_metadata().equals(builder_rows.MANIFEST_SCHEMA, check_metadata=True)
    assert dataset.data_storage_version == "2.2"
    assert dataset.has_stable_row_ids
    assert not dataset.checkout_version(1).schema.metadata


def test_a_new_manifest_has_the_documented_rows(graph: GraphBuilder) -> None:
    """Two rows per type, nodes first, then the genesis pair."""
    found = graph.manifest_rows()
    kinds = [row["object_type"] for row in found]
    assert kinds == ["table", "table_version"] * 4 + ["graph_commit", "graph_head"]
    assert [row["table_key"][:4] for row in found[:8:2]] == ["node", "node", "edge", "edge"]
    assert only(found, "node:Person")["location"] == PERSON
    version = only(found, "node:Person$00000000000000000001")
    assert (version["table_version"], version["table_branch"], version["row_count"]) == (1, None, 0)
    metadata = json.loads(version["metadata"])
    assert list(metadata) == ["manifest_path", "manifest_size", "e_tag", "naming_scheme"]
    assert Path("/", metadata["manifest_path"]).stat().st_size == metadata["manifest_size"]
    commit, head = found[8:]
    assert (commit["table_key"], commit["table_version"], commit["table_branch"]) == ("", 1, None)
    assert list(json.loads(commit["metadata"])) == ["created_at"]
    assert head["object_id"] == "graph_head:main"
    assert json.loads(head["metadata"]) == {"head_commit_id": commit["object_id"]}
    assert all(row["base_objects"] is None for row in found)


def test_a_second_create_is_refused(graph: GraphBuilder) -> None:
    """A root that holds a graph is left alone."""
    with pytest.raises(FileExistsError):
        GraphBuilder(graph.root).create()


@pytest.mark.parametrize("schema", [EXAMPLE_A, EXAMPLE_B], ids=["a", "b"])
def test_tables_have_the_documented_columns(tmp_path: Path, schema: GraphSchema) -> None:
    """Each table is empty at version 1, storage 2.2, stable row ids, with its canonical columns."""
    graph = GraphBuilder(str(tmp_path), schema=schema).create()
    for spec in schema.tables:
        dataset = lance.dataset(f"{graph.root}/{builder_rows.table_path(spec.table_key)}")
        assert (dataset.version, dataset.count_rows()) == (1, 0)
        assert (dataset.data_storage_version, dataset.has_stable_row_ids) == ("2.2", True)
        assert dataset.schema.names == spec.schema.names
        assert [field.nullable for field in dataset.schema] == [field.nullable for field in spec.schema]
        plain = [field.name for field in spec.schema if field.name != "payload"]
        assert [dataset.schema.field(n).type for n in plain] == [spec.schema.field(n).type for n in plain]


def test_every_column_type_can_be_written(tmp_path: Path) -> None:
    """A row of example B with every property comes back, blob included."""
    graph = GraphBuilder(str(tmp_path), schema=EXAMPLE_B).create()
    row = {
        "id": "a",
        "embedding": [1.0, 2.0, 3.0],
        "published": 1_700_000_000_123,
        "score": 0.5,
        "slug": "a",
        "status": "open",
        "tags": ["x", None],
        "title": "t",
    }
    data = pa.Table.from_pylist([row]).append_column("payload", pa.array([{"data": b"xyz", "uri": None}]))
    graph.publish({"node:Doc": data})
    dataset = graph.open_table("node:Doc")
    back = dataset.to_table(columns=["published", "tags", "embedding"])
    assert back["published"].cast(pa.int64()).to_pylist() == [1_700_000_000_123]
    assert (back["tags"].to_pylist(), back["embedding"].to_pylist()) == ([["x", None]], [[1.0, 2.0, 3.0]])
    (payload,) = dataset.take_blobs("payload", indices=[0])
    assert payload is not None
    assert payload.readall() == b"xyz"


def test_a_publish_is_one_manifest_version(graph: GraphBuilder) -> None:
    """One merge-insert: a version row per table, the commit with its parent, the head replaced in place."""
    genesis = graph.head()
    edges = pa.table({"id": ["e1"], "src": ["ann"], "dst": ["bob"]})
    commit = graph.publish({"node:Person": people("ann", "bob"), "edge:Knows": edges}, actor="act-1")
    assert graph.manifest().version == 4
    found = graph.manifest_rows()
    assert len(found) == 10 + 3
    assert graph.snapshot()["node:Person"] == Pin("node:Person", PERSON, 2, None, 2)
    assert graph.snapshot()["edge:WorksAt"].version == 1
    row = only(found, commit)
    metadata = json.loads(row["metadata"])
    assert list(metadata) == ["parent_commit_id", "actor_id", "created_at"]
    assert (metadata["parent_commit_id"], metadata["actor_id"]) == (genesis, "act-1")
    assert row["table_version"] == 4
    head = {"head_commit_id": commit, "parent_commit_id": genesis}
    assert json.loads(only(found, "graph_head:main")["metadata"]) == head
    assert ids(lance.dataset(f"{graph.root}/{PERSON}", version=2)) == {"ann", "bob"}


def test_a_stale_publisher_loses(graph: GraphBuilder) -> None:
    """Two merges from one manifest version share the head row, so the second fails."""
    stale = graph.manifest()
    graph.publish({"node:Person": people("ann")})
    lineage = builder_rows.Lineage(builder_rows.new_id(), stale.version + 1, builder_rows.now_micros())
    with pytest.raises(OSError, match="Too many concurrent writers"):
        builder._merge(stale, builder_rows.lineage_rows(lineage))


def test_delete_rows_publishes_only_when_something_matched(graph: GraphBuilder) -> None:
    """A delete that matches moves table and graph by one; one that does not moves nothing."""
    graph.publish({"node:Person": people("ann", "bob")})
    assert graph.delete_rows("node:Person", predicate="id = 'cy'") is None
    assert graph.manifest().version == 4
    assert graph.delete_rows("node:Person", predicate="id = 'ann'") == graph.head()
    assert graph.snapshot()["node:Person"] == Pin("node:Person", PERSON, 3, None, 1)
    assert ids(graph.open_table("node:Person")) == {"bob"}


def test_a_branch_forks_a_table_at_its_first_write(graph: GraphBuilder) -> None:
    """Creating a branch writes no row; the first write forks only the table it touches; main is unmoved."""
    graph.publish({"node:Person": people("ann")})
    graph.create_branch("review/x")
    assert graph.manifest(branch="review/x").version == 4
    assert graph.snapshot(branch="review/x") == graph.snapshot()
    commit = graph.publish({"node:Person": people("bob")}, branch="review/x")
    snapshot = graph.snapshot(branch="review/x")
    assert snapshot["node:Person"] == Pin("node:Person", PERSON, 3, "review/x", 2)
    assert snapshot["edge:Knows"].branch is None
    assert ids(lance.dataset(f"{graph.root}/{PERSON}/tree/review/x", version=3)) == {"ann", "bob"}
    found = graph.manifest_rows(branch="review/x")
    assert only(found, commit)["table_branch"] == "review/x"
    assert only(found, "graph_head:review/x")
    assert only(found, "graph_head:main")
    assert (graph.manifest().version, graph.snapshot()["node:Person"].version) == (4, 2)


def test_a_branch_of_a_branch_forks_from_its_parent(graph: GraphBuilder) -> None:
    """A nested branch starts from its source's rows and owns its tables after its own first write."""
    graph.create_branch("one")
    graph.publish({"node:Person": people("ann")}, branch="one")
    graph.create_branch("two", source="one")
    assert graph.snapshot(branch="two")["node:Person"].branch == "one"
    graph.publish({"node:Person": people("bob")}, branch="two")
    assert graph.snapshot(branch="two")["node:Person"] == Pin("node:Person", PERSON, 3, "two", 2)
    assert ids(graph.open_table("node:Person", branch="one")) == {"ann"}


def test_tombstone_hides_the_table(graph: GraphBuilder) -> None:
    """A dropped table leaves the snapshot; its directory stays."""
    graph.tombstone("edge:WorksAt")
    assert "edge:WorksAt" not in graph.snapshot()
    assert only(graph.manifest_rows(), "edge:WorksAt$tombstone$00000000000000000002")
    assert Path(graph.root, "edges/844eefbe5068b644").exists()


def test_unusual_states_can_be_made(graph: GraphBuilder) -> None:
    """Foreign rows, other stamps, a compacted manifest, a missing directory, a sidecar."""
    graph.add_raw_manifest_row(object_id="x:1", object_type="from_the_future", metadata="{}", table_version=7)
    assert only(graph.manifest_rows(), "x:1")["table_version"] == 7
    for value in (3, 6, None, 4):
        graph.stamp(value)
        stored = (graph.manifest().schema.metadata or {}).get(builder_rows.STAMP_KEY.encode())
        assert stored == (None if value is None else str(value).encode())
    before = sorted(row["object_id"] for row in graph.manifest_rows())
    graph.compact_manifest()
    assert len(graph.manifest().get_fragments()) == 1
    assert sorted(row["object_id"] for row in graph.manifest_rows()) == before
    graph.remove_table_dir("node:Company")
    assert not Path(graph.root, "nodes/7cb4e55c59663b1c").exists()
    name = graph.write_sidecar({"schema_version": 2, "operation_id": "01JZ0Q9Y7N4T1V8C2R5M6K3WXB"})
    assert name == "__recovery/01JZ0Q9Y7N4T1V8C2R5M6K3WXB.json"
    assert json.loads(Path(graph.root, name).read_text(encoding="utf-8"))["schema_version"] == 2


def test_create_writes_in_the_documented_order(s3_server: S3Server, proxy: CountingProxy, bucket: str) -> None:
    """On S3: the schema source first and only if absent, then the contract, the tables, the manifest."""
    options = s3_server.storage_options(endpoint=proxy.endpoint)
    GraphBuilder(f"s3://{bucket}/g", options).create()
    writes = [r for r in proxy.requests() if r.durable]
    assert [r.key for r in writes[:3]] == ["g/_schema.pg", "g/_schema.ir.json", "g/__schema_state.json"]
    assert writes[0].conditional
    classes = [r.table_class for r in writes[3:]]
    assert classes == sorted(classes)
    assert set(classes) == {"data", "manifest"}


def test_a_graph_on_s3_works_like_one_on_disk(s3_server: S3Server, bucket: str) -> None:
    """Publish, delete, branch and removal on S3; version rows carry size and ETag of the real object."""
    graph = GraphBuilder(f"s3://{bucket}/pre/g", s3_server.storage_options()).create()
    graph.publish({"node:Person": people("ann", "bob")})
    graph.create_branch("feature")
    graph.publish({"node:Person": people("cy")}, branch="feature")
    graph.delete_rows("node:Person", predicate="id = 'bob'")
    assert ids(graph.open_table("node:Person")) == {"ann"}
    assert ids(graph.open_table("node:Person", branch="feature")) == {"ann", "bob", "cy"}
    row = only(graph.manifest_rows(branch="feature"), "node:Person$00000000000000000003")
    metadata = json.loads(row["metadata"])
    assert metadata["manifest_path"] == f"pre/g/{PERSON}/tree/feature/_versions/18446744073709551612.manifest"
    client = s3_server.client()
    head = client.head_object(Bucket=bucket, Key=metadata["manifest_path"])
    client.close()
    assert (metadata["manifest_size"], metadata["e_tag"]) == (head["ContentLength"], head["ETag"])
    graph.remove_table_dir("node:Person")
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(f"{graph.root}/{PERSON}", storage_options=s3_server.storage_options())
