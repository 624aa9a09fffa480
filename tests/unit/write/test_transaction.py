"""Transactions without Spark: every verb, several tables in one commit, what later operations see of earlier ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph_spark import ConflictError, Graph, KeyConflictError, OptionError
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write.draft import WriteIntent
from omnigraph_spark.write.transaction import Transaction
from tests.social import by_id, edges, ids, persons, social, staged_files
from tests.soundness import assert_sound
from tests.writer_process import authority_for


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """A social graph with three persons and two friendships; whatever the test did, it must be sound in the end."""
    g = social(tmp_path)
    with g.transaction() as tx:
        tx.append("Person", persons("ada", "bob", "cyn", age=30))
        tx.append("Knows", edges(("ada", "bob"), ("bob", "cyn")))
    yield g
    assert_sound(g.uri)


def rows_with_positions(g: Graph, type_name: str) -> dict[str, dict[str, Any]]:
    """Return id → row id and the versions in which Lance says the row was made and last changed."""
    info = next(t for t in g.tables() if t.type == type_name)
    dataset = lance.dataset(f"{g.uri}/{info.path}", version=info.version)
    columns = ["id", "_row_created_at_version", "_row_last_updated_at_version"]
    found = dataset.scanner(columns=columns, with_row_id=True).to_table().to_pylist()
    return {row.pop("id"): row for row in found}


# -- verbs -------------------------------------------------------------------------------------------------------------


def test_append_adds_rows_and_returns_the_commit(graph: Graph) -> None:
    """An append is one commit with its author, its message, its tables and its costs."""
    before = graph.version
    commit = graph.append("Person", persons("dan"), actor="etl", message="hello", user_metadata='{"run": 7}')
    assert commit is not None
    assert (commit.actor, commit.message) == ("etl", "hello")
    assert graph.version > before
    assert graph.head is not None
    assert graph.head.id == commit.id
    assert commit.storage_ops
    assert commit.phase_seconds
    assert ids(graph, "Person") == ["ada", "bob", "cyn", "dan"]


@pytest.mark.parametrize("shape", ["dicts", "generator", "table", "batch", "reader", "pandas"])
def test_every_kind_of_data_is_accepted(graph: Graph, shape: str) -> None:
    """Dicts, Arrow data and frames that speak Arrow stage the same rows."""
    table = pa.table({"name": ["x", "y"], "age": pa.array([1, None], pa.int32())})
    shapes = {
        "dicts": table.to_pylist(),
        "generator": (row for row in table.to_pylist()),
        "pandas": table.to_pandas(),
        "table": table,
        "batch": table.to_batches()[0],
        "reader": table.to_reader(),
    }
    graph.append("Person", shapes[shape])
    assert by_id(graph, "Person")["x"]["age"] == 1
    assert graph.count("Person") == 5


def test_merge_replaces_whole_rows_and_keeps_their_row_ids(graph: Graph) -> None:
    """A merged row keeps row id and creation version; only changed rows count as updated; new rows get fresh ids."""
    before = rows_with_positions(graph, "Person")
    graph.merge("Person", [{"name": "ada", "email": "a@x"}, {"name": "dan"}])
    after = rows_with_positions(graph, "Person")
    assert by_id(graph, "Person")["ada"] | {"age": None, "email": "a@x"} == by_id(graph, "Person")["ada"]
    for name in ("ada", "bob", "cyn"):
        assert after[name]["_rowid"] == before[name]["_rowid"]
        assert after[name]["_row_created_at_version"] == before[name]["_row_created_at_version"]
    assert after["ada"]["_row_last_updated_at_version"] > before["ada"]["_row_last_updated_at_version"]
    assert after["bob"] == before["bob"]
    assert after["dan"]["_rowid"] not in {row["_rowid"] for row in before.values()}
    assert after["dan"]["_row_created_at_version"] == after["ada"]["_row_last_updated_at_version"]


def test_overwrite_replaces_all_rows(graph: Graph) -> None:
    """An overwrite leaves just its rows; other types keep theirs."""
    graph.overwrite("Knows", edges(("cyn", "ada")))
    assert ids(graph, "Knows") == ["cyn-ada"]
    assert graph.count("Person") == 3


def test_overwrite_with_no_rows_empties_the_type(graph: Graph) -> None:
    """Zero rows are a valid content."""
    assert graph.overwrite("Knows", []) is not None
    assert graph.count("Knows") == 0
    graph.append("Knows", edges(("ada", "cyn")))
    assert ids(graph, "Knows") == ["ada-cyn"]


def test_overwrite_of_nothing_with_nothing_commits_nothing(graph: Graph) -> None:
    """A type that is empty and stays empty is not a change."""
    before = graph.version
    assert graph.overwrite("Note", []) is None
    assert graph.version == before


def test_update_sets_what_matches(graph: Graph) -> None:
    """An update changes the named properties of the matching rows, and keeps everything else of them."""
    before = rows_with_positions(graph, "Person")
    with graph.transaction() as tx:
        assert tx.update("Person", set={"age": 31, "status": "away"}, where="name <> 'cyn'") == 2
    rows = by_id(graph, "Person")
    assert [(rows[n]["age"], rows[n]["status"]) for n in ("ada", "bob", "cyn")] == [
        (31, "away"),
        (31, "away"),
        (30, None),
    ]
    after = rows_with_positions(graph, "Person")
    assert {n: r["_rowid"] for n, r in after.items()} == {n: r["_rowid"] for n, r in before.items()}
    assert after["cyn"] == before["cyn"]


def test_update_to_null(graph: Graph) -> None:
    """A property may be set to null, and a list-like one to a list."""
    graph.update("Person", set={"age": None, "face": [0.5, 1.0]}, where="name = 'ada'")
    assert (by_id(graph, "Person")["ada"]["age"], by_id(graph, "Person")["ada"]["face"]) == (None, [0.5, 1.0])


def test_update_of_edges(graph: Graph) -> None:
    """Edges have properties too."""
    graph.update("Knows", set={"kind": "friend"}, where="src = 'ada'")
    assert by_id(graph, "Knows")["ada-bob"]["kind"] == "friend"


def test_delete_takes_the_edges_along(graph: Graph) -> None:
    """A removed node's edges go in the same commit, at both ends."""
    with graph.transaction() as tx:
        assert tx.delete("Person", where="name = 'bob'") == 1
    assert ids(graph, "Person") == ["ada", "cyn"]
    assert graph.count("Knows") == 0


