"""Laws that hold over the whole history of a graph, not only at its newest version."""

from __future__ import annotations

from omnigraph_spark.errors import NotFoundError, StorageError
from tests.proof.world import Site


def assert_epochs_rise(site: Site) -> None:
    """INV-08: the epoch of a branch never goes back, and a number belongs to one operation only."""
    reader = site.handle()._begin()
    newest = reader.manifest.open(branch="main").state
    before = (0, "")
    for version in range(1, newest.graph_version + 1):
        try:
            state = reader.manifest.open(branch="main", version=version, layout=newest.layout).state
        except (NotFoundError, StorageError):
            continue  # cleanup took it
        now = (state.epoch.number, state.epoch.operation_id) if state.epoch else (0, "")
        assert now[0] >= before[0], f"manifest version {version}: epoch {before} became {now}"
        assert now[0] > before[0] or now == before, f"manifest version {version}: epoch {before} became {now}"
        before = now
