"""What must not be going on when maintenance starts: open recovery records, and a schema change.

A record may belong to a writer that is alive and about to retire it, so each one seen gets the grace to go away.
"""

from __future__ import annotations

from omnigraph_spark.errors import ConflictError, RecoveryError
from omnigraph_spark.manifest.layout import SCHEMA_LOCK_BRANCH
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.sidecar import SidecarStore


def refuse_open_records(authority: PublishAuthority, *, verb: str, branch: str | None = None) -> None:
    """Refuse while records of a branch, or of any, stay open for the grace; names them."""
    seams, sidecars = authority.reader.io.seams, authority.sidecars
    until = seams.monotonic() + authority.settings.grace
    left = _records(sidecars, branch)
    attempt = 0
    while left and seams.monotonic() < until:
        seams.wait(seams.jitter(attempt=attempt, base=0.05, cap=min(1.0, authority.settings.grace / 4)))
        attempt += 1
        left &= set(sidecars.operation_ids())
    if left:
        raise RecoveryError(
            f"{verb} does not run while recovery records are open: {', '.join(sorted(left))}",
            hint="Run recover(), or wait for the writers they belong to, then run it again.",
        )


def _records(sidecars: SidecarStore, branch: str | None) -> set[str]:
    listed = sidecars.operation_ids()
    if branch is None:
        return set(listed)
    found = {name: sidecars.examine(name) for name in listed}
    # A record that does not say its branch may be anybody's.
    return {name for name, record in found.items() if record is not None and record.branch in (branch, None)}


def refuse_schema_change(reader: GraphReader, *, verb: str) -> None:
    """Refuse while somebody holds the schema lock."""
    if reader.manifest.branch_ref(SCHEMA_LOCK_BRANCH) is not None:
        raise ConflictError(
            f"{verb} does not run during a schema change: the lock {SCHEMA_LOCK_BRANCH} is held",
            hint="Run it again when the schema change is done.",
        )