def test_delete_all(graph: Graph) -> None:
    """``true`` removes everything; the type can be filled again."""
    graph.delete("Person", where="true")
    assert (graph.count("Person"), graph.count("Knows")) == (0, 0)
    graph.append("Person", persons("ada"))
    assert ids(graph, "Person") == ["ada"]


def test_delete_ids(graph: Graph) -> None:
    """Rows go by id or by key; ids that do not exist, and ids given twice, are not an error."""
    with graph.transaction() as tx:
        assert tx.delete_ids("Person", [{"id": "ada"}, {"id": "ada"}, {"id": "nobody"}]) == 1
    with graph.transaction() as tx:
        assert tx.delete_ids("Person", [{"name": "bob"}]) == 1
    assert ids(graph, "Person") == ["cyn"]
    assert graph.count("Knows") == 0


@pytest.mark.parametrize("rows", [[], [{"id": "nobody"}]])
def test_delete_of_ids_that_do_not_exist_commits_nothing(graph: Graph, rows: list[dict[str, str]]) -> None:
    """Nothing found, nothing committed."""
    before = graph.version
    with graph.transaction() as tx:
        assert tx.delete_ids("Person", rows) == 0
    assert tx.commit_info is None
    assert graph.version == before


def test_several_deletes_in_one_transaction(graph: Graph) -> None:
    """Deletes of nodes and edges add up, and none is counted twice."""
    graph.append("Person", persons("dan", "eve"))
    graph.append("Knows", edges(("dan", "eve"), ("eve", "ada"), ("cyn", "ada")))
    with graph.transaction() as tx:
        assert tx.delete("Knows", where="src = 'bob'") == 1
        assert tx.delete("Person", where="name = 'dan'") == 1
        assert tx.delete("Person", where="name in ('dan', 'eve')") == 1
        assert tx.delete("Knows", where="true") == 2
    assert ids(graph, "Person") == ["ada", "bob", "cyn"]
    assert graph.count("Knows") == 0


