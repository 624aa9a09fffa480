"""How Spark finds the format: by itself, by `register`, and from a zip the workers got."""

from __future__ import annotations

import gc
import json
import os
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import omnigraph_spark as og
from omnigraph_spark.source import OmnigraphDataSource
from tests.places import Place, people

ROOT = Path(__file__).parents[2]

# The interpreter runs without site-packages' .pth files, so the only copy of the package is the zip.
SHIPPED = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
import omnigraph_spark as og
og.register(spark)
frame = spark.read.format("omnigraph").option("node", "Person").load(sys.argv[1])
origin = spark.range(1).rdd.map(lambda _: __import__("omnigraph_spark").__file__).collect()[0]
print("SEEN " + json.dumps([frame.count(), og.__file__, origin]))
spark.stop()
"""


def test_the_format_is_found_without_registering(spark: SparkSession, local_graph: Place) -> None:
    """Spark discovers `pyspark_omnigraph`; a new session that registered nothing reads."""
    local_graph.builder.publish({"node:Person": people("ann")})
    fresh = spark.newSession()
    assert fresh.read.format("omnigraph").option("node", "Person").load(local_graph.uri).count() == 1


def test_register_names_the_format(spark: SparkSession, local_graph: Place) -> None:
    """`register` makes the format known to one session, as often as one likes."""
    session = spark.newSession()
    og.register(session)
    og.register(session)
    assert session.read.format("OmniGraph").option("node", "Person").load(local_graph.uri).count() == 0
    assert OmnigraphDataSource.name() == "omnigraph"


def test_the_package_can_be_shipped_as_a_zip(local_graph: Place, tmp_path: Path) -> None:
    """`spark-submit --py-files` with our zip and `register` reads where neither driver nor workers have us."""
    local_graph.builder.publish({"node:Person": people("ann", "bob")})
    staged = tmp_path / "staged"
    for package in ("omnigraph_spark", "pyspark_omnigraph"):
        shutil.copytree(ROOT / package, staged / package, ignore=shutil.ignore_patterns("__pycache__"))
    archive = shutil.make_archive(str(tmp_path / "omnigraph"), "zip", staged)
    script = tmp_path / "job.py"
    script.write_text(SHIPPED)
    python = _python_without_us(tmp_path)
    environment = {**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    environment.pop("PYTHONPATH", None)
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [str(submit), "--master", "local[2]", "--py-files", archive, str(script), local_graph.uri],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    assert lines, done.stderr[-3000:]
    count, driver, worker = json.loads(lines[0].removeprefix("SEEN "))
    assert count == 2
    assert not driver.startswith(str(ROOT))
    assert not worker.startswith(str(ROOT))


def _python_without_us(folder: Path) -> str:
    """Return an interpreter with our dependencies but without our editable install: -S skips .pth files."""
    packages = site.getsitepackages()[0]
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


def test_a_worker_does_not_collect_what_was_imported(spark: SparkSession) -> None:
    """Spark's workers run a full collection after each task: what this package imports must not be walked through."""

    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import omnigraph_spark  # noqa: F401

        yield from (pa.record_batch({"frozen": [gc.get_freeze_count()]}) for _ in batches)

    (row,) = spark.range(1, numPartitions=1).mapInArrow(frozen, "frozen long").collect()
    assert row["frozen"] > 10_000
    assert gc.get_freeze_count() == 0  # not in the process of a user
