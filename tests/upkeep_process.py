"""A maintenance process for fault tests: optimizes or cleans a graph, and can die at a named point.

``python -m tests.upkeep_process ROOT '{"verb": "optimize", "die": "stage:compacted"}'``; ``die`` is the start of
``phase:point`` of a hook, or of ``operation target`` of a durable request, at its ``nth`` occurrence.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from omnigraph_spark.maintenance.cleanup import cleanup_graph
from omnigraph_spark.maintenance.optimize import Optimizer
from omnigraph_spark.maintenance.repair import repair_graph
from omnigraph_spark.storage.seams import Phase, Seams
from tests.places import Place
from tests.unit.maintenance.upkeep import WEEK, authority


def run(root: str, order: Mapping[str, object]) -> int:
    """Run an order in a process of its own and return its exit status."""
    command = [sys.executable, "-m", "tests.upkeep_process", root, json.dumps(order)]
    return subprocess.run(command, cwd=Path(__file__).parents[1], check=False, timeout=90).returncode


class Killer:
    """Kills this process where the order says."""

    def __init__(self, order: Mapping[str, object]) -> None:
        self._at = str(order.get("die", "never"))
        self._left = int(str(order.get("nth", 1)))

    def here(self, point: str) -> None:
        """Note a point that was reached."""
        if point.startswith(self._at):
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)

    def hook(self, phase: Phase, point: str) -> None:
        """Stand at a phase's point."""
        self.here(f"{phase.value}:{point}")

    def fault(self, operation: str, target: str) -> None:
        """Stand before or after a durable request."""
        self.here(f"{operation} {target.rsplit('/', 1)[-1]}")


def main() -> None:
    """Run one order."""
    root, order = sys.argv[1], json.loads(sys.argv[2])
    killer = Killer(order)
    seams = Seams(hook=killer.hook, fault=killer.fault)
    writer = authority(Place(root), seams=seams, ahead=WEEK if order["verb"] == "cleanup" else 0)
    if order["verb"] == "optimize":
        Optimizer(writer).run()
    elif order["verb"] == "cleanup":
        cleanup_graph(writer, keep=2, dry_run=False)
    else:
        repair_graph(writer, branch="main", confirm=True)


if __name__ == "__main__":
    main()
