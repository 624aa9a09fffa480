"""Writers that were checked against one base and commit one after the other: whatever holds for each holds for both.

The first writer is stopped after its checks, or after its record is durable; the second one commits in that moment;
then the first goes on. Nothing here waits on a clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import lance
import pytest

from omnigraph_spark import ConflictError, Graph, OmnigraphError, ReadSetChangedError
from omnigraph_spark.errors import Outcome
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write.draft import WriteIntent
from omnigraph_spark.write.transaction import Transaction
from tests.social import by_id, edges, ids, persons, social
from tests.soundness import assert_sound
from tests.writer_process import authority_for

Write = Callable[[Transaction], object]
POINTS = [(Phase.VALIDATE, "done"), (Phase.ARM, "armed")]
at_each_point = pytest.mark.parametrize("point", POINTS, ids=["checked", "armed"])


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Persons with and without edges, firms, owners and jobs."""
    g = social(tmp_path)
    with g.transaction() as tx:
        tx.append("Person", [*persons("ada", email="a@x"), *persons("bob", email="b@x"), *persons("cyn", "dan")])
        tx.append("Company", [{"name": "acme"}, {"name": "bits"}])
        tx.append("Knows", edges(("ada", "bob")))
        tx.append("WorksAt", edges(("ada", "acme")))
        tx.append("Owns", edges(("ada", "acme"), ("ada", "bits"), ("bob", "acme")))
    return g


def run(graph: Graph, write: Write, *, hook: Callable[[Phase, str], None] = lambda _p, _n: None) -> None:
    """Run one transaction."""
    with Transaction(authority_for(graph.uri, hook=hook), WriteIntent()) as tx:
        write(tx)


def interleave(graph: Graph, late: Write, between: Callable[[], object], *, point: tuple[Phase, str]) -> None:
    """Run a transaction, and something else while it stands at a point."""
    done: list[bool] = []

    def hook(phase: Phase, name: str) -> None:
        if (phase, name) == point and not done:
            done.append(True)
            between()

    run(graph, late, hook=hook)
    assert done


def both(tx: Transaction, nodes: list[dict[str, object]], links: list[dict[str, object]]) -> None:
    """Append nodes and edges in one transaction."""
    tx.append("Person", nodes)
    tx.append("Knows", links)


