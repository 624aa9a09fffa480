"""Every example runs as it stands and leaves nothing behind that it does not name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ON_SPARK = [path for path in EXAMPLES if "SparkSession" in path.read_text()]
PLAIN = [path for path in EXAMPLES if path not in ON_SPARK]
# One after the other in one process, each as the main program: starting Java takes longer than any of them.
IN_TURN = """
import runpy, sys
for path in sys.argv[1:]:
    print("BEGIN", path, flush=True)
    runpy.run_path(path, run_name="__main__")
"""


def run(folder: Path, *arguments: str) -> str:
    """Run Python in a directory of its own; return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("example", PLAIN, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    """An example exits with 0 and prints something, from any directory."""
    assert run(tmp_path, str(example)).strip()


def test_the_examples_on_spark_run(tmp_path: Path) -> None:
    """The examples that start Spark end without an error and print something, from any directory."""
    assert ON_SPARK
    printed = run(tmp_path, "-c", IN_TURN, *map(str, ON_SPARK)).split("BEGIN ")[1:]
    assert [part.splitlines()[0] for part in printed] == [str(path) for path in ON_SPARK]
    assert all(len(part.splitlines()) > 1 for part in printed)
