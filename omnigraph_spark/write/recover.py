"""Recovery: the holder of a newer epoch finishes or undoes what a record in ``__recovery/`` began (INV-08).

Per record, on a fresh fold: find which versions after the current pins carry the record's operation id (INV-06). All
tables → roll forward: the same publish, with the original commit id and actor. Some or none → roll back: a Restore on
*every* planned table, moved or not, because the Restore is what fences a late commit of the dead writer (INV-07), then
one publish of the restored versions. Then the audit row, then the record goes. Killed after a Restore: the effect no
longer counts, rolled back again. Killed after the publish: the commit names the record (``recovery_of``), so the next
run only writes the audit row and removes the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from omnigraph_spark.errors import RecoveryError
from omnigraph_spark.manifest.rows import CommitRow, ManifestRow
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.manifest.store import ManifestStore
from omnigraph_spark.storage.lance_commit import commit_operation, restore_operation
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.parallel import run_parallel
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write import audit
from omnigraph_spark.write.audit import RecoveryResult, TableOutcome
from omnigraph_spark.write.effect import EPOCH, OPERATION_ID, MovedTable, TableHead, open_heads
from omnigraph_spark.write.lineage import (
    RECOVERY_ACTOR,
    RECOVERY_KIND,
    RECOVERY_OF,
    commit_of_plan,
    publish_rows,
    rows_of_plan,
)
from omnigraph_spark.write.plan import PublishPlan, TablePin, from_sidecar
from omnigraph_spark.write.sidecar import Sidecar, SidecarStore
from omnigraph_spark.write.window import Window, swap

ROLLED_FORWARD = "RolledForward"
ROLLED_BACK = "RolledBack"


@dataclass(slots=True)
class Recovery:
    """Resolves records under a held window; the window moves along with each publish."""

    io: LanceIO
    store: ManifestStore
    sidecars: SidecarStore
    window: Window

    def resolve_all(self) -> list[RecoveryResult]:
        """Resolve every record of the branch but the window owner's own, in name order."""
        results: list[RecoveryResult] = []
        for operation_id in self.sidecars.operation_ids():
            if operation_id == self.window.epoch.operation_id:
                continue
            record = self.sidecars.read(operation_id)
            if record is not None and record.branch == self.window.state.branch:
                result = self.resolve(record)
                if result is not None:
                    results.append(result)
        return results

    def resolve(self, record: Sidecar) -> RecoveryResult | None:
        """Resolve one record; None when there was nothing to undo or finish."""
        self.io.seams.hook(Phase.RECOVER, f"begin:{record.operation_id}")
        if not record.is_ours:
            raise RecoveryError(
                f"The recovery record {record.operation_id} was written by OmniGraph itself",
                hint="Open the graph once with OmniGraph 0.8 to recover it.",
            )
        plan = from_sidecar(record.document)
        state = self.refold()
        result = self._decide(plan, state)
        self.io.seams.hook(Phase.RECOVER, "decided")
        if result is not None:
            audit.record(self.io, self.store.root, result)
            self.io.seams.hook(Phase.RECOVER, "audited")
        self.sidecars.delete(plan.operation_id)
        return result

    def _decide(self, plan: PublishPlan, state: GraphState) -> RecoveryResult | None:
        done = _recovered_before(state, plan.operation_id)
        if done is not None:
            return done
        committed = state.commit(plan.commit_id)
        if committed is not None and committed.extra.get("operation_id") == plan.operation_id:
            return None
        pins = _current_pins(plan, state)
        if not pins:
            return None
        heads = open_heads(self.io, self.store.root, pins)
        effects = {key: head.effect_of(plan.operation_id) for key, head in heads.items()}
        if committed is None and all(effects.values()):
            return self._roll_forward(plan, heads, state)
        return self._roll_back(plan, heads, state)

    def _roll_forward(self, plan: PublishPlan, heads: dict[str, TableHead], state: GraphState) -> RecoveryResult:
        moved = {key: self._head_version(head, plan) for key, head in heads.items()}
        commit = commit_of_plan(
            plan, state, epoch=self.window.epoch, created_at=self.io.seams.now_micros(), moved=moved
        )
        commit = _marked(commit, plan, ROLLED_FORWARD, heads=heads)
        rows = rows_of_plan(self.store.root, plan, state, commit=commit, moved=moved.values(), epoch=self.window.epoch)
        self._swap(rows)
        return _result(commit)

    def _head_version(self, head: TableHead, plan: PublishPlan) -> MovedTable:
        effect = head.effect_of(plan.operation_id)
        later = [t for t in head.since_pin if effect is not None and t.version > effect.version]
        if any(not t.is_maintenance for t in later):
            raise RecoveryError(f"{head.pin.table_key} moved on after the effect of {plan.operation_id}")
        pin = head.pin
        return MovedTable(pin.table_key, pin.path, pin.branch, int(head.dataset.version), self.io.count(head.dataset))

    def _roll_back(self, plan: PublishPlan, heads: dict[str, TableHead], state: GraphState) -> RecoveryResult:
        restored = run_parallel(
            [partial(self._restore, head, plan.operation_id) for head in heads.values()], counter=self.io.counter
        )
        self.io.seams.hook(Phase.RECOVER, "restored")
        commit = self._recovery_commit(state, restored)
        commit = _marked(commit, plan, ROLLED_BACK, heads=heads)
        self._swap(publish_rows(self.store.root, state, commit, moved=restored, epoch=self.window.epoch))
        return _result(commit)

    def undo_residue(self, heads: Sequence[TableHead]) -> None:
        """Undo what fenced writers left after the pins, e.g. a late Restore of an old recoverer, and publish that."""
        state = self.refold()
        restored = run_parallel([partial(self._restore, head, "residue") for head in heads], counter=self.io.counter)
        commit = self._recovery_commit(state, restored)
        self._swap(publish_rows(self.store.root, state, commit, moved=restored, epoch=self.window.epoch))
        self.refold()

    def _recovery_commit(self, state: GraphState, restored: Sequence[MovedTable]) -> CommitRow:
        return CommitRow(
            commit_id=self.io.seams.new_id(),
            branch=state.branch,
            graph_version=state.graph_version + 1,
            created_at=self.io.seams.now_micros(),
            parent=state.head.commit_id if state.head else None,
            actor=RECOVERY_ACTOR,
            extra={"epoch": self.window.epoch.number, "tables": {m.table_key: m.version for m in restored}},
        )

    def _restore(self, head: TableHead, record: str) -> MovedTable:
        properties = {
            OPERATION_ID: self.window.epoch.operation_id,
            EPOCH: str(self.window.epoch.number),
            RECOVERY_OF: record,
        }
        pin = head.pin
        committed = commit_operation(
            self.io, head.dataset, restore_operation(pin.version), table=pin.table_key, properties=properties
        )
        self.io.seams.hook(Phase.RECOVER, f"restored:{pin.table_key}")
        return MovedTable(pin.table_key, pin.path, pin.branch, int(committed.version), pin.rows)

    def refold(self) -> GraphState:
        """Fold the manifest anew; every publish of ours makes the last fold stale."""
        self.window = self.window.with_manifest(self.store.open(branch=self.window.state.branch))
        return self.window.state

    def _swap(self, rows: list[ManifestRow]) -> None:
        self.window = self.window.with_manifest(swap(self.io, self.window.manifest, rows, epoch=self.window.epoch))
        self.io.seams.hook(Phase.RECOVER, "published")