# Pairs that contradict each other although each is fine by itself.
SKEW: dict[str, tuple[Write, Write]] = {
    "overwrite-nodes / insert-edge": (
        lambda tx: tx.overwrite("Person", persons("ada", "bob", "cyn")),
        lambda tx: tx.append("Knows", edges(("ada", "dan"))),
    ),
    "overwrite-nodes / insert-edge at src": (
        lambda tx: tx.overwrite("Person", persons("ada", "bob", "cyn")),
        lambda tx: tx.append("Knows", edges(("dan", "ada"))),
    ),
    "delete-node / insert-edge": (
        lambda tx: tx.delete("Person", where="name = 'dan'"),
        lambda tx: tx.append("Knows", edges(("ada", "dan"))),
    ),
    "delete-node / merge-edge": (
        lambda tx: tx.delete("Person", where="name = 'dan'"),
        lambda tx: tx.merge("Knows", [{"id": "ada-bob", "src": "ada", "dst": "dan"}]),
    ),
    "delete-node with edges / insert-edge": (
        lambda tx: tx.delete("Person", where="name = 'bob'"),
        lambda tx: tx.append("Likes", edges(("ada", "bob"))),
    ),
    "delete-ids / insert-edge": (
        lambda tx: tx.delete_ids("Person", [{"id": "dan"}]),
        lambda tx: tx.append("Knows", edges(("dan", "cyn"))),
    ),
    "delete-node / insert node and edge": (
        lambda tx: tx.delete("Person", where="name = 'dan'"),
        lambda tx: both(tx, persons("eve"), edges(("eve", "dan"))),
    ),
    "same id": (
        lambda tx: tx.append("Person", persons("eve", age=1)),
        lambda tx: tx.append("Person", persons("eve", "fay")),
    ),
    "same id by merge": (
        lambda tx: tx.merge("Person", persons("eve", "ada", age=1)),
        lambda tx: tx.append("Person", persons("eve")),
    ),
    "same unique value": (
        lambda tx: tx.append("Person", persons("eve", email="e@x")),
        lambda tx: tx.append("Person", persons("fay", email="e@x")),
    ),
    "same unique value by update": (
        lambda tx: tx.update("Person", set={"email": "e@x"}, where="name = 'cyn'"),
        lambda tx: tx.merge("Person", persons("fay", email="e@x")),
    ),
    "same unique pair": (
        lambda tx: tx.append("Likes", [{"id": "one", "src": "ada", "dst": "bob"}]),
        lambda tx: tx.append("Likes", [{"id": "two", "src": "ada", "dst": "bob"}]),
    ),
    "most edges": (
        lambda tx: tx.append("WorksAt", edges(("bob", "acme"))),
        lambda tx: tx.append("WorksAt", edges(("bob", "bits"))),
    ),
    "most edges by a moved one": (
        lambda tx: tx.append("WorksAt", edges(("bob", "acme"))),
        lambda tx: tx.merge("WorksAt", [{"id": "ada-acme", "src": "bob", "dst": "acme"}]),
    ),
    "fewest edges by two moved ones": (
        lambda tx: tx.merge("Owns", [{"id": "ada-acme", "src": "cyn", "dst": "acme"}]),
        lambda tx: tx.merge("Owns", [{"id": "ada-bits", "src": "dan", "dst": "bits"}]),
    ),
    "fewest edges by a moved and a removed one": (
        lambda tx: tx.merge("Owns", [{"id": "ada-acme", "src": "cyn", "dst": "acme"}]),
        lambda tx: tx.delete("Owns", where="id = 'ada-bits'"),
    ),
    "merge / delete of its row": (
        lambda tx: tx.merge("Person", persons("dan", age=9)),
        lambda tx: tx.delete("Person", where="name = 'dan'"),
    ),
    "merge / overwrite with the same ids": (
        lambda tx: tx.merge("Person", persons("dan", age=9)),
        lambda tx: tx.overwrite("Person", persons("ada", "bob", "cyn", "dan")),
    ),
    "update / update": (
        lambda tx: tx.update("Person", set={"age": 1}, where="name = 'dan'"),
        lambda tx: tx.update("Person", set={"age": 2}, where="name = 'dan'"),
    ),
    "delete / delete": (
        lambda tx: tx.delete("Person", where="name = 'dan'"),
        lambda tx: tx.delete("Person", where="name = 'cyn'"),
    ),
}


def refuse_the_later(graph: Graph, late: Write, early: Write, *, point: tuple[Phase, str]) -> None:
    """Assert that the second to commit gets a conflict it may retry, and that the first stands."""
    commits = len(graph.history())
    with pytest.raises(ConflictError) as caught:
        interleave(graph, late, lambda: run(graph, early), point=point)
    assert caught.value.outcome is Outcome.NOT_COMMITTED
    assert caught.value.retryable
    assert len(graph.history()) == commits + 1
    assert_sound(graph.uri)


@pytest.mark.parametrize("swapped", [False, True], ids=["as-named", "swapped"])
@pytest.mark.parametrize("pair", SKEW)
def test_the_later_of_two_that_contradict_each_other_is_refused(graph: Graph, pair: str, *, swapped: bool) -> None:
    """Stopped between its checks and its record, a writer finds out what was committed meanwhile (INV-13)."""
    first, second = SKEW[pair]
    refuse_the_later(graph, *((second, first) if swapped else (first, second)), point=POINTS[0])


@pytest.mark.parametrize("pair", [pair for pair in SKEW if "node" in pair])
def test_a_writer_that_stands_with_its_record_is_refused_too(graph: Graph, pair: str) -> None:
    """Stopped between its record and its claim, a writer loses the claim and looks again."""
    refuse_the_later(graph, *SKEW[pair], point=POINTS[1])


