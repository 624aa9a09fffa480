"""Two operations, one inside the other: X is prepared, Y commits, X commits. No threads: Y runs where X is held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import lance
from lance.optimize import Compaction

from omnigraph_spark.errors import OmnigraphError
from omnigraph_spark.storage.lance_errors import typed
from omnigraph_spark.storage.seams import Phase, Seams
from tests.proof.registry import BASE, VERBS, Kind, Start, Verb
from tests.proof.world import Site, World, node
from tests.soundness import assert_sound

COMMITS = "commits"
Meanwhile = Callable[[], None]


@dataclass(frozen=True)
class Operation:
    """Something that commits: a verb of ours, or maintenance by a Lance client that does not know the protocol."""

    name: str
    verb: Verb | None = None
    outside: Callable[[lance.LanceDataset, Meanwhile], None] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def start(self) -> Start:
        """The graph it starts from."""
        return self.verb.start if self.verb is not None and self.verb.start.world is not None else BASE

    def expect(self, world: World) -> World:
        """Return the world after it committed; maintenance changes no row."""
        return world if self.verb is None else self.verb.expect(world)

    def run(self, site: Site, *, meanwhile: Meanwhile | None = None) -> str:
        """Run it, with something else between its preparation and its commit; returns what came of it."""
        gate = _Once(meanwhile)
        try:
            if self.verb is None:
                assert self.outside is not None
                dataset = lance.dataset(_people(site))
                with typed(dataset.uri):
                    self.outside(dataset, gate)
            else:
                self._run_verb(self.verb, site, gate)
        except OmnigraphError as e:
            gate()  # refused before it could be held
            return e.code
        return COMMITS

    def _run_verb(self, verb: Verb, site: Site, gate: _Once) -> None:
        held_at = (Phase.RECOVER, "enter") if verb.kind is Kind.RECOVERY else (Phase.ARM, "enter")
        if verb.kind is Kind.CREATION:
            gate()  # refused before it prepares anything

        def hook(phase: Phase, point: str) -> None:
            if (phase, point) == held_at:
                gate()

        def fault(_operation: str, _target: str) -> None:
            if verb.kind is Kind.MAINTENANCE:
                gate()  # it has looked at everything and changed nothing

        verb.run(site.handle(Seams(hook=hook, fault=fault)))
        assert gate.passed or gate.idle, f"{verb.name} was never held"


class _Once:
    def __init__(self, job: Meanwhile | None) -> None:
        self._job = job
        self.idle = job is None
        self.passed = False

    def __call__(self) -> None:
        job, self._job, self.passed = self._job, None, True
        if job is not None:
            job()


def _people(site: Site) -> str:
    """Return where the persons are, as somebody who only knows Lance would open them."""
    reader = site.handle()._begin()
    state = reader.manifest.open(branch="main").state
    return f"{site.uri}/{state.tables['node:Person'].path}"


def _compact(dataset: lance.LanceDataset, meanwhile: Meanwhile) -> None:
    plan = Compaction.plan(dataset, {"target_rows_per_fragment": 1000})
    rewritten = [task.execute(dataset) for task in plan.tasks]
    assert rewritten, "nothing to compact"
    meanwhile()
    Compaction.commit(dataset, rewritten)


def _index(dataset: lance.LanceDataset, meanwhile: Meanwhile) -> None:
    meanwhile()
    dataset.create_scalar_index("id", "BTREE")


OPERATIONS: tuple[Operation, ...] = (
    *(Operation(verb.name, verb) for verb in VERBS),
    Operation("outside compaction", outside=_compact),
    Operation("outside index", outside=_index),
)


def start_of(first: Operation, second: Operation) -> Start:
    """Return the starting graph of a pair: the one a recovery needs, if there is one."""
    return second.start if first.start is BASE else first.start


def run_pair(first: Operation, second: Operation, site: Site) -> tuple[str, str]:
    """Prepare ``first``, commit ``second``, commit ``first``; check rows and soundness; returns both verdicts."""
    start = start_of(first, second)
    between: list[str] = []
    verdict = first.run(site, meanwhile=lambda: between.append(second.run(site)))
    assert start.world is not None
    expected = start.world
    for operation, what in ((second, between[0]), (first, verdict)):
        if what == COMMITS and operation.start in (BASE, start):  # elsewhere it finds nothing to do
            expected = operation.expect(expected)
    site.opened().recover()
    assert site.world() == expected, f"{first} over {second}: rows differ after {verdict}, {between}"
    if first.verb is None or second.verb is None:
        # Versions from outside are published by the next write of that table.
        site.handle().merge("Person", [node("dan")])
        assert site.world() == expected
    assert_sound(site.uri)
    return verdict, between[0]
