"""Rows that break the graph are refused with every fault named; nothing changes, no file stays, a next write works."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from omnigraph_spark import KeyConflictError, OmnigraphError, ValidationError
from tests.places import Place, knows, people
from tests.soundness import assert_sound
from tests.spark.saving import data_files, ids, new_graph, persons, referenced_files, refused, save, save_here


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Two people who know each other."""
    place = new_graph(Place(str(tmp_path_factory.mktemp("refusals") / "graph")))
    with place.open().transaction() as tx:
        tx.append("Person", people("ann", "bob"))
        tx.append("Knows", knows(("ann", "bob")))
    return place


FAULTS: dict[str, tuple[type[OmnigraphError], str, dict[str, str], str]] = {
    "taken": (KeyConflictError, "select 'ann' as name", {"node": "Person"}, "Person 'ann' already exists"),
    "twice": (
        KeyConflictError,
        "select explode(array('cy', 'cy')) as name",
        {"node": "Person"},
        "'cy' is given 2 times",
    ),
    "twice over partitions": (
        KeyConflictError,
        "select 'cy' as name from range(0, 4, 1, 4)",
        {"node": "Person"},
        "'cy' is given 4 times",
    ),
    "twice in a merge": (
        KeyConflictError,
        "select 'ann' as name from range(0, 2, 1, 2)",
        {"node": "Person", "writeMode": "merge"},
        "'ann' is given 2 times",
    ),
    "unique": (
        KeyConflictError,
        "select concat('p', id) as name, 'same@x' as email from range(0, 2, 1, 2)",
        {"node": "Person"},
        "@unique violation on Person.email: 'same@x'",
    ),
    "id is not the key": (ValidationError, "select 'x' as id, 'cy' as name", {"node": "Person"}, "is not the key"),
    "no source": (
        ValidationError,
        "select 'zz' as src, 'ann' as dst",
        {"edge": "Knows"},
        "src 'zz' not found in Person",
    ),
    "no target": (ValidationError, "select 'ann' as from, 'n' as to", {"edge": "Wrote"}, "dst 'n' not found in Note"),
    "null end": (
        ValidationError,
        "select 'ann' as src, string(null) as dst",
        {"edge": "Knows"},
        "Knows.dst, row 0 .*: is null",
    ),
    "required": (ValidationError, "select 'n' as id, string(null) as text", {"node": "Note"}, "Note.text"),
    "null id to delete": (
        ValidationError,
        "select string(null) as id",
        {"node": "Person", "writeMode": "delete"},
        "needs an id in every row",
    ),
    "unknown type in a row": (
        ValidationError,
        "select 'Persn' as kind, 'cy' as name",
        {"typeColumn": "kind"},
        "1 rows name the type 'Persn' in 'kind'; did you mean 'Person'",
    ),
    "no type in a row": (
        ValidationError,
        "select * from values ('Person', 'cy'), (null, 'dee') as t(kind, name)",
        {"typeColumn": "kind"},
        "1 rows name the type None",
    ),
    "value of another type": (
        ValidationError,
        "select 'Person' as kind, 'cy' as name, 'hello' as text",
        {"typeColumn": "kind"},
        "1 rows of Person have a value in 'text'",
    ),
    "missing for one type": (
        ValidationError,
        "select 'Note' as kind, 'cy' as name",
        {"typeColumn": "kind"},
        "Note",
    ),
    "dangling in a fan-out": (
        ValidationError,
        "select * from values ('Person', 'cy', null, null), ('Knows', null, 'cy', 'zz') as t(kind, name, src, dst)",
        {"typeColumn": "kind"},
        "dst 'zz' not found in Person",
    ),
}


# What several tasks find together, and some of each other kind, go through Spark; the rest through the same calls here.
THROUGH_SPARK = ("twice over partitions", "unique", "no source", "null id to delete", "dangling in a fan-out")


@pytest.mark.parametrize("case", FAULTS)
def test_rows_that_break_a_rule(spark: SparkSession, graph: Place, case: str) -> None:
    """Each rule, told with the row at fault; the graph is the same, staged files are gone, and a good write works."""
    error, query, options, match = FAULTS[case]
    before = ids(graph)
    run = save if case in THROUGH_SPARK else save_here
    refused(graph, error, lambda: run(spark.sql(query), graph, **options), match=match)
    for type_name in ("Person", "Knows", "Wrote", "Note"):
        assert data_files(graph, type_name) == referenced_files(graph, type_name)
    assert ids(graph) == before
    graph.open().append("Person", people(f"after {case}"))
    assert_sound(graph)


def test_faults_of_all_tasks_are_reported_together(spark: SparkSession, graph: Place) -> None:
    """One error counts the faults of every partition and lists the first of them in order."""
    taken = persons(spark, *(f"p{n:03}" for n in range(60)), partitions=1)
    save(taken, graph, node="Person")
    error = refused(
        graph, KeyConflictError, lambda: save(taken.repartition(4), graph, node="Person"), match="60 violations"
    )
    assert "'p000' already exists" in error.message
    assert "and 40 more" in error.message
    save(persons(spark, "after many"), graph, node="Person")
    assert_sound(graph)


FAULTS_OF_MANY_TABLES = """
    select * from values
        ('Person', null, 'ann', null, null, null), ('Person', null, 'bob', null, null, null),
        ('Knows', 'k1', null, null, 'ann', null), ('Knows', 'k2', null, null, 'bob', null),
        ('Note', 'n1', null, null, null, null), ('Nte', 'n2', null, 'text', null, null)
    as t(kind, id, name, text, src, dst)
"""


def test_faults_of_all_tables_are_reported_together(spark: SparkSession, graph: Place) -> None:
    """One error counts and lists the faults of every table of a save, and of rows that name no table, in order."""
    frame = spark.sql(FAULTS_OF_MANY_TABLES).repartition(3, "kind", "name", "id")
    error = refused(graph, ValidationError, lambda: save(frame, graph, typeColumn="kind"), match="6 violations")
    listed = error.message.splitlines()[1:]
    expected = ["(id 'k1'): is null", "(id 'k2'): is null", "(id 'n1'): is null", "the type 'Nte'"]
    expected += ["Person 'ann' already exists", "Person 'bob' already exists"]
    assert len(listed) == len(expected)
    assert all(text in line for text, line in zip(expected, listed, strict=True)), listed
    for type_name in ("Person", "Knows", "Note"):
        assert data_files(graph, type_name) == referenced_files(graph, type_name)


def test_no_table_hides_the_faults_of_another(spark: SparkSession, graph: Place) -> None:
    """A table with more faults than are listed leaves room for those of the other."""
    many = "select 'Note' as kind, concat('n', id) as id, string(null) as name, string(null) as text from range(50)"
    few = "select 'Person', string(null), 'ann', string(null)"
    frame = spark.sql(f"{many} union all {few}")
    error = refused(graph, ValidationError, lambda: save(frame, graph, typeColumn="kind"), match="51 violations")
    assert "Person 'ann' already exists" in error.message
    assert "and 31 more" in error.message