@pytest.mark.parametrize("verb", ["append", "merge"])
def test_empty_input_commits_nothing(graph: Graph, verb: str) -> None:
    """No rows, no commit."""
    before, files = graph.version, staged_files(graph)
    assert getattr(graph, verb)("Person", []) is None
    assert getattr(graph, verb)("Person", pa.table({"name": pa.array([], pa.string())})) is None
    assert graph.version == before
    assert staged_files(graph) == files


def test_nothing_matched_commits_nothing(graph: Graph) -> None:
    """An update or delete that matches no row commits nothing."""
    before = graph.version
    assert graph.update("Person", set={"age": 1}, where="name = 'nobody'") is None
    assert graph.delete("Person", where="name = 'nobody'") is None
    assert graph.version == before


# -- several tables ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("Person", "Company", "WorksAt"), ("WorksAt", "Company", "Person")])
def test_edges_may_name_nodes_of_the_same_transaction(graph: Graph, order: tuple[str, ...]) -> None:
    """Nodes and edges of one transaction may come in any order; they land in one commit."""
    rows = {"Person": persons("new"), "Company": [{"name": "acme"}], "WorksAt": edges(("new", "acme"))}
    before = len(graph.history())
    with graph.transaction() as tx:
        for name in order:
            tx.append(name, rows[name])
    assert len(graph.history()) == before + 1
    assert tx.commit_info is not None
    assert ids(graph, "WorksAt") == ["new-acme"]


def test_overwrite_of_nodes_and_edges_together(graph: Graph) -> None:
    """Nodes may go when the edges that named them go in the same transaction."""
    with graph.transaction() as tx:
        tx.overwrite("Person", persons("zoe", "yan"))
        tx.overwrite("Knows", edges(("zoe", "yan")))
    assert (ids(graph, "Person"), ids(graph, "Knows")) == (["yan", "zoe"], ["zoe-yan"])


def test_an_exception_in_the_block_publishes_nothing(graph: Graph) -> None:
    """The block's own exception comes out, nothing is published, and no staged file is left."""
    before, files = graph.version, staged_files(graph)

    def fail() -> None:
        with graph.transaction() as tx:
            tx.append("Person", persons("x", "y"))
            tx.merge("Person", persons("x", "ada", age=1))
            tx.merge("Person", persons("x", "y", age=2))
            tx.overwrite("Knows", edges(("x", "y")))
            tx.append("Knows", edges(("y", "x")))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert graph.version == before
    assert staged_files(graph) == files
    assert ids(graph, "Person") == ["ada", "bob", "cyn"]


def test_a_refused_operation_leaves_the_rest_of_its_transaction(graph: Graph) -> None:
    """A caller may catch a refusal and go on: the refused operation has no effect at all, the others have theirs."""
    with graph.transaction() as tx:
        tx.append("Person", persons("dan"))
        with pytest.raises(KeyConflictError):
            tx.append("Person", persons("dan", "eve"))
        with pytest.raises(KeyConflictError):
            tx.append("Knows", edges(("dan", "ada"), ("ada", "bob")))
        tx.append("Person", persons("fay"))
    assert ids(graph, "Person") == ["ada", "bob", "cyn", "dan", "fay"]
    assert graph.count("Knows") == 2


def test_a_refused_delete_leaves_the_rest_of_its_transaction(graph: Graph) -> None:
    """A refused delete removes neither nodes nor edges."""
    with graph.transaction() as tx:
        tx.delete("Knows", where="src = 'bob'")
        with pytest.raises(Exception, match="would lose its"):
            tx.delete("Person", where="true", cascade=False)
    assert graph.count("Person") == 3
    assert ids(graph, "Knows") == ["ada-bob"]


