"""The store did what it was asked, or not, and its answer never came: the caller still learns the truth.

One commit's durable requests are cut one by one, through a proxy in front of a real S3 server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from omnigraph_spark import Graph
from omnigraph_spark.errors import OmnigraphError, Outcome
from tests.places import Place
from tests.rig.proxy import CountingProxy
from tests.rig.s3_server import S3Server
from tests.soundness import assert_sound
from tests.writer_process import SCHEMA, authority_for, stage_plan

ROWS = {"node:City": ["x"], "node:Person": ["x"]}
# sidecar put, claim (data, transaction, manifest), two table commits (transaction, manifest each), publish (data,
# transaction, manifest), sidecar delete
DURABLE = 12
# No retry, so that a dead store is noticed in a moment.
HASTY = {"client_max_retries": "0", "client_retry_timeout": "1"}


@pytest.fixture
def cut(s3_root: Place, s3_server: S3Server, proxy: CountingProxy) -> Iterator[Place]:
    """A graph behind the proxy."""
    Graph.create(s3_root.uri, schema=SCHEMA, storage=s3_root.storage)
    yield replace(s3_root, storage=s3_server.storage_options(endpoint=proxy.endpoint))
    proxy.heal()


def test_one_commit_makes_this_many_durable_requests(cut: Place, proxy: CountingProxy) -> None:
    """The cuts below cover every durable request of a commit."""
    authority = authority_for(cut.uri, storage=cut.storage)
    plan = stage_plan(authority, ROWS)
    proxy.reset()
    authority.publish(plan)
    assert proxy.durable_count() == DURABLE


@pytest.mark.parametrize("k", range(1, DURABLE + 1))
def test_a_lost_answer_is_recognised(cut: Place, s3_root: Place, proxy: CountingProxy, k: int) -> None:
    """The k-th durable request is stored and its answer cut: the write commits once and says so."""
    authority = authority_for(cut.uri, storage=cut.storage)
    plan = stage_plan(authority, ROWS)
    proxy.drop_ack(k)
    commit = authority.publish(plan)
    graph = s3_root.open(read_only=True)
    assert [c.id for c in graph.history()].count(commit.row.commit_id) == 1
    assert graph.to_arrow("Person")["id"].to_pylist() == graph.to_arrow("City")["id"].to_pylist() == ["x"]
    assert_sound(s3_root)


@pytest.mark.parametrize(
    ("k", "stored"), [*((k, True) for k in (1, 2, 4, 6, 8, 9, 11, 12)), *((k, False) for k in (4, 8, 11))]
)
def test_a_store_that_dies_leaves_a_true_answer(
    cut: Place, s3_root: Place, proxy: CountingProxy, k: int, *, stored: bool
) -> None:
    """From the k-th durable request on nothing is answered: committed, not committed and unknown are each kept."""
    authority = authority_for(cut.uri, storage={**cut.storage, **HASTY}, grace=0.2, patience=5.0)
    plan = stage_plan(authority, ROWS)
    proxy.stop_after(k, stored=stored, mode="reset")
    outcome = Outcome.COMMITTED
    try:
        authority.publish(plan)
    except OmnigraphError as e:
        outcome = e.outcome
    proxy.heal()
    authority_for(s3_root.uri, storage=s3_root.storage, grace=0.2).recover()
    graph = s3_root.open(read_only=True)
    people, cities = (graph.to_arrow(name)["id"].to_pylist() for name in ("Person", "City"))
    assert people == cities
    assert people == [] or outcome is not Outcome.NOT_COMMITTED
    assert people == ["x"] or outcome is not Outcome.COMMITTED
    assert outcome is not Outcome.UNKNOWN or k > DURABLE - 9
    again = authority_for(s3_root.uri, storage=s3_root.storage, grace=0.2)
    again.publish(stage_plan(again, {"node:Person": ["next"]}))
    again.recover()
    assert_sound(s3_root)
