"""Bad input: a typed error with a stable code that names the thing at fault, and nothing changed on storage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph_spark import Graph, OmnigraphError
from omnigraph_spark.errors import Outcome
from omnigraph_spark.options import Scope, parse_options
from omnigraph_spark.source import plan_options
from tests.places import Place, people, unchanged
from tests.rig.builder import SCHEMA_FILES
from tests.rig.ports import free_ports
from tests.rig.s3_server import S3Server

KEY = "node:Person"
STRANGER_ID = "01JZ0Q3V6C8W3M5T9K2B7XHDNE"


def _read(place: Place, options: Mapping[str, str]) -> None:
    """Plan a read the way Spark's `load` does."""
    plan_options(parse_options({"path": place.uri, **place.options(), **options}, scope=Scope.READ))


def _refused(place: Place, options: Mapping[str, str], *, code: str, names: str) -> OmnigraphError:
    """Assert that a read is refused with a code and a text, and leaves the directory as it was."""
    check = unchanged(place.uri)
    with pytest.raises(OmnigraphError, match=names) as caught:
        _read(place, options)
    check()
    assert caught.value.code == code
    assert str(caught.value).startswith(f"[{code}] ")
    assert caught.value.outcome is Outcome.NOT_COMMITTED
    return caught.value


@pytest.mark.parametrize(
    ("options", "code", "names"),
    [
        ({"nod": "Person"}, "OG-OPTION", "Unknown option 'nod'; did you mean 'node'"),
        ({"node": "Person", "verson_as_of": "1"}, "OG-OPTION", "did you mean 'versionAsOf'"),
        ({"node": "Person", "writeMode": "append"}, "OG-OPTION", "(?i)writeMode"),
        ({"node": "Person", "no-de": "Person"}, "OG-OPTION", "node is given twice"),
        ({"node": "Persn"}, "OG-NOT-FOUND", "no node type 'Persn'; did you mean 'Person'"),
        ({"edge": "Person"}, "OG-NOT-FOUND", "no edge type 'Person'.*known: Knows, WorksAt"),
        ({"type": "Nobody"}, "OG-NOT-FOUND", "no type 'Nobody'"),
        ({"node": "Person", "branch": "reviw"}, "OG-NOT-FOUND", "Branch 'reviw' does not exist; did you mean 'review'"),
        ({"node": "Person", "versionAsOf": "99"}, "OG-NOT-FOUND", "no graph version 99: its latest is 4"),
        ({"node": "Person", "commit": STRANGER_ID}, "OG-NOT-FOUND", f"commit '{STRANGER_ID}'"),
        ({"node": "Person", "timestampAsOf": "2001-02-03"}, "OG-NOT-FOUND", "no commit at or before 2001-02-03"),
        ({"node": "Person", "edge": "Knows"}, "OG-OPTION", "node and edge exclude each other"),
        ({"node": "Person", "type": "Person"}, "OG-OPTION", "node and type exclude each other"),
        ({}, "OG-OPTION", "No type is named"),
        ({"node": "Person", "versionAsOf": "3", "commit": "01X"}, "OG-OPTION", "versionAsOf and commit exclude"),
        ({"node": "Person", "versionAsOf": "3", "timestampAsOf": "2030-01-01"}, "OG-OPTION", "exclude each other"),
        ({"node": "Person", "filter": "agee > 3"}, "OG-OPTION", "no column 'agee'; did you mean 'age'"),
        ({"node": "Person", "filter": "age > 'x'"}, "OG-OPTION", "age > 'x'.*could not convert"),
        ({"node": "Person", "filter": "age >"}, "OG-OPTION", "'age >' on Person is not valid"),
        ({"node": "Person", "filter": "age + 1"}, "OG-OPTION", "age .* does not return a boolean"),
        ({"node": "Person", "columns": "name,,age"}, "OG-OPTION", "columns has an empty entry"),
        ({"node": "Person", "columns": "nam"}, "OG-OPTION", "no column 'nam'; did you mean 'name'"),
        ({"node": "Person", "limit": "-1"}, "OG-OPTION", "limit must be a whole number"),
        ({"node": "Person", "splitSize": "big"}, "OG-OPTION", "splitSize must be a size"),
        ({"node": "Person", "timestampAsOf": "yesterday"}, "OG-OPTION", "timestampAsOf.*'yesterday'"),
        ({"table": "rows"}, "OG-OPTION", "table must be one of commits, branches"),
        ({"table": "commits", "node": "Person"}, "OG-OPTION", "table and node exclude each other"),
    ],
)  # fmt: skip
def test_a_bad_read_is_refused(local_graph: Place, options: dict[str, str], code: str, names: str) -> None:
    """Unknown, contradictory and malformed options, and names that do not exist, each say what is wrong."""
    local_graph.builder.create_branch("review")
    local_graph.builder.publish({KEY: people("ann")})
    _refused(local_graph, options, code=code, names=names)


