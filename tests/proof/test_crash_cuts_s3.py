"""The store of a writer on S3 stops answering at its k-th durable request (PUT, POST, DELETE), stored or not.

`make test` cuts every verb once each way and kills one at four requests; `make crash-cuts` (OMNIGRAPH_CUTS=all) cuts
every verb at every request, both ways, and kills three at every one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from omnigraph_spark.errors import Outcome
from tests.proof.cut_process import CutProcess
from tests.proof.judge import judge
from tests.proof.registry import VERBS, Verb, verb
from tests.proof.world import S3Templates, Site
from tests.rig.proxy import CountingProxy
from tests.rig.s3_server import S3Server

EVERYTHING = os.environ.get("OMNIGRAPH_CUTS") == "all"
CHOSEN = [verb(name) for name in ("transaction", "merge", "delete")]
CASES = [(v, stored) for v in VERBS for stored in (True, False)]


@dataclass
class Bench:
    """A place to cut at."""

    templates: S3Templates
    proxy: CountingProxy
    behind: dict[str, str]
    child: CutProcess
    totals: dict[str, int] = field(default_factory=dict)  # durable requests of each verb

    def restored(self, verb: Verb) -> Site:
        """Put a verb's starting graph in place."""
        return self.templates.restore(verb.start.name, verb.start.build)

    def durable_requests(self, verb: Verb) -> int:
        """Run a verb undisturbed and count, once."""
        if verb.name not in self.totals:
            site = self.restored(verb)
            self.proxy.reset()
            self.child.start(verb.name, uri=site.uri, storage=self.behind)
            assert self.child.answer() is Outcome.COMMITTED
            self.totals[verb.name] = self.proxy.durable_count()
        return self.totals[verb.name]


@pytest.fixture(scope="module")
def bench(s3_server: S3Server) -> Iterator[Bench]:
    """One proxy and one writer process for all cuts."""
    with CountingProxy(s3_server.endpoint) as proxy:
        behind = s3_server.storage_options(endpoint=proxy.endpoint)
        found = Bench(S3Templates(s3_server), proxy, behind, CutProcess())
        yield found
        found.child.kill()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("verb", "stored"), CASES, ids=str)
def test_a_store_that_stops_at_any_request(bench: Bench, verb: Verb, *, stored: bool) -> None:
    """Whatever request is the last: exactly before or after, the caller told no lie, and the verb can run again."""
    total = bench.durable_requests(verb)
    for k in _cuts(verb, total, stored=stored):
        site = bench.restored(verb)
        bench.proxy.stop_after(k, stored=stored, mode="reset")
        bench.child.start(verb.name, uri=site.uri, storage=bench.behind)
        told = bench.child.answer()
        assert bench.proxy.wait_idle()
        bench.proxy.heal()
        print(f"{verb.name}: cut {k} of {total}, told {told.value}")  # shown when the next line fails
        judge(verb, site, told=told, clear=bench.templates.clear)
    print(f"{verb.name}: {total} durable requests on S3, the last one {'stored' if stored else 'not stored'}")


def _cuts(verb: Verb, total: int, *, stored: bool) -> range:
    """Return the requests to cut at: all of them, or one that is another for each verb and each way."""
    if EVERYTHING:
        return range(1, total + 1)
    k = 1 + (5 * VERBS.index(verb) + (3 if stored else 0)) % total
    return range(k, k + 1)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("verb", CHOSEN if EVERYTHING else CHOSEN[1:2], ids=str)
def test_a_process_killed_at_any_request(bench: Bench, verb: Verb) -> None:
    """The same with ``kill -9`` of the writer while its k-th request, stored, is waiting for an answer."""
    total = bench.durable_requests(verb)
    for k in range(1, total + 1) if EVERYTHING else (1, total // 2, total - 1, total):
        site = bench.restored(verb)
        bench.proxy.stop_after(k, stored=True, mode="hang")
        bench.child.start(verb.name, uri=site.uri, storage=bench.behind)
        assert bench.proxy.wait_fired()
        bench.child.kill()
        bench.child = CutProcess()
        bench.proxy.heal()
        assert bench.proxy.wait_idle()
        print(f"{verb.name}: killed at {k} of {total}")
        judge(verb, site, told=None, clear=bench.templates.clear)
