"""Many processes write one branch at once: all commit, one linear chain, no row lost or doubled."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from omnigraph_spark import Graph
from tests.faults.test_kill_writer import SCHEMA, assert_sound, ids, start


@pytest.mark.parametrize(("writers", "each"), [(2, 4), (5, 3)])
def test_all_processes_commit(tmp_path: Path, writers: int, each: int) -> None:
    """N processes append to the same table and branch: every write commits exactly once, in one linear chain."""
    root = str(tmp_path / "g")
    Graph.create(root, schema=SCHEMA)
    orders = [{"writes": [{"node:Person": [f"w{w}-{n}"]} for n in range(each)], "grace": 20.0} for w in range(writers)]
    running: list[subprocess.Popen[str]] = [start(root, order) for order in orders]
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in running]
    assert all("commit" in a for answer in answers for a in answer), answers
    assert ids(root, "Person") == sorted(f"w{w}-{n}" for w in range(writers) for n in range(each))
    assert len(Graph.open(root).history()) == 1 + writers * each
    assert_sound(root)
