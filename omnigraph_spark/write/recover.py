"""Recovery: the holder of a newer epoch finishes or undoes what a record in ``__recovery/`` began (INV-08).

Per record, on a fresh fold: find which versions after the current pins carry the record's operation id (INV-06). All
tables → roll forward: the same publish, with the original commit id and actor. Some or none → roll back: a Restore on
*every* planned table, moved or not, because the Restore is what fences a late commit of the dead writer (INV-07), then
one publish of the restored versions. Then the audit row, then the record goes. Killed after a Restore: the effect no
longer counts, rolled back again. Killed after the publish: the commit names the record (``recovery_of``), so the next
run only writes the audit row and removes the file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from omnigraph_spark.errors import RecoveryError, StorageError
from omnigraph_spark.manifest.layout import MAIN
from omnigraph_spark.manifest.rows import CommitRow, ManifestRow
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.manifest.store import ManifestStore
from omnigraph_spark.storage.lance_commit import COMMIT_HOPS, commit_operation, restore_operation
from omnigraph_spark.storage.lance_errors import LanceConflictError
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.parallel import run_parallel
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write import audit
from omnigraph_spark.write.adopted import adopted_commit
from omnigraph_spark.write.audit import RecoveryResult, TableOutcome, marked, recovered_before, result_of
from omnigraph_spark.write.effect import (
    EPOCH,
    OPERATION_ID,
    MovedTable,
    TableHead,
    live_count,
    open_heads,
    residue_of_fenced,
)
from omnigraph_spark.write.foreign import parse
from omnigraph_spark.write.foreign_recovery import resolve_foreign
from omnigraph_spark.write.lineage import RECOVERY_ACTOR, RECOVERY_OF, commit_of_plan, publish_rows, rows_of_plan
from omnigraph_spark.write.plan import PublishPlan, TablePin, from_sidecar
from omnigraph_spark.write.sidecar import BadRecord, Sidecar, SidecarStore
from omnigraph_spark.write.window import Fenced, Window, owns, swap

log = logging.getLogger(__name__)
ROLLED_FORWARD = "RolledForward"
ROLLED_BACK = "RolledBack"
DISCARDED = "OrphanedBranchDiscarded"
_MOST_TRIES = 10
_MOST_FAILURES = 2


@dataclass(slots=True)
class Recovery:
    """Resolves records under a held window; the window moves along with each publish."""

    io: LanceIO
    store: ManifestStore
    sidecars: SidecarStore
    window: Window

    def resolve_owed(self, also: Collection[str] = ()) -> list[RecoveryResult]:
        """Resolve the records of displaced owners, OmniGraph's and the named ones, in name order; then nothing is owed.

        Bad ones are raised after the good ones are done, and the debt stays. Our records that are not owed belong to
        writers that never claimed: they have no effects, and may be alive and waiting for this very window.
        """
        owed = self.window.epoch.owed
        wanted = {*owed, *also}
        results: list[RecoveryResult] = []
        bad: list[RecoveryError] = []
        for record in self._records(None if owed else wanted):
            if isinstance(record, BadRecord):
                if record.concerns(self.window.state.branch, owners=owed):
                    bad.append(record.error())
            elif self._concerns(record) and (record.operation_id in wanted or not record.is_ours):
                try:
                    results.extend(filter(None, [self.resolve(record)]))
                except RecoveryError as e:
                    bad.append(e)
        if bad:
            raise RecoveryError("; ".join(e.message for e in bad), hint=bad[0].hint)
        self.window = self.window.settled()
        return results

    def _records(self, only: Collection[str] | None) -> list[Sidecar | BadRecord]:
        """Read records but the window owner's own, all at once, in name order."""
        mine = self.window.epoch.operation_id
        listed = [i for i in self.sidecars.operation_ids() if i != mine and (only is None or i in only)]
        read = run_parallel([partial(self.sidecars.examine, i) for i in listed], counter=self.io.counter)
        return [record for record in read if record is not None]

    def resolve(self, record: Sidecar) -> RecoveryResult | None:
        """Resolve one record; None when there was nothing to undo or finish."""
        self.io.seams.hook(Phase.RECOVER, f"begin:{record.operation_id}")
        if record.branch != self.window.state.branch:
            result: RecoveryResult | None = self.settled(partial(self._discard, record))
        elif record.is_ours:
            result = self.settled(partial(self._decide, from_sidecar(record.document)))
        else:
            result = self.settled(partial(resolve_foreign, self, parse(record)))
        self.io.seams.hook(Phase.RECOVER, "decided")
        if result is not None:
            audit.record(self.io, self.store.root, result)
            self.io.seams.hook(Phase.RECOVER, "audited")
            log.warning(
                "recovered operation_id=%s kind=%s commit_id=%s branch=%s",
                *(result.operation_id, result.kind, result.commit_id, record.branch),
            )
        self.sidecars.delete(record.operation_id)
        return result

    def _concerns(self, record: Sidecar) -> bool:
        """A record is its branch's; those of deleted branches are main's."""
        if record.branch == self.window.state.branch:
            return True
        return self.window.state.branch == MAIN and self.store.branch_ref(record.branch) is None

    def settled(self, decision: Callable[[GraphState], RecoveryResult | None]) -> RecoveryResult | None:
        """Decide and act on a fresh fold until it holds; a lost race or answer is looked at anew, not guessed."""
        failures = 0
        for attempt in range(_MOST_TRIES):
            try:
                return decision(self.refold())
            except LanceConflictError:
                self.io.seams.wait(self.io.seams.jitter(attempt=attempt))
            except StorageError:
                failures += 1
                if failures >= _MOST_FAILURES:
                    raise
        raise StorageError(f"Recovery on branch {self.window.state.branch!r} kept losing races", retryable=True)

    def _decide(self, plan: PublishPlan, state: GraphState) -> RecoveryResult | None:
        done = recovered_before(state, plan.operation_id)
        if done is not None:
            return done
        committed = state.commit(plan.commit_id)
        if committed is not None and committed.extra.get("operation_id") == plan.operation_id:
            return None
        if committed is None and adopted_commit(self.io, self.store.root, plan, state) is not None:
            return None
        pins = _current_pins(plan, state)
        if not pins:
            return None
        heads = open_heads(self.io, self.store.root, pins)
        _refuse_strangers(heads)
        # Other standing versions are residue of fenced writers: publishing this effect would publish theirs too.
        complete = len(pins) == len(plan.pins) and all(
            h.effect_of(plan.operation_id) is not None and h.only_of(plan.operation_id) for h in heads.values()
        )
        if committed is None and complete:
            return self._roll_forward(plan, heads, state)
        return self._roll_back(plan, heads, state)

    def _roll_forward(self, plan: PublishPlan, heads: Mapping[str, TableHead], state: GraphState) -> RecoveryResult:
        moved = {key: _at_head(head) for key, head in heads.items()}
        created_at = self.io.seams.now_micros()
        commit = commit_of_plan(plan, state, epoch=self.window.epoch, created_at=created_at, moved=moved)
        outcomes = [TableOutcome(k, h.pin.version, moved[k].version) for k, h in sorted(heads.items())]
        commit = marked(commit, _result(plan, ROLLED_FORWARD, commit.commit_id, outcomes))
        rows = rows_of_plan(self.store.root, plan, state, commit=commit, moved=moved.values(), epoch=self.window.epoch)
        return self.land(commit, rows)

    def _roll_back(self, plan: PublishPlan, heads: Mapping[str, TableHead], state: GraphState) -> RecoveryResult:
        restored = self.restore([(h.pin, h) for h in heads.values()], record=plan.operation_id)
        self.io.seams.hook(Phase.RECOVER, "restored")
        commit = self.commit_on(state, restored)
        outcomes = [TableOutcome(k, int(h.dataset.version), h.pin.version) for k, h in sorted(heads.items())]
        commit = marked(commit, _result(plan, ROLLED_BACK, commit.commit_id, outcomes))
        return self.land(commit, publish_rows(self.store.root, state, commit, moved=restored, epoch=self.window.epoch))

    def _discard(self, record: Sidecar, state: GraphState) -> RecoveryResult:
        """Give up the record of a deleted branch: there is nothing left to move forward or back."""
        done = recovered_before(state, record.operation_id)
        if done is not None:
            return done
        actor, kind = record.document.get("actor_id"), record.document.get("writer_kind")
        commit = self.commit_on(state, ())
        result = RecoveryResult(
            commit_id=commit.commit_id,
            kind=DISCARDED,
            actor=actor if isinstance(actor, str) else None,
            operation_id=record.operation_id,
            writer_kind=str(kind or "Load"),
            outcomes=(),
        )
        commit = marked(commit, result)
        return self.land(commit, publish_rows(self.store.root, state, commit, moved=(), epoch=self.window.epoch))

    def undo_residue(self, pins: Sequence[TablePin]) -> None:
        """Undo what fenced writers left after the pins, e.g. a late Restore of an old recoverer, and publish that."""

        def undo(state: GraphState) -> None:
            current = [_pin_of(state, pin) for pin in pins]
            heads = open_heads(self.io, self.store.root, [pin for pin in current if pin is not None])
            residue = residue_of_fenced(heads, epoch=self.window.epoch.number)
            if residue:
                restored = self.restore([(h.pin, h) for h in residue], record="residue")
                commit = self.commit_on(state, restored)
                rows = publish_rows(self.store.root, state, commit, moved=restored, epoch=self.window.epoch)
                self._swap(rows)

        self.settled(undo)

    def commit_on(self, state: GraphState, moved: Sequence[MovedTable], *, merged: str | None = None) -> CommitRow:
        """Return a recovery's own commit on top of a state."""
        return CommitRow(
            commit_id=self.io.seams.new_id(),
            branch=state.branch,
            graph_version=state.graph_version + 1,
            created_at=self.io.seams.now_micros(),
            parent=state.head.commit_id if state.head else None,
            merged_parent=merged,
            actor=RECOVERY_ACTOR,
            extra={"epoch": self.window.epoch.number, "tables": {m.table_key: m.version for m in moved}},
        )

    def restore(self, tables: Sequence[tuple[TablePin, TableHead]], *, record: str) -> list[MovedTable]:
        """Return tables to their published versions, all at once; each Restore names the epoch that made it."""
        jobs = [partial(self._restore, pin, head, record) for pin, head in tables]
        return run_parallel(jobs, counter=self.io.counter, hops=COMMIT_HOPS)

    def _restore(self, pin: TablePin, head: TableHead, record: str) -> MovedTable:
        epoch = self.window.epoch
        properties = {OPERATION_ID: epoch.operation_id, EPOCH: str(epoch.number), RECOVERY_OF: record}
        operation = restore_operation(pin.version)
        committed = commit_operation(self.io, head.dataset, operation, table=pin.table_key, properties=properties)
        self.io.seams.hook(Phase.RECOVER, f"restored:{pin.table_key}")
        return MovedTable(pin.table_key, pin.path, pin.branch, int(committed.version), pin.rows)

    def refold(self) -> GraphState:
        """Fold the manifest anew; raises Fenced when the window is no longer ours (INV-08)."""
        manifest = self.store.open(branch=self.window.state.branch)
        if not owns(manifest.state, self.window.epoch):
            raise Fenced(self.window.epoch.operation_id)
        self.window = self.window.with_manifest(manifest)
        return manifest.state

    def land(self, commit: CommitRow, rows: list[ManifestRow]) -> RecoveryResult:
        """Publish a recovery's rows."""
        self._swap(rows)
        return result_of(commit)

    def _swap(self, rows: list[ManifestRow]) -> None:
        self.window = self.window.with_manifest(swap(self.io, self.window.manifest, rows))
        self.io.seams.hook(Phase.RECOVER, "published")


