"""Bad rows and arguments: a typed error that names the rule and the row, nothing changed, and the next write works."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph_spark import (
    Graph,
    KeyConflictError,
    NotFoundError,
    OptionError,
    SchemaError,
    ValidationError,
)
from omnigraph_spark.errors import RecoveryError, StorageForbiddenError
from omnigraph_spark.schema.faults import MAX_SHOWN
from omnigraph_spark.storage.seams import Seams
from omnigraph_spark.write.draft import WriteIntent
from omnigraph_spark.write.transaction import Transaction
from tests.social import contents, edges, ids, persons, refused, social, staged_files
from tests.soundness import assert_sound
from tests.writer_process import authority_for

VERBS = ("append", "merge", "overwrite")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Three persons, two firms, a friendship, a job, a like, and two owners with one and two firms."""
    g = social(tmp_path)
    with g.transaction() as tx:
        tx.append("Person", [*persons("ada", email="a@x"), *persons("bob", email="b@x"), *persons("cyn")])
        tx.append("Company", [{"name": "acme"}, {"name": "bits"}, {"name": "corp"}])
        tx.append("Knows", edges(("ada", "bob")))
        tx.append("WorksAt", edges(("ada", "acme")))
        tx.append("Likes", edges(("ada", "bob")))
        tx.append("Owns", edges(("ada", "acme"), ("bob", "acme"), ("bob", "bits")))
    return g


# -- one row by itself -------------------------------------------------------------------------------------------------

