"""A small load in every test run; `make load MINUTES=10` is the large one."""

from __future__ import annotations

from tests.places import Place
from tests.proof.load import SETTINGS, Size, run_load
from tests.proof.world import Site


def test_killed_writers_lose_nothing_and_block_nobody(s3_root: Place) -> None:
    """Eight writers in two processes on S3, one killed every few seconds: what was told is true, the graph is sound."""
    site = Site(s3_root.uri, s3_root.storage, SETTINGS)
    figures = run_load(site, Size(processes=2, threads=4, seconds=8.0, kill_every=3.0, kills=2))
    print(figures)
    assert int(str(figures["rows"])) >= 3  # one of each process that was at work before a kill
    assert int(str(figures["kills"])) >= 2
