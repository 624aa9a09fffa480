"""Optimize: fewer and fuller fragments, complete indexes, the same rows. Maintenance class: it never destroys anything.

Per table, compaction first, then indexes, each: planned → files written (nothing refers to them; a crash leaves
orphans for cleanup) → published through the authority like any write: record, window, one Lance commit that carries the
operation id, one manifest swap. A crash in between is recovered by that id: committed → rolled forward, not → undone. A
live writer that changed a planned fragment is noticed at arm, before anything moved: planned anew, a bounded number of
times, then reported as skipped. Readers see the version before or the one after; both hold the same rows.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import lance

from omnigraph_spark.errors import ConflictError, DriftError, OmnigraphError, Outcome, StorageError
from omnigraph_spark.maintenance.distribute import run_jobs
from omnigraph_spark.maintenance.indexes import wanted_indexes
from omnigraph_spark.maintenance.standing import refuse_open_records, refuse_schema_change
from omnigraph_spark.manifest.layout import MAIN
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.manifest.store import MANIFEST
from omnigraph_spark.storage import lance_maintenance as lm
from omnigraph_spark.storage.lance_commit import compact, fragment_count, latest_version
from omnigraph_spark.storage.lance_errors import LanceConflictError
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.lance_staged import staged_paths
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write.actions import BuildIndex, Rewrite, staged_fragments
from omnigraph_spark.write.lineage import PublishedCommit
from omnigraph_spark.write.plan import PublishPlan, pins_of
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.txn import WriteTxn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
OPTIMIZE_ACTOR = "omnigraph:optimize"
_MOST_PLANS = 5
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PendingIndex:
    """An index that cannot be built yet, and why."""

    column: str
    reason: str


@dataclass(frozen=True, slots=True)
class OptimizeResult:
    """What optimize did to one table; ``version`` is the table version the graph publishes now."""

    table_key: str
    fragments_removed: int = 0
    fragments_added: int = 0
    indexes_built: tuple[str, ...] = ()
    skipped: str | None = None
    pending_indexes: tuple[PendingIndex, ...] = ()
    version: int | None = None


@dataclass(slots=True)
class Optimizer:
    """Optimizes the tables of one branch."""

    authority: PublishAuthority
    branch: str = MAIN
    actor: str | None = None
    spark: SparkSession | None = None
    progress: Progress | None = None
    target_rows: int = lm.TARGET_ROWS

    @property
    def io(self) -> LanceIO:
        """Storage of the operation."""
        return self.authority.reader.io

    def run(self, types: Sequence[str] | None = None) -> list[OptimizeResult]:
        """Optimize the named types, or all of them and the manifest."""
        refuse_schema_change(self.authority.reader, verb="optimize")
        txn = self.authority.open_txn(branch=self.branch)
        names = txn.catalog.table_keys() if types is None else [txn.catalog.resolve(t).table_key for t in types]
        keys = [key for key in dict.fromkeys(names) if key in txn.tables]
        refuse_open_records(self.authority, verb="optimize", branch=self.branch)
        results = [self._told(self._table(key), at=n + 1, of=len(keys)) for n, key in enumerate(keys)]
        return results if types is not None else [*results, self._told(self._manifest(), at=len(keys), of=len(keys))]

    def _told(self, result: OptimizeResult, *, at: int, of: int) -> OptimizeResult:
        what = result.skipped or (
            f"{result.fragments_removed} fragments became {result.fragments_added}, "
            f"{len(result.indexes_built)} indexes built"
        )
        self._say(f"{result.table_key} ({at} of {of}): {what}")
        return result

    def _say(self, text: str) -> None:
        log.info("optimize %s", text)
        if self.progress is not None:
            self.progress(text)

    # -- one table ---------------------------------------------------------------------------------------------------

    def _table(self, key: str) -> OptimizeResult:
        result = OptimizeResult(key)
        for step in (self._compact, self._index):
            for attempt in range(_MOST_PLANS):
                try:
                    result = step(key, result)
                    break
                except (ConflictError, LanceConflictError) as e:
                    log.info("optimize plans %s anew: %s", key, e.message)
                    self.io.seams.wait(self.io.seams.jitter(attempt=attempt))
                except DriftError as e:
                    return replace(result, skipped=f"drift: {e.message}; run repair()")
            else:
                return replace(result, skipped=f"busy: writers changed it during {_MOST_PLANS} attempts")
            if result.skipped is not None:
                break
        return result

    def _base(self, key: str) -> tuple[WriteTxn, lance.LanceDataset, str | None]:
        """Pin the table as it is now, and say why it must be left alone, if so."""
        txn = self.authority.open_txn(branch=self.branch, actor=self.actor)
        entry = txn.entry(key)
        dataset = self.io.open(txn.uri(key), table=key, version=entry.version)
        owner = entry.branch or MAIN
        if owner != self.branch:
            return txn, dataset, f"inherited: it lives on branch {owner!r}; optimize it there"
        if lm.has_blobs(dataset):
            return txn, dataset, "blobs: Lance cannot compact or index a table with blob columns safely"
        head = latest_version(dataset)
        if head > entry.version:
            self._look_again(key, head)
        return txn, dataset, None

    def _look_again(self, key: str, head: int) -> None:
        """Tell drift from a writer at work: the latter holds the window, or has published by now."""
        state = self.authority.reader.manifest.open(branch=self.branch).state
        pin = state.tables[key].version
        if head > pin and not (state.epoch is not None and state.epoch.in_window):
            raise DriftError(f"{key} is at version {head}, the graph publishes {pin}")

    def _compact(self, key: str, result: OptimizeResult) -> OptimizeResult:
        txn, dataset, reason = self._base(key)
        if reason is not None:
            return replace(result, skipped=reason, version=txn.entry(key).version)
        place = lm.Place(txn.uri(key), key, int(dataset.version), self.io.config)
        jobs = lm.compaction_jobs(dataset, place, target_rows=self.target_rows)
        self.io.seams.hook(Phase.STAGE, f"planned:{key}")
        if not jobs:
            return replace(result, version=int(dataset.version))
        self._say(f"{key}: compacting {fragment_count(dataset)} fragments in {len(jobs)} tasks")
        pieces = tuple(run_jobs(jobs, spark=self.spark))
        self.io.seams.hook(Phase.STAGE, f"compacted:{key}")
        removed, added = sum(len(p.old) for p in pieces), sum(len(p.new) for p in pieces)
        commit = self._publish(txn, Rewrite(key, pieces), {"fragments_removed": removed, "fragments_added": added})
        return replace(
            result,
            fragments_removed=result.fragments_removed + removed,
            fragments_added=result.fragments_added + added,
            version=_version(commit, key),
        )

    def _index(self, key: str, result: OptimizeResult) -> OptimizeResult:
        txn, dataset, reason = self._base(key)
        if reason is not None:
            return replace(result, skipped=reason)
        gaps = lm.index_gaps(self.io, dataset, wanted_indexes(txn.catalog.by_key(key)))
        ready = [g for g in gaps if g.spec.kind != "IVF_FLAT" or self._has_vectors(dataset, g)]
        empty = [g.spec.column for g in gaps if g not in ready and g.first]
        pending = tuple(PendingIndex(c, "the column has no vectors to build it over") for c in empty)
        if not ready:
            return replace(result, pending_indexes=pending, version=int(dataset.version))
        self._say(f"{key}: building {', '.join(g.spec.name for g in ready)}")
        place = lm.Place(txn.uri(key), key, int(dataset.version), self.io.config)
        built = tuple(run_jobs([lm.IndexJob(place, g) for g in ready], spark=self.spark))
        self.io.seams.hook(Phase.STAGE, f"indexed:{key}")
        covers = lm.marks_of(dataset, {f for g in ready for f in g.fragments})
        action = BuildIndex(key, built, tuple(part for g in ready for part in g.replaced), covers)
        commit = self._publish(txn, action, {"indexes_built": len(built)})
        names = tuple(g.spec.name for g in ready)
        return replace(result, indexes_built=names, pending_indexes=pending, version=_version(commit, key))

    def _has_vectors(self, dataset: lance.LanceDataset, gap: lm.IndexGap) -> bool:
        return lm.has_values(self.io, dataset, gap.spec.column, fragments=gap.fragments)

    # -- publishing --------------------------------------------------------------------------------------------------

    def _publish(self, txn: WriteTxn, action: Rewrite | BuildIndex, stats: dict[str, int]) -> PublishedCommit:
        plan = PublishPlan(
            operation_id="",
            commit_id=txn.commit_id,
            branch=txn.branch,
            base_version=txn.graph_version,
            started_at=self.io.seams.now_micros(),
            pins=pins_of(txn, (action,)),
            actions=(action,),
            actor=self.actor or OPTIMIZE_ACTOR,
            message=f"optimize {action.table_key}",
            writer_kind="Optimize",
            stats={action.table_key: stats},
        )
        try:
            return self.authority.publish(plan, recheck=self._recheck)
        except OmnigraphError as error:
            if error.outcome is Outcome.NOT_COMMITTED:
                self._discard(txn, action)
            raise

    def _recheck(self, plan: PublishPlan, state: GraphState) -> None:
        """Refuse to go on when a fragment this work stands on has changed; nothing has moved yet."""
        for action in plan.actions:
            pin = plan.pin(action.table_key)
            dataset = self.io.open(pin.uri(self.authority.reader.root), table=pin.table_key, version=pin.version)
            if isinstance(action, Rewrite):
                changed = lm.changed_marks(dataset, [m for g in action.groups for m in g.old], deletions=True)
            elif isinstance(action, BuildIndex):
                changed = lm.changed_marks(dataset, action.covers, deletions=False)
                # Another optimizer may have built the same index since.
                changed += lm.overlapping(dataset, built=action.built, removed=action.removed)
            else:
                continue
            if changed:
                raise ConflictError(
                    f"{len(changed)} fragments or indexes of {pin.table_key} changed since optimize planned",
                    table_key=pin.table_key,
                )

    def _discard(self, txn: WriteTxn, action: Rewrite | BuildIndex) -> None:
        """Delete new fragments that are proven unpublished (INV-10); index files are left to cleanup."""
        for path in staged_paths(txn.uri(action.table_key), staged_fragments(action)):
            with contextlib.suppress(StorageError):
                self.authority.reader.objects.delete(path)

    # -- the manifest ------------------------------------------------------------------------------------------------

    def _manifest(self) -> OptimizeResult:
        """Compact ``__manifest`` in place: no window, because a swap that meets it loses and tries again."""
        result = OptimizeResult(MANIFEST)
        for attempt in range(_MOST_PLANS):
            dataset = self.authority.reader.manifest.open_dataset(branch=self.branch)
            before = fragment_count(dataset)
            if before <= 1:
                return replace(result, version=int(dataset.version))
            try:
                after = compact(self.io, dataset, table=MANIFEST)
            except LanceConflictError:
                self.io.seams.wait(self.io.seams.jitter(attempt=attempt))
                continue
            return replace(result, fragments_removed=before, fragments_added=after, version=latest_version(dataset))
        return replace(result, skipped=f"busy: writers changed it during {_MOST_PLANS} attempts")


def _version(commit: PublishedCommit, key: str) -> int | None:
    tables = commit.row.extra.get("tables")
    found = tables.get(key) if isinstance(tables, dict) else None
    return found if isinstance(found, int) else None
