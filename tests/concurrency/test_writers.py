"""Many processes write one branch at once: all commit, one linear chain, no row lost or doubled."""

from __future__ import annotations

import json

import pytest

from omnigraph_spark import Graph
from tests.places import Place
from tests.rig.s3_server import S3Server
from tests.soundness import assert_sound
from tests.writer_process import SCHEMA, start

TABLES = ("node:Person", "node:Company", "node:City")


@pytest.mark.parametrize("writers", [2, 5, 12])
def test_all_processes_commit(s3_root: Place, s3_server: S3Server, writers: int) -> None:
    """N processes write one table, then disjoint ones, on S3: each commits exactly once, in one linear chain."""
    Graph.create(s3_root.uri, schema=SCHEMA, storage=s3_root.storage)
    orders = [
        {"writes": [{"node:Person": [f"same-{w}"]}, {TABLES[w % 3]: [f"own-{w}"]}], "grace": 30.0}
        for w in range(writers)
    ]
    running = [start(s3_root.uri, order, env=s3_server.env()) for order in orders]
    answers = [a for process in running for a in json.loads(process.communicate(timeout=120)[0])]
    assert all("commit" in a for a in answers), answers
    assert all(a["attempts"] == 1 for a in answers), answers  # waiting for a turn is no failed attempt
    graph = s3_root.open(read_only=True)
    seen = [i for name in ("Person", "Company", "City") for i in graph.to_arrow(name, columns=["id"])["id"].to_pylist()]
    assert sorted(seen) == sorted([*(f"own-{w}" for w in range(writers)), *(f"same-{w}" for w in range(writers))])
    assert len(graph.history()) == 1 + 2 * writers
    assert {c.id for c in graph.history()} >= {a["commit"] for a in answers}
    assert_sound(s3_root)
