"""The write window of a branch: who may move HEADs now (the epoch fence).

States of ``writer_epoch:<branch>``: free (``in_window`` false) → claimed by CAS to number+1 with the claimer's
operation id → free again by the publish's own CAS, or by a release. A claim also rewrites ``graph_head:<branch>``
unchanged, so it succeeds only if nobody published since the fold it was validated against. An owner that stays silent
for the grace is taken over by a CAS to number+1: from then on its publish touches a row that moved, and fails. A claim
names a sidecar that already exists. A takeover notes the displaced owner in its own claim (``owed``) and resolves that
record before it does anything of its own; killed before that, the debt passes to the next claim, also over a release.
Records of writers that only wait never claimed, so they have no effects, and a takeover leaves them alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import lance
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.errors import StorageError
from omnigraph_spark.manifest.rows import GRAPH_COMMIT, EpochRow, ManifestRow, epoch_row, head_row, rows_to_arrow
from omnigraph_spark.manifest.state import GraphState, fold
from omnigraph_spark.manifest.store import MANIFEST, ManifestStore, OpenManifest
from omnigraph_spark.storage.lance_commit import MERGE_HOPS, fragment_count, latest_version, merge_rows, newest
from omnigraph_spark.storage.lance_errors import LanceConflictError
from omnigraph_spark.storage.lance_io import LanceIO, ScanSpec

log = logging.getLogger(__name__)

# A swap rewrites every row while the manifest is small, so it stays one fragment and a write costs the same at any
# depth (INV-15); above that, once the fragments exceed a bound; a huge one is left to optimize.
SMALL_ROWS = 32_768
MOST_FRAGMENTS = 2
MOST_ROWS = 262_144
_MOST_RENUMBERINGS = 5


class Fenced(Exception):
    """A newer epoch holds the branch: nothing more may be done under the old one."""


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

    def settled(self) -> Window:
        """Return the window with nothing owed to displaced owners any more."""
        return replace(self, epoch=replace(self.epoch, owed=()))


def claim(io: LanceIO, manifest: OpenManifest, *, operation_id: str, actor: str | None) -> Window:
    """Enter the window by CAS on top of a fold; raises LanceConflictError when somebody was faster."""
    state = manifest.state
    before = state.epoch
    owed = before.owed if before else ()
    if before is not None and before.in_window:
        owed = (*owed, before.operation_id)
    epoch = EpochRow(
        branch=state.branch,
        number=before.number + 1 if before else 1,
        operation_id=operation_id,
        in_window=True,
        claimed_at=io.seams.now_micros(),
        actor=actor,
        owed=owed,
    )
    return Window(epoch, swap(io, manifest, [epoch_row(epoch)]))


def release(io: LanceIO, window: Window) -> OpenManifest:
    """Leave the window without a commit."""
    return swap(io, window.manifest, [epoch_row(replace(window.epoch, in_window=False))])


def swap(io: LanceIO, manifest: OpenManifest, rows: Sequence[ManifestRow]) -> OpenManifest:
    """Land rows on ``__manifest`` in one CAS that always also rewrites the branch's head row.

    Returns the manifest as it stands afterwards: folded in memory when the swap landed right on top of the version it
    was prepared for, read again when index or compaction versions came between.
    """
    state = manifest.state
    written = {row.object_id for row in rows}
    extra: list[ManifestRow] = []
    if f"graph_head:{state.branch}" not in written:
        head = state.head
        extra.append(head_row(state.branch, head=head.commit_id if head else "", parent=head.parent if head else None))
    fresh = rows_to_arrow(state.layout, [*rows, *extra])
    untouched = state.rows.filter(pc.invert(pc.is_in(state.rows["object_id"], fresh["object_id"])))
    after = pa.concat_tables([untouched.select(fresh.schema.names).cast(fresh.schema), fresh])
    source = after if _rewrite_due(manifest, after) else fresh
    io.counter.count_stage(MERGE_HOPS)
    dataset = merge_rows(io, manifest.dataset, source, table=MANIFEST)
    landed = int(dataset.version)
    if landed == int(manifest.dataset.version) + 1:
        return OpenManifest(dataset, fold(after, layout=state.layout, branch=state.branch, graph_version=landed))
    dataset = _renumber(io, dataset, [r for r in rows if r.object_type == GRAPH_COMMIT], state=state)
    return _read(io, dataset, state=state)


def _rewrite_due(manifest: OpenManifest, after: pa.Table) -> bool:
    """Say whether a swap should carry every row, which leaves one fragment: compaction inside the same CAS (INV-05)."""
    small = after.num_rows <= SMALL_ROWS
    crowded = after.num_rows <= MOST_ROWS and fragment_count(manifest.dataset) > MOST_FRAGMENTS
    if not (small or crowded) or set(manifest.dataset.schema.names) != set(after.schema.names):
        return False
    distinct = pc.count_distinct(after["object_id"]).as_py()
    return bool(distinct == after.num_rows)


def _renumber(
    io: LanceIO, dataset: lance.LanceDataset, commits: Sequence[ManifestRow], *, state: GraphState
) -> lance.LanceDataset:
    """Correct the graph version of a commit that landed behind a compaction's reservation.

    The commit stands either way; a wrong number would send time travel to the version before it.
    """
    landed = int(dataset.version)
    batch = rows_to_arrow(state.layout, [replace(row, table_version=landed) for row in commits])
    for _ in range(_MOST_RENUMBERINGS if commits else 0):
        try:
            return merge_rows(io, dataset, batch, table=MANIFEST)
        except LanceConflictError:
            dataset = newest(dataset)
        except StorageError as e:
            log.warning("commit %s keeps a wrong graph version, %s: %s", commits[0].object_id, landed, e.message)
            break
    return dataset


def _read(io: LanceIO, dataset: lance.LanceDataset, *, state: GraphState) -> OpenManifest:
    rows = io.read(dataset, ScanSpec(columns=tuple(state.layout.arrow_schema().names)))
    return OpenManifest(
        dataset, fold(rows, layout=state.layout, branch=state.branch, graph_version=int(dataset.version))
    )


def owns(state: GraphState, epoch: EpochRow) -> bool:
    """Say whether an epoch is still the branch's current one; a stale one is a hard stop."""
    now = state.epoch
    return now is not None and now.number == epoch.number and now.operation_id == epoch.operation_id


