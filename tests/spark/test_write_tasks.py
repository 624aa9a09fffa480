"""Tasks, executors and drivers that fail while rows are staged, each in a Spark application of its own.

Staged files nobody published may stay behind; what readers see is all of a save or nothing of it, every row once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.places import Place, people
from tests.rig.ports import free_ports
from tests.soundness import assert_sound
from tests.spark.saving import ids, new_graph, persons, save

ROOT = Path(__file__).parents[2]


@pytest.fixture
def graph(local_root: Place) -> Place:
    """A graph with one person."""
    place = new_graph(local_root)
    place.open().append("Person", people("ann"))
    return place


def job(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start a Spark application of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-W", "ignore", "-m", "tests.spark.faulty_job", *arguments]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, **options)


def answers(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for what an application saw; its Java process ends with it."""
    assert process.stdout is not None
    try:
        line = next((line for line in process.stdout if line.startswith("SEEN ")), "")
    finally:
        process.kill()
        process.stdout.close()
        process.wait(timeout=60)
    assert line, "the application ended without an answer"
    found: dict[str, Any] = json.loads(line.removeprefix("SEEN "))
    return found


def test_failing_tasks(graph: Place) -> None:
    """A task that fails once is retried and its rows come once; one that always fails leaves nothing visible."""
    seen = answers(job("local[2,3]", graph.uri, "retried", "hopeless", "next"))
    assert seen["retried"] == "committed"
    assert "no luck" in seen["hopeless"]
    assert seen["next"] == "committed"
    names = ids(graph)
    assert len(names) == 1 + 60_000 + 1
    assert not any(name.startswith("hopeless") for name in names)
    assert_sound(graph)


@pytest.fixture
def cluster() -> Iterator[str]:
    """A standalone cluster: a master and two workers, on two loopback addresses because Spark runs no speculative copy
    of a task on the host of the first.
    """
    home = Path(pyspark.__file__).parent
    (port,) = free_ports(1)
    master = f"spark://127.0.0.1:{port}"
    running: list[subprocess.Popen[bytes]] = []

    def start(what: str, *arguments: str, host: str, work: str) -> None:
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", "--host", host, *arguments]
        settings = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": host, "SPARK_WORKER_DIR": work}
        settings["SPARK_DAEMON_MEMORY"] = "256m"
        silent = subprocess.DEVNULL
        running.append(subprocess.Popen(command, env={**os.environ, **settings}, stdout=silent, stderr=silent))

    with tempfile.TemporaryDirectory() as work:
        try:
            start("master.Master", "--port", str(port), "--webui-port", "0", host="127.0.0.1", work=work)
            for host in ("127.0.0.1", "127.0.0.2"):
                start("worker.Worker", "--webui-port", "0", "-c", "1", "-m", "1g", master, host=host, work=work)
            yield master
        finally:
            for process in reversed(running):
                process.terminate()
            for process in running:
                process.wait(timeout=60)


def test_speculation_and_a_lost_executor(graph: Place, cluster: str) -> None:
    """On two executors: a copy of a hanging task wins, the task of a killed executor runs elsewhere; rows come once."""
    seen = answers(job(cluster, graph.uri, "speculative", "killed"))
    assert (seen["speculative"], seen["killed"]) == ("committed", "committed")
    assert len(ids(graph)) == 1 + 200 + 200
    assert_sound(graph)


def test_a_dead_driver_leaves_nothing_visible(spark: SparkSession, graph: Place, tmp_path: Path) -> None:
    """Kill -9 of the driver, Java and Python, in the middle of a job: readers see nothing, the next write works."""
    fifo = tmp_path / "reached"
    os.mkfifo(fifo)
    process = job("local[2]", graph.uri, "stuck", str(fifo), start_new_session=True)
    java = int(fifo.read_text())  # waits until a task has staged rows and hangs
    os.kill(java, signal.SIGKILL)
    process.kill()
    process.communicate(timeout=60)
    assert ids(graph) == ["ann"]
    save(persons(spark, "bob"), graph, node="Person")
    assert graph.open().recover() == []
    assert ids(graph) == ["ann", "bob"]
    assert_sound(graph)
