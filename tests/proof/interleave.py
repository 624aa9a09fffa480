"""Two operations stepped from gate to gate in a chosen order, and what must hold whatever the order was."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from omnigraph_spark.errors import ConflictError, OmnigraphError, Outcome, ValidationError
from omnigraph_spark.storage.seams import Seams
from omnigraph_spark.write.settings import WindowSettings
from tests.proof.laws import assert_epochs_rise
from tests.proof.registry import BASE, Verb, verb
from tests.proof.world import Site, World
from tests.simulation.baton import Actor, Clock
from tests.soundness import assert_sound

PHASES = frozenset(
    f"{p}:enter" for p in ("capture", "stage", "validate", "arm", "effect", "publish", "retire", "recover")
)
_INSIDE = ("arm:claimed", "recover:", "fence", "put ")
_MOST_STEPS = 2_000
_MOST_TAKEOVERS = 6
SETTINGS = WindowSettings(grace=100.0, timeout=1e6, patience=1e6)


def all_schedules(a: int, b: int) -> list[str]:
    """Return every order of so many gates of A and B."""
    chosen = itertools.combinations(range(a + b), a)
    return ["".join("A" if i in picks else "B" for i in range(a + b)) for picks in chosen]


def some_schedules(a: int, b: int, *, count: int) -> list[str]:
    """Return a fixed choice of orders."""
    rng = random.Random(count)
    return ["".join(rng.sample("A" * a + "B" * b, a + b)) for _ in range(count)]


def gates(duel: Duel, verb: Verb, site: Site) -> int:
    """Return how many gates a verb passes when it is alone."""
    clock, ends = Clock(), dict[str, str]()
    actor = Actor("alone", _work(verb, site, ends, "alone"), clock=clock, rng=random.Random(0))
    passed = -1
    while not actor.done:
        _to_next_gate(actor, clock, duel=duel, patient=False)
        passed += 1
    if actor.error is not None:
        raise actor.error
    return passed


@dataclass(frozen=True)
class Duel:
    """Two verbs, and whether a wait outlasts the grace: then a waiter takes the window of a living owner over."""

    first: str
    second: str
    takeover: bool = False

    def __str__(self) -> str:
        return f"{self.first} and {self.second}{' with takeover' if self.takeover else ''}"

    @property
    def verbs(self) -> tuple[Verb, Verb]:
        """Both verbs."""
        return verb(self.first), verb(self.second)


def fight(duel: Duel, schedule: str, site: Site) -> tuple[str, str]:
    """Run one schedule; returns how both ended."""
    clock = Clock()
    ends: dict[str, str] = {}
    actors = {
        letter: Actor(letter, _work(v, site, ends, letter), clock=clock, rng=random.Random(ord(letter)))
        for letter, v in zip("AB", duel.verbs, strict=True)
    }
    slow = 0
    rounds = itertools.chain(schedule, itertools.cycle("AB"))
    for letter in itertools.islice(rounds, _MOST_STEPS):
        if all(a.done for a in actors.values()):
            break
        if not actors[letter].done:
            slow += _to_next_gate(actors[letter], clock, duel=duel, patient=slow >= _MOST_TAKEOVERS)
    for actor in actors.values():
        if actor.error is not None:
            raise actor.error
        assert actor.done, f"{schedule}: {actor.name} is still at {actor.at}"
    _judge(duel, site, ends)
    return ends["A"], ends["B"]


def _to_next_gate(actor: Actor, clock: Clock, *, duel: Duel, patient: bool) -> bool:
    """Run to the next gate; a waiting actor has used its turn, so an order nobody can follow is simply skipped.

    Returns whether a wait outlasted the grace; two that outlast each other for ever would never get anywhere.
    """
    while True:
        at = actor.run()
        if at == "wait":
            clock.now += 2 * SETTINGS.grace if duel.takeover and not patient else 0.02
            return duel.takeover
        if actor.done or at in PHASES or (duel.takeover and at.startswith(_INSIDE)):
            return False


def _work(verb: Verb, site: Site, ends: dict[str, str], letter: str) -> Callable[[Seams], None]:
    def work(seams: Seams) -> None:
        try:
            verb.run(Site(site.uri, site.storage, SETTINGS).handle(seams))
            ends[letter] = "commits"
        except (ConflictError, ValidationError) as e:  # too late, or visibly too late
            ends[letter] = e.code if e.outcome is Outcome.NOT_COMMITTED else f"{e.code} {e.outcome.value}"
        except OmnigraphError as e:
            raise AssertionError(f"{verb.name} ended in {e}") from e

    return work


def _judge(duel: Duel, site: Site, ends: dict[str, str]) -> None:
    first, second = duel.verbs
    landed = [v for v, letter in ((first, "A"), (second, "B")) if ends[letter] == "commits"]
    assert landed, f"{duel}: both were refused: {ends}"
    assert not any("unknown" in end or "committed" in end for end in ends.values()), ends
    site.opened().recover()
    world = site.world()
    start = first.start if first.start is not BASE else second.start
    assert start.world is not None
    assert world in [_serial(start.world, order) for order in itertools.permutations(landed)], f"{duel}: {ends}"
    assert_sound(site.uri)
    assert_epochs_rise(site)
    assert site.handle().recover() == []


def _serial(world: World, order: Sequence[Verb]) -> World:
    for done in order:
        world = done.expect(world)
    return world