def holds(state: GraphState, operation_id: str) -> bool:
    """Say whether an operation is in the window now; how a claim whose answer was lost is recognised."""
    now = state.epoch
    return now is not None and now.in_window and now.operation_id == operation_id


class Watch:
    """Notices that a window owner has been silent for the grace, on this process's own clock."""

    def __init__(self, io: LanceIO, *, grace: float) -> None:
        self._io = io
        self._grace = grace
        self._seen: tuple[int, str] | None = None
        self._since = 0.0
        self._looks = 0

    def overdue(self, epoch: EpochRow) -> bool:
        """Report whether this same owner has been in the window for the whole grace."""
        owner = (epoch.number, epoch.operation_id)
        now = self._io.seams.monotonic()
        if owner != self._seen:
            self._seen, self._since, self._looks = owner, now, 0
            return False
        return now - self._since >= self._grace

    def pause(self, *, rest: float = 0.0) -> None:
        """Wait before the next look: longer the longer nothing changes, never so long that the grace is overslept.

        ``rest`` comes on top, for a writer far back in a line: those before it watch the owner.
        """
        self._looks += 1
        cap = min(0.5, self._grace / 4)
        self._io.seams.wait(rest + self._io.seams.jitter(attempt=self._looks, base=0.02, cap=cap))


def refresh(store: ManifestStore, manifest: OpenManifest, *, branch: str) -> OpenManifest:
    """Return the newest fold; one request when nothing has changed."""
    dataset: lance.LanceDataset = manifest.dataset
    if latest_version(dataset) == int(dataset.version):
        return manifest
    return store.open(branch=branch)
