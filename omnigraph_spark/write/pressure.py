"""Back-pressure: writes warn, and at last stop, when upkeep runs far behind; the counts are in what is open anyway.

Every fragment is a request of some later scan, and every version an entry of every listing. Maintenance itself is never
held back.
"""

from __future__ import annotations

import logging

import lance

from omnigraph_spark.errors import BackPressureError
from omnigraph_spark.manifest.boundary import read_boundary
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.lance_commit import fragment_count
from omnigraph_spark.write.settings import UpkeepLimits

log = logging.getLogger(__name__)


def check_fragments(table_key: str, dataset: lance.LanceDataset, limits: UpkeepLimits) -> None:
    """Warn of, or refuse, a write to a table in too many fragments; no request."""
    _check(
        f"{table_key} has {{}} fragments",
        fragment_count(dataset),
        warn=limits.warn_fragments,
        refuse=limits.refuse_fragments,
        advice="Run optimize()",
    )


def check_versions(reader: GraphReader, state: GraphState, limits: UpkeepLimits) -> None:
    """Warn of, or refuse, a write to a branch with too many versions; a request only once the number is suspicious."""
    if not any(
        limit is not None and state.graph_version > limit for limit in (limits.warn_versions, limits.refuse_versions)
    ):
        return
    first = read_boundary(reader.objects, reader.root, branch=state.branch)
    _check(
        f"Branch {state.branch!r} has {{}} graph versions",
        state.graph_version - first,
        warn=limits.warn_versions,
        refuse=limits.refuse_versions,
        advice="Run cleanup()",
    )


def _check(what: str, count: int, *, warn: int | None, refuse: int | None, advice: str) -> None:
    told = what.format(count)
    if refuse is not None and count > refuse:
        raise BackPressureError(f"{told}, more than the {refuse} at which writes are refused")
    if warn is not None and count > warn:
        log.warning("%s, more than %s: reads and writes get slower. %s", told, warn, advice)
