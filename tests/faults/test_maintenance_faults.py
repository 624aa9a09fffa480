"""``kill -9`` of optimize, cleanup and repair at every point: the graph stays sound, and the next run finishes."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from pathlib import Path

import pytest

from omnigraph_spark import Graph, RecoveryError
from omnigraph_spark.maintenance.cleanup import cleanup_graph
from omnigraph_spark.maintenance.optimize import Optimizer
from tests.places import Place
from tests.soundness import assert_sound
from tests.unit.maintenance.upkeep import KNOWS, PERSON, WEEK, authority, created, crowd, names, person, table
from tests.upkeep_process import run
from tests.writer_process import start

OPTIMIZE = [
    f"stage:planned:{PERSON}",
    f"stage:compacted:{PERSON}",
    "arm:armed",
    "arm:claimed",
    "effect:enter",
    f"effect:after:{PERSON}",
    "publish:enter",
    "retire:enter",
    f"stage:indexed:{PERSON}",
    f"stage:indexed:{KNOWS}",
    f"effect:after:{KNOWS}",
]
LANDED = (f"effect:after:{PERSON}", f"effect:after:{KNOWS}", "publish:enter")
ARMED = ("arm:armed", "arm:claimed", "effect:enter")
CLEANUP = [
    ("fence ", 1),
    ("fence.done ", 1),
    ("put omnigraph-boundary", 1),
    ("put.done omnigraph-boundary", 1),
    ("delete 1844", 1),
    ("delete.done 1844", 20),
    ("delete 0", 1),
]
REPAIR = [("arm:armed", 1), ("swap.done ", 1), ("swap ", 2), ("swap.done ", 2)]


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph in need of upkeep, made once."""
    place = Place(str(tmp_path_factory.mktemp("worn") / "graph"))
    graph = created(place)
    crowd(graph, commits=6)
    graph.merge("Person", [person("p1", age=50)])
    return Path(place.uri)


@pytest.fixture
def place(worn: Path, tmp_path: Path) -> Place:
    """A copy of it to break."""
    shutil.copytree(worn, tmp_path / "graph")
    return Place(str(tmp_path / "graph"))


@pytest.mark.parametrize("point", OPTIMIZE)
def test_killed_optimize_loses_nothing(place: Place, point: str) -> None:
    """The next writer recovers it forward or back, rows are as before, and a second optimize finishes the work."""
    before = Graph.open(place.uri, read_only=True).to_arrow("Person").sort_by("id")
    assert run(place.uri, {"verb": "optimize", "die": point}) == -signal.SIGKILL
    reading = Graph.open(place.uri, read_only=True)
    assert reading.to_arrow("Person").sort_by("id") == before
    resolved = [result.kind for result in authority(place).recover()]
    # Compaction whose version landed is finished; one that did not get so far is undone (INV-06).
    assert point not in LANDED or resolved == ["RolledForward"]
    assert point not in ARMED or resolved == ["RolledBack"]
    graph = Graph.open(place.uri, window_grace=0.3)
    graph.append("Person", [person("alive")])
    graph.optimize()
    assert names(graph) == sorted([*before["id"].to_pylist(), "alive"])
    assert names(graph, where="age = 50") == ["p1"]
    assert len(table(graph, PERSON).get_fragments()) <= 2
    assert {"id_idx", "age_idx"} <= {i.name for i in table(graph, PERSON).describe_indices()}
    assert_sound(place)


@pytest.mark.parametrize(("point", "nth"), CLEANUP)
def test_killed_cleanup_leaves_a_sound_graph(place: Place, point: str, nth: int) -> None:
    """What is retained reads, writers go on, and a second cleanup removes the rest."""
    graph = Graph.open(place.uri)
    seen = {c.graph_version: names(graph, version=c.graph_version) for c in graph.history(2)}
    assert run(place.uri, {"verb": "cleanup", "die": point, "nth": nth}) == -signal.SIGKILL
    assert_sound(place)
    for version, rows in seen.items():
        assert names(graph, version=version) == rows
    graph.append("Person", [person("alive")])
    cleanup_graph(authority(place, ahead=WEEK), keep=2, dry_run=False)
    assert not cleanup_graph(authority(place, ahead=WEEK), keep=2).versions_deleted
    assert len(names(graph)) == 13
    assert_sound(place)


@pytest.mark.parametrize(("point", "nth"), REPAIR)
def test_killed_repair_is_all_or_nothing(place: Place, point: str, nth: int) -> None:
    """Two drifted tables are published together or not at all; run again, both are."""
    graph = Graph.open(place.uri)
    for key in (PERSON, KNOWS):
        table(graph, key).optimize.compact_files()
    assert run(place.uri, {"verb": "repair", "die": point, "nth": nth}) == -signal.SIGKILL
    authority(place).recover()
    drifted = {row.table_key for row in graph.repair().drifted}
    assert drifted in (set(), {PERSON, KNOWS})
    graph.repair(confirm=True)
    assert not graph.repair().drifted
    graph.append("Person", [person("alive")])
    assert_sound(place)


def test_everything_at_once(tmp_path: Path) -> None:
    """Two processes write while this one optimizes and cleans behind them: every write commits once, all is sound."""
    place = Place(str(tmp_path / "graph"))
    graph = created(place, pg="node Person { name: String @key  age: I32? }")
    orders = [{"writes": [{PERSON: [f"{w}{n}"]} for n in range(12)]} for w in "ab"]
    writers = [start(place.uri, order) for order in orders]
    rounds = removed = 0
    while any(writer.poll() is None for writer in writers):
        with contextlib.suppress(RecoveryError):  # a record was there for the whole grace: refused, as it must be
            rounds += 1
            removed += sum(r.fragments_removed for r in Optimizer(authority(place)).run())
            # Two seconds ahead: everything is past the floor, and nothing staged is a week old.
            cleanup_graph(authority(place, ahead=2_000_000), keep=2, dry_run=False)
    answers = [json.loads(writer.communicate(timeout=60)[0]) for writer in writers]
    assert all("commit" in answer for answered in answers for answer in answered), answers
    assert names(graph) == sorted(f"{w}{n}" for w in "ab" for n in range(12))
    assert rounds > 1
    assert removed > 1
    assert_sound(place)
