"""``kill -9`` of a writer at every point of the protocol, then another writer: before or after, never between."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from omnigraph_spark import Graph
from tests.soundness import assert_sound
from tests.writer_process import SCHEMA, append, authority_for, start

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
STOPS = [
    "capture:enter",
    "arm:enter",
    "arm:armed",
    "arm:claimed",
    "effect:enter",
    "effect:before:node:City",
    "effect:after:node:City",
    "publish:enter",
    "retire:enter",
]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A fresh graph of three node types."""
    uri = str(tmp_path / "g")
    Graph.create(uri, schema=SCHEMA)
    return uri


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


@pytest.mark.parametrize("point", STOPS)
def test_stopped_writer_learns_what_happened(root: str, point: str) -> None:
    """A writer stopped past the grace and taken over reports the truth when it goes on, and changes nothing twice."""
    paused = start(root, {"writes": [{"node:City": ["late"], "node:Person": ["late"]}], "stop": point, "grace": 0.3})
    os.waitpid(paused.pid, os.WUNTRACED)
    append(root, {"node:Person": ["meanwhile"]}, grace=0.3)
    published = Graph.open(root, read_only=True).version
    paused.send_signal(signal.SIGCONT)
    out, _ = paused.communicate(timeout=90)
    (answer,) = json.loads(out)
    assert "commit" in answer, answer
    assert ids(root, "Person") == ["late", "meanwhile"]
    assert ids(root, "City") == ["late"]
    assert [c.id for c in Graph.open(root).history()].count(answer["commit"]) == 1
    # What was published while it slept still reads as it did.
    then = Graph.open(root, read_only=True).at(version=published)
    assert "meanwhile" in then.to_arrow("Person")["id"].to_pylist()
    assert_sound(root)