def _pin_of(state: GraphState, pin: TablePin) -> TablePin | None:
    entry = state.tables.get(pin.table_key)
    if entry is None or entry.path != pin.path or entry.branch != pin.branch:
        return None
    return TablePin(entry.table_key, entry.path, entry.branch, entry.version, entry.row_count)


def _current_pins(plan: PublishPlan, state: GraphState) -> list[TablePin]:
    return [found for pin in plan.pins if (found := _pin_of(state, pin)) is not None]


def _refuse_strangers(heads: Mapping[str, TableHead]) -> None:
    for key, head in sorted(heads.items()):
        strangers = head.strangers()
        if strangers:
            listed = ", ".join(f"{t.version} ({t.operation})" for t in strangers)
            raise RecoveryError(
                f"{key} has unpublished versions that no writer of this protocol made: {listed}",
                hint="Run repair() to preview them, then recover() again; reads are not affected.",
            )


def _at_head(head: TableHead) -> MovedTable:
    pin = head.pin
    return MovedTable(pin.table_key, pin.path, pin.branch, int(head.dataset.version), live_count(head.dataset))


def _result(plan: PublishPlan, kind: str, commit_id: str, outcomes: Sequence[TableOutcome]) -> RecoveryResult:
    return RecoveryResult(
        commit_id=commit_id,
        kind=kind,
        actor=plan.actor,
        operation_id=plan.operation_id,
        writer_kind=plan.writer_kind,
        outcomes=tuple(outcomes),
    )