def test_a_unique_value_that_was_handed_on(graph: Graph) -> None:
    """A value that a merge keeps for its row may have moved to another row meanwhile: then it is taken."""
    refuse_the_later(
        graph,
        lambda tx: tx.merge("Person", persons("ada", email="a@x", age=9)),
        lambda tx: tx.merge("Person", [*persons("ada", email="new"), *persons("bob", email="a@x")]),
        point=POINTS[0],
    )


# Pairs that may both commit, and what the graph must then hold.
DISJOINT: dict[str, tuple[Write, Write, Callable[[Graph], bool]]] = {
    "append / append": (
        lambda tx: tx.append("Person", persons("eve")),
        lambda tx: tx.append("Person", persons("fay")),
        lambda g: {"eve", "fay"} <= set(ids(g, "Person")),
    ),
    "other tables": (
        lambda tx: tx.update("Person", set={"age": 5}, where="true"),
        lambda tx: tx.append("Company", [{"name": "corp"}]),
        lambda g: g.count("Company") == 3 and by_id(g, "Person")["ada"]["age"] == 5,
    ),
    "merge / merge of other rows": (
        lambda tx: tx.merge("Person", persons("ada", email="a@x", age=1)),
        lambda tx: tx.merge("Person", persons("bob", email="b@x", age=2)),
        lambda g: (by_id(g, "Person")["ada"]["age"], by_id(g, "Person")["bob"]["age"]) == (1, 2),
    ),
    "insert-edge / update of its ends": (
        lambda tx: tx.append("Knows", edges(("cyn", "dan"))),
        lambda tx: tx.update("Person", set={"age": 7}, where="true"),
        lambda g: "cyn-dan" in ids(g, "Knows") and by_id(g, "Person")["dan"]["age"] == 7,
    ),
    "insert-edge / delete of another node": (
        lambda tx: tx.append("Likes", edges(("cyn", "ada"))),
        lambda tx: tx.delete("Person", where="name = 'dan'"),
        lambda g: "cyn-ada" in ids(g, "Likes") and "dan" not in ids(g, "Person"),
    ),
    "edges of other sources": (
        lambda tx: tx.append("WorksAt", edges(("bob", "acme"))),
        lambda tx: tx.append("WorksAt", edges(("cyn", "acme"))),
        lambda g: g.count("WorksAt") == 3,
    ),
    "unique values swapped elsewhere": (
        lambda tx: tx.merge("Person", persons("cyn", email="c@x")),
        lambda tx: tx.merge("Person", [*persons("ada", email="b@x"), *persons("bob", email="a@x")]),
        lambda g: (
            {n: r["email"] for n, r in by_id(g, "Person").items() if r["email"]}
            == {"ada": "b@x", "bob": "a@x", "cyn": "c@x"}
        ),
    ),
}


@pytest.mark.parametrize(("swapped", "point"), [(False, POINTS[0]), (True, POINTS[1])], ids=["checked", "armed"])
@pytest.mark.parametrize("pair", DISJOINT)
def test_disjoint_writers_both_commit(graph: Graph, pair: str, *, point: tuple[Phase, str], swapped: bool) -> None:
    """Writers that do not contradict each other both commit, without an error and without a lost row."""
    first, second, holds = DISJOINT[pair]
    late, early = (second, first) if swapped else (first, second)
    commits = len(graph.history())
    interleave(graph, late, lambda: run(graph, early), point=point)
    assert len(graph.history()) == commits + 2
    assert holds(graph)
    assert_sound(graph.uri)


def test_a_merge_lands_on_a_row_that_was_merged_meanwhile(graph: Graph) -> None:
    """Two merges of one row: the later one's whole row stands, with the row id it always had."""
    interleave(
        graph,
        lambda tx: tx.merge("Person", persons("dan", age=1)),
        lambda: run(graph, lambda tx: tx.merge("Person", persons("dan", age=2, status="away"))),
        point=POINTS[0],
    )
    row = by_id(graph, "Person")["dan"]
    assert (row["age"], row["status"]) == (1, None)
    assert_sound(graph.uri)


