"""One attempt of a publish under one operation id: arm → effect → publish → retire, and what each failure leaves.

Before the claim: a sidecar, deleted again. After the claim, before effects: the window is released. In effect: the
attempt holds the window and resolves its own record, forward or back. In publish: a re-fold says whether the commit is
there; nothing is guessed and an unknown outcome is never replayed (INV-09). After publish: a leftover sidecar that
recovery recognises as done. A fenced attempt waits for its fate: its commit id in the manifest means committed, its
record gone without it means rolled back, and only then may the write try again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from omnigraph_spark.errors import FormatError, OmnigraphError, OutcomeUnknownError, StorageError, WindowBusyError
from omnigraph_spark.manifest.boundary import read_boundary
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.manifest.store import OpenManifest
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.counters import PhaseClock
from omnigraph_spark.storage.lance_errors import LanceConflictError
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write.adopted import adopted_commit
from omnigraph_spark.write.arm import AlreadyCommitted, Arm, Entry, Recheck, RolledBack
from omnigraph_spark.write.audit import RecoveryResult
from omnigraph_spark.write.effect import (
    MovedTable,
    TableHead,
    apply_effects,
    open_heads,
    prepare_effects,
    residue_of_fenced,
)
from omnigraph_spark.write.lineage import PublishedCommit, commit_of_plan, rows_of_plan
from omnigraph_spark.write.plan import PublishPlan, empty_plan
from omnigraph_spark.write.recover import Recovery
from omnigraph_spark.write.window import Fenced, Watch, Window, owns, swap

__all__ = ["AlreadyCommitted", "Attempt", "Recheck", "RolledBack"]
log = logging.getLogger(__name__)
_MOST_SWAPS = 20
_MOST_FAILURES = 3


@dataclass(slots=True)
class Attempt:
    """Runs a plan once."""

    arm: Arm
    clock: PhaseClock

    @property
    def plan(self) -> PublishPlan:
        """The plan, on the pins it was last checked against."""
        return self.arm.plan

    @property
    def reader(self) -> GraphReader:
        """The graph."""
        return self.arm.reader

    @property
    def io(self) -> LanceIO:
        """Storage of the operation."""
        return self.arm.reader.io

    def run(self) -> PublishedCommit:
        """Arm, effect, publish, retire."""
        try:
            with self._phase(Phase.ARM):
                entry = self._arm()
            with self._phase(Phase.EFFECT):
                window, moved = self._effect(entry)
            with self._phase(Phase.PUBLISH):
                commit = self._published(window, moved)
        except AlreadyCommitted as done:
            return done.commit
        with self._phase(Phase.RETIRE):
            self._enter(Phase.RETIRE)
            self.arm.forget()
            self.io.counter.count_stage()
        return commit

    def recover_only(self, records: Collection[str]) -> list[RecoveryResult]:
        """Enter the window for nothing but recovery, of these records and of the owners it displaces."""
        while True:
            entry = self.arm.enter(check=False)
            recovery = self._recovery(entry)
            try:
                self.io.seams.hook(Phase.ARM, "claimed")
                return recovery.resolve_owed(also=records)
            except Fenced:
                log.warning("fenced while recovering operation_id=%s", self.plan.operation_id)
            finally:
                self.arm.leave(recovery.window)
            if self.io.seams.monotonic() >= self.arm.deadline:
                raise WindowBusyError(f"Recovery of branch {self.plan.branch!r} was taken over by others")
            self.arm = self.arm.renewed()

    def _phase(self, phase: Phase) -> contextlib.AbstractContextManager[None]:
        log.debug("phase=%s operation_id=%s", phase.value, self.plan.operation_id)
        return self.clock.measure(phase)

    def _enter(self, phase: Phase) -> None:
        self.io.seams.hook(phase, "enter")

    def _recovery(self, entry: Entry) -> Recovery:
        return Recovery(self.io, self.reader.manifest, self.arm.sidecars, entry.window)

    # -- before effects: whatever happens, the window is given up again ------------------------------------------------

    def _arm(self) -> Entry:
        self._enter(Phase.ARM)
        entry = self.arm.enter()
        recovery = self._recovery(entry)
        with self._leaving(recovery):
            self.io.seams.hook(Phase.ARM, "claimed")
            if entry.window.epoch.owed:
                self.arm.forget_head_start()
                recovery.resolve_owed()
                self.arm.check(recovery.refold())
        return replace(entry, window=recovery.window)

    def _effect(self, entry: Entry) -> tuple[Window, dict[str, MovedTable]]:
        recovery = self._recovery(entry)
        with self._leaving(recovery):
            self._enter(Phase.EFFECT)
            effects = prepare_effects(self.io, self.plan, self._heads(recovery))
            stayed = self.io.seams.monotonic() - entry.entered
            if stayed > self.arm.settings.timeout:
                # Somebody may be about to take over: a first effect now would only be work to undo.
                log.warning("left an overdue window operation_id=%s after=%.1fs", self.plan.operation_id, stayed)
                raise RolledBack
        try:
            moved = apply_effects(self.io, self.plan, effects, epoch=recovery.window.epoch.number)
        except BaseException as error:
            if not isinstance(error, Exception):
                log.warning("interrupted: operation_id=%s stays for the next recovery", self.plan.operation_id)
                raise
            self._settle(recovery.window, error)
        return recovery.window, moved

    def _heads(self, recovery: Recovery) -> dict[str, TableHead]:
        """Return the planned tables with HEAD at the pin, or with nothing but maintenance after it."""
        ready = self.arm.head_start()
        late = [pin for pin in self.plan.pins if pin.table_key not in ready]
        if not late:
            return ready
        heads = ready | open_heads(self.io, self.reader.root, late)
        if residue_of_fenced(heads, epoch=recovery.window.epoch.number):
            recovery.undo_residue(self.plan.pins)
            self.arm.check(recovery.refold())
            heads = open_heads(self.io, self.reader.root, self.plan.pins)
            residue_of_fenced(heads, epoch=recovery.window.epoch.number)
        return heads

    @contextlib.contextmanager
    def _leaving(self, recovery: Recovery) -> Iterator[None]:
        """Give the window up when the block fails: it made no effect, so a fenced attempt may simply try again."""
        try:
            yield
        except BaseException as error:
            epoch = recovery.window.epoch
            fenced = isinstance(error, Fenced)
            if isinstance(error, OmnigraphError):
                with contextlib.suppress(StorageError):
                    # A fenced writer first notices by drift on its tables: who owns the window comes before that.
                    fenced = not owns(self.reader.manifest.open(branch=self.plan.branch).state, epoch)
            self.arm.leave(recovery.window)
            if fenced:
                raise RolledBack from error
            raise

    # -- after effects -----------------------------------------------------------------------------------------------

    def _published(self, window: Window, moved: dict[str, MovedTable]) -> PublishedCommit:
        try:
            self._enter(Phase.PUBLISH)
            return self._publish(window, moved)
        except Exception as error:
            if isinstance(error, (OmnigraphError, AlreadyCommitted, RolledBack)):
                raise
            self._settle(window, error)

    def _publish(self, window: Window, moved: dict[str, MovedTable]) -> PublishedCommit:
        error: OmnigraphError = StorageError(f"Commit {self.plan.commit_id} landed below the cleanup boundary")
        failures = 0
        for attempt in range(_MOST_SWAPS):
            left = replace(window.epoch, in_window=False)
            commit = commit_of_plan(
                self.plan, window.state, epoch=left, created_at=self.io.seams.now_micros(), moved=moved
            )
            rows = rows_of_plan(
                self.reader.root, self.plan, window.state, commit=commit, moved=moved.values(), epoch=left
            )
            try:
                landed = swap(self.io, window.manifest, rows).state
                if self._counts(landed.graph_version):
                    return PublishedCommit(landed.commit(self.plan.commit_id) or commit)
            except (StorageError, FormatError) as e:
                error = e
                failures += not isinstance(e, LanceConflictError)
            manifest = self._fold_or_unknown(error)
            found = manifest.state.commit(self.plan.commit_id)
            if found is not None:
                return PublishedCommit(found)
            if not owns(manifest.state, window.epoch):
                self._fate(error)
            window = window.with_manifest(manifest)
            if failures >= _MOST_FAILURES or self._moved_under_us(manifest.state):
                break
            self.io.seams.wait(self.io.seams.jitter(attempt=attempt))
        self._settle(window, error)

    def _counts(self, graph_version: int) -> bool:
        """INV-12: a version at or below the cleanup boundary is in nobody's history, however well its create went."""
        self.io.counter.count_stage()
        return graph_version > read_boundary(self.reader.objects, self.reader.root, branch=self.plan.branch)

    def _moved_under_us(self, state: GraphState) -> bool:
        """Say whether somebody who does not know the window published one of our tables."""
        tables = state.tables
        return any(p.table_key not in tables or tables[p.table_key].version != p.version for p in self.plan.pins)

    def _settle(self, window: Window, error: Exception) -> NoReturn:
        """Effects cannot be published as they are: resolve our own record under our window, then say what happened."""
        recovery = Recovery(self.io, self.reader.manifest, self.arm.sidecars, window)
        try:
            recovery.refold()
            record = self.arm.sidecars.read(self.plan.operation_id)
            if record is not None:
                recovery.resolve(record)
            state = recovery.window.state
            found = state.commit(self.plan.commit_id) or adopted_commit(self.io, self.reader.root, self.plan, state)
        except Fenced:
            self._fate(error)
        except OmnigraphError as second:
            raise self._unknown(error) from second
        self.arm.leave(recovery.window)
        if found is not None:
            raise AlreadyCommitted(PublishedCommit(found))
        if isinstance(error, LanceConflictError):
            raise RolledBack from error
        raise error

    def _fate(self, error: Exception) -> NoReturn:
        """Fenced with effects: wait until the commit is there, or the record is gone without it."""
        log.warning("fenced operation_id=%s commit_id=%s", self.plan.operation_id, self.plan.commit_id)
        watch = Watch(self.io, grace=self.arm.settings.grace)
        while True:
            # The record is looked up before the fold: gone and then absent means rolled back, in this order only.
            try:
                left = self.arm.sidecars.exists(self.plan.operation_id)
                state = self.reader.manifest.open(branch=self.plan.branch).state
                found = state.commit(self.plan.commit_id)
                if found is None and not left:
                    found = adopted_commit(self.io, self.reader.root, self.plan, state)
            except StorageError as e:
                raise self._unknown(error) from e
            if found is not None:
                raise AlreadyCommitted(PublishedCommit(found))
            if not left:
                raise RolledBack from error
            epoch = state.epoch
            if epoch is None or not epoch.in_window or watch.overdue(epoch):
                self._recover_myself()
            if self.io.seams.monotonic() >= self.arm.deadline:
                raise self._unknown(error)
            watch.pause()

    def _recover_myself(self) -> None:
        plan = empty_plan(self.io.seams, branch=self.plan.branch, actor=self.plan.actor)
        arm = Arm(self.reader, self.arm.sidecars, self.arm.settings, plan, self.arm.deadline)
        try:
            Attempt(arm, self.clock).recover_only([self.plan.operation_id])
        except OmnigraphError as e:
            # The next look at our own record says whether it was resolved; somebody else's trouble is not the answer.
            log.warning("recovering operation_id=%s: %s", self.plan.operation_id, e.message)

    def _fold_or_unknown(self, error: Exception) -> OpenManifest:
        try:
            return self.reader.manifest.open(branch=self.plan.branch)
        except StorageError as e:
            raise self._unknown(error) from e

    def _unknown(self, error: Exception) -> OutcomeUnknownError:
        reason = error.message if isinstance(error, OmnigraphError) else repr(error)
        return OutcomeUnknownError(
            f"Commit {self.plan.commit_id} on branch {self.plan.branch!r} may or may not land: {reason}",
            operation_id=self.plan.operation_id,
        )
