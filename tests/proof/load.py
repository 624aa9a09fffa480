"""Many one-row writers on one branch, some of them killed all the time: nothing lost, nothing doubled, nobody stuck.

``python -m tests.proof.load --minutes 10`` runs 10 processes of 10 threads on an S3 server (`make load MINUTES=10`).
A writer notes in its own file what it starts and what it was told, so that the notes survive its death.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from omnigraph_spark import Graph
from omnigraph_spark.errors import OmnigraphError, Outcome
from omnigraph_spark.write.settings import WindowSettings
from tests.proof.world import Site
from tests.rig.s3_server import S3Server
from tests.soundness import assert_sound

SCHEMA = "node Entry { name: String @key }"
SETTINGS = WindowSettings(grace=3.0, timeout=20.0, patience=120.0)
BOUND = 25.0  # seconds beyond the grace: polling, the owner's own timeout, and a machine with few cores
_TABLE = "Entry"


@dataclass(frozen=True)
class Size:
    """How much load, for how long."""

    processes: int
    threads: int
    seconds: float
    kill_every: float
    kills: int = 0  # go on until there were so many


@dataclass
class Fleet:
    """The writer processes, and their killer."""

    site: Site
    size: Size
    notes: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)  # by process id
    started: int = 0
    kills: int = 0

    def start(self) -> None:
        """Start one more writer process."""
        self.started += 1
        order = {
            "uri": self.site.uri,
            "storage": dict(self.site.storage),
            "threads": self.size.threads,
            "name": f"p{self.started}",
            "notes": str(self.notes),
        }
        process = subprocess.Popen([sys.executable, "-m", "tests.proof.load", "--writer", json.dumps(order)])
        self.names[process.pid] = f"p{self.started}"
        self.running.append(process)

    def at_work(self) -> bool:
        """Say whether every process has been told of a write: starting one takes long on a busy machine."""
        told = {path.name.split("-")[0] for path in self.notes.glob("*.log") if "\ntold" in path.read_text()}
        return told >= {self.names[process.pid] for process in self.running}

    def kill_one(self, rng: random.Random) -> None:
        """Kill a writer process and start another."""
        victim = self.running.pop(rng.randrange(len(self.running)))
        victim.kill()
        victim.wait()
        self.kills += 1
        self.start()

    def stop(self) -> None:
        """Let every writer finish what it does; the stragglers are killed."""
        (self.notes / "stop").touch()
        until = time.monotonic() + SETTINGS.grace + BOUND + 10 * self.size.threads
        for process in self.running:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class WindowWatch:
    """Looks at the window all the time and remembers the longest stay of one owner."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._seen: tuple[int, str] | None = None
        self._since = 0.0
        self.longest = 0.0

    def look(self) -> None:
        """Look once."""
        epoch = self._site.handle()._begin().manifest.open(branch="main").state.epoch
        now = time.monotonic()
        owner = (epoch.number, epoch.operation_id) if epoch is not None and epoch.in_window else None
        if owner != self._seen:
            self._seen, self._since = owner, now
        elif owner is not None:
            self.longest = max(self.longest, now - self._since)


@dataclass(frozen=True)
class Outcomes:
    """What was started and told."""

    started: set[str]
    told: Mapping[str, str]

    @classmethod
    def read(cls, notes: Path) -> Outcomes:
        """Collect all notes; a line cut off by a death is a start nobody finished."""
        started: set[str] = set()
        told: dict[str, str] = {}
        for path in notes.glob("*.log"):
            for line in path.read_text().splitlines():
                kind, _, rest = line.partition(" ")
                name, _, outcome = rest.partition(" ")
                if kind == "start":
                    started.add(name)
                elif kind == "told" and outcome:
                    told[name] = outcome.split(" ")[0]
        return cls(started, told)

    def check(self, present: list[str]) -> None:
        """Nothing told committed is missing, nothing told refused is there, nothing is there twice."""
        counts = Counter(present)
        assert not [n for n, c in counts.items() if c > 1], "rows are there twice"
        assert set(counts) <= self.started, "rows nobody wrote"
        lost = [n for n, outcome in self.told.items() if outcome == Outcome.COMMITTED.value and n not in counts]
        assert not lost, f"{len(lost)} rows told committed are lost: {lost[:5]}"
        lies = [n for n, outcome in self.told.items() if outcome == Outcome.NOT_COMMITTED.value and n in counts]
        assert not lies, f"{len(lies)} rows told not committed are there: {lies[:5]}"


