"""What a write asks of the store by depth of history, and how long it takes by round-trip time.

Run with ``make bench-history``; it writes ``docs/benchmarks/history.md`` and its plots. ``DEPTHS=1,10`` shortens it.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from ulid import ULID

from benchmarks.plots import lines_plot
from benchmarks.report import machine
from omnigraph_spark import Graph
from tests.cost.meter import SCHEMA, Cost, Meter
from tests.rig.proxy import CountingProxy
from tests.rig.s3_server import S3Server

DEPTHS = [int(n) for n in os.environ.get("DEPTHS", "1,10,100,1000").split(",")]
ROUND_TRIPS = (0, 20, 50, 150)
REPEATS = 3
# RFC-013's published figures for one merge-mode edge write, before its fixes: depth → requests.
PUBLISHED = {0: 156, 5: 268, 10: 358, 20: 538, 40: 898, 80: 1618}
FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"


@dataclass(frozen=True)
class Depth:
    """One measured depth."""

    commits: int
    merge: Cost
    three: Cost


def merge_edge(graph: Graph) -> None:
    graph.merge("Knows", [{"src": "ann", "dst": "ben"}])


def three_tables(graph: Graph) -> None:
    with graph.transaction() as tx:
        tx.append("Knows", [{"src": "ann", "dst": "ben"}])
        tx.append("Lives", [{"src": "ben", "dst": "Rome"}])
        tx.append("City", [{"title": str(ULID())}])


def depths(meter: Meter) -> list[Depth]:
    found: list[Depth] = []
    direct, through = meter.graph(direct=True), meter.graph()
    reached = 0
    for depth in DEPTHS:
        for _ in range(depth - reached):
            direct.merge("Lives", [{"src": "ann", "dst": "Rome"}])
        reached = depth
        merge = meter.measure(lambda: merge_edge(through))
        found.append(Depth(depth, merge, meter.measure(lambda: three_tables(through))))
    return found


def walls(meter: Meter, *, cap: int | None) -> list[tuple[int, float]]:
    """Return the median wall time of a one-row edge merge by injected round trip."""
    graph = meter.graph()
    found = []
    meter.proxy.set_cap(cap)
    for milliseconds in ROUND_TRIPS:
        meter.proxy.set_latency(milliseconds / 1000)
        times = []
        for _ in range(REPEATS):
            start = perf_counter()
            merge_edge(graph)
            times.append(perf_counter() - start)
        found.append((milliseconds, statistics.median(times)))
    meter.proxy.set_latency(0.0)
    meter.proxy.set_cap(None)
    return found


def main() -> None:
    with S3Server() as server, CountingProxy(server.endpoint) as proxy:
        uri = f"s3://{server.new_bucket()}/graph"
        graph = Graph.create(uri, schema=SCHEMA, storage=server.storage_options())
        with graph.transaction() as tx:
            tx.append("Person", [{"name": "ann"}, {"name": "ben"}])
            tx.append("City", [{"title": "Rome"}])
        meter = Meter(server, proxy, uri)
        by_depth = depths(meter)
        capped, uncapped = walls(meter, cap=8), walls(meter, cap=None)
    write_page(by_depth, capped, uncapped)


def write_page(by_depth: list[Depth], capped: list[tuple[int, float]], uncapped: list[tuple[int, float]]) -> None:
    lines_plot(
        FOLDER / "history-requests.svg",
        {
            "one-row edge merge, here": [(d.commits, d.merge.requests) for d in by_depth],
            "RFC-013's table": list(PUBLISHED.items()),
        },
        title="Requests of a one-row edge merge",
        x="commits of history",
        y="requests",
        logarithmic=True,
    )
    lines_plot(
        FOLDER / "history-wall.svg",
        {"8 requests in flight": capped, "no cap": uncapped},
        title="Wall time of a one-row edge merge",
        x="round trip, ms",
        y="seconds",
    )
    lines = [
        "# Cost by depth of history and by round trip",
        "",
        f"Written by `make bench-history`. {machine()}. A real S3 server on loopback behind a counting proxy.",
        "",
        "Requests and serial hops of whole writes, 30 ms of latency, at most 8 requests in flight:",
        "",
        "| commits of history | edge merge: requests | hops | three tables: requests | hops |",
        "|---|---|---|---|---|",
        *(
            f"| {d.commits:,} | {d.merge.requests} | {d.merge.hops} | {d.three.requests} | {d.three.hops} |"
            for d in by_depth
        ),
        "",
        "OmniGraph's own write path, as RFC-013 measured it before its fixes (requests of the same write):",
        ", ".join(f"depth {depth}: {count}" for depth, count in PUBLISHED.items()) + ".",
        "",
        "![requests by depth](history-requests.svg)",
        "",
        f"Wall time of a one-row edge merge, median of {REPEATS}:",
        "",
        "| injected round trip | 8 in flight | no cap |",
        "|---|---|---|",
        *(f"| {ms} ms | {a:.2f} s | {b:.2f} s |" for (ms, a), (_, b) in zip(capped, uncapped, strict=True)),
        "",
        "![wall time by round trip](history-wall.svg)",
        "",
    ]
    (FOLDER / "history.md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
