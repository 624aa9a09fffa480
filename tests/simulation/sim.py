"""A seeded world: actors on one graph, a killer, stalls that outlast the grace, and laws checked all the time.

One seed is one schedule: it decides who runs next at every seam, who dies, who sleeps past the grace (so that others
take its window over) and what everybody does. ``python -m tests.simulation.sim --seed 1`` runs one and prints its steps
with ``--trace``; ``--seeds 1000 --first 1`` runs many.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from omnigraph_spark import Graph
from omnigraph_spark.errors import NotFoundError, OmnigraphError, StorageError
from omnigraph_spark.read.snapshot import Moment
from omnigraph_spark.storage.seams import Seams
from omnigraph_spark.write.settings import WindowSettings
from tests.proof.laws import assert_epochs_rise
from tests.proof.world import Site, one_thread, seamed
from tests.simulation.bank import Ledger, Teller, audit, found_bank, read_bank
from tests.simulation.baton import Actor, Clock, awake
from tests.soundness import assert_sound

_MOST_STEPS = 6_000
PATIENT = WindowSettings(grace=20.0, timeout=10.0, patience=100_000.0)
# A fencer does not wait for anybody: it takes the window of a living writer over as soon as it has seen it twice.
FENCER = WindowSettings(grace=0.001, timeout=10.0, patience=100_000.0)
VERBS = ("transfer", "transfer", "enrol", "load", "link", "leave", "tidy", "clean", "recover")


@dataclass
class World:
    """One run."""

    seed: int
    root: Path
    trace: bool = False
    clock: Clock = field(default_factory=Clock)
    ledger: Ledger = field(default_factory=Ledger)
    counts: Counter[str] = field(default_factory=Counter)
    steps: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Play the seed and check everything; raises on the first broken law."""
        self.rng = random.Random(self.seed)
        self.uri = str(self.root / f"sim-{self.seed}")
        found_bank(self.uri)
        actors = [self._actor(f"w{n}") for n in range(self.rng.randint(2, 5))]
        actors.append(self._watch("reader"))
        deaths, stalls = self.rng.randint(0, 5), self.rng.randint(0, 6)
        for _ in range(_MOST_STEPS):
            ready = awake(actors, self.clock)
            if not ready:
                break
            chosen = self.rng.choice(ready)
            roll = self.rng.random()
            if roll < 0.012 and deaths and chosen.name.startswith("w"):
                deaths -= 1
                self._note(f"{chosen.name} dies at {chosen.at}")
                self.counts["deaths"] += 1
                chosen.kill()
                actors.append(self._actor(f"{chosen.name}+"))
            elif roll < 0.03 and stalls:
                stalls -= 1
                self.counts["stalls"] += 1
                chosen.wakes = self.clock.now + self.rng.choice((1.0, 15.0, 50.0, 200.0))
                self._note(f"{chosen.name} sleeps until {chosen.wakes:.0f} at {chosen.at}")
            else:
                self._note(f"{chosen.name} → {chosen.run()}")
            if chosen.error is not None:
                raise chosen.error
        else:
            raise AssertionError(f"not finished after {_MOST_STEPS} steps: {[(a.name, a.at) for a in actors]}")
        self._finish()

    def _note(self, text: str) -> None:
        self.counts["steps"] += 1
        self.steps.append(text)
        if self.trace:
            print(f"{self.clock.now:8.2f} {text}")

    def _handle(self, seams: Seams, settings: WindowSettings = PATIENT) -> Graph:
        return seamed(seams)(self.uri, moment=Moment(), settings=settings)

    def _actor(self, name: str) -> Actor:
        rng = random.Random(self.rng.random())
        settings = FENCER if rng.random() < 0.2 else PATIENT
        plan = [rng.choice(VERBS) for _ in range(rng.randint(1, 4))]

        def work(seams: Seams) -> None:
            teller = Teller(self._handle(seams, settings), self.ledger, rng, name)
            for verb in plan:
                seams.wait(rng.uniform(0.0, 1.0))
                self.counts[verb] += 1
                teller.run(verb)

        return Actor(name, work, clock=self.clock, rng=rng)

    def _watch(self, name: str) -> Actor:
        """A reader that keeps one version for its life, and an auditor of every version it meets."""
        rng = random.Random(self.rng.random())

        def work(seams: Seams) -> None:
            for _ in range(4):
                view = self._handle(seams).at()
                first = read_bank(view)
                audit(first)
                seams.wait(rng.choice((0.0, 0.2, 30.0)))
                try:
                    again = read_bank(view)
                except (NotFoundError, StorageError):
                    assert self.counts["clean"], "a version disappeared and nobody cleaned"
                    continue
                assert again == first, f"version {view.version} changed while it was read (INV-14)"
                self.counts["reads"] += 1

        return Actor(name, work, clock=self.clock, rng=rng)

    def _finish(self) -> None:
        site = Site(self.uri)
        site.opened().recover()
        rows = read_bank(Graph.open(self.uri, read_only=True).at())
        audit(rows)
        self.ledger.check(rows)
        self._settle_residue(site)
        assert_sound(self.uri)
        assert_epochs_rise(site)
        assert site.handle().recover() == []

    def _settle_residue(self, site: Site) -> None:
        """Write to every table once when somebody who slept past the grace left a late version.

        Two kinds can happen: a recoverer's own Restore, which no fence stops, and an effect whose fence cleanup took
        away. Nobody reads them, they name their old epoch, and the next window undoes them: what remains must be sound
        without exception, and no row may have changed.
        """
        report = site.handle().verify()
        if report.ok:
            return
        for finding in report.findings:
            late = "(Restore)" in finding.message or self.counts["clean"]
            assert finding.severity != "error" or (finding.check == "drift" and late), repr(report)
        self.counts["residue"] += 1
        with site.handle().transaction() as tx:
            tx.append("Receipt", [{"name": "closing", "payer": "a0", "payee": "a1", "amount": 0}])
            tx.merge("Account", [{"name": "closing", "balance": 0}])
            tx.append("Owner", [{"name": "closing"}])
            tx.append("Holds", [{"id": "closing", "src": "closing", "dst": "closing"}])
        before, after = (read_bank(site.handle().at(version=v)) for v in self._last_two(site))
        assert {t: {i: r for i, r in rows.items() if i != "closing"} for t, rows in after.items()} == before

    @staticmethod
    def _last_two(site: Site) -> tuple[int, int]:
        newest, *older = site.handle().history()
        # The window that undid the residue published that first, as a commit of its own.
        return older[0].graph_version, newest.graph_version


