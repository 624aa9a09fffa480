"""Options of a save: what lands in the commit, what makes a repeat a no-op, and what is refused before any task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from omnigraph_spark import (
    ConflictError,
    Graph,
    NotFoundError,
    OmnigraphError,
    OptionError,
    SchemaError,
    ValidationError,
)
from omnigraph_spark.errors import typed_errors
from omnigraph_spark.read.snapshot import Moment
from tests.places import Place, unchanged
from tests.soundness import assert_sound
from tests.spark.saving import (
    PERSON,
    commits,
    data_files,
    ids,
    new_graph,
    persons,
    referenced_files,
    refused,
    save,
    save_here,
    witnessed,
)


@pytest.fixture
def graph(local_root: Place) -> Place:
    """A graph."""
    return new_graph(local_root)


def test_a_repeat_of_an_application_write_does_nothing(spark: SparkSession, graph: Place, tmp_path: Path) -> None:
    """TxnAppId with txnVersion: a repeat, or an older number, succeeds without a commit; the next number commits."""
    save(persons(spark, "ann"), graph, node="Person", txnAppId="job", txnVersion=5)
    for number in (5, 4):
        save(persons(spark, "bob"), graph, node="Person", txnAppId="job", txnVersion=number)
    assert (ids(graph), commits(graph)) == (["ann"], 2)
    save(persons(spark, "cy"), graph, node="Person", txnAppId="job", txnVersion=6)
    save(persons(spark, "dee"), graph, node="Person", txnAppId="other", txnVersion=0)
    assert ids(graph) == ["ann", "cy", "dee"]
    assert_sound(graph)


def test_who_and_why_land_in_the_commit(spark: SparkSession, graph: Place) -> None:
    """Actor, message, user metadata and the token are kept in the commit; keys are spelled freely."""
    options = {"Commit_Message": "first load", "user.metadata": "ticket 7", "txn-app-id": "job", "TXNVERSION": "1"}
    save(persons(spark, "ann"), graph, node="Person", actor="etl", **options)
    head = graph.open(read_only=True).head
    assert head is not None
    assert (head.actor, head.message) == ("etl", "first load")
    row = graph.reader().resolve(Moment())[1].commit(head.id)
    assert row is not None
    assert row.extra["user_metadata"] == "ticket 7"
    assert_sound(graph)


def test_the_expected_version(spark: SparkSession, graph: Place, tmp_path: Path) -> None:
    """ExpectedVersion lets a write through at that version and refuses it, retryable, at any other, before any task."""
    seen = graph.open(read_only=True).version
    save(persons(spark, "ann"), graph, node="Person", expectedVersion=seen, txnAppId="job", txnVersion=1)
    late = witnessed(persons(spark, "bob"), tmp_path / "ran")
    for expected in (seen, seen + 99):
        error = refused(
            graph,
            ConflictError,
            _saving(late, graph, {"node": "Person", "expectedVersion": expected}),
            match="expected",
        )
        assert error.retryable
    assert not (tmp_path / "ran").exists()
    # A repeat of what was applied is one, whatever version it expected.
    save(persons(spark, "ann"), graph, node="Person", expectedVersion=seen, txnAppId="job", txnVersion=1)
    save(persons(spark, "bob"), graph, node="Person", expectedVersion=graph.open(read_only=True).version)
    assert ids(graph) == ["ann", "bob"]
    assert_sound(graph)


def test_the_expected_version_is_checked_again_at_the_end(spark: SparkSession, graph: Place) -> None:
    """A commit that lands while the tasks run makes the expectation wrong, and the save is refused."""
    seen = graph.open(read_only=True).version
    uri = graph.uri

    def overtaken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        Graph.open(uri).append("Person", [{"name": "first"}])
        yield from batches

    frame = persons(spark, "second").mapInArrow(overtaken, PERSON)
    with pytest.raises(ConflictError, match=f"not at the expected {seen}"):
        save(frame, graph, node="Person", expectedVersion=seen)
    assert ids(graph) == ["first"]
    assert data_files(graph) == referenced_files(graph)
    assert_sound(graph)


WRONG_OPTIONS: dict[str, tuple[type[OmnigraphError], dict[str, Any], str]] = {
    "no type": (OptionError, {}, "No type is named"),
    "two types": (OptionError, {"node": "Person", "edge": "Knows"}, "exclude each other"),
    "unknown type": (NotFoundError, {"node": "Persn"}, "did you mean 'Person'"),
    "edge as node": (NotFoundError, {"node": "Knows"}, "Knows"),
    "unknown option": (OptionError, {"node": "Person", "writMode": "merge"}, "did you mean 'writeMode'"),
    "read option": (OptionError, {"node": "Person", "limit": 3}, "limit does not apply"),
    "wrong mode": (OptionError, {"node": "Person", "writeMode": "upsert"}, "must be one of append, merge"),
    "two modes": (OptionError, {"node": "Person", "writeMode": "merge", "mode": "overwrite"}, "contradict"),
    "cascade of an append": (OptionError, {"node": "Person", "cascade": "true"}, "cascade belongs to"),
    "cascade maybe": (OptionError, {"node": "Person", "writeMode": "delete", "cascade": "maybe"}, "true or false"),
    "half a token": (OptionError, {"node": "Person", "txnAppId": "job"}, "belong together"),
    "other half": (OptionError, {"node": "Person", "txnVersion": 1}, "belong together"),
    "negative number": (OptionError, {"node": "Person", "txnAppId": "j", "txnVersion": -1}, "whole number"),
    "version text": (OptionError, {"node": "Person", "txnAppId": "j", "txnVersion": "one"}, "whole number"),
    "blank application": (OptionError, {"node": "Person", "txnAppId": " ", "txnVersion": 1}, "empty"),
    "patience": (OptionError, {"node": "Person", "patience": "0"}, "patience"),
    "missing branch": (NotFoundError, {"node": "Person", "branch": "no-such"}, "no-such"),
    "type column and type": (OptionError, {"node": "Person", "typeColumn": "name"}, "exclude each other"),
    "type column missing": (OptionError, {"typeColumn": "nane"}, "did you mean 'name'"),
    "type column a number": (OptionError, {"typeColumn": "age"}, "column of text"),
}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A graph that no test of this file may change."""
    return new_graph(Place(str(tmp_path_factory.mktemp("untouched") / "graph")))


