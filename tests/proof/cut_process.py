"""A process whose store stops answering: runs registered verbs on request and reports what it was told.

One line of JSON in, one out. It stays alive between cuts only to save its start-up: once the proxy has stopped, nothing
it does can reach the store, which is all that death means to a graph. ``kill`` ends it for real.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from omnigraph_spark.errors import OmnigraphError, Outcome
from omnigraph_spark.write.settings import WindowSettings
from tests.proof.registry import verb
from tests.proof.world import Site

# No retry, so that a dead store is noticed in a moment.
HASTY = {"client_max_retries": "0", "client_retry_timeout": "1"}


class CutProcess:
    """The parent's end."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.proof.cut_process"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, name: str, *, uri: str, storage: Mapping[str, str]) -> None:
        """Begin a verb."""
        assert self._process.stdin is not None
        order = {"verb": name, "uri": uri, "storage": {**storage, **HASTY}}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Outcome:
        """Wait for what the caller of the verb was told."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process ended without an answer"
        told = json.loads(line)
        assert "outcome" in told, f"an error without a type: {told}"
        return Outcome(told["outcome"])

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self._process.kill()
        self._process.communicate()


def main() -> None:
    """Serve orders until stdin ends."""
    for line in sys.stdin:
        order = json.loads(line)
        site = Site(order["uri"], order["storage"], WindowSettings(grace=0.05, timeout=30.0, patience=3.0))
        try:
            verb(order["verb"]).run(site.handle())
            told = {"outcome": Outcome.COMMITTED.value}
        except OmnigraphError as e:
            told = {"outcome": e.outcome.value, "text": str(e)}
        except Exception as e:  # noqa: BLE001 - reported as the defect it is
            told = {"untyped": repr(e)}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