def play(seed: int, root: Path, *, trace: bool = False) -> World:
    """Run one seed below a directory and remove its graph."""
    world = World(seed, root, trace=trace)
    with one_thread():
        world.run()
    shutil.rmtree(world.uri)
    return world


def main(arguments: list[str] | None = None) -> int:
    """Run seeds from the command line; exit code 1 when one breaks a law."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after this long")
    chosen = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    seeds = [chosen.seed] if chosen.seed is not None else range(chosen.first, chosen.first + chosen.seeds)
    return _play_all(list(seeds), trace=chosen.trace, until=time.monotonic() + 60 * chosen.minutes)


def _play_all(seeds: list[int], *, trace: bool, until: float) -> int:
    total: Counter[str] = Counter()
    broken: list[int] = []
    done = 0
    base = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    for seed in seeds:
        if time.monotonic() > until:
            break
        done += 1
        try:
            world = play(seed, base, trace=trace)
            total += world.counts + world.ledger.ends
        except (AssertionError, OmnigraphError) as e:
            broken.append(seed)
            print(f"seed {seed} breaks a law: {type(e).__name__}: {str(e)[:2000]}", flush=True)
        if done % 50 == 0:
            print(f"{done} seeds, {len(broken)} broken", flush=True)
    shutil.rmtree(base, ignore_errors=True)
    print(f"{done} seeds, {len(broken)} broken {broken}; " + ", ".join(f"{k} {v}" for k, v in sorted(total.items())))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
