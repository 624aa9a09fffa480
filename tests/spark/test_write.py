"""`df.write.format("omnigraph")`: what each mode does with rows, on one table and on many."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from omnigraph_spark import ValidationError
from tests.places import Place
from tests.soundness import assert_sound
from tests.spark.saving import (
    KNOWS,
    PERSON,
    commits,
    data_files,
    ids,
    new_graph,
    pairs,
    persons,
    referenced_files,
    refused,
    save,
)


@pytest.fixture
def graph(local_root: Place) -> Place:
    """An empty graph of people and notes."""
    return new_graph(local_root)


def load(spark: SparkSession, place: Place, type_name: str, **options: str) -> DataFrame:
    """Return a type as a new reader sees it."""
    return spark.read.format("omnigraph").options(type=type_name, **place.options(), **options).load(place.uri)


def rows_of(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return some columns of all rows, sorted."""
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def test_append_of_keyed_nodes(spark: SparkSession, any_root: Place) -> None:
    """Rows of five partitions, some empty, become one commit; the id of a keyed node is its key."""
    place = new_graph(any_root)
    save(persons(spark, "ann", "bob", "cy", age=3, partitions=5), place, node="Person")
    save(persons(spark, "dee"), place, node="Person")
    assert rows_of(load(spark, place, "Person"), "id", "name", "age") == [
        ("ann", "ann", 3),
        ("bob", "bob", 3),
        ("cy", "cy", 3),
        ("dee", "dee", None),
    ]
    assert commits(place) == 3
    assert_sound(place)


def test_append_of_unkeyed_nodes(spark: SparkSession, graph: Place) -> None:
    """Without a key a row keeps the id it is given, and gets a fresh ULID when it has none."""
    save(spark.createDataFrame([("n1", "first"), (None, "second")], "id string, text string"), graph, node="Note")
    save(spark.createDataFrame([("third",), ("fourth",)], "text string").repartition(2), graph, node="Note")
    found = {row.text: row.id for row in load(spark, graph, "Note").collect()}
    assert found.pop("first") == "n1"
    assert set(found) == {"second", "third", "fourth"}
    assert all(len(fresh) == 26 for fresh in found.values())
    assert len(set(found.values())) == 3
    assert_sound(graph)


@pytest.mark.parametrize("ends", [("src", "dst"), ("from", "to")])
def test_append_of_edges(spark: SparkSession, graph: Place, ends: tuple[str, str]) -> None:
    """Edges name their ends src and dst, or from and to; column order does not matter and a null property may lack."""
    save(persons(spark, "ann", "bob"), graph, node="Person")
    frame = spark.createDataFrame([("bob", "ann")], f"{ends[1]} string, {ends[0]} string")
    save(frame, graph, edge="Knows")
    assert rows_of(load(spark, graph, "Knows"), "src", "dst", "since") == [("ann", "bob", None)]
    assert_sound(graph)


def test_merge_replaces_rows_and_keeps_their_identity(spark: SparkSession, graph: Place) -> None:
    """A merged row is replaced as a whole; its row id and creation version stay, its update version moves."""
    save(persons(spark, "ann", "bob", "cy", age=1, partitions=3), graph, node="Person")
    versions = "_rowid,_row_created_at_version,_row_last_updated_at_version"

    def seen() -> dict[str, tuple[Any, ...]]:
        frame = load(spark, graph, "Person", metadataColumns=versions)
        return {row.id: tuple(row[name] for name in ("age", *versions.split(","))) for row in frame.collect()}

    before = seen()
    save(persons(spark, "bob", "cy", "dee", age=2, partitions=2), graph, node="Person", writeMode="merge")
    after = seen()
    assert after["ann"] == before["ann"]
    for name in ("bob", "cy"):
        assert after[name][:3] == (2, *before[name][1:3])
        assert after[name][3] > before[name][3]
    assert after["dee"][0] == 2
    assert_sound(graph)


