"""The publish authority: the only way a plan becomes a commit; it owns the only retry loop.

A write that was rolled back by another writer's recovery tries again under a new operation id with the same commit id;
an unknown outcome is never retried (INV-09).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from omnigraph_spark.errors import FencedError
from omnigraph_spark.manifest.store import normalize_branch
from omnigraph_spark.read.snapshot import GraphReader, Moment
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write.attempt import Attempt, Recheck, RolledBack
from omnigraph_spark.write.audit import RecoveryResult
from omnigraph_spark.write.lineage import PublishedCommit
from omnigraph_spark.write.plan import PublishPlan, empty_plan
from omnigraph_spark.write.settings import WindowSettings
from omnigraph_spark.write.sidecar import SidecarStore
from omnigraph_spark.write.txn import WriteTxn

log = logging.getLogger(__name__)
_MOST_ATTEMPTS = 20


@dataclass(slots=True)
class PublishAuthority:
    """Captures bases and publishes plans on one graph, for one operation."""

    reader: GraphReader
    settings: WindowSettings = field(default_factory=WindowSettings)

    @property
    def sidecars(self) -> SidecarStore:
        """The graph's recovery records."""
        return SidecarStore(self.reader.root, objects=self.reader.objects)

    def open_txn(self, *, branch: str, actor: str | None = None) -> WriteTxn:
        """Capture the base of a write: the only resolution of "latest" before arm (INV-01)."""
        seams = self.reader.io.seams
        seams.hook(Phase.CAPTURE, "enter")
        snapshot, state = self.reader.resolve(Moment(branch=normalize_branch(branch)))
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
        )

    def publish(self, plan: PublishPlan, *, recheck: Recheck | None = None) -> PublishedCommit:
        """Publish a plan: commit it, or raise an error that says whether it committed."""
        seams = self.reader.io.seams
        deadline = seams.monotonic() + self.settings.patience
        for attempt in range(_MOST_ATTEMPTS):
            run = self._attempt(plan.attempt(seams.new_id()), recheck, deadline)
            try:
                return run.run()
            except RolledBack:
                log.info("rolled back operation_id=%s commit_id=%s", run.plan.operation_id, plan.commit_id)
                seams.wait(seams.jitter(attempt=attempt))
        raise FencedError(f"Commit {plan.commit_id} was rolled back {_MOST_ATTEMPTS} times by other writers")

    def recover(self, *, branch: str, actor: str | None = None) -> list[RecoveryResult]:
        """Resolve every record of a branch; the window is not even entered when there is none."""
        if not self.sidecars.operation_ids():
            return []
        seams = self.reader.io.seams
        plan = empty_plan(seams, branch=branch, actor=actor)
        return self._attempt(plan, None, seams.monotonic() + self.settings.patience).recover_only()

    def _attempt(self, plan: PublishPlan, recheck: Recheck | None, deadline: float) -> Attempt:
        return Attempt(self.reader, self.sidecars, self.settings, plan, recheck, deadline)
