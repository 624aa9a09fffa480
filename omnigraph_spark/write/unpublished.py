"""Proof that a write was not published and cannot be any more: the licence to delete its staged files (INV-10).

Records are looked at first and the manifest after them, in this order only: a record is removed after its commit is in
the manifest, so no record of the write and then no commit of it means that there never will be one.
"""

from __future__ import annotations

from omnigraph_spark.write.publish import PublishAuthority


def proved_unpublished(authority: PublishAuthority, *, branch: str, commit_id: str) -> bool:
    """Return True only when neither a recovery record nor the manifest knows the commit."""
    sidecars = authority.sidecars
    for operation_id in sidecars.operation_ids():
        record = sidecars.read(operation_id)
        if record is not None and commit_id in str(record.document.get("plan", "")):
            return False
    state = authority.reader.manifest.open(branch=branch).state
    return state.commit(commit_id) is None