def test_a_transaction_is_used_inside_its_block_only(graph: Graph) -> None:
    """Before and after its block a transaction takes nothing."""
    tx = graph.transaction()
    with pytest.raises(OptionError):
        tx.append("Person", persons("x"))
    with tx:
        pass
    with pytest.raises(OptionError):
        tx.append("Person", persons("x"))


# -- later operations see earlier ones ---------------------------------------------------------------------------------


def test_append_update_merge_on_one_type(graph: Graph) -> None:
    """Each operation works on what the ones before it left; base rows keep their row ids through all of them."""
    before = rows_with_positions(graph, "Person")
    with graph.transaction() as tx:
        tx.append("Person", persons("dan", "eve", age=1))
        assert tx.update("Person", set={"age": 2}, where="age = 1 or name = 'ada'") == 3
        tx.merge("Person", [*persons("eve", age=3), *persons("fay", age=4), *persons("bob", age=5)])
        assert tx.update("Person", set={"status": "away"}, where="age > 2 and age < 10") == 3
    rows = by_id(graph, "Person")
    assert {n: r["age"] for n, r in rows.items()} == {"ada": 2, "bob": 5, "cyn": 30, "dan": 2, "eve": 3, "fay": 4}
    assert sorted(n for n, r in rows.items() if r["status"] == "away") == ["bob", "eve", "fay"]
    after = rows_with_positions(graph, "Person")
    for name in before:
        assert after[name]["_rowid"] == before[name]["_rowid"]
        assert after[name]["_row_created_at_version"] == before[name]["_row_created_at_version"]


def test_only_what_is_published_stays_on_storage(graph: Graph) -> None:
    """Views and rows that later operations superseded are gone after the commit: each table keeps one file of it."""
    graph.append("Company", [{"name": "acme"}])
    before = staged_files(graph)
    with graph.transaction() as tx:
        tx.append("Person", persons("dan", age=1))
        tx.merge("Person", persons("dan", age=2))
        tx.merge("Person", persons("dan", age=3))
        tx.append("Owns", edges(("dan", "acme")))
    left = [path for path in staged_files(graph) - before if not path.startswith("__manifest")]
    assert len(left) == 2
    assert all("/data/" in path for path in left)


def test_overwrite_then_merge_and_append(graph: Graph) -> None:
    """What follows an overwrite sees only its rows."""
    with graph.transaction() as tx:
        tx.overwrite("Knows", edges(("ada", "cyn")))
        tx.merge("Knows", edges(("ada", "cyn"), ("ada", "bob"), kind="foe"))
        tx.append("Knows", edges(("bob", "cyn")))
    assert {i: r["kind"] for i, r in by_id(graph, "Knows").items()} == {
        "ada-cyn": "foe",
        "ada-bob": "foe",
        "bob-cyn": None,
    }


def test_two_merges_that_overlap(graph: Graph) -> None:
    """The later of two merges wins where they overlap; the others keep what the first gave them."""
    with graph.transaction() as tx:
        tx.merge("Person", persons("ada", "bob", "dan", age=1))
        tx.merge("Person", persons("bob", "dan", "eve", age=2))
        tx.merge("Person", persons("eve", "cyn", age=3))
    ages = {n: r["age"] for n, r in by_id(graph, "Person").items()}
    assert ages == {"ada": 1, "bob": 2, "cyn": 3, "dan": 2, "eve": 3}


def test_two_merges_of_disjoint_rows(graph: Graph) -> None:
    """Merges of different base rows, and appends between them, add up."""
    with graph.transaction() as tx:
        tx.merge("Person", persons("ada", age=1))
        tx.append("Person", persons("dan", age=2))
        tx.merge("Person", persons("bob", age=3))
    assert {n: r["age"] for n, r in by_id(graph, "Person").items()} == {"ada": 1, "bob": 3, "cyn": 30, "dan": 2}


def test_append_of_an_id_the_transaction_appended(graph: Graph) -> None:
    """An id is taken from the moment an earlier operation gave it."""
    with graph.transaction() as tx:
        tx.append("Person", persons("dan"))
        with pytest.raises(KeyConflictError):
            tx.append("Person", persons("dan"))
    assert graph.count("Person") == 4