BAD_PERSONS: Mapping[str, tuple[Mapping[str, Any], str, str]] = {
    "range-low": ({"age": -1}, "range", "@range violation on Person.age"),
    "range-high": ({"age": 151}, "range", "@range violation on Person.age"),
    "range-nan": ({"score": math.nan}, "range", "@range violation on Person.score"),
    "range-infinite": ({"score": math.inf}, "range", "is above"),
    "check": ({"code": "abc"}, "check", "@check violation on Person.code"),
    "enum": ({"status": "gone"}, "enum", "invalid enum value for Person.status"),
    "vector-short": ({"face": [1.0]}, "vector-length", "Person.face"),
    "vector-long": ({"face": [1.0, 2.0, 3.0]}, "vector-length", "Person.face"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("case", BAD_PERSONS)
def test_a_value_that_breaks_a_rule(graph: Graph, verb: str, case: str) -> None:
    """Range, check, enum and vector length are the same for every verb; the message names property, row and value."""
    values, rule, text = BAD_PERSONS[case]
    rows = [*persons("good"), *persons("wrong", **values)]
    with refused(graph, ValidationError, rule=rule, row="wrong") as caught:
        getattr(graph, verb)("Person", rows)
    assert text in str(caught.value)
    assert "row 1" in str(caught.value)


@pytest.mark.parametrize("case", BAD_PERSONS)
def test_an_update_to_a_value_that_breaks_a_rule(graph: Graph, case: str) -> None:
    """An update is checked like any other write."""
    values, rule, text = BAD_PERSONS[case]
    with refused(graph, ValidationError, rule=rule, row="bob") as caught:
        graph.update("Person", set=values, where="name = 'bob'")
    assert text in str(caught.value)


def test_an_enum_of_an_edge(graph: Graph) -> None:
    """Edges have rules too."""
    with refused(graph, ValidationError, rule="enum", row="bob-cyn"):
        graph.append("Knows", edges(("bob", "cyn"), kind="rival"))


def test_wrong_types(graph: Graph) -> None:
    """A column of a type that cannot stand for the property is refused, whatever its values."""
    with refused(graph, ValidationError, rule="type"):
        graph.append("Person", persons("x", age="old"))
    with refused(graph, ValidationError, rule="type"):
        graph.append("Person", persons("x", face="round"))
    with refused(graph, ValidationError, rule="type"):
        graph.update("Person", set={"age": "old"}, where="true")


@pytest.mark.parametrize("age", [2**31, -(2**31) - 1, 2**40])
def test_an_integer_that_does_not_fit(graph: Graph, age: int) -> None:
    """A number beyond its column's type is an error, never another number."""
    with refused(graph, ValidationError, row="x") as caught:
        graph.append("Person", persons("x", age=age))
    assert str(age) in str(caught.value)


def test_an_integer_beyond_every_type(graph: Graph) -> None:
    """So is one that no column could hold."""
    with refused(graph, ValidationError) as caught:
        graph.append("Person", persons("x", age=2**70))
    assert "age" in str(caught.value)


def test_values_of_several_types_in_one_column(graph: Graph) -> None:
    """Dicts whose values do not agree on a type are refused by name."""
    with refused(graph, ValidationError) as caught:
        graph.append("Person", [{"name": "x", "age": 1}, {"name": "y", "age": "one"}])
    assert "'age'" in str(caught.value)


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_column(graph: Graph, verb: str) -> None:
    """A column the type does not have is refused, with the nearest name."""
    with refused(graph, SchemaError) as caught:
        getattr(graph, verb)("Person", persons("x", agee=1))
    assert "'agee'" in str(caught.value)
    assert "age" in str(caught.value).split("'agee'")[1]


def test_a_column_given_twice(graph: Graph) -> None:
    """Two columns of one name, or two names for one end, are refused."""
    twice = pa.table([["x"], [1], [2]], names=["name", "age", "age"])
    with refused(graph, SchemaError):
        graph.append("Person", twice)
    with refused(graph, SchemaError):
        graph.append("Knows", [{"from": "ada", "src": "ada", "dst": "bob"}])


def test_missing_columns(graph: Graph) -> None:
    """A required column may not be left out: a property, an end, a key."""
    with refused(graph, ValidationError, rule="required"):
        graph.append("Note", [{"id": "n"}])
    with refused(graph, ValidationError, rule="required"):
        graph.append("Knows", [{"src": "ada"}])
    with refused(graph, ValidationError, rule="required") as caught:
        graph.append("Place", [{"town": "a"}])
    assert "street" in str(caught.value)


def test_null_where_a_value_is_required(graph: Graph) -> None:
    """Null keys, ends and required properties are refused, each naming its column."""
    with refused(graph, ValidationError) as caught:
        graph.append("Person", [{"name": "x"}, {"name": None}])
    assert "Person.name" in str(caught.value)
    with refused(graph, ValidationError) as caught:
        graph.append("Place", [{"town": "a", "street": None}])
    assert "Place.street" in str(caught.value)
    with refused(graph, ValidationError, rule="null-key"):
        graph.append("Knows", [{"src": "ada", "dst": None}, {"src": "ada", "dst": "bob"}])
    with refused(graph, ValidationError, rule="required"):
        graph.append("Note", [{"text": None}, {"text": "a"}])


def test_an_id_that_is_not_the_key(graph: Graph) -> None:
    """A keyed row's id may be left out or must be its key; a strange type of id is refused, not stumbled over."""
    graph.append("Person", [{"id": "dan", "name": "dan"}])
    with refused(graph, ValidationError, rule="id-is-key", row="eve"):
        graph.append("Person", [{"id": "dan", "name": "eve"}])
    with refused(graph, ValidationError):
        graph.append("Person", pa.table({"id": [["x"]], "name": ["x"]}))


def test_rows_are_numbered_over_the_whole_input(graph: Graph) -> None:
    """The number in a message counts from the start of the input, not of a batch."""
    batches = [
        pa.record_batch({"id": ["x", "y"], "name": ["x", "y"]}),
        pa.record_batch({"id": ["z", "other"], "name": ["z", "w"]}),
    ]
    with refused(graph, ValidationError, rule="id-is-key", row="w") as caught:
        graph.append("Person", pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert "row 3" in str(caught.value)


# -- rows among each other, and against the base -----------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_an_id_given_twice(graph: Graph, verb: str) -> None:
    """One write may give an id once."""
    with refused(graph, KeyConflictError, rule="duplicate-id", row="x"):
        getattr(graph, verb)("Person", persons("x", "y", "x"))
    with refused(graph, KeyConflictError, rule="duplicate-id", row="k"):
        getattr(graph, verb)(
            "Knows", [{"id": "k", "src": "ada", "dst": "bob"}, {"id": "k", "src": "bob", "dst": "ada"}]
        )


def test_an_id_that_exists(graph: Graph) -> None:
    """An append never replaces, and never doubles."""
    with refused(graph, KeyConflictError, rule="key-conflict", row="bob") as caught:
        graph.append("Person", persons("x", "bob"))
    assert "merge" in caught.value.hint
    with refused(graph, KeyConflictError, rule="key-conflict", row="ada-bob"):
        graph.append("Knows", edges(("ada", "bob")))


@pytest.mark.parametrize("verb", VERBS)
def test_a_unique_value_given_twice(graph: Graph, verb: str) -> None:
    """A unique value may be held once, by any verb; the message names both rows and the value."""
    with refused(graph, KeyConflictError, rule="unique") as caught:
        getattr(graph, verb)("Person", persons("x", "y", email="same"))
    assert isinstance(caught.value, ValidationError)
    (found,) = caught.value.violations
    assert (found.property, found.value) == ("email", "same")
    assert "'x'" in found.message
    assert "'y'" in found.message


@pytest.mark.parametrize("verb", ["append", "merge"])
def test_a_unique_value_that_is_held(graph: Graph, verb: str) -> None:
    """A unique value of another row is taken."""
    with refused(graph, KeyConflictError, rule="unique", row="x") as caught:
        getattr(graph, verb)("Person", persons("x", email="b@x"))
    assert "'bob'" in str(caught.value)


def test_a_unique_value_by_update(graph: Graph) -> None:
    """An update may neither take a held value nor give one value to two rows; its own row may keep its value."""
    with refused(graph, KeyConflictError, rule="unique", row="cyn"):
        graph.update("Person", set={"email": "b@x"}, where="name = 'cyn'")
    with refused(graph, KeyConflictError, rule="unique"):
        graph.update("Person", set={"email": "new"}, where="true")
    graph.update("Person", set={"email": "b@x"}, where="name = 'bob'")


def test_a_unique_pair_of_ends(graph: Graph) -> None:
    """A group of columns is unique as a whole; its parts may repeat."""
    with refused(graph, KeyConflictError, rule="unique", row="l2"):
        graph.append("Likes", [{"id": "l2", "src": "ada", "dst": "bob"}])
    graph.append("Likes", [{"id": "l2", "src": "bob", "dst": "ada"}, {"id": "l3", "src": "ada", "dst": "cyn"}])


def test_separators_in_values_forge_no_collision(graph: Graph) -> None:
    """Tuples are compared column by column."""
    graph.append("Person", persons("a\x1fb", "a", "b\x1fc", "c"))
    graph.append("Likes", [{"id": "1", "src": "a\x1fb", "dst": "c"}, {"id": "2", "src": "a", "dst": "b\x1fc"}])
    assert_sound(graph.uri)


def test_nulls_are_not_unique_values(graph: Graph) -> None:
    """Any number of rows may have no value."""
    graph.append("Person", persons("x", "y", email=None))
    assert_sound(graph.uri)


# -- the graph ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("end", ["src", "dst"])
def test_an_edge_without_an_end(graph: Graph, verb: str, end: str) -> None:
    """Both ends must exist, in the base or in the same transaction."""
    row = {"id": "k", "src": "ada", "dst": "bob", end: "ghost"}
    with refused(graph, ValidationError, rule="endpoint", row="k") as caught:
        getattr(graph, verb)("Knows", [row])
    assert f"{end} 'ghost' not found in Person" in str(caught.value)


def test_an_end_of_the_wrong_type(graph: Graph) -> None:
    """A node of another type is not an end."""
    with refused(graph, ValidationError, rule="endpoint", row="bob-cyn"):
        graph.append("WorksAt", edges(("bob", "cyn")))


def test_too_many_edges(graph: Graph) -> None:
    """The maximum counts base and new edges together, and new ones among each other."""
    with refused(graph, ValidationError, rule="card") as caught:
        graph.append("WorksAt", edges(("ada", "bits")))
    assert "@card violation on edge WorksAt: source 'ada' has 2 edges, max 1" in str(caught.value)
    with refused(graph, ValidationError, rule="card"):
        graph.append("WorksAt", edges(("bob", "bits"), ("bob", "acme")))
    with refused(graph, ValidationError, rule="card"):
        graph.overwrite("WorksAt", edges(("bob", "bits"), ("bob", "acme")))


def test_a_merge_counts_a_replaced_edge_once(graph: Graph) -> None:
    """An edge that a merge replaces is not counted beside its new self; one it moves is counted where it goes."""
    graph.merge("WorksAt", [{"id": "ada-acme", "src": "ada", "dst": "bits"}])
    graph.append("WorksAt", edges(("bob", "acme")))
    with refused(graph, ValidationError, rule="card"):
        graph.merge("WorksAt", [{"id": "ada-acme", "src": "bob", "dst": "bits"}])


def test_too_few_edges_by_merge(graph: Graph) -> None:
    """A source that loses its last edge to another source is counted too."""
    with refused(graph, ValidationError, rule="card") as caught:
        graph.merge("Owns", [{"id": "ada-acme", "src": "cyn", "dst": "acme"}])
    assert "source 'ada' has 0 edges, min 1" in str(caught.value)


def test_too_few_edges_by_delete(graph: Graph) -> None:
    """A delete may not leave a source below its minimum; a source that goes itself has none."""
    with refused(graph, ValidationError, rule="card"):
        graph.delete("Owns", where="src = 'ada'")
    graph.delete("Owns", where="id = 'bob-bits'")
    graph.delete("Person", where="name = 'ada'")
    assert ids(graph, "Owns") == ["bob-acme"]
    with refused(graph, ValidationError, rule="card"):
        graph.delete("Company", where="name = 'acme'")


def test_too_few_edges_by_overwrite(graph: Graph) -> None:
    """A source whose edges an overwrite drops is counted like any other."""
    with refused(graph, ValidationError, rule="card") as caught:
        graph.overwrite("Owns", edges(("bob", "acme")))
    assert "source 'ada' has 0 edges, min 1" in str(caught.value)
    with refused(graph, ValidationError, rule="card"):
        graph.overwrite("Owns", [])


def test_an_overwrite_that_would_orphan_edges(graph: Graph) -> None:
    """Nodes that edges still name cannot be dropped by an overwrite."""
    with refused(graph, ValidationError, rule="orphan-edge", row="ada-bob") as caught:
        graph.overwrite("Person", persons("ada", "cyn"))
    assert "would lose its" in str(caught.value)
    with refused(graph, ValidationError, rule="orphan-edge"):
        graph.overwrite("Person", [])


def test_a_delete_that_may_not_cascade(graph: Graph) -> None:
    """Without cascade, a node that has edges stays."""
    with refused(graph, ValidationError, rule="orphan-edge", row="ada-bob"):
        graph.delete("Person", where="name = 'bob'", cascade=False)
    graph.delete("Person", where="name = 'cyn'", cascade=False)
    assert ids(graph, "Person") == ["ada", "bob"]


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [None, "", "  "])
def test_a_delete_or_update_without_a_predicate(graph: Graph, where: str | None) -> None:
    """A whole table never changes by an omission."""
    with refused(graph, OptionError) as caught:
        graph.delete("Person", where=where)
    assert "where" in caught.value.hint
    with refused(graph, OptionError):
        graph.update("Person", set={"age": 1}, where=where)  # type: ignore[arg-type]


def test_a_bad_predicate(graph: Graph) -> None:
    """A predicate that cannot be planned names its column, or its text."""
    with refused(graph, OptionError) as caught:
        graph.delete("Person", where="agee > 3")
    assert "agee" in str(caught.value)
    with refused(graph, OptionError) as caught:
        graph.update("Person", set={"age": 1}, where="age >")
    assert "age >" in str(caught.value)


def test_bad_assignments(graph: Graph) -> None:
    """Keys, ends and unknown properties cannot be set, and something must be."""
    with refused(graph, SchemaError) as caught:
        graph.update("Person", set={"name": "x"}, where="true")
    assert caught.value.rule == "update-key"  # type: ignore[attr-defined]
    with refused(graph, SchemaError):
        graph.update("Knows", set={"src": "cyn"}, where="true")
    with refused(graph, SchemaError):
        graph.update("Person", set={"agee": 1}, where="true")
    with refused(graph, OptionError):
        graph.update("Person", set={}, where="true")
    with refused(graph, ValidationError):
        graph.update("Person", set={"age": object()}, where="true")


def test_an_update_may_not_null_what_is_required(graph: Graph) -> None:
    """Required means required, by every verb."""
    graph.append("Note", [{"id": "n", "text": "a"}])
    with refused(graph, ValidationError, rule="required", row="n"):
        graph.update("Note", set={"text": None}, where="true")


def test_an_unknown_type(graph: Graph) -> None:
    """An unknown type is refused with the nearest one."""
    with refused(graph, NotFoundError) as caught:
        graph.append("Persn", persons("x"))
    assert "Person" in str(caught.value)


def test_data_of_a_strange_kind(graph: Graph) -> None:
    """What is not rows is refused by its kind."""
    for data in ("text", 7, {"name": "x"}, [1, 2], [{1: "x"}]):
        with refused(graph, OptionError):
            graph.append("Person", data)


@pytest.mark.parametrize("rows", [10, 40_000])
@pytest.mark.parametrize("verb", VERBS)
def test_input_that_breaks_off(graph: Graph, verb: str, rows: int) -> None:
    """An error of the input comes out as it is, wherever it struck, and nothing of the input stays."""

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, 10_000):
            names = [f"n{n}" for n in range(start, min(rows, start + 10_000))]
            yield pa.record_batch({"name": names})
        raise LookupError("the source broke off")

    before, files = graph.tables(), staged_files(graph)
    with pytest.raises(LookupError, match="the source broke off"):
        getattr(graph, verb)("Person", pa.RecordBatchReader.from_batches(pa.schema([("name", pa.string())]), batches()))
    assert graph.tables() == before
    assert staged_files(graph) == files
    assert_sound(graph.uri)


def test_rows_without_any_value(graph: Graph) -> None:
    """An empty dict is a row: refused where something is required, never passed over."""
    with refused(graph, ValidationError, rule="required"):
        graph.append("Note", [{}])
    with refused(graph, ValidationError, rule="required"):
        graph.append("Person", [{}, {}])


def test_delete_ids_of_strange_columns(graph: Graph) -> None:
    """A delete by id takes ids, all of them there."""
    with refused(graph, SchemaError), graph.transaction() as tx:
        tx.delete_ids("Person", persons("ada", age=3))
    with refused(graph, ValidationError, rule="null-key"), graph.transaction() as tx:
        tx.delete_ids("Person", [{"id": "ada"}, {"id": None}])
    with refused(graph, SchemaError), graph.transaction() as tx:
        tx.delete_ids("Note", pa.table({"id": [1.5]}))


def test_a_missing_branch(graph: Graph) -> None:
    """A branch that does not exist is not created by the way."""
    with refused(graph, NotFoundError) as caught:
        graph.append("Person", persons("x"), branch="nowhere")
    assert "nowhere" in str(caught.value)


def test_a_read_only_handle(graph: Graph) -> None:
    """A read-only handle and a pinned view write nothing."""
    for handle in (Graph.open(graph.uri, read_only=True), graph.at(version=graph.version)):
        with refused(graph, OptionError) as caught:
            handle.append("Person", persons("x"))
        assert "read-only" in str(caught.value)


@pytest.mark.parametrize(
    "intent",
    [
        {"app_id": "job"},
        {"txn_version": 3},
        {"app_id": "job", "txn_version": -1},
        {"app_id": " ", "txn_version": 1},
        {"app_id": "job", "txn_version": "7"},
        {"app_id": "job", "txn_version": 1.5},
        {"app_id": "job", "txn_version": True},
        {"app_id": "job", "txn_version": 2**64},
        {"app_id": 7, "txn_version": 7},
        {"message": 7},
        {"actor": 7},
        {"user_metadata": {"a": 1}},
        {"expected_version": "now"},
    ],
)
def test_a_bad_intent(graph: Graph, intent: dict[str, Any]) -> None:
    """An application id comes with a version that is a number and not negative; other intents are of their type."""
    with refused(graph, OptionError):
        graph.append("Person", persons("x"), **intent)


def test_an_unknown_argument_of_a_write(graph: Graph) -> None:
    """A misspelled argument is refused before anything is staged."""
    with pytest.raises((OptionError, TypeError), match="massage"):
        graph.append("Person", persons("x"), massage="hello")
    assert_sound(graph.uri)


# -- reports -----------------------------------------------------------------------------------------------------------


def test_all_violations_are_listed_and_sorted(graph: Graph) -> None:
    """Every rule that any row breaks is in one report, in an order that does not depend on the rows'."""
    rows = [
        {"name": "z", "age": 200, "code": "abc", "status": "gone", "score": 0.5},
        {"name": "a", "age": -1, "code": "OK", "status": None, "score": 7.0},
    ]
    reports = []
    for given in (rows, rows[::-1]):
        with refused(graph, ValidationError) as caught:
            graph.append("Person", given)
        assert isinstance(caught.value, ValidationError)
        assert caught.value.total == 5
        assert caught.value.violations == sorted(caught.value.violations, key=lambda v: v.sort_key())
        reports.append([(v.rule, v.property, v.row_id) for v in caught.value.violations])
    assert reports[0] == reports[1]
    assert reports[0] == [
        ("check", "code", "z"),
        ("enum", "status", "z"),
        ("range", "age", "a"),
        ("range", "age", "z"),
        ("range", "score", "a"),
    ]


def test_violations_of_a_whole_transaction(graph: Graph) -> None:
    """Edges without ends, orphans and cardinalities of all tables are one report."""
    with refused(graph, ValidationError) as caught, graph.transaction() as tx:
        tx.append("Knows", edges(("ada", "ghost"), ("ghost", "bob")))
        tx.append("WorksAt", edges(("ada", "bits")))
        tx.overwrite("Company", [{"name": "bits"}])
    assert isinstance(caught.value, ValidationError)
    rules = [v.rule for v in caught.value.violations]
    assert {"endpoint", "card", "orphan-edge"} <= set(rules)
    assert caught.value.violations == sorted(caught.value.violations, key=lambda v: v.sort_key())


@pytest.mark.parametrize("kind", ["range", "duplicate-id", "endpoint", "unique", "key-conflict", "orphan-edge", "card"])
def test_long_reports_are_capped_with_a_total(graph: Graph, kind: str) -> None:
    """A report lists a bounded number of violations and says how many there are."""
    many = [f"n{at:04}" for at in range(MAX_SHOWN + 50)]
    if kind in ("key-conflict", "orphan-edge", "card"):
        graph.append("Person", persons(*many))
    if kind == "orphan-edge":
        graph.append("Knows", edges(*((n, "ada") for n in many)))
    writes = {
        "range": lambda: graph.append("Person", persons(*many, age=999)),
        "duplicate-id": lambda: graph.append("Person", persons(*many, *many)),
        "endpoint": lambda: graph.append("Knows", edges(*((n, "ada") for n in many))),
        "unique": lambda: graph.append("Person", [{"name": n + at, "email": n} for n in many for at in "xy"]),
        "key-conflict": lambda: graph.append("Person", persons(*many)),
        "orphan-edge": lambda: graph.overwrite("Person", persons("ada", "bob")),
        "card": lambda: graph.append("WorksAt", edges(*((n, c) for n in many for c in ("acme", "bits")))),
    }
    with pytest.raises(ValidationError) as caught:
        writes[kind]()
    found = [v for v in caught.value.violations if v.rule == kind]
    assert 0 < len(found) <= MAX_SHOWN
    assert caught.value.total == len(many)
    assert f"and {len(many) - ValidationError.shown} more" in str(caught.value)
    assert len(str(caught.value)) < 20_000
    assert_sound(graph.uri)


# -- storage -----------------------------------------------------------------------------------------------------------


def test_a_record_that_cannot_be_read(graph: Graph) -> None:
    """A broken recovery record stops nobody until somebody must recover; then it is named, and reads still work."""
    record = Path(graph.uri) / "__recovery" / "01BROKEN.json"
    record.parent.mkdir(exist_ok=True)
    record.write_text('{"schema_version": 2, "branch"')
    before = contents(graph)
    for act in (graph.recover, lambda: Graph.open(graph.uri, window_grace=0.1)):
        with pytest.raises(RecoveryError) as caught:
            act()
        assert "01BROKEN" in str(caught.value)
    assert contents(Graph.open(graph.uri, read_only=True)) == before
    assert record.exists()
    record.unlink()
    graph.append("Person", persons("next"))
    assert_sound(graph.uri)


def in_a_child(script: str, uri: str) -> list[str]:
    """Run a script on a graph in a process of its own; returns the words it printed."""
    command = [sys.executable, "-c", textwrap.dedent(script), uri]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_no_permission(tmp_path: Path) -> None:
    """A graph whose files may only be read is a typed error for a writer, and as readable as before."""
    with tempfile.TemporaryDirectory() as folder:
        graph = social(Path(folder))
        graph.append("Person", persons("ada"))
        Path(folder).chmod(0o755)
        said = in_a_child(
            """
            import os, pathlib, sys
            from omnigraph_spark import Graph, OmnigraphError
            g = Graph.open(sys.argv[1])
            assert g.append("Note", [{"text": "works"}])
            for path in [pathlib.Path(sys.argv[1]), *pathlib.Path(sys.argv[1]).rglob("*")]:
                path.chmod(0o555 if path.is_dir() else 0o444)
            if os.geteuid() == 0:
                os.setgid(65534), os.setuid(65534)
            try:
                g.append("Person", [{"name": "bob"}])
            except OmnigraphError as e:
                print(isinstance(e, OmnigraphError), e.code, e.outcome.value, g.count("Person"))
            """,
            graph.uri,
        )
        for path in [Path(graph.uri), *Path(graph.uri).rglob("*")]:
            path.chmod(0o755)
        assert said[0] == "True"
        assert said[1].startswith("OG-STORAGE")
        assert said[2:] == ["not_committed", "1"]
        graph.append("Person", persons("bob"))
        assert_sound(graph.uri)


@pytest.mark.parametrize("refused_at", ["put", "swap"])
def test_a_store_that_refuses_once(graph: Graph, refused_at: str) -> None:
    """A store that refuses the record or the claim is reported as such, and nothing is left behind."""
    left = [refused_at] * 3

    def forbid(verb: str, target: str) -> None:
        if verb in left:
            left.remove(verb)
            raise StorageForbiddenError(f"{verb} {target}: access denied")

    authority = authority_for(graph.uri, seams=Seams(fault=forbid))
    with refused(graph, StorageForbiddenError), Transaction(authority, WriteIntent()) as tx:
        tx.append("Person", persons("x"))


def test_a_full_disk(graph: Graph) -> None:
    """When a file can grow no more, the write fails typed, nothing is committed, and later writes work."""
    before, version = contents(graph), graph.version
    said = in_a_child(
        """
        import resource, signal, sys
        import pyarrow as pa
        from omnigraph_spark import Graph, OmnigraphError
        g = Graph.open(sys.argv[1])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        names = [f"person number {n} of very many" * 4 for n in range(30_000)]
        try:
            g.append("Person", pa.table({"name": names}))
        except OmnigraphError as e:
            print(type(e).__name__, e.outcome.value)
        """,
        graph.uri,
    )
    assert said == ["StorageError", "not_committed"]
    assert (contents(graph), graph.version) == (before, version)
    graph.append("Person", persons("next"))
    assert_sound(graph.uri)
