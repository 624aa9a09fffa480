"""What a publish costs on a real S3 server, counted by a proxy: requests and serial hops (INV-15)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from omnigraph_spark import Graph
from omnigraph_spark.write.lineage import PublishedCommit
from omnigraph_spark.write.publish import PublishAuthority
from tests.places import Place
from tests.rig.proxy import CountingProxy
from tests.rig.s3_server import S3Server
from tests.writer_process import SCHEMA, append, authority_for, stage_plan

ONE = {"node:Person": ["x"]}
THREE = {"node:City": ["x"], "node:Company": ["x"], "node:Person": ["x"]}
MOST_REQUESTS, MOST_HOPS = 28, 20
LATENCY = 0.04


@pytest.fixture
def far(s3_root: Place, s3_server: S3Server, proxy: CountingProxy) -> Iterator[Place]:
    """A graph behind the proxy."""
    Graph.create(s3_root.uri, schema=SCHEMA, storage=s3_root.storage)
    yield replace(s3_root, storage=s3_server.storage_options(endpoint=proxy.endpoint))
    proxy.heal()


def publish(place: Place, proxy: CountingProxy, rows: dict[str, list[str]]) -> tuple[PublishedCommit, float]:
    """Publish staged rows; afterwards the proxy's log holds exactly the publish."""
    authority: PublishAuthority = authority_for(place.uri, storage=place.storage)
    plan = stage_plan(authority, rows)
    proxy.reset()
    started = time.perf_counter()
    commit = authority.publish(plan)
    return commit, time.perf_counter() - started


def renamed(n: int, rows: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return rows with ids of their own."""
    return {key: [f"{i}{n}" for i in ids] for key, ids in rows.items()}


def test_requests_and_hops_of_one_table(far: Place, proxy: CountingProxy) -> None:
    """One staged append: at most 28 requests and 20 serial hops, no recovery listing, no schema read."""
    append(far.uri, renamed(0, ONE), storage=far.storage)
    _, quick = publish(far, proxy, renamed(1, ONE))
    assert len(proxy.requests()) <= MOST_REQUESTS, proxy.summary()
    proxy.set_latency(LATENCY)
    commit, slow = publish(far, proxy, renamed(2, ONE))
    summary, hops = proxy.summary(), proxy.serial_hops()
    assert len(proxy.requests()) <= MOST_REQUESTS, summary
    assert hops <= MOST_HOPS, [(r.kind, r.target) for r in proxy.requests()]
    # The slope of the wall time over the injected latency is the same figure, seen by the caller.
    assert (slow - quick) / LATENCY <= MOST_HOPS + 1.5
    assert summary["LIST", "recovery"] == 0
    assert not any(part == "schema" for _, part in summary)
    assert abs(commit.storage_stages - _capture_stages(far) - hops) <= 3


def _capture_stages(place: Place) -> int:
    """Return the stages of capture and staging alone, which the commit's figure includes."""
    authority = authority_for(place.uri, storage=place.storage)
    stage_plan(authority, {"node:Person": ["never"]})
    return authority.reader.io.settle().stages


def test_three_tables_add_no_hops(far: Place, proxy: CountingProxy) -> None:
    """Tables are committed at once: more requests, the same chain."""
    append(far.uri, renamed(0, THREE), storage=far.storage)
    proxy.set_latency(LATENCY)
    publish(far, proxy, renamed(1, ONE))
    one, one_requests = proxy.serial_hops(), len(proxy.requests())
    publish(far, proxy, renamed(2, THREE))
    assert proxy.serial_hops() <= one
    assert len(proxy.requests()) <= one_requests + 2 * 4


def test_the_counters_say_what_the_store_saw(
    far: Place, proxy: CountingProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """A commit's ``storage_ops`` is the number of requests that reached the store, and the log line names it."""
    caplog.set_level(logging.INFO, logger="omnigraph_spark.write.publish")
    proxy.reset()
    authority = authority_for(far.uri, storage=far.storage)
    commit = authority.publish(stage_plan(authority, THREE))
    assert commit.storage_ops == len(proxy.requests()), (authority.reader.io.counter.as_dict(), proxy.summary())
    assert set(commit.phase_seconds) == {"capture", "arm", "effect", "publish", "retire"}
    (line,) = [r.getMessage() for r in caplog.records if r.getMessage().startswith("committed ")]
    facts = dict(item.split("=", 1) for item in line.split()[1:])
    assert facts["storage_ops"] == str(commit.storage_ops)
    assert facts["commit_id"] == commit.row.commit_id
    assert {"branch", "graph_version", "epoch", "attempts", "storage_stages", "arm_ms", "publish_ms"} <= set(facts)
