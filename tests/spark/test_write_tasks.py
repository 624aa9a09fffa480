"""Tasks, executors and drivers that fail, each in a Spark application of its own; every fault is seen to have happened.

Staged files nobody published may stay behind; what readers see is all of a save or nothing of it, every row once.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.places import Place, people
from tests.soundness import assert_sound
from tests.spark.faulty_source import register_faulty, save_faulty
from tests.spark.saving import data_files, ids, new_graph, referenced_files

ROOT = Path(__file__).parents[2]
SAVES = ("retried", "hopeless", "speculative", "killed", "stuck")


def start(folder: Path, *saves: str) -> subprocess.Popen[str]:
    """Start an application that runs some saves, each into a graph with one person."""
    (folder / "notes").mkdir()
    (folder / "temporary").mkdir()
    for name in saves:
        new_graph(Place(str(folder / name))).open().append("Person", people("ann"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    environment["TMPDIR"] = str(folder / "temporary")
    command = [sys.executable, "-W", "ignore", "-m", "tests.spark.faulty_job", str(folder), *saves]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([process], [], [], 60)[0], f"process {pid} still runs"
    finally:
        os.close(process)


@dataclass(frozen=True)
class Application:
    """An application that has ended: what its saves came to, and what their tasks noted."""

    folder: Path
    seen: dict[str, str]

    def graph(self, save: str) -> Place:
        """Return the graph of a save."""
        return Place(str(self.folder / save))

    def noted(self, save: str, what: str) -> dict[tuple[int, int], int]:
        """Return which attempts (partition, number) noted something, with the executor of each."""
        found = sorted((self.folder / "notes").glob(f"{save}.{what}.*"))
        return {(int(p.suffixes[-2][1:]), int(p.suffix[1:])): int(p.read_text()) for p in found}


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """One application on two executors runs every save; its driver is killed in the last one, while tasks stage."""
    folder = tmp_path_factory.mktemp("application")
    os.mkfifo(folder / "reached")
    process = start(folder, *SAVES)
    try:
        java = int((folder / "reached").read_text())  # waits until a task of the last save hangs
        os.kill(java, signal.SIGKILL)
    finally:
        process.kill()
        out, _ = process.communicate(timeout=60)
    seen = [line for line in out.splitlines() if line.startswith("SEEN ")]
    done = Application(folder, json.loads(seen[-1].removeprefix("SEEN ")))
    for pid in {java, *(int(note.read_text()) for note in (folder / "notes").iterdir())}:
        gone(pid)
    yield done
    shutil.rmtree(folder)


def test_a_task_that_fails_once(application: Application) -> None:
    """The second attempt of a task begins after the first failed in the middle of its rows; every row comes once."""
    graph = application.graph("retried")
    assert application.seen["retried"] == "committed"
    assert set(application.noted("retried", "began")) == {(0, 0), (1, 0), (1, 1)}
    assert set(application.noted("retried", "failed")) == {(1, 0)}
    assert set(application.noted("retried", "ended")) == {(0, 0), (1, 1)}
    assert sorted(ids(graph)) == sorted(["ann", *(f"retried-{n}" for n in range(80_000))])
    # What the failed attempt had staged is an orphan that no version names.
    assert len(data_files(graph) - referenced_files(graph)) == 1
    assert_sound(graph)


def test_a_task_that_always_fails(application: Application) -> None:
    """After four attempts the save fails; nothing of it is visible, and abort removed what the other task staged."""
    graph = application.graph("hopeless")
    assert "no luck" in application.seen["hopeless"]
    assert set(application.noted("hopeless", "failed")) == {(1, n) for n in range(4)}
    assert set(application.noted("hopeless", "ended")) == {(0, 0)}
    assert ids(graph) == ["ann"]
    # Of each failed attempt a file is left that nobody could tell abort about; of the one that ended there is none.
    assert len(data_files(graph) - referenced_files(graph)) == 4
    assert_sound(graph)


def test_a_copy_of_a_slow_task_wins(application: Application) -> None:
    """Speculation: while an attempt hangs a copy runs on another executor and ends first; every row comes once."""
    graph = application.graph("speculative")
    assert application.seen["speculative"] == "committed"
    hung, began = application.noted("speculative", "hung"), application.noted("speculative", "began")
    assert set(hung) == {(1, 0)}
    assert began[1, 1] != began[1, 0]
    assert set(application.noted("speculative", "ended")) == {(0, 0), (1, 1)}
    assert not application.noted("speculative", "failed")
    assert ids(graph) == sorted(["ann", *(f"speculative-{n}" for n in range(200))])
    assert_sound(graph)


def test_an_executor_that_is_lost(application: Application) -> None:
    """The executor under a task is killed: the task runs again on another one, and every row comes once."""
    graph = application.graph("killed")
    assert application.seen["killed"] == "committed"
    killed, ended = application.noted("killed", "killed"), application.noted("killed", "ended")
    assert set(killed) == {(1, 0)}
    assert (1, 1) in ended
    assert ended[1, 1] != killed[1, 0]
    assert ids(graph) == sorted(["ann", *(f"killed-{n}" for n in range(200))])
    assert_sound(graph)


def test_a_driver_that_dies_while_tasks_stage(application: Application) -> None:
    """Kill -9 of the driver, Java and Python, in the middle of a job: readers see nothing, the next write works."""
    graph = application.graph("stuck")
    assert "stuck" not in application.seen
    assert set(application.noted("stuck", "hung")) == {(1, 0)}
    assert application.noted("stuck", "began").keys() == {(0, 0), (1, 0)}
    # Its lock file is the only one: every other save of the application, failed or not, has removed its own.
    assert len(list((application.folder / "temporary").glob("omnigraph-*.turn"))) == 1
    assert ids(graph) == ["ann"]
    graph.open().append("Person", people("bob"))
    assert graph.open().recover() == []
    assert ids(graph) == ["ann", "bob"]
    assert_sound(graph)


def test_a_driver_that_dies_in_its_commit(tmp_path: Path) -> None:
    """Kill -9 of a whole driver after its effects: no abort runs, and the next writer publishes what it had begun."""
    process = start(tmp_path, "headless")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, out
    assert "SEEN" not in out
    graph = Place(str(tmp_path / "headless"))
    assert len(list((tmp_path / "headless" / "__recovery").iterdir())) == 1
    assert ids(graph) == ["ann"]
    graph.open(window_grace=0.2).append("Person", people("bob"))
    assert ids(graph) == sorted(["ann", "bob", *(f"headless-{n}" for n in range(200))])
    assert data_files(graph) == referenced_files(graph)
    assert_sound(graph)


# -- commits of staged tasks, in a process that is killed ------------------------------------------------------------

COMMIT = """
import os, pickle, signal, sys
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.seams import Seams
from omnigraph_spark.write.draft import Draft
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.spark_writer import GraphWriter

