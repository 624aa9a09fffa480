"""Every operation of the system in one place: how to prepare it, run it, judge it, and what running it again means.

Crash cuts, conflict matrix, interleavings and simulation run over this list; a verb added here gets all of them, and
``test_registry.py`` fails when a public writing method has no entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import lance

from omnigraph_spark import Graph
from omnigraph_spark.errors import AlreadyExistsError, KeyConflictError, OmnigraphError
from omnigraph_spark.storage.config import StorageConfig
from tests.proof.world import (
    SCHEMA,
    Killed,
    Mortal,
    Site,
    World,
    edge,
    empty_world,
    node,
    with_rows,
    without_person,
)


class Kind(str, Enum):
    """The class that decides what a verb conflicts with."""

    ADDITIVE = "additive"
    STRICT = "strict"
    MAINTENANCE = "maintenance"
    RECOVERY = "recovery"
    CREATION = "creation"


@dataclass(frozen=True)
class Start:
    """A starting graph: how it is built, and what a reader of it sees."""

    name: str
    build: Callable[[Site], None]
    world: World | None


@dataclass(frozen=True)
class Verb:
    """One operation. ``expect`` is the oracle; ``refused_again`` is how a repeat ends, None when it may run again."""

    name: str
    kind: Kind
    run: Callable[[Graph], object]
    expect: Callable[[World], World]
    methods: tuple[str, ...]
    start: Start
    refused_again: type[OmnigraphError] | None = None
    starts_sound: bool = True
    tables: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


# -- starting graphs ---------------------------------------------------------------------------------------------------


def _nowhere(_site: Site) -> None:
    return None


def _populate(site: Site) -> None:
    graph = Graph.create(site.uri, schema=SCHEMA, storage=site.storage)
    with graph.transaction(actor="builder") as tx:
        tx.append("Person", [node("ada", age=36, email="ada@x"), node("bob", age=20)])
        tx.append("Company", [node("acme"), node("initech")])
        tx.append("Knows", [edge("ada", "bob", since=1)])
        tx.append("WorksAt", [edge("ada", "acme")])
    # A second commit, so that there are fragments to compact and history to read.
    with graph.transaction(actor="builder") as tx:
        tx.append("Person", [node("cyd", age=50, email="cyd@x"), node("dan")])
        tx.append("Knows", [edge("bob", "cyd", since=2)])


def _base_world() -> World:
    world = with_rows(empty_world(), "Person", node("ada", age=36, email="ada@x"), node("bob", age=20))
    world = with_rows(world, "Person", node("cyd", age=50, email="cyd@x"), node("dan"))
    world = with_rows(world, "Company", node("acme"), node("initech"))
    world = with_rows(world, "Knows", edge("ada", "bob", since=1), edge("bob", "cyd", since=2))
    return with_rows(world, "WorksAt", edge("ada", "acme"))


def _died(point: str) -> Callable[[Site], None]:
    def build(site: Site) -> None:
        _populate(site)
        try:
            _transaction(site.handle(Mortal(at_hook=point).seams()))
        except Killed:
            return
        raise AssertionError(f"no writer died at {point}")

    return build


def _drifted(site: Site) -> None:
    """Somebody who knows Lance and not the graph compacts a table."""
    _populate(site)
    state = site.handle()._begin().manifest.open(branch="main").state
    dataset = lance.dataset(f"{site.uri}/{state.tables[KNOWS].path}", storage_options=_lance_options(site))
    dataset.optimize.compact_files(target_rows_per_fragment=1000)


def _lance_options(site: Site) -> dict[str, str]:
    return StorageConfig.resolve(site.storage).lance_options()


PEOPLE, FIRMS, KNOWS, WORKS = "node:Person", "node:Company", "edge:Knows", "edge:WorksAt"
EMPTY = Start("nowhere", _nowhere, None)
BASE = Start("base", _populate, _base_world())
HALF = Start("half", _died("effect:before:node:Person"), _base_world())
WHOLE = Start("whole", _died("publish:enter"), _base_world())
DRIFT = Start("drift", _drifted, _base_world())

# -- what each verb does -----------------------------------------------------------------------------------------------


def _create(graph: Graph) -> None:
    type(graph).create(graph.uri, schema=SCHEMA, storage=graph._storage)


def _append(graph: Graph) -> None:
    graph.append("Person", [node("eve", age=5, email="eve@x")])


def _append_edge(graph: Graph) -> None:
    graph.append("Knows", [edge("cyd", "dan", since=3)])


def _append_once(graph: Graph) -> None:
    graph.append("Person", [node("ike")], app_id="proof", txn_version=1)


def _merge(graph: Graph) -> None:
    graph.merge("Person", [node("ada", age=37, email="ada@x"), node("fay", age=1, email="fay@x")])


def _overwrite(graph: Graph) -> None:
    graph.overwrite("Company", [node("acme"), node("globex")])


def _update(graph: Graph) -> None:
    graph.update("Person", set={"age": 99}, where="name = 'bob'")


def _delete(graph: Graph) -> None:
    graph.delete("Person", where="name = 'bob'")


def _delete_ids(graph: Graph) -> None:
    with graph.transaction() as tx:
        tx.delete_ids("Person", [{"id": "cyd"}])


def _transaction(graph: Graph) -> None:
    with graph.transaction(actor="teller") as tx:
        tx.append("Person", [node("gus", age=7)])
        tx.merge("Company", [node("umbrella")])
        tx.append("WorksAt", [edge("gus", "umbrella")])


def _transacted(world: World) -> World:
    world = with_rows(world, "Person", node("gus", age=7))
    world = with_rows(world, "Company", node("umbrella"))
    return with_rows(world, "WorksAt", edge("gus", "umbrella"))


def _load(graph: Graph) -> None:
    lines = [
        {"type": "Person", "data": {"name": "hal", "age": 8}},
        {"edge": "Knows", "from": "hal", "to": "ada", "data": {"id": "hal-ada", "since": 4}},
    ]
    graph.load([json.dumps(line) for line in lines], mode="merge")


def _recover(graph: Graph) -> None:
    graph.recover()


def _optimize(graph: Graph) -> None:
    graph.optimize(types=["Person"])


def _cleanup(graph: Graph) -> None:
    graph.cleanup(keep=1, dry_run=False)


def _repair(graph: Graph) -> None:
    graph.repair(confirm=True)


def _same(world: World) -> World:
    return world


VERBS: tuple[Verb, ...] = (
    Verb(
        "create",
        Kind.CREATION,
        _create,
        lambda _: empty_world(),
        methods=("Graph.create",),
        start=EMPTY,
        refused_again=AlreadyExistsError,
    ),
    Verb(
        "append",
        Kind.ADDITIVE,
        _append,
        lambda w: with_rows(w, "Person", node("eve", age=5, email="eve@x")),
        methods=("Graph.append", "Transaction.append"),
        start=BASE,
        refused_again=KeyConflictError,
        tables=(PEOPLE,),
    ),
    Verb(
        "append edge",
        Kind.ADDITIVE,
        _append_edge,
        lambda w: with_rows(w, "Knows", edge("cyd", "dan", since=3)),
        methods=("Graph.append",),
        start=BASE,
        refused_again=KeyConflictError,
        tables=(KNOWS,),
    ),
    Verb(
        "append once",
        Kind.ADDITIVE,
        _append_once,
        lambda w: with_rows(w, "Person", node("ike")),
        methods=("Graph.append",),
        start=BASE,
        tables=(PEOPLE,),
    ),
    Verb(
        "merge",
        Kind.ADDITIVE,
        _merge,
        lambda w: with_rows(w, "Person", node("ada", age=37, email="ada@x"), node("fay", age=1, email="fay@x")),
        methods=("Graph.merge", "Transaction.merge"),
        start=BASE,
        tables=(PEOPLE,),
    ),
    Verb(
        "overwrite",
        Kind.STRICT,
        _overwrite,
        lambda w: {**w, "Company": with_rows(empty_world(), "Company", node("acme"), node("globex"))["Company"]},
        methods=("Graph.overwrite", "Transaction.overwrite"),
        start=BASE,
        tables=(FIRMS,),
    ),
    Verb(
        "update",
        Kind.STRICT,
        _update,
        lambda w: {
            **w,
            "Person": {i: {**r, "age": 99} if i == "bob" else r for i, r in w["Person"].items()},
        },
        methods=("Graph.update", "Transaction.update"),
        start=BASE,
        tables=(PEOPLE,),
    ),
    Verb(
        "delete",
        Kind.STRICT,
        _delete,
        lambda w: without_person(w, "bob"),
        methods=("Graph.delete", "Transaction.delete"),
        start=BASE,
        tables=(PEOPLE, KNOWS),
    ),
    Verb(
        "delete ids",
        Kind.STRICT,
        _delete_ids,
        lambda w: without_person(w, "cyd"),
        methods=("Transaction.delete_ids",),
        start=BASE,
        tables=(PEOPLE, KNOWS),
    ),
    Verb(
        "transaction",
        Kind.ADDITIVE,
        _transaction,
        _transacted,
        methods=("Graph.transaction",),
        start=BASE,
        refused_again=KeyConflictError,
        tables=(PEOPLE, FIRMS, WORKS),
    ),
    Verb(
        "load",
        Kind.ADDITIVE,
        _load,
        lambda w: with_rows(with_rows(w, "Person", node("hal", age=8)), "Knows", edge("hal", "ada", since=4)),
        methods=("Graph.load",),
        start=BASE,
        tables=(PEOPLE, KNOWS),
    ),
    Verb(
        "recover forward",
        Kind.RECOVERY,
        _recover,
        _transacted,
        methods=("Graph.recover",),
        start=WHOLE,
        tables=(PEOPLE, FIRMS, WORKS),
    ),
    Verb(
        "recover back",
        Kind.RECOVERY,
        _recover,
        _same,
        methods=("Graph.recover",),
        start=HALF,
        tables=(PEOPLE, FIRMS, WORKS),
    ),
    Verb(
        "optimize",
        Kind.MAINTENANCE,
        _optimize,
        _same,
        methods=("Graph.optimize",),
        start=BASE,
        tables=(PEOPLE,),
    ),
    Verb("cleanup", Kind.MAINTENANCE, _cleanup, _same, methods=("Graph.cleanup",), start=BASE),
    Verb(
        "repair",
        Kind.MAINTENANCE,
        _repair,
        _same,
        methods=("Graph.repair",),
        start=DRIFT,
        starts_sound=False,
        tables=(KNOWS,),
    ),
)

BY_NAME = {verb.name: verb for verb in VERBS}


def verb(name: str) -> Verb:
    """Return a verb by its name."""
    return BY_NAME[name]
