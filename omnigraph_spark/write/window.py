"""The write window of a branch: who may move HEADs now (the epoch fence).

States of ``writer_epoch:<branch>``: free (``in_window`` false) → claimed by CAS to number+1 with the claimer's
operation id → free again by the publish's own CAS, or by a release. A claim also rewrites ``graph_head:<branch>``
unchanged, so it succeeds only if nobody published since the fold it was validated against. An owner that stays silent
for the grace is taken over by a CAS to number+1: from then on its publish touches a row that moved, and fails. A claim
names a sidecar that already exists; a takeover recovers every sidecar it lists before it does anything of its own.
Crash before the claim: a sidecar without effects, rolled back by the next recovery. Crash after it: the window stays
taken until somebody's grace ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import lance

from omnigraph_spark.manifest.rows import EpochRow, ManifestRow, epoch_row, head_row, rows_to_arrow
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.manifest.store import MANIFEST, ManifestStore, OpenManifest
from omnigraph_spark.storage.lance_commit import latest_version, merge_rows
from omnigraph_spark.storage.lance_io import LanceIO


@dataclass(frozen=True, slots=True)
class Window:
    """A held window: the epoch it was entered with and the manifest as it stands inside."""

    epoch: EpochRow
    manifest: OpenManifest

    @property
    def state(self) -> GraphState:
        """The fold inside the window."""
        return self.manifest.state

    def with_manifest(self, manifest: OpenManifest) -> Window:
        """Return the window on a newer manifest version."""
        return Window(self.epoch, manifest)


def claim(io: LanceIO, manifest: OpenManifest, *, operation_id: str, actor: str | None) -> Window:
    """Enter the window by CAS on top of a fold; raises LanceConflictError when somebody was faster."""
    state = manifest.state
    number = state.epoch.number if state.epoch else 0
    epoch = EpochRow(
        branch=state.branch,
        number=number + 1,
        operation_id=operation_id,
        in_window=True,
        claimed_at=io.seams.now_micros(),
        actor=actor,
    )
    return Window(epoch, swap(io, manifest, [epoch_row(epoch)], epoch=epoch))


def release(io: LanceIO, window: Window) -> OpenManifest:
    """Leave the window without a commit."""
    left = replace(window.epoch, in_window=False)
    return swap(io, window.manifest, [epoch_row(left)], epoch=left)


def swap(io: LanceIO, manifest: OpenManifest, rows: Sequence[ManifestRow], *, epoch: EpochRow) -> OpenManifest:
    """Land rows on ``__manifest`` in one CAS that always also rewrites the branch's head row."""
    state = manifest.state
    written = {row.object_id for row in rows}
    contention = f"graph_head:{state.branch}"
    extra: list[ManifestRow] = []
    if contention not in written:
        head = state.head
        extra.append(head_row(state.branch, head=head.commit_id if head else "", parent=head.parent if head else None))
    batch = rows_to_arrow(state.layout, [*rows, *extra])
    dataset = merge_rows(io, manifest.dataset, batch, table=MANIFEST)
    # Only the epoch is carried forward here: callers that change tables or commits fold anew.
    return OpenManifest(dataset, replace(state, graph_version=int(dataset.version), epoch=epoch))


def owns(state: GraphState, epoch: EpochRow) -> bool:
    """Say whether an epoch is still the branch's current one; a stale one is a hard stop."""
    now = state.epoch
    return now is not None and now.number == epoch.number and now.operation_id == epoch.operation_id


class Watch:
    """Notices that a window owner has been silent for the grace, on this process's own clock."""

    def __init__(self, io: LanceIO, *, grace: float) -> None:
        self._io = io
        self._grace = grace
        self._seen: tuple[int, str] | None = None
        self._since = 0.0

    def overdue(self, epoch: EpochRow) -> bool:
        """Report whether this same owner has been in the window for the whole grace."""
        owner = (epoch.number, epoch.operation_id)
        now = self._io.seams.monotonic()
        if owner != self._seen:
            self._seen, self._since = owner, now
            return False
        return now - self._since >= self._grace


def refresh(store: ManifestStore, manifest: OpenManifest, *, branch: str) -> OpenManifest:
    """Return the newest fold; one request when nothing has changed."""
    dataset: lance.LanceDataset = manifest.dataset
    if latest_version(dataset) == int(dataset.version):
        return manifest
    return store.open(branch=branch)