def test_a_freed_unique_value_may_be_used_again(graph: Graph) -> None:
    """A value that an earlier operation freed is free; one that it took is taken."""
    graph.merge("Person", [{"name": "ada", "email": "x"}])
    with graph.transaction() as tx:
        tx.update("Person", set={"email": "y"}, where="name = 'ada'")
        tx.append("Person", persons("dan", email="x"))
    with graph.transaction() as tx:
        tx.update("Person", set={"email": "z"}, where="name = 'ada'")
        with pytest.raises(KeyConflictError, match="@unique"):
            tx.append("Person", persons("eve", email="z"))
    assert {n: r["email"] for n, r in by_id(graph, "Person").items() if r["email"]} == {"ada": "z", "dan": "x"}


def test_rows_of_one_merge_may_swap_a_unique_value(graph: Graph) -> None:
    """What counts is the table after the operation, not the order in which its rows land."""
    graph.merge("Person", [{"name": "ada", "email": "x"}, {"name": "bob", "email": "y"}])
    graph.merge("Person", [{"name": "ada", "email": "y"}, {"name": "bob", "email": "x"}])
    assert {n: r["email"] for n, r in by_id(graph, "Person").items() if r["email"]} == {"ada": "y", "bob": "x"}


def test_an_edge_that_moves_inside_a_transaction(graph: Graph) -> None:
    """A source that only an intermediate state gave an edge is not counted: it is as it was before."""
    graph.append("Company", [{"name": "acme"}])
    with graph.transaction() as tx:
        tx.append("Owns", [{"id": "o", "src": "ada", "dst": "acme"}])
        tx.merge("Owns", [{"id": "o", "src": "bob", "dst": "acme"}])
    assert by_id(graph, "Owns")["o"]["src"] == "bob"


def test_a_dangling_edge_may_be_mended_before_the_block_ends(graph: Graph) -> None:
    """Ends are checked when the transaction is whole."""
    with graph.transaction() as tx:
        tx.append("Knows", [{"id": "k", "src": "ada", "dst": "ghost"}])
        tx.merge("Knows", [{"id": "k", "src": "ada", "dst": "cyn"}])
    assert by_id(graph, "Knows")["k"]["dst"] == "cyn"


# -- D2 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["write", "delete"])
def test_writing_and_deleting_do_not_mix(graph: Graph, first: str) -> None:
    """One transaction writes or deletes; the second kind is refused before storage is asked anything."""
    with graph.transaction() as tx:
        verbs: list[Callable[[], object]] = [
            lambda: tx.append("Person", persons("dan")),
            lambda: tx.delete("Knows", where="true"),
        ]
        one, other = verbs if first == "write" else verbs[::-1]
        one()
        counter = tx._authority.reader.io.settle()
        before = (dict(counter.objects), dict(counter.opens), counter.storage_ops)
        with pytest.raises(OptionError, match="Split it") as caught:
            other()
        counter = tx._authority.reader.io.settle()
        assert (dict(counter.objects), dict(counter.opens), counter.storage_ops) == before
    assert caught.value.outcome.value == "not_committed"
    assert (graph.count("Person"), graph.count("Knows")) == ((4, 2) if first == "write" else (3, 0))


# -- ids ---------------------------------------------------------------------------------------------------------------


def test_composite_keys_identify_by_the_whole_tuple(graph: Graph) -> None:
    """Rows that share one key column only are two rows; their edges and merges find the right one."""
    graph.append("Place", [{"town": "a", "street": "x"}, {"town": "a", "street": "y"}, {"town": 'a","x', "street": ""}])
    assert ids(graph, "Place") == sorted(
        json.dumps([s, t], separators=(",", ":")) for s, t in [("x", "a"), ("y", "a"), ("", 'a","x')]
    )
    graph.merge("Place", [{"town": "a", "street": "x"}, {"town": "b", "street": "x"}])
    assert graph.count("Place") == 4