def run_load(site: Site, size: Size, *, seed: int = 1) -> dict[str, object]:
    """Run the load and check everything; returns figures."""
    Graph.create(site.uri, schema=SCHEMA, storage=site.storage)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(site, size, Path(folder))
        watch = WindowWatch(site)
        for _ in range(size.processes):
            fleet.start()
        begun = time.monotonic()
        next_kill = begun + size.kill_every
        try:
            while time.monotonic() < begun + size.seconds or fleet.kills < size.kills:
                watch.look()
                if time.monotonic() >= next_kill and fleet.at_work():
                    next_kill = time.monotonic() + size.kill_every
                    fleet.kill_one(rng)
                time.sleep(0.2)  # how often the window is looked at; nothing waits for this
        finally:
            fleet.stop()
        outcomes = Outcomes.read(Path(folder))
    site.opened().recover()
    return _judge(site, size, outcomes, fleet=fleet, watch=watch)


def _judge(site: Site, size: Size, outcomes: Outcomes, *, fleet: Fleet, watch: WindowWatch) -> dict[str, object]:
    graph = site.handle()
    present: list[str] = graph.to_arrow(_TABLE, columns=["id"])["id"].to_pylist()
    outcomes.check(present)
    assert_sound(site.uri, site.storage)  # the history is one line, among others
    commits = [c for c in graph.history() if c.actor != "omnigraph:recovery"]
    assert len(commits) == len(present) + 1, "a row and a commit for each write"
    assert watch.longest <= SETTINGS.grace + BOUND, f"one owner kept the window for {watch.longest:.1f} s"
    return {
        "writers": size.processes * size.threads,
        "seconds": size.seconds,
        "started": len(outcomes.started),
        "rows": len(present),
        "told": dict(Counter(outcomes.told.values())),
        "kills": fleet.kills,
        "longest window": round(watch.longest, 2),
    }


def _writer(order: dict[str, object]) -> None:
    storage = order["storage"]
    assert isinstance(storage, dict)
    site = Site(str(order["uri"]), storage, SETTINGS)
    threads = [threading.Thread(target=_write_rows, args=(site, order, n)) for n in range(int(str(order["threads"])))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _write_rows(site: Site, order: dict[str, object], number: int) -> None:
    notes = Path(str(order["notes"]))
    count = 0
    with (notes / f"{order['name']}-{number}.log").open("w", buffering=1) as log:
        while not (notes / "stop").exists():
            count += 1
            name = f"{order['name']}-{number}-{count}"
            log.write(f"start {name}\n")
            try:
                site.handle().append(_TABLE, [{"name": name}])
                log.write(f"told {name} {Outcome.COMMITTED.value}\n")
            except OmnigraphError as e:
                log.write(f"told {name} {e.outcome.value} {e.code}\n")


def main() -> None:
    """Run the load, or be one of its writers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writer")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--threads", type=int, default=10)
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if chosen.writer is not None:
        _writer(json.loads(chosen.writer))
        return
    with S3Server() as server:
        site = Site(f"s3://{server.new_bucket()}/load", server.storage_options(), SETTINGS)
        size = Size(chosen.processes, chosen.threads, 60 * chosen.minutes, kill_every=10.0)
        print(json.dumps(run_load(site, size)))


if __name__ == "__main__":
    main()