def test_a_name_that_is_both_kinds_is_ambiguous(local_root: Place) -> None:
    """`type` refuses a name that is a node and an edge; `node` and `edge` choose."""
    Graph.create(local_root.uri, schema="node Link { name: String @key }\nedge Link: Link -> Link")
    error = _refused(local_root, {"type": "Link"}, code="OG-OPTION", names="node:Link or edge:Link")
    assert "node or the edge" in error.hint
    for options in ({"node": "Link"}, {"edge": "Link"}, {"type": "edge:Link"}):
        _read(local_root, options)


def test_a_directory_that_is_no_graph_says_so(tmp_path: Path) -> None:
    """An absent, an empty and a foreign directory are each no graph, and none of them is touched."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "data.csv").write_text("a,b")
    for name in ("absent", "foreign"):
        place = Place(str(tmp_path / name))
        _refused(place, {"node": "Person"}, code="OG-NOT-FOUND", names=f"{name} is not an OmniGraph graph")
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(("stamp", "names"), [(3, "stamp 3"), (6, "stamp 6"), (None, "stamp 1")])
def test_a_graph_of_another_stamp_is_refused(local_graph: Place, stamp: int | None, names: str) -> None:
    """Older and newer graphs are FormatErrors with what to do, also when a version is asked for."""
    local_graph.builder.stamp(stamp)
    error = _refused(local_graph, {"node": "Person"}, code="OG-FORMAT", names=names)
    assert "xport" in error.hint
    _refused(local_graph, {"node": "Person", "versionAsOf": "3"}, code="OG-FORMAT", names=names)


@pytest.mark.parametrize(
    ("missing", "names"),
    [(["_schema.pg"], r"_schema\.pg"), (["_schema.ir.json"], r"_schema\.ir\.json is missing"),
     (["__schema_state.json"], r"__schema_state\.json is missing")],
)  # fmt: skip
def test_a_contract_with_a_file_missing_is_torn(local_graph: Place, missing: list[str], names: str) -> None:
    """One lost schema file is a FormatError that names it and how to repair."""
    for name in missing:
        Path(local_graph.uri, name).unlink()
    error = _refused(local_graph, {"node": "Person"}, code="OG-FORMAT", names=names)
    assert "Restore" in error.hint


def test_both_json_files_missing_is_torn_only_with_branches(local_graph: Place) -> None:
    """A graph of main alone derives them from the text and writes nothing; with another branch it is torn."""
    for name in SCHEMA_FILES[1:]:
        Path(local_graph.uri, name).unlink()
    check = unchanged(local_graph.uri)
    _read(local_graph, {"node": "Person"})
    check()
    local_graph.builder.create_branch("review")
    _refused(local_graph, {"node": "Person"}, code="OG-FORMAT", names="torn contract")


@pytest.mark.parametrize(
    ("file", "old", "new", "names"),
    [
        ("_schema.pg", "age: I32?", "age: I64?", r"_schema\.pg was changed"),
        ("_schema.ir.json", '"age"', '"agd"', r"_schema\.ir\.json disagrees"),
        ("__schema_state.json", "sha256:e3", "sha256:f3", r"__schema_state\.json disagrees"),
        ("_schema.pg", "node Person", "node", r"_schema\.pg is not a valid schema"),
        ("_schema.ir.json", "{", "", "compiled schema is not JSON"),
    ],
)
def test_a_contract_whose_files_disagree_is_refused(
    local_graph: Place, file: str, old: str, new: str, names: str
) -> None:
    """A changed schema file is a FormatError that names the file."""
    path = Path(local_graph.uri, file)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    _refused(local_graph, {"node": "Person"}, code="OG-FORMAT", names=names)


def test_a_manifest_row_of_an_unknown_kind_is_skipped(local_graph: Place) -> None:
    """Rows that a later version wrote do not stop us from reading."""
    local_graph.builder.publish({KEY: people("ann")})
    local_graph.builder.add_raw_manifest_row(object_id="new:1", object_type="new_kind", metadata="?", table_version=7)
    assert local_graph.open().to_arrow("Person").num_rows == 1


def test_a_table_that_storage_lacks_is_named(any_graph: Place) -> None:
    """A table the manifest names but storage lost is StorageNotFoundError; the other tables still read."""
    any_graph.builder.publish({KEY: people("ann"), "node:Company": pa.table({"id": ["c"], "name": ["c"]})})
    any_graph.builder.remove_table_dir(KEY)
    with pytest.raises(OmnigraphError, match="node:Person version 2 is part of graph version 4") as caught:
        _read(any_graph, {"node": "Person"})
    assert caught.value.code == "OG-STORAGE-NOT-FOUND"
    assert any_graph.open().to_arrow("Company").num_rows == 1


def test_no_permission_is_said(guarded_s3: S3Server) -> None:
    """A stranger is refused a read and a reader a create, with no secret in the text and nothing stored."""
    s3_graph = Place(f"s3://{guarded_s3.new_bucket()}/graph", guarded_s3.storage_options()).built()
    stranger = Place(s3_graph.uri, guarded_s3.storage_options(identity="nobody"))
    reader = guarded_s3.storage_options(identity="reader")
    for attempt in (
        lambda: _read(stranger, {"node": "Person"}),
        lambda: Graph.create(f"{s3_graph.uri}-new", schema="node P { name: String @key }", storage=reader),
    ):
        with pytest.raises(OmnigraphError, match=f"No permission for {s3_graph.uri}") as caught:
            attempt()
        assert caught.value.code == "OG-STORAGE-FORBIDDEN"
        assert "secret" not in str(caught.value)
    assert s3_graph.reader().objects.list(f"{s3_graph.uri}-new") == []
    assert Graph.open(s3_graph.uri, storage=reader, read_only=True).version == 3


def test_a_wrong_endpoint_is_said(s3_server: S3Server, s3_graph: Place) -> None:
    """An endpoint where nobody listens is StorageUnreachableError, may be tried again, and names the graph."""
    closed = s3_server.storage_options(endpoint=f"http://127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(OmnigraphError, match=f"did not answer for {s3_graph.uri}") as caught:
        _read(Place(s3_graph.uri, closed), {"node": "Person"})
    assert (caught.value.code, caught.value.retryable) == ("OG-STORAGE-UNREACHABLE", True)


def test_secrets_stay_out_of_every_text(s3_server: S3Server, s3_graph: Place, caplog: Any) -> None:
    """A wrong secret appears in no error, cause or log line."""
    wrong = {**s3_graph.storage, "secret_access_key": "wrong-and-private"}
    with caplog.at_level("DEBUG", logger="omnigraph_spark"), pytest.raises(OmnigraphError) as caught:
        _read(Place(s3_graph.uri, wrong), {"node": "Person"})
    assert caught.value.code == "OG-STORAGE-FORBIDDEN"
    assert "wrong-and-private" not in f"{caught.value!r} {caught.value} {caught.value.__cause__} {caplog.text}"


@pytest.mark.parametrize("uri", ["", "gs://b/g", "hdfs://x/y"])
def test_a_root_nobody_can_hold_is_an_option_error(uri: str) -> None:
    """An empty path and an unknown scheme are refused before any request."""
    with pytest.raises(OmnigraphError) as caught:
        Graph.open(uri)
    assert caught.value.code == "OG-OPTION"
