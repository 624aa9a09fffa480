"""Many committers on one branch at once: commits per second, waiting times, retries, fairness.

Run with ``make bench-committers``; it writes ``docs/benchmarks/committers.md`` and its plot. Each committer is a thread
with a graph handle of its own, eight to a process, all on one S3 server; each commits one-row edges one after another.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
from pathlib import Path
from time import perf_counter

from benchmarks.plots import lines_plot
from benchmarks.report import machine
from omnigraph_spark import Graph, OmnigraphError
from tests.rig.s3_server import S3Server

COMMITTERS = [int(n) for n in os.environ.get("COMMITTERS", "1,4,16,64,100").split(",")]
COMMITS = int(os.environ.get("COMMITS", "200"))
_THREADS = 10
FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
SCHEMA = """
node Person { name: String @key }
edge Knows: Person -> Person
"""


def child(order: dict[str, object]) -> None:
    """Run some committers of one process and print one JSON line per commit."""
    results: list[dict[str, object]] = []
    lock = threading.Lock()

    def commit_edges(name: str) -> None:
        graph = Graph.open(str(order["uri"]), storage=dict(order["storage"]), actor=name)  # type: ignore[call-overload]
        for _ in range(int(str(order["each"]))):
            start = perf_counter()
            try:
                made = graph.append("Knows", [{"src": "ann", "dst": "ben"}])
                found: dict[str, object] = {"actor": name, "id": made.id if made else None}
            except OmnigraphError as e:
                found = {"actor": name, "code": e.code}
            found["seconds"] = perf_counter() - start
            with lock:
                results.append(found)

    threads = [
        threading.Thread(target=commit_edges, args=(f"{order['name']}.{n}",)) for n in range(int(str(order["threads"])))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(results))


def run(server: S3Server, committers: int) -> dict[str, float]:
    uri = f"s3://{server.new_bucket()}/graph"
    graph = Graph.create(uri, schema=SCHEMA, storage=server.storage_options())
    graph.append("Person", [{"name": "ann"}, {"name": "ben"}])
    each = max(2, COMMITS // committers)
    shares = [min(_THREADS, committers - n) for n in range(0, committers, _THREADS)]
    start = perf_counter()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.committers", "--child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in shares
    ]
    for number, (process, threads) in enumerate(zip(processes, shares, strict=True)):
        order = {"uri": uri, "storage": server.storage_options(), "each": each, "threads": threads, "name": number}
        assert process.stdin is not None
        process.stdin.write(json.dumps(order))
        process.stdin.close()
    answers = []
    for process in processes:
        assert process.stdout is not None
        answers += json.loads(process.stdout.read())
        process.wait()
    took = perf_counter() - start
    seconds = sorted(float(a["seconds"]) for a in answers)
    failed = [a for a in answers if "code" in a]
    history = graph.history()
    by_recovery = [c for c in history if c.actor == "omnigraph:recovery"]
    assert len(history) - len(by_recovery) == 2 + len(answers) - len(failed)
    assert graph.verify().ok
    by_actor: dict[str, float] = {}
    for answer in answers:
        by_actor[str(answer["actor"])] = max(by_actor.get(str(answer["actor"]), 0.0), float(answer["seconds"]))
    epochs = max(c.epoch or 0 for c in history)
    return {
        "committers": committers,
        "commits": len(answers),
        "failed": len(failed),
        "per_second": (len(answers) - len(failed)) / took,
        "p50": statistics.median(seconds),
        "p99": seconds[min(len(seconds) - 1, int(len(seconds) * 0.99))],
        "worst": max(by_actor.values()),
        "best": min(by_actor.values()),
        "recoveries": len(by_recovery),
        "claims": epochs,
    }


def main() -> None:
    with S3Server() as server:
        found = [run(server, n) for n in COMMITTERS]
    lines_plot(
        FOLDER / "committers.svg",
        {
            "p50": [(r["committers"], r["p50"]) for r in found],
            "p99": [(r["committers"], r["p99"]) for r in found],
        },
        title="Time to commit one edge, one branch",
        x="concurrent committers",
        y="seconds",
    )
    lines = [
        "# Many committers on one branch",
        "",
        f"Written by `make bench-committers`. {machine()}. A real S3 server on loopback;",
        "committers and server share the machine, so more committers also mean fewer cores for each. One branch has",
        "one writer at a time by design: what matters is that everybody commits, nobody starves, and history stays",
        "one line (asserted). Claims are windows entered, one per commit when nobody has to try again; then come",
        "commits that a recovery made, and the longest wait of the unluckiest and of the luckiest committer.",
        "",
        "| committers | commits | failed | per second | p50 | p99 | claims | by recovery | longest wait | luckiest |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {r['committers']:.0f} | {r['commits']:.0f} | {r['failed']:.0f} | {r['per_second']:.1f} "
            f"| {r['p50']:.2f} s | {r['p99']:.2f} s | {r['claims']:.0f} | {r['recoveries']:.0f} "
            f"| {r['worst']:.2f} s | {r['best']:.2f} s |"
            for r in found
        ),
        "",
        "![time to commit](committers.svg)",
        "",
    ]
    (FOLDER / "committers.md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.stdin.read()))
    else:
        main()
