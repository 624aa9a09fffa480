"""What a load over Spark Connect asks the server, and what it makes of the answer."""

from __future__ import annotations

import pytest
from pyspark.sql.connect.readwriter import DataFrameReader

from omnigraph_spark.errors import OptionError
from omnigraph_spark.read.connect import answered, moves, pin_loads, question
from omnigraph_spark.read.metadata import BRANCH_KEY, VERSION_KEY, metadata_rows
from omnigraph_spark.read.snapshot import Moment
from tests.places import Place, people


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"node": "Person"}, True),
        ({"table": "commits"}, True),
        ({"node": "Person", "timestamp": "2999-01-01"}, True),
        ({"node": "Person", "version_as_of": "4"}, False),
        ({"node": "Person", "VERSION": "4"}, False),
        ({"node": "Person", "commit": "01H"}, False),
        ({"table": "branches"}, False),
        ({"table": "recoveries"}, False),
    ],
)
def test_only_a_load_that_could_move_is_pinned(given: dict[str, str], expected: bool) -> None:
    """A named version or commit stays by itself, in any spelling; a time may lie ahead; two tables have no version."""
    assert moves(given) is expected


def test_the_question_is_about_the_graph_alone() -> None:
    """Where the graph is and which moment is meant reach the server; what is read of it does not matter."""
    given = {
        "uri": "s3://b/g",
        "Storage.Endpoint": "http://h",
        "BRANCH": "dev",
        "timestamp": "t",
        "node": "P",
        "x": "1",
    }
    kept = {"uri": "s3://b/g", "Storage.Endpoint": "http://h", "BRANCH": "dev", "timestamp": "t"}
    assert question(given) == {**kept, "table": "tables"}


def test_the_answer_replaces_the_moment() -> None:
    """Branch and time give way to the branch and version the server told; everything else stays as it was given."""
    given = {"node": "P", "BRANCH": "dev", "timestamp": "t", "storage.region": "r", "unknown": "1"}
    pinned = answered(given, {BRANCH_KEY: "main", VERSION_KEY: "7"})
    assert pinned == {"node": "P", "storage.region": "r", "unknown": "1", "branch": "main", "versionAsOf": "7"}


def test_a_server_that_does_not_tell_is_refused() -> None:
    """INV-14: a version that cannot be named is an error, not a frame that moves."""
    with pytest.raises(OptionError, match="does not tell"):
        answered({"node": "P"}, {})


def test_a_metadata_table_tells_its_version(local_graph: Place) -> None:
    """The answer is the version the moment resolved to, which reads the same again."""
    local_graph.builder.publish({"node:Person": people("ann")})
    version = local_graph.open().version
    local_graph.builder.publish({"node:Person": people("bob")})
    newest = metadata_rows(local_graph.reader(), Moment(), table="tables").schema.metadata
    older = metadata_rows(local_graph.reader(), Moment(version=version), table="tables").schema.metadata
    assert int(older[VERSION_KEY.encode()]) == version
    assert int(newest[VERSION_KEY.encode()]) == local_graph.open().version > version
    assert newest[BRANCH_KEY.encode()] == b"main"


def test_loads_are_wrapped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registering many sessions wraps the client's `load` once, and leaves its name and text as they were."""
    original = DataFrameReader.load
    monkeypatch.setattr(DataFrameReader, "load", original)
    pin_loads()
    wrapped = DataFrameReader.load
    pin_loads()
    assert DataFrameReader.load is wrapped is not original
    assert (wrapped.__name__, wrapped.__doc__) == (original.__name__, original.__doc__)