def hook(phase, point):
    if f"{phase.value}:{point}" == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

class Dying(GraphWriter):
    def _draft(self):
        reader = GraphReader.begin(self.txn.root, self.txn.config, seams=Seams(hook=hook))
        return Draft(PublishAuthority(reader, self.settings), self.txn, self.intent)

writer, messages = pickle.load(open(sys.argv[1], "rb"))
writer.__class__ = Dying
writer.commit(messages)
"""


@dataclass(frozen=True)
class Staged:
    """A save of two tables whose tasks have run, and a copy of the graph as they left it."""

    place: Place
    copy: Path
    order: Path

    def again(self) -> Place:
        """Put the graph back to where the tasks left it."""
        shutil.rmtree(self.place.uri)
        shutil.copytree(self.copy, self.place.uri)
        return self.place


@pytest.fixture(scope="module")
def staged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staged]:
    """Persons and notes, staged by three tasks of one save whose commit is left to another process."""
    folder = tmp_path_factory.mktemp("staged")
    place = new_graph(Place(str(folder / "graph")))
    place.open().append("Person", people("ann"))
    register_faulty(spark)
    rows = [("Person", "bob", None), ("Note", None, "hello"), ("Person", "cy", None)]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), "kind string, name string, text string")
    with pytest.raises(PySparkException, match="left to another process"):
        save_faulty(frame, place.uri, fault=f"hand over:{folder / 'order'}", typeColumn="kind")
    shutil.copytree(place.uri, folder / "copy")
    yield Staged(place, folder / "copy", folder / "order")
    writer, _ = pickle.loads((folder / "order").read_bytes())
    writer.turn.unlink()


@pytest.mark.parametrize(
    "point",
    ["validate:done", "arm:armed", "arm:claimed", "effect:enter", "effect:after:node:Note", "publish:enter"],
)
def test_a_driver_that_dies_at_any_point_of_its_commit(staged: Staged, point: str) -> None:
    """A commit of what tasks staged is killed, no abort runs: both tables are as before or as after, never between."""
    graph = staged.again()
    command = [sys.executable, "-c", COMMIT, str(staged.order), point]
    assert subprocess.run(command, cwd=ROOT, check=False, timeout=60).returncode == -signal.SIGKILL
    assert (ids(graph), graph.open(read_only=True).count("Note")) == (["ann"], 0)
    with graph.open(window_grace=0.2).transaction() as tx:
        tx.append("Person", people("dee"))
    graph.open(window_grace=0.2).recover()
    after = "bob" in ids(graph)
    assert after or point not in ("publish:enter",)
    assert not after or point.startswith(("effect:after", "publish"))
    assert ids(graph) == (["ann", "bob", "cy", "dee"] if after else ["ann", "dee"])
    assert graph.open(read_only=True).count("Note") == int(after)
    assert_sound(graph)
