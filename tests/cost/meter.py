"""A graph on S3 seen through a counting proxy with latency and a cap: what an operation asks of the store, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from omnigraph_spark import Commit, Graph
from tests.rig.proxy import CountingProxy
from tests.rig.proxy_log import Request, serial_hops
from tests.rig.s3_server import S3Server

LATENCY = 0.03  # seconds; so that what may overlap does, and hops can be told from luck
IN_FLIGHT = 8

SCHEMA = """
node Person { name: String @key }
node City { title: String @key }
edge Knows: Person -> Person
edge Lives: Person -> City
"""


@dataclass(frozen=True)
class Cost:
    """What one operation took."""

    requests: int
    hops: int
    by_class: Counter[str]
    recovery_lists: int
    schema_reads: int
    opens: Counter[str]
    log: tuple[Request, ...]

    def __str__(self) -> str:
        return f"{self.requests} requests, {self.hops} hops, {dict(self.by_class)}"


class Meter:
    """Measures operations on one graph."""

    def __init__(self, server: S3Server, proxy: CountingProxy, uri: str) -> None:
        self.proxy = proxy
        self.uri = uri
        self.storage = server.storage_options(endpoint=proxy.endpoint)
        self.direct = server.storage_options()

    def graph(self, *, direct: bool = False) -> Graph:
        """Open the graph; directly for what is not measured."""
        return Graph.open(self.uri, storage=self.direct if direct else self.storage)

    def measure(self, work: Callable[[], Commit | None]) -> Cost:
        """Run one operation and count what it asked; the number users are told must be the same."""
        self.proxy.reset()
        self.proxy.set_cap(IN_FLIGHT)
        self.proxy.set_latency(LATENCY)
        commit = work()
        self.proxy.set_latency(0.0)
        self.proxy.set_cap(None)
        seen = self.proxy.requests()
        assert commit is None or commit.storage_ops == len(seen)
        lists = [r for r in seen if r.kind == "LIST" and r.table_class == "recovery"]
        schema = [r for r in seen if r.table_class == "schema"]
        manifests = [r for r in seen if r.kind == "GET" and "/_versions/" in r.key and r.table_class == "data"]
        return Cost(
            requests=len(seen),
            hops=serial_hops(seen),
            by_class=Counter(str(r.table_class) for r in seen),
            recovery_lists=len(lists),
            schema_reads=len(schema),
            opens=Counter(r.key.rsplit("/_versions/", 1)[0] for r in manifests),
            log=tuple(seen),
        )
