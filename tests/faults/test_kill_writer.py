"""``kill -9`` of a writer at every point of the protocol, then another writer: before or after, never between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph_spark import Graph
from omnigraph_spark.manifest.layout import branch_uri
from omnigraph_spark.read.snapshot import GraphReader, Moment
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.locations import join
from tests.writer_process import append, authority_for

SCHEMA = """
node Person { name: String @key  age: I32? }
node Company { name: String @key }
node City { name: String @key }
"""
THREE = {"node:City": ["dead"], "node:Company": ["dead"], "node:Person": ["dead"]}
POINTS = [
    "capture:enter",
    "arm:enter",
    "arm:armed",
    "arm:claimed",
    "effect:enter",
    "effect:before:node:Person",
    "effect:after:node:City",
    "effect:after:node:Company",
    "effect:after:node:Person",
    "publish:enter",
    "retire:enter",
]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A fresh graph of three node types."""
    uri = str(tmp_path / "g")
    Graph.create(uri, schema=SCHEMA)
    return uri


def start(root: str, order: dict[str, object]) -> subprocess.Popen[str]:
    """Start a writer process."""
    command = [sys.executable, "-m", "tests.writer_process", root, json.dumps(order)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def assert_sound(root: str) -> None:
    """HEAD equals pin on every table, one linear chain, no record left (what ``verify`` will prove later)."""
    reader = GraphReader.begin(root, StorageConfig.resolve())
    snapshot, state = reader.resolve(Moment())
    for entry in snapshot.tables.values():
        dataset = reader.io.open(branch_uri(join(root, entry.path), entry.branch), table=entry.table_key)
        assert dataset.version == entry.version, f"{entry.table_key}: HEAD {dataset.version}, pin {entry.version}"
        assert dataset.count_rows() == entry.row_count
        dataset.validate()  # type: ignore[no-untyped-call]
    commits = state.commits()
    assert [c.parent for c in commits] == [None, *(c.commit_id for c in commits[:-1])]
    folder = Path(root, "__recovery")
    assert not folder.exists() or list(folder.glob("*.json")) == []


def ids(root: str, type_name: str) -> list[str]:
    """Return a type's ids, sorted."""
    return sorted(Graph.open(root, read_only=True).to_arrow(type_name, columns=["id"])["id"].to_pylist())


@pytest.mark.parametrize("point", POINTS)
def test_killed_writer_leaves_all_or_nothing(root: str, point: str) -> None:
    """A writer killed at any point leaves its three tables together or not at all, and the next writer goes on."""
    dead = start(root, {"writes": [THREE], "die": point})
    dead.communicate(timeout=60)
    assert dead.returncode == -signal.SIGKILL
    commit = append(root, {"node:Person": ["alive"]}, grace=0.2)
    authority_for(root, grace=0.2).recover(branch="main")
    seen = {name: ids(root, name) for name in ("City", "Company", "Person")}
    survived = "dead" in seen["Person"]
    # All effects landed before these points, so recovery must finish the write; before the first effect it must not.
    assert survived or point not in {"publish:enter", "retire:enter"}
    assert not survived or point.startswith(("effect:after", "effect:before", "publish", "retire"))
    assert ("dead" in seen["City"]) == survived
    assert ("dead" in seen["Company"]) == survived
    assert seen["Person"].count("alive") == 1
    assert commit.row.actor == "writer"
    assert_sound(root)
    assert authority_for(root, grace=0.2).recover(branch="main") == []


@pytest.mark.parametrize("point", ["arm:claimed", "effect:enter", "effect:after:node:City", "publish:enter"])
def test_stopped_writer_learns_what_happened(root: str, point: str) -> None:
    """A writer stopped past the grace and taken over reports the truth when it goes on, and changes nothing twice."""
    paused = start(root, {"writes": [{"node:City": ["late"], "node:Person": ["late"]}], "stop": point, "grace": 0.3})
    os.waitpid(paused.pid, os.WUNTRACED)
    append(root, {"node:Person": ["meanwhile"]}, grace=0.3)
    paused.send_signal(signal.SIGCONT)
    out, _ = paused.communicate(timeout=90)
    (answer,) = json.loads(out)
    assert "commit" in answer, answer
    assert ids(root, "Person") == ["late", "meanwhile"]
    assert ids(root, "City") == ["late"]
    assert [c.id for c in Graph.open(root).history()].count(answer["commit"]) == 1
    assert_sound(root)