def test_merge_of_edges_and_unkeyed_nodes(spark: SparkSession, graph: Place) -> None:
    """Rows without a key are matched by id."""
    save(persons(spark, "ann", "bob"), graph, node="Person")
    save(pairs(spark, ("ann", "bob")), graph, edge="Knows")
    day = datetime.date(2026, 1, 2)
    changed = spark.createDataFrame([("ann-bob", "bob", "ann", day)], f"{KNOWS}, since date")
    save(changed, graph, edge="Knows", writeMode="merge")
    assert rows_of(load(spark, graph, "Knows"), "id", "src", "dst", "since") == [("ann-bob", "bob", "ann", day)]
    for text in ("one", "two"):
        note = spark.createDataFrame([("n", text)], "id string, text string")
        save(note, graph, node="Note", writeMode="merge")
    assert rows_of(load(spark, graph, "Note"), "id", "text") == [("n", "two")]
    assert_sound(graph)


@pytest.mark.parametrize("how", [{"mode": "overwrite"}, {"writeMode": "overwrite"}])
def test_overwrite_replaces_all_rows(spark: SparkSession, graph: Place, how: dict[str, str]) -> None:
    """Both spellings of overwrite leave exactly the new rows; other tables are not touched."""
    save(persons(spark, "ann", "bob", partitions=2), graph, node="Person")
    save(spark.createDataFrame([("n", "t")], "id string, text string"), graph, node="Note")
    save(persons(spark, "bob", "cy", age=9, partitions=2), graph, node="Person", **how)
    assert rows_of(load(spark, graph, "Person"), "id", "age") == [("bob", 9), ("cy", 9)]
    assert ids(graph, "Note") == ["n"]
    assert_sound(graph)


def test_overwrite_that_would_orphan_edges_is_refused(spark: SparkSession, graph: Place) -> None:
    """Nodes that edges hang on cannot be overwritten away, and the refused rows leave no file."""
    save(persons(spark, "ann", "bob"), graph, node="Person")
    save(pairs(spark, ("ann", "bob")), graph, edge="Knows")
    refused(
        graph,
        ValidationError,
        lambda: save(persons(spark, "ann"), graph, node="Person", mode="overwrite"),
        match="'ann-bob'",
    )
    assert data_files(graph) == referenced_files(graph)


def test_delete_takes_edges_with_it_or_is_refused(spark: SparkSession, graph: Place) -> None:
    """Deleting nodes removes their edges in the same commit; with cascade=false it is refused while there are any."""
    save(persons(spark, "ann", "bob", "cy"), graph, node="Person")
    save(pairs(spark, ("ann", "bob"), ("bob", "cy"), ("cy", "ann")), graph, edge="Knows")
    gone = spark.createDataFrame([("bob",), ("nobody",)], "id string").repartition(2)
    refused(
        graph,
        ValidationError,
        lambda: save(gone, graph, node="Person", writeMode="delete", cascade="false"),
        match="bob",
    )
    before = commits(graph)
    save(gone, graph, node="Person", writeMode="delete")
    assert (ids(graph), ids(graph, "Knows"), commits(graph)) == (["ann", "cy"], ["cy-ann"], before + 1)
    by_key = spark.createDataFrame([("cy",)], "name string")
    save(spark.createDataFrame([("cy-ann",)], "id string"), graph, edge="Knows", writeMode="delete")
    save(by_key, graph, node="Person", writeMode="delete", cascade="false")
    assert (ids(graph), ids(graph, "Knows")) == (["ann"], [])
    assert_sound(graph)


def test_no_rows(spark: SparkSession, graph: Place) -> None:
    """No rows, or no partitions: append, merge and delete commit nothing, overwrite empties the table."""
    save(persons(spark, "ann"), graph, node="Person")
    nothing = [persons(spark, "x").limit(0), spark.createDataFrame(spark.sparkContext.emptyRDD(), PERSON)]
    before = commits(graph)
    for frame in nothing:
        for mode in ("append", "merge"):
            save(frame, graph, node="Person", writeMode=mode)
        save(frame.selectExpr("name as id"), graph, node="Person", writeMode="delete")
    assert (commits(graph), ids(graph)) == (before, ["ann"])
    for frame in nothing:
        save(frame, graph, node="Person", mode="overwrite")
        assert ids(graph) == []
        save(persons(spark, "ann"), graph, node="Person")
    assert commits(graph) == before + 4
    assert_sound(graph)


