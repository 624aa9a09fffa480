"""`verify` holds every row against the schema: what a write would refuse is found when it is there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from omnigraph_spark.maintenance.report import Examination
from omnigraph_spark.maintenance.row_checks import GroupWatch, HashBag
from omnigraph_spark.storage.keyhash import hash_text
from tests.places import Place, knows, people
from tests.rig.builder_schemas import edge_columns, node_columns, required
from tests.unit.maintenance.damage import (
    CITES,
    DOC,
    KNOWS,
    PERSON,
    created,
    doc_rows,
    docs,
    publish_dataset,
    social,
    spoke,
    verify,
)


@pytest.fixture
def graph(local_graph: Place) -> Place:
    """A small sound graph on disk."""
    return social(local_graph)


@pytest.fixture
def library(local_root: Place) -> Place:
    """A sound graph of example B on disk."""
    return docs(local_root)


def test_a_doubled_id_is_found(any_graph: Place) -> None:
    """Across fragments, once per id however often it occurs; deleted rows do not count."""
    builder = social(any_graph).builder
    builder.publish({PERSON: people("ann", "ann", "dan")})
    (finding,) = verify(any_graph).findings
    assert (finding.check, finding.table_key, finding.subject) == ("unique-id", PERSON, "ann")
    assert "3 rows, at most 1 allowed" in finding.message


def test_a_dangling_edge_is_found_at_both_ends(any_graph: Place) -> None:
    """A source that was deleted and a target that never was."""
    builder = social(any_graph).builder
    builder.publish({KNOWS: knows(("dan", "ann"), ("ann", "zoe"))})
    report = verify(any_graph)
    assert spoke(report) == {("edge-ends", "error", KNOWS)}
    assert [f.message for f in report.findings] == [
        "row 'ann-zoe': 'zoe' dst is not found in Person",
        "row 'dan-ann': 'dan' src is not found in Person",
    ]


def test_an_id_that_is_not_the_key_is_found(graph: Place) -> None:
    """OmniGraph finds a node by its key through its id."""
    graph.builder.publish({PERSON: pa.table({"id": ["eve"], "name": ["Eve"]})})
    (finding,) = verify(graph).findings
    assert (finding.check, finding.subject) == ("key-is-id", "eve")


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("status", "ajar", "invalid enum value"),
        ("score", 10.5, "above 10"),
        ("score", -0.5, "below 0"),
        ("score", float("nan"), "not a number"),
    ],
)
def test_a_value_against_its_rule_is_found(library: Place, column: str, value: Any, said: str) -> None:
    """Enum and @range, by the evaluator every write uses; the row is named."""
    library.builder.publish({DOC: doc_rows(id=["c"], **{column: [value]})})
    (finding,) = verify(library).findings
    assert (finding.check, finding.table_key, finding.subject) == ("values", DOC, "c")
    assert said in finding.message


def test_a_text_against_its_pattern_is_found(library: Place) -> None:
    """@check looks anywhere in the text, here anchored by the pattern itself."""
    library.builder.publish({DOC: doc_rows(id=["No1"])})
    (finding,) = verify(library).findings
    assert (finding.check, finding.subject) == ("values", "No1")


def test_a_doubled_unique_group_is_found_and_nulls_are_exempt(library: Place) -> None:
    """@unique(title, score): all columns equal; a row without one of them takes no part."""
    same = doc_rows(id=["c", "d", "e", "f"], title=["x"] * 4, score=[1.5, 1.5, None, None])
    library.builder.publish({DOC: same})
    (finding,) = verify(library).findings
    assert (finding.check, finding.table_key) == ("unique", DOC)
    assert "score '1.5', title 'x': 2 rows" in finding.message


def test_too_many_edges_of_a_source_are_found(library: Place) -> None:
    """@card(0..1): the second edge of a source is one too many; @unique(src, dst) speaks only for equal pairs."""
    library.builder.publish({CITES: knows(("a", "a"))})
    assert spoke(verify(library)) == {("cardinality", "error", CITES)}
    twin = pa.table({"id": ["again"], "src": ["a"], "dst": ["b"]})
    library.builder.publish({CITES: twin})
    assert spoke(verify(library)) == {("cardinality", "error", CITES), ("unique", "error", CITES)}


def test_too_few_edges_of_a_source_are_found(local_root: Place) -> None:
    """@card(2..3): counted for sources that have edges; one that has none breaks nothing."""
    pg = "node N { name: String @key }\nedge E: N -> N @card(2..3)"
    specs = {"node:N": node_columns(required("name", pa.string())), "edge:E": edge_columns()}
    builder = (place := created(local_root, pg, specs)).builder
    builder.publish({"node:N": pa.table({"id": list("abcde"), "name": list("abcde")})})
    builder.publish({"edge:E": knows(("a", "b"), ("a", "c"), ("b", "a"), *(("c", x) for x in "abde"))})
    found = {f.subject: f.message for f in verify(place).findings}
    assert found == {
        "b": "src 'b': 1 rows, at least 2 required",
        "c": "src 'c': 4 rows, at most 3 allowed",
    }


def test_a_null_in_a_required_column_is_found(local_root: Place) -> None:
    """Lance refuses such a row while the column is required, so somebody has also changed the column."""
    loose = node_columns(pa.field("age", pa.int32()), pa.field("name", pa.string()))
    place = created(local_root, "node Person { name: String @key  age: I32? }", {PERSON: loose})
    place.builder.open_table(PERSON).alter_columns({"path": "name", "nullable": True})  # type: ignore[dict-item]
    place.builder.publish({PERSON: pa.table({"id": ["eve"], "name": pa.nulls(1, pa.string())})})
    report = verify(place)
    assert spoke(report) == {("stored-schema", "error", PERSON), ("required", "error", PERSON)}
    assert any("row 'eve': the required column 'name' has no value" in f.message for f in report.findings)


def test_columns_other_than_the_schema_are_found(graph: Place) -> None:
    """An added and a changed column; rules on what is left still run."""
    table = graph.builder.open_table(PERSON)
    table.add_columns({"extra": "1"})
    table.alter_columns({"path": "age", "data_type": pa.int64()})  # type: ignore[dict-item]
    publish_dataset(graph, PERSON, table)
    report = verify(graph)
    assert spoke(report) == {("stored-schema", "error", PERSON)}
    assert {f.subject for f in report.findings} == {"age", "extra"}
    assert any(run.name == "unique-id" and run.table_key == PERSON for run in report.checks)


def test_several_key_columns_are_one_key(local_root: Place) -> None:
    """The id is the whole tuple, or as OmniGraph 0.8 writes it the first column; anything else is a warning."""
    pg = "node P { a: String  b: I32  @key(a, b) }"
    columns = node_columns(required("a", pa.string()), required("b", pa.int32()))
    place = created(local_root, pg, {"node:P": columns})
    place.builder.publish(
        {"node:P": pa.table({"id": ['["x","1"]', "y", "other"], "a": ["x", "y", "z"], "b": [1, 2, 3]})}
    )
    (finding,) = verify(place).findings
    assert (finding.check, finding.severity, finding.subject) == ("key-is-id", "warning", "other")
    place.builder.publish({"node:P": pa.table({"id": ["w"], "a": ["x"], "b": [1]})})
    assert ("unique-key", "error", "node:P") in spoke(verify(place))


def test_times_that_differ_by_a_millisecond_are_different(local_root: Place) -> None:
    """@unique on a DateTime compares the time, not the day."""
    pg = "node P { name: String @key  at: DateTime? @unique }"
    columns = node_columns(pa.field("at", pa.date64()), required("name", pa.string()))
    place = created(local_root, pg, {"node:P": columns})
    times = pa.array([1_000, 1_001], pa.int64()).view(pa.date64())
    place.builder.publish({"node:P": pa.table({"id": ["a", "b"], "name": ["a", "b"], "at": times})})
    assert verify(place).findings == []
    same = pa.array([1_001], pa.int64()).view(pa.date64())
    place.builder.publish({"node:P": pa.table({"id": ["c"], "name": ["c"], "at": same})})
    assert spoke(verify(place)) == {("unique", "error", "node:P")}


def test_an_equal_hash_alone_is_no_finding(graph: Place) -> None:
    """Rows are accused by their text: suspects that turn out to differ are let go."""
    reader = graph.reader()
    watch = GroupWatch(Examination("unique-id", branch="main"), ("id",), HashBag(4))
    suspects = hash_text(pa.array(["ann", "bob"]))
    suspects.sort()
    watch._confirm(reader.io, graph.builder.open_table(PERSON), suspects)
    assert watch.exam.done().findings == 0
