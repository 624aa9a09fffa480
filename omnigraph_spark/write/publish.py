"""The publish authority: the only way a plan becomes a commit; it owns the only retry loop.

A write that was rolled back by another writer's recovery tries again under a new operation id with the same commit id;
an unknown outcome is never retried (INV-09).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from omnigraph_spark.errors import ConflictError, FencedError
from omnigraph_spark.manifest.layout import SCHEMA_LOCK_BRANCH
from omnigraph_spark.manifest.store import normalize_branch
from omnigraph_spark.read.snapshot import GraphReader, Moment
from omnigraph_spark.storage.counters import PhaseClock
from omnigraph_spark.storage.parallel import Together
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write.arm import Arm, Recheck, RolledBack
from omnigraph_spark.write.attempt import Attempt
from omnigraph_spark.write.audit import RecoveryResult
from omnigraph_spark.write.lineage import PublishedCommit
from omnigraph_spark.write.plan import PublishPlan
from omnigraph_spark.write.pressure import check_versions
from omnigraph_spark.write.settings import WindowSettings
from omnigraph_spark.write.sidecar import SidecarStore
from omnigraph_spark.write.sweep import Sweep
from omnigraph_spark.write.txn import WriteTxn

log = logging.getLogger(__name__)
_MOST_ATTEMPTS = 20
_STALE = 3 * 86_400_000_000  # microseconds; well below the week that cleanup leaves staged files alone


@dataclass(slots=True)
class PublishAuthority:
    """Captures bases and publishes plans on one graph, for one operation.

    ``clock`` holds the seconds per phase; callers that stage and validate add theirs with ``clock.measure(phase)``.
    """

    reader: GraphReader
    settings: WindowSettings = field(default_factory=WindowSettings)
    clock: PhaseClock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = PhaseClock(self.reader.io.seams.monotonic)

    @property
    def sidecars(self) -> SidecarStore:
        """The graph's recovery records."""
        return SidecarStore(self.reader.root, objects=self.reader.objects)

    def open_txn(self, *, branch: str, actor: str | None = None) -> WriteTxn:
        """Capture the base of a write: the only resolution of "latest" before arm (INV-01)."""
        seams = self.reader.io.seams
        with self.clock.measure(Phase.CAPTURE):
            seams.hook(Phase.CAPTURE, "enter")
            with Together() as group:
                base = group.start(lambda: self.reader.resolve(Moment(branch=normalize_branch(branch))))
                lock = group.start(lambda: self.reader.manifest.branch_ref(SCHEMA_LOCK_BRANCH))
            snapshot, state = base.result()
            if lock.result() is not None:
                raise ConflictError(
                    "The schema of the graph is being changed by OmniGraph", hint="Write again when the change is done."
                )
            check_versions(self.reader, state, self.settings.limits)
        return WriteTxn(
            root=self.reader.root,
            branch=state.branch,
            graph_version=state.graph_version,
            head=state.head,
            epoch=state.epoch.number if state.epoch else 0,
            tables=state.tables,
            catalog=snapshot.catalog,
            layout=state.layout,
            config=self.reader.io.config,
            commit_id=seams.new_id(),
            actor=actor,
            state=state,
        )

    def publish(self, plan: PublishPlan, *, recheck: Recheck | None = None) -> PublishedCommit:
        """Publish a plan: commit it, or raise an error that says whether it committed."""
        seams = self.reader.io.seams
        deadline = seams.monotonic() + self.settings.patience
        for attempt in range(_MOST_ATTEMPTS):
            self._refuse_stale(plan)
            current = plan.attempt(seams.new_id())
            arm = Arm(self.reader, self.sidecars, self.settings, current, deadline, recheck)
            try:
                commit = Attempt(arm, self.clock).run()
            except RolledBack:
                log.info("rolled back operation_id=%s commit_id=%s", current.operation_id, plan.commit_id)
                seams.wait(seams.jitter(attempt=attempt))
            else:
                return self._measured(commit, attempts=attempt + 1)
        raise FencedError(f"Commit {plan.commit_id} was rolled back {_MOST_ATTEMPTS} times by other writers")

    def _refuse_stale(self, plan: PublishPlan) -> None:
        """Refuse a plan whose staged files cleanup may soon take for a dead writer's: Lance would not miss them."""
        if plan.started_at and self.reader.io.seams.now_micros() - plan.started_at > _STALE:
            raise FencedError(f"Commit {plan.commit_id} was staged days ago; its files may have been cleaned up")

    def recover(self, *, branch: str | None = None, actor: str | None = None) -> list[RecoveryResult]:
        """Resolve every record, or one branch's; no window is even entered when there is none."""
        return self._sweep(actor).run(branch=branch)

    def recover_at_open(self, *, branch: str, actor: str | None = None) -> list[RecoveryResult]:
        """Resolve what dead writers left when a graph is opened for writing: one listing when there is nothing."""
        return self._sweep(actor).at_open(branch=branch)

    def _sweep(self, actor: str | None) -> Sweep:
        return Sweep(self.reader, self.sidecars, self.settings, actor)

    def _measured(self, commit: PublishedCommit, *, attempts: int) -> PublishedCommit:
        """Return a commit with what it cost, and log one line of it."""
        counter = self.reader.io.settle()
        measured = replace(
            commit,
            attempts=attempts,
            storage_ops=counter.storage_ops,
            storage_stages=counter.stages,
            phase_seconds=self.clock.seconds(),
        )
        row = commit.row
        facts = {
            "commit_id": row.commit_id,
            "branch": row.branch,
            "graph_version": row.graph_version,
            "epoch": row.extra.get("epoch"),
            "attempts": attempts,
            "storage_ops": measured.storage_ops,
            "storage_stages": measured.storage_stages,
            **{f"{phase}_ms": round(1000 * seconds) for phase, seconds in measured.phase_seconds.items()},
        }
        log.info("committed %s", " ".join(f"{name}={value}" for name, value in facts.items()))
        return measured
