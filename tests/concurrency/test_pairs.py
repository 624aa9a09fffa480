"""Every ordered pair of changes, prepared against one base and committed one after the other, for real.

The table below is the contract of the operation classes: additive changes rebase, strict ones (delete, overwrite)
refuse a logical advance and pass maintenance. Whatever the verdict, the graph stays sound and goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import lance
import pytest
from lance.optimize import Compaction

from omnigraph_spark.errors import ConflictError
from omnigraph_spark.storage.lance_errors import LanceConflictError, classify
from omnigraph_spark.write.actions import TableAction
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.txn import WriteTxn
from tests.places import Place
from tests.soundness import assert_sound
from tests.writer_process import (
    append,
    authority_for,
    plan_of,
    stage_append,
    stage_delete,
    stage_overwrite,
    stage_upsert,
)

PERSON = "node:Person"
BASE = ["a", "b", "c", "d"]
Commit = Callable[[], None]
KINDS = ("append", "upsert", "overwrite", "delete", "compaction", "index")
MAINTENANCE = ("compaction", "index")


@dataclass(frozen=True)
class Side:
    """What one side of a pair works on; the two sides touch different rows."""

    new: str
    known: str
    age: int


FIRST, SECOND = Side("n1", "a", 1), Side("n2", "c", 2)
# (first, second) → verdict of the second; everything not listed lands.
REFUSED = {
    **{(first, "delete"): "conflict" for first in ("append", "upsert", "overwrite", "delete")},
    **{(first, "overwrite"): "conflict" for first in ("append", "upsert", "overwrite", "delete")},
    ("overwrite", "upsert"): "conflict",  # the rows it replaces are gone
    # Maintenance outside the protocol is Lance's own business: it loses to changes of the fragments it rewrote.
    ("upsert", "compaction"): "lost",
    ("overwrite", "compaction"): "lost",
    ("delete", "compaction"): "lost",
    ("compaction", "compaction"): "lost",
    ("index", "compaction"): "lost",
    ("compaction", "index"): "lost",
}


def prepare(place: Place, kind: str, side: Side) -> Commit:
    """Prepare a change against the base as it is now; calling the result commits it."""
    if kind in MAINTENANCE:
        return prepare_maintenance(place, kind, side)
    authority = authority_for(place.uri)
    txn = authority.open_txn(branch="main")
    plan = plan_of(authority, txn, [STAGE[kind](authority, txn, side)], strict=STRICT.get(kind, ()))
    return lambda: _discard(authority.publish(plan))


STRICT = {"overwrite": (PERSON,), "delete": (PERSON,)}
STAGE: dict[str, Callable[[PublishAuthority, WriteTxn, Side], TableAction]] = {
    "append": lambda a, t, s: stage_append(a, t, PERSON, [s.new]),
    "upsert": lambda a, t, s: stage_upsert(a, t, PERSON, known=[s.known], new=[s.new], age=s.age),
    "overwrite": lambda a, t, s: stage_overwrite(a, t, PERSON, [s.new]),
    "delete": lambda a, t, s: stage_delete(a, t, PERSON, [s.known]),
}


def prepare_maintenance(place: Place, kind: str, side: Side) -> Commit:
    """Prepare maintenance the way somebody outside the protocol does: straight on the Lance table, unpublished."""
    dataset = lance.dataset(place.builder.uri(place.builder.snapshot()[PERSON].path))
    if kind == "index":
        return lambda: dataset.create_scalar_index("id", "BTREE", name=f"by_{side.new}", replace=False)
    results = [task.execute(dataset) for task in Compaction.plan(dataset, {}).tasks]
    return lambda: _discard(Compaction.commit(dataset, results))


def _discard(_: object) -> None:
    return None


def verdict(commit: Commit) -> str:
    """Commit and name what happened."""
    try:
        commit()
    except ConflictError as e:
        return "conflict" if (e.retryable, e.outcome.value) == (True, "not_committed") else repr(e)
    except OSError as e:
        return "lost" if isinstance(classify(e, uri=""), LanceConflictError) else repr(e)
    return "ok"


def expected_rows(rows: dict[str, int | None], kind: str, side: Side) -> dict[str, int | None]:
    """Apply one change to the oracle."""
    if kind == "append":
        return {**rows, side.new: None}
    if kind == "upsert":
        return {**rows, side.known: side.age, side.new: side.age}
    if kind == "overwrite":
        return {side.new: None}
    if kind == "delete":
        return {k: v for k, v in rows.items() if k != side.known}
    return rows


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_an_ordered_pair(local_graph: Place, first: str, second: str) -> None:
    """The first lands; the second gets the verdict of the table; rows are exactly those of what landed."""
    append(local_graph.uri, {PERSON: BASE[:2]})
    append(local_graph.uri, {PERSON: BASE[2:]})
    one, two = prepare(local_graph, first, FIRST), prepare(local_graph, second, SECOND)
    assert verdict(one) == "ok"
    got = verdict(two)
    assert got == REFUSED.get((first, second), "ok")
    rows = expected_rows(dict.fromkeys(BASE), first, FIRST)
    if got == "ok":
        rows = expected_rows(rows, second, SECOND)
    # Maintenance from outside is published by the next write that passes it.
    append(local_graph.uri, {PERSON: ["after"]})
    rows["after"] = None
    table = local_graph.open(read_only=True).to_arrow("Person")
    assert dict(zip(table["id"].to_pylist(), table["age"].to_pylist(), strict=True)) == rows
    assert table.num_rows == len(rows)
    assert_sound(local_graph)


@pytest.mark.parametrize("second", ["overwrite", "delete"])
def test_a_strict_change_passes_published_maintenance(local_graph: Place, second: str) -> None:
    """A compaction that somebody's write has published meanwhile, alone, is no conflict for a stale strict change."""
    append(local_graph.uri, {PERSON: BASE[:2]})
    append(local_graph.uri, {PERSON: BASE[2:]})
    strict = prepare(local_graph, second, SECOND)
    builder = local_graph.builder
    prepare(local_graph, "compaction", FIRST)()
    pin = builder.snapshot()[PERSON]
    head = lance.dataset(builder.uri(pin.path))
    builder.publish_rows([builder._version_row(builder._moved(pin, dataset=head))], actor="optimizer")
    assert verdict(strict) == "ok"
    table = local_graph.open(read_only=True).to_arrow("Person")
    assert sorted(table["id"].to_pylist()) == (["n2"] if second == "overwrite" else ["a", "b", "d"])
    assert_sound(local_graph)


def test_a_strict_change_passes_a_rollback(local_graph: Place) -> None:
    """The Restore a rollback leaves keeps every row, so a stale strict change lands after it."""
    append(local_graph.uri, {PERSON: BASE})
    strict = prepare(local_graph, "delete", SECOND)
    authority = authority_for(local_graph.uri, grace=0.2)
    txn = authority.open_txn(branch="main")
    plan = plan_of(authority, txn, [stage_append(authority, txn, PERSON, ["never"])])
    authority.sidecars.put(plan.attempt("01DEADBEFORECLAIM"))
    (result,) = authority.recover()
    assert result.kind == "RolledBack"
    assert verdict(strict) == "ok"
    assert sorted(local_graph.open(read_only=True).to_arrow("Person")["id"].to_pylist()) == ["a", "b", "d"]
    assert_sound(local_graph)