def compact(graph: Graph, type_name: str) -> None:
    """Compact a table from outside, as an operator's tool does: nothing is published."""
    info = next(t for t in graph.tables() if t.type == type_name)
    dataset = lance.dataset(f"{graph.uri}/{info.path}")
    before = dataset.version
    dataset.optimize.compact_files()
    assert dataset.version > before


STRICT: dict[str, tuple[Write, list[str]]] = {
    "delete": (lambda tx: tx.delete("Person", where="name in ('ada', 'p7')"), ["bob", "cyn", "dan"]),
    "update": (lambda tx: tx.update("Person", set={"age": 3}, where="true"), ["ada", "bob", "cyn", "dan", "p7"]),
    "overwrite": (lambda tx: tx.overwrite("Person", persons("ada", "bob", "new")), ["ada", "bob", "new"]),
    "merge": (lambda tx: tx.merge("Person", persons("p7", "q", age=3)), ["ada", "bob", "cyn", "dan", "p7", "q"]),
}


@at_each_point
@pytest.mark.parametrize("verb", STRICT)
def test_an_external_compaction_fails_nobody(graph: Graph, verb: str, point: tuple[Phase, str]) -> None:
    """A write that was prepared before a compaction commits after it; rows are found by their stable ids (INV-17)."""
    for at in range(8):
        graph.append("Person", persons(f"p{at}"))
    graph.delete("Person", where="starts_with(name, 'p') and name <> 'p7'")
    write, left = STRICT[verb]
    interleave(graph, write, lambda: compact(graph, "Person"), point=point)
    assert ids(graph, "Person") == left
    assert_sound(graph.uri)


def test_a_stale_update_after_another_update(graph: Graph) -> None:
    """A strict write on a table that changed meanwhile is a conflict that names the table and both versions."""
    with pytest.raises(ConflictError) as caught:
        interleave(
            graph,
            lambda tx: tx.update("Person", set={"age": 1}, where="name = 'ada'"),
            lambda: graph.update("Person", set={"age": 2}, where="name = 'bob'"),
            point=POINTS[0],
        )
    assert caught.value.table_key == "node:Person"
    assert (caught.value.actual or 0) > (caught.value.expected or 0)
    assert {n: r["age"] for n, r in by_id(graph, "Person").items() if r["age"]} == {"bob": 2}
    assert_sound(graph.uri)


@pytest.mark.parametrize("pair", ["delete-node / insert-edge", "same id", "most edges", "same unique value"])
def test_two_threads_that_finished_their_checks_together(graph: Graph, pair: str) -> None:
    """Both writers pass their checks before either arms: one commits, the other gets a conflict."""
    line = threading.Barrier(2, timeout=60)
    outcomes: list[OmnigraphError | None] = []

    def writer(write: Write) -> None:
        passed: list[bool] = []

        def hook(phase: Phase, name: str) -> None:
            if (phase, name) == (Phase.VALIDATE, "done") and not passed:
                passed.append(True)
                line.wait()

        try:
            run(graph, write, hook=hook)
            outcomes.append(None)
        except OmnigraphError as e:
            outcomes.append(e)

    threads = [threading.Thread(target=writer, args=(write,)) for write in SKEW[pair]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [e for e in outcomes if e is not None]
    assert len(outcomes) == 2
    assert len(failed) == 1
    assert isinstance(failed[0], ReadSetChangedError | ConflictError)
    assert_sound(graph.uri)


def test_a_refused_writer_may_run_again(graph: Graph) -> None:
    """After a conflict the same operation, run again, sees the other's commit and is judged on it."""
    insert: Write = lambda tx: tx.append("Knows", edges(("ada", "dan")))  # noqa: E731
    with pytest.raises(ReadSetChangedError):
        interleave(graph, insert, lambda: graph.delete("Person", where="name = 'dan'"), point=POINTS[0])
    with pytest.raises(OmnigraphError, match="dst 'dan' not found in Person"):
        run(graph, insert)
    graph.append("Person", persons("dan"))
    run(graph, insert)
    assert "ada-dan" in ids(graph, "Knows")
    assert_sound(graph.uri)
