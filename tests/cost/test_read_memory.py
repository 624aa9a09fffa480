"""What a reading task holds in memory, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa

from tests.places import Place

KEY = "node:Person"
ROWS = 100_000
ROOT = Path(__file__).parents[2]

# VmHWM, not ru_maxrss: the latter is inherited from the process that started this one.
TASK = """
import sys
from pathlib import Path
from omnigraph_spark.read.plan import plan_read
from omnigraph_spark.read.request import ReadRequest, Target
from omnigraph_spark.read.scan import scan
from omnigraph_spark.read.snapshot import Moment
from tests.places import Place
plan = plan_read(Place(sys.argv[1]).reader(), ReadRequest(Target(node="Person"), Moment(), partitions=1))
(split,) = plan.splits
seen = [(batch.num_rows, batch.nbytes) for batch in scan(plan, split)]
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
print(sum(rows for rows, _ in seen), sum(size for _, size in seen) >> 20, peak >> 10)
"""


def _repeat(place: Place, *, times: int) -> None:
    """Make Person that many fragments long: one file of rows, named by each of them."""
    builder = place.builder
    names = [f"{n:012d}" * 25 for n in range(ROWS)]
    builder.publish({KEY: pa.table({"id": names, "name": names})})
    dataset = builder.open_table(KEY)
    append = lance.LanceOperation.Append([dataset.get_fragments()[0].metadata] * (times - 1))
    longer = lance.LanceDataset.commit(dataset, append, read_version=dataset.version)
    builder.publish_rows([builder._version_row(builder._moved(builder.snapshot()[KEY], dataset=longer))])


def _task(place: Place) -> tuple[int, int, int]:
    """Read all of Person as one task; return rows, MiB read and the peak memory of the process in MiB."""
    # Without these, glibc keeps freed batches for later, and the peak says more about it than about us.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 20)}
    done = subprocess.run(
        [sys.executable, "-c", TASK, place.uri], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    rows, size, peak = (int(word) for word in done.stdout.split())
    return rows, size, peak


def test_memory_of_a_task_does_not_grow_with_the_table(local_root: Place) -> None:
    """Reading a gigabyte as one task peaks about where reading a tenth of it does."""
    peaks = []
    for times in (2, 20):
        place = local_root.under(str(times)).built()
        _repeat(place, times=times)
        rows, size, peak = _task(place)
        assert (rows, size // 57) == (times * ROWS, times)  # 57 MiB a fragment
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 100, peaks