def test_numbers_and_dates_are_keys(graph: Graph) -> None:
    """A number or a date has one canonical id, whatever type it came in."""
    graph.append("Number", [{"n": 7}, {"n": -1}])
    graph.merge("Number", pa.table({"n": pa.array([7], pa.int8()), "note": ["seven"]}))
    graph.append("Day", [{"day": date(2024, 2, 29)}])
    graph.load(
        ['{"type": "Number", "data": {"n": 8}}', '{"type": "Day", "data": {"day": "2024-03-01"}}'], mode="append"
    )
    assert ids(graph, "Number") == ["-1", "7", "8"]
    assert by_id(graph, "Number")["7"]["note"] == "seven"
    assert ids(graph, "Day") == ["2024-02-29", "2024-03-01"]


def test_rows_without_a_key_get_fresh_ids(graph: Graph) -> None:
    """Where the caller gives no id, each row gets one of its own; a given id is kept."""
    graph.append("Note", [{"text": "a"}, {"text": "a"}, {"id": "mine", "text": "b"}, {"id": None, "text": "c"}])
    found = ids(graph, "Note")
    assert len(set(found)) == 4
    assert "mine" in found
    graph.merge("Note", [{"text": "d"}])
    assert graph.count("Note") == 5
    graph.append("About", [{"from": "mine", "to": "ada"}])
    assert graph.count("About") == 1


# -- intent ------------------------------------------------------------------------------------------------------------


def test_expected_version(graph: Graph) -> None:
    """A commit that expects another graph version is a conflict and changes nothing."""
    at = graph.version
    graph.append("Person", persons("dan"), expected_version=at)
    with pytest.raises(ConflictError) as caught:
        graph.append("Person", persons("eve"), expected_version=at)
    assert (caught.value.expected, caught.value.outcome.value) == (at, "not_committed")
    assert ids(graph, "Person") == ["ada", "bob", "cyn", "dan"]


def test_a_repeat_returns_the_first_commit(graph: Graph) -> None:
    """The same application id and version commit once; a lower version does nothing, a higher one applies."""
    first = graph.append("Person", persons("dan"), app_id="job", txn_version=5)
    version, files = graph.version, staged_files(graph)
    for again in (5, 4, 0):
        with graph.transaction(app_id="job", txn_version=again) as tx:
            assert tx.repeated
            tx.append("Person", persons("dan", "eve"))
            assert tx.update("Person", set={"age": 1}, where="true") == 0
        assert first is not None
        assert tx.commit_info is not None
        assert tx.commit_info.id == first.id
    assert graph.version == version
    assert staged_files(graph) == files
    second = graph.append("Person", persons("eve"), app_id="job", txn_version=6)
    other = graph.append("Person", persons("fay"), app_id="other", txn_version=0)
    assert second is not None
    assert other is not None
    assert graph.count("Person") == 6


def test_two_runs_of_one_idempotent_write_at_once(graph: Graph) -> None:
    """A run that was captured before the other committed finds out under the window; the write lands once."""
    with graph.transaction(app_id="job", txn_version=1) as late:
        first = graph.append("Person", persons("dan"), app_id="job", txn_version=1)
        late.append("Person", persons("dan"))
    assert first is not None
    assert late.commit_info is not None
    assert late.commit_info.id == first.id
    assert late.repeated
    assert ids(graph, "Person") == ["ada", "bob", "cyn", "dan"]


def test_phases_come_in_order(tmp_path: Path) -> None:
    """The hooks of a commit name the seven phases in their order."""
    g = social(tmp_path)
    seen: list[Phase] = []
    authority = authority_for(g.uri, hook=lambda phase, _point: seen.append(phase))
    with Transaction(authority, WriteIntent()) as tx:
        tx.append("Person", persons("ada"))
    order = [p for p in Phase if p is not Phase.RECOVER]
    assert list(dict.fromkeys(seen)) == [p for p in order if p in seen]
    assert {Phase.STAGE, Phase.VALIDATE, Phase.ARM, Phase.EFFECT, Phase.PUBLISH, Phase.RETIRE} <= set(seen)
    assert_sound(g.uri)
