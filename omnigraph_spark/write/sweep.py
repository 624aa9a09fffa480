"""Recovery over all branches: on an explicit call, and gently at a read-write open.

A record may belong to a writer that is alive and waiting for its turn. At an open nobody asked for recovery, so records
are given the grace to go away by themselves; only what is still there then is resolved, each branch's under that
branch's own window. When others go in and out of the opened branch's window meanwhile, nothing is resolved at all: a
living writer may just not have had its turn, whoever displaces a dead one answers for it, and a quieter open does the
rest. A bad record stops its own branch only.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from omnigraph_spark.errors import RecoveryError, StorageError, WindowBusyError
from omnigraph_spark.manifest.layout import MAIN
from omnigraph_spark.manifest.rows import EpochRow
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.counters import PhaseClock
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write.arm import Arm
from omnigraph_spark.write.attempt import Attempt
from omnigraph_spark.write.audit import RecoveryResult
from omnigraph_spark.write.plan import empty_plan
from omnigraph_spark.write.settings import WindowSettings
from omnigraph_spark.write.sidecar import BadRecord, Sidecar, SidecarStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """The records of a graph, by the branch under whose window they are resolved."""

    records: Mapping[str, list[Sidecar]]
    bad: tuple[BadRecord, ...]


@dataclass(slots=True)
class Sweep:
    """Resolves the records of one graph."""

    reader: GraphReader
    sidecars: SidecarStore
    settings: WindowSettings
    actor: str | None = None

    def run(self, *, branch: str | None = None) -> list[RecoveryResult]:
        """Resolve every record, or one branch's; bad ones are raised after the good ones are done."""
        found = self._find(self.sidecars.operation_ids())
        results: list[RecoveryResult] = []
        errors = [b.error() for b in found.bad if branch is None or b.concerns(branch)]
        for name, records in sorted(found.records.items()):
            if branch is None or name == branch:
                try:
                    results.extend(self._resolve(name, [r.operation_id for r in records]))
                except RecoveryError as e:
                    errors.append(e)
        if errors:
            raise RecoveryError("; ".join(e.message for e in errors), hint=errors[0].hint)
        return results

    def at_open(self, *, branch: str) -> list[RecoveryResult]:
        """Resolve what dead writers left; one listing and nothing else when there is nothing.

        Only a bad record of the opened branch is raised. A store that refuses writes, or other writers at work, must
        not keep anybody from opening a graph (INV-17): they are logged, and the next open or takeover tries again.
        """
        listed = self.sidecars.operation_ids()
        if not listed:
            return []
        found = self._find(self._patiently(listed, branch=branch))
        results: list[RecoveryResult] = []
        errors = [(b.concerns(branch), b.error()) for b in found.bad]
        for name, records in sorted(found.records.items()):
            try:
                results.extend(self._resolve(name, [r.operation_id for r in records]))
            except RecoveryError as e:
                errors.append((name == branch, e))
            except (StorageError, WindowBusyError) as e:
                log.warning("recovery of branch %s is left to the next writer: %s", name, e.message)
        for stops, error in errors:
            if stops:
                raise RecoveryError(error.message, hint=f"{error.hint} To read, open with read_only=True.")
            log.warning("a record of another branch needs attention: %s", error.message)
        return results

    def _patiently(self, listed: Collection[str], *, branch: str) -> list[str]:
        """Give living writers the grace to retire their records; return the ones that stayed while nothing moved."""
        seams = self.reader.io.seams
        before = self._epoch(branch)
        if before is None or not before.in_window:
            self._retire_published(self._find(listed))
        until = seams.monotonic() + self.settings.grace
        left = set(listed) & set(self.sidecars.operation_ids())
        attempt = 0
        while left and seams.monotonic() < until:
            seams.wait(seams.jitter(attempt=attempt, base=0.05, cap=min(1.0, self.settings.grace / 4)))
            attempt += 1
            if self._epoch(branch) != before:
                log.info("records are left alone: writers are at work on branch %s", branch)
                return []
            left &= set(self.sidecars.operation_ids())
        return sorted(left)

    def _epoch(self, branch: str) -> EpochRow | None:
        return self.reader.manifest.open(branch=branch).state.epoch

    def _retire_published(self, found: Found) -> None:
        """Remove records whose own commit is published: every effect came before it, so nothing can follow."""
        for name, records in found.records.items():
            state = self.reader.manifest.open(branch=name).state
            for record in records:
                plan = record.document.get("plan")
                commit = state.commit(str(plan.get("commit_id"))) if isinstance(plan, dict) else None
                if commit is not None and commit.extra.get("operation_id") == record.operation_id:
                    self.sidecars.delete(record.operation_id)

    def _find(self, operation_ids: Collection[str]) -> Found:
        records: dict[str, list[Sidecar]] = {}
        bad: list[BadRecord] = []
        exists: dict[str, bool] = {MAIN: True}
        for operation_id in sorted(operation_ids):
            record = self.sidecars.examine(operation_id)
            if isinstance(record, BadRecord):
                bad.append(record)
            elif record is not None:
                if record.branch not in exists:
                    exists[record.branch] = self.reader.manifest.branch_ref(record.branch) is not None
                records.setdefault(record.branch if exists[record.branch] else MAIN, []).append(record)
        return Found(records, tuple(bad))

    def _resolve(self, branch: str, operation_ids: Collection[str]) -> list[RecoveryResult]:
        seams = self.reader.io.seams
        seams.hook(Phase.RECOVER, "enter")
        plan = empty_plan(seams, branch=branch, actor=self.actor)
        arm = Arm(self.reader, self.sidecars, self.settings, plan, seams.monotonic() + self.settings.patience)
        return Attempt(arm, PhaseClock(seams.monotonic)).recover_only(operation_ids)