MIXED = "kind string, id string, name string, age int, text string, src string, dst string"


def test_one_frame_for_many_tables(spark: SparkSession, graph: Place) -> None:
    """A type column fans one DataFrame out in one commit, and its edges may name its own nodes, in any partition."""
    save(persons(spark, "zoe"), graph, node="Person")
    frame = spark.createDataFrame(
        [
            ("Knows", "k1", None, None, None, "ann", "zoe"),
            ("Wrote", None, None, None, None, "bob", "n1"),
            ("Person", None, "ann", 1, None, None, None),
            ("person", None, "bob", 2, None, None, None),
            ("node:Note", "n1", None, None, "hello", None, None),
        ],
        MIXED,
    )
    before = commits(graph)
    save(frame.repartition(4), graph, typeColumn="kind")
    assert commits(graph) == before + 1
    assert rows_of(load(spark, graph, "Person", columns="id,age"), "id", "age") == [
        ("ann", 1),
        ("bob", 2),
        ("zoe", None),
    ]
    assert rows_of(load(spark, graph, "Wrote"), "src", "dst") == [("bob", "n1")]
    assert (ids(graph, "Knows"), ids(graph, "Note")) == (["k1"], ["n1"])

    renewed = spark.createDataFrame([("Person", "ann", 7), ("Person", "dee", 7)], "kind string, name string, age int")
    save(renewed, graph, typeColumn="kind", writeMode="merge")
    found = load(spark, graph, "Person").filter("age = 7")
    assert rows_of(found, "id") == [("ann",), ("dee",)]

    doomed = spark.createDataFrame([("Person", "bob"), ("Note", "n1"), ("Knows", "k1")], "kind string, id string")
    save(doomed.repartition(3), graph, typeColumn="kind", writeMode="delete")
    assert ids(graph) == ["ann", "dee", "zoe"]
    assert [ids(graph, name) for name in ("Knows", "Wrote", "Note")] == [[], [], []]
    assert_sound(graph)


def test_overwrite_of_many_tables(spark: SparkSession, graph: Place) -> None:
    """Overwrite with a type column replaces the types that rows name and no others."""
    save(persons(spark, "ann", "bob"), graph, node="Person")
    save(pairs(spark, ("ann", "bob")), graph, edge="Knows")
    save(spark.createDataFrame([("n", "t")], "id string, text string"), graph, node="Note")
    fresh = [("Person", None, "cy", None, None, None, None), ("Knows", "cc", None, None, None, "cy", "cy")]
    save(spark.createDataFrame(fresh, MIXED), graph, typeColumn="kind", mode="overwrite")
    assert [ids(graph, name) for name in ("Person", "Knows", "Note")] == [["cy"], ["cc"], ["n"]]
    save(spark.createDataFrame([], MIXED), graph, typeColumn="kind", mode="overwrite")
    assert ids(graph) == ["cy"]
    assert_sound(graph)


def test_sql_inserts_through_a_view(spark: SparkSession, graph: Place) -> None:
    """A temporary view carries its options into INSERT INTO."""
    options = f"OPTIONS (path '{graph.uri}', node 'Person')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW people_to_fill USING omnigraph {options}")
    spark.sql("INSERT INTO people_to_fill (id, name, age) VALUES ('ann', 'ann', 4)")
    assert ids(graph) == ["ann"]
    assert_sound(graph)


def test_a_written_frame_may_read_the_same_table(spark: SparkSession, graph: Place) -> None:
    """INV-14: reading a table and writing to it in one job uses the version that was read."""
    save(persons(spark, "ann", "bob", age=1), graph, node="Person")
    people = load(spark, graph, "Person", columns="name,age")
    save(people.selectExpr("name", "age + 1 as age"), graph, node="Person", writeMode="merge")
    save(people.filter("name = 'ann'"), graph, node="Person", mode="overwrite")
    assert rows_of(load(spark, graph, "Person"), "id", "age") == [("ann", 1)]
    assert_sound(graph)