# One of each kind goes through Spark, and the rest through the same calls in this process.
THROUGH_SPARK = ("unknown option", "two modes", "unknown type", "unknown", "missing key", "interval")


@pytest.mark.parametrize("case", WRONG_OPTIONS)
def test_a_wrong_option_is_refused_before_any_task(
    spark: SparkSession, untouched: Place, tmp_path: Path, case: str
) -> None:
    """Every wrong or contradictory option is a typed error; no row is even computed for it, and no file is touched."""
    error, options, match = WRONG_OPTIONS[case]
    frame = witnessed(persons(spark, "ann"), tmp_path / "ran")
    still = unchanged(untouched.uri)
    with pytest.raises(error, match=match) as caught:
        (save if case in THROUGH_SPARK else save_here)(frame, untouched, **options)
    assert caught.value.outcome.value == "not_committed"
    assert not (tmp_path / "ran").exists()
    still()


WRONG_COLUMNS: dict[str, tuple[type[OmnigraphError], str, dict[str, Any], str]] = {
    "unknown": (SchemaError, "'a' as name, 1 as agee", {"node": "Person"}, "did you mean 'age'"),
    "missing key": (ValidationError, "1 as age", {"node": "Person"}, "Person.name"),
    "missing end": (ValidationError, "'a' as src", {"edge": "Knows"}, "dst"),
    "two ends": (SchemaError, "'a' as src, 'a' as from, 'b' as to", {"edge": "Knows"}, "given twice"),
    "wrong type": (ValidationError, "'a' as name, '3' as age", {"node": "Person"}, "string cannot be written as I32"),
    "number as text": (ValidationError, "1 as name", {"node": "Person"}, "Person.name"),
    "nested": (ValidationError, "'a' as name, struct(1 as x) as age", {"node": "Person"}, "Person.age"),
    "interval": (SchemaError, "'a' as name, interval '1' year as age", {"node": "Person"}, "interval"),
    "twice": (SchemaError, "'a' as name, 1 as age, 2 as age", {"node": "Person"}, "given twice"),
    "delete by value": (SchemaError, "3 as age", {"node": "Person", "writeMode": "delete"}, "no use for .* 'age'"),
    "delete by number": (SchemaError, "3 as id", {"node": "Person", "writeMode": "delete"}, "Person.id"),
    "delete by wrong key": (SchemaError, "3 as name", {"node": "Person", "writeMode": "delete"}, "Person.name"),
    "delete by end": (SchemaError, "'a' as src", {"edge": "Knows", "writeMode": "delete"}, "'src'"),
    "column of no type": (SchemaError, "'Note' as kind, 'x' as txet", {"typeColumn": "kind"}, "did you mean 'text'"),
}


@pytest.mark.parametrize("case", WRONG_COLUMNS)
def test_wrong_columns_are_refused_before_any_task(
    spark: SparkSession, untouched: Place, tmp_path: Path, case: str
) -> None:
    """Unknown, missing, doubled and wrongly typed columns are refused by name before a row is asked for."""
    error, query, options, match = WRONG_COLUMNS[case]
    frame = spark.sql(f"select {query}")
    if case not in ("twice", "interval"):  # Spark itself cannot send these to a task
        frame = witnessed(frame, tmp_path / "ran")
    if case == "unknown":
        frame = frame.limit(0)
    still = unchanged(untouched.uri)
    with pytest.raises(error, match=match) as caught:
        (save if case in THROUGH_SPARK else save_here)(frame, untouched, **options)
    assert caught.value.outcome.value == "not_committed"
    assert not (tmp_path / "ran").exists()
    still()


def _saving(frame: DataFrame, place: Place, options: dict[str, Any]) -> Callable[[], None]:
    return lambda: save(frame, place, **options)


def test_no_graph_is_there(spark: SparkSession, graph: Place) -> None:
    """Saving to a directory without a graph, or without a path, is a typed error and creates nothing."""
    with pytest.raises(NotFoundError):
        save(persons(spark, "ann"), graph.under("elsewhere"), node="Person")
    assert not Path(graph.under("elsewhere").uri).exists()
    with pytest.raises(OptionError, match="path is required"), typed_errors():
        persons(spark, "ann").write.format("omnigraph").option("node", "Person").mode("append").save()