def _current_pins(plan: PublishPlan, state: GraphState) -> list[TablePin]:
    entries = [state.tables.get(p.table_key) for p in plan.pins]
    return [TablePin(e.table_key, e.path, e.branch, e.version, e.row_count) for e in entries if e is not None]


def _marked(commit: CommitRow, plan: PublishPlan, kind: str, *, heads: dict[str, TableHead]) -> CommitRow:
    extra = {
        **commit.extra,
        RECOVERY_OF: plan.operation_id,
        RECOVERY_KIND: kind,
        "recovery_for_actor": plan.actor,
        "recovery_writer_kind": plan.writer_kind,
        "recovery_outcomes": [
            {"table_key": k, "from_version": int(h.dataset.version), "to_version": h.pin.version}
            if kind == ROLLED_BACK
            else {"table_key": k, "from_version": h.pin.version, "to_version": int(h.dataset.version)}
            for k, h in sorted(heads.items())
        ],
    }
    return CommitRow(
        commit_id=commit.commit_id,
        branch=commit.branch,
        graph_version=commit.graph_version,
        created_at=commit.created_at,
        parent=commit.parent,
        merged_parent=commit.merged_parent,
        actor=commit.actor,
        extra=extra,
    )


def _recovered_before(state: GraphState, operation_id: str) -> RecoveryResult | None:
    if not state.recovered(operation_id):
        return None
    for commit in reversed(state.commits()):
        if commit.extra.get(RECOVERY_OF) == operation_id:
            return _result(commit)
    return None


def _result(commit: CommitRow) -> RecoveryResult:
    extra = commit.extra
    listed = extra.get("recovery_outcomes")
    items = listed if isinstance(listed, list) else []
    actor = extra.get("recovery_for_actor")
    return RecoveryResult(
        commit_id=commit.commit_id,
        kind=str(extra[RECOVERY_KIND]),
        actor=str(actor) if actor is not None else None,
        operation_id=str(extra[RECOVERY_OF]),
        writer_kind=str(extra.get("recovery_writer_kind", "Load")),
        outcomes=tuple(TableOutcome(o["table_key"], o["from_version"], o["to_version"]) for o in items),
    )
