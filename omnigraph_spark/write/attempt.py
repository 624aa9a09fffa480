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
from collections.abc import Callable
from dataclasses import dataclass, replace

from omnigraph_spark.errors import (
    ConflictError,
    OmnigraphError,
    OutcomeUnknownError,
    StorageError,
    WindowBusyError,
)
from omnigraph_spark.manifest.state import GraphState, TableEntry
from omnigraph_spark.manifest.store import OpenManifest
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.lance_commit import transactions_between
from omnigraph_spark.storage.lance_errors import LanceConflictError
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.parallel import Together
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write.actions import OperationClass
from omnigraph_spark.write.audit import RecoveryResult
from omnigraph_spark.write.effect import MovedTable, TableHead, apply_effects, open_heads, residue_of_fenced
from omnigraph_spark.write.lineage import PublishedCommit, commit_of_plan, rows_of_plan
from omnigraph_spark.write.plan import PublishPlan, TablePin, empty_plan
from omnigraph_spark.write.recover import Recovery
from omnigraph_spark.write.settings import WindowSettings
from omnigraph_spark.write.sidecar import SidecarStore
from omnigraph_spark.write.window import Watch, Window, claim, owns, refresh, release, swap

log = logging.getLogger(__name__)
_MOST_SWAPS = 20

# Called under arm with the plan and the fold it would land on; raises when the write is no longer valid there.
Recheck = Callable[[PublishPlan, GraphState], None]


class RolledBack(Exception):
    """This attempt's effects were undone; the same logical write may try again under a new operation id."""


class AlreadyCommitted(Exception):
    """The logical write is in the manifest, through an earlier attempt or an earlier run."""

    def __init__(self, commit: PublishedCommit) -> None:
        super().__init__(commit.row.commit_id)
        self.commit = commit


@dataclass(slots=True)
class Attempt:
    """Runs a plan once."""

    reader: GraphReader
    sidecars: SidecarStore
    settings: WindowSettings
    plan: PublishPlan
    recheck: Recheck | None
    deadline: float

    @property
    def io(self) -> LanceIO:
        """Storage of the operation."""
        return self.reader.io

    def run(self) -> PublishedCommit:
        """Arm, effect, publish, retire."""
        self._enter(Phase.ARM)
        try:
            window = self._arm()
        except AlreadyCommitted as done:
            return done.commit
        try:
            self._enter(Phase.EFFECT)
            window, heads = self._heads(window)
        except OmnigraphError as error:
            if not owns(self._fold_or_unknown(error).state, window.epoch):
                return self._fate(error)
            self._leave(window)
            raise
        try:
            moved = apply_effects(self.io, self.plan, heads, epoch=window.epoch.number)
        except OmnigraphError as error:
            return self._settle(window, error)
        self._enter(Phase.PUBLISH)
        commit = self._publish(window, moved)
        self._enter(Phase.RETIRE)
        self._forget()
        return commit

    def recover_only(self) -> list[RecoveryResult]:
        """Enter the window for nothing but recovery."""
        self.sidecars.put(self.plan)
        manifest = self.reader.manifest.open(branch=self.plan.branch)
        window, _ = self._claim(manifest, check=False)
        recovery = self._recovery(window)
        try:
            return recovery.resolve_all()
        finally:
            self._leave(recovery.window)

    def _enter(self, phase: Phase) -> None:
        log.debug("phase=%s operation_id=%s", phase.value, self.plan.operation_id)
        self.io.seams.hook(phase, "enter")

    # -- arm ---------------------------------------------------------------------------------------------------------

    def _arm(self) -> Window:
        with Together(counter=self.io.counter) as group:
            # INV-03: the record is durable before the claim, so every claimed epoch names a record that exists.
            writing = group.start(lambda: self.sidecars.put(self.plan))
            folding = group.start(lambda: self.reader.manifest.open(branch=self.plan.branch))
        writing.result()
        try:
            manifest = folding.result()
            self.io.seams.hook(Phase.ARM, "armed")
            window, took_over = self._claim(manifest, check=True)
        except BaseException:
            self._forget()
            raise
        self.io.seams.hook(Phase.ARM, "claimed")
        if took_over:
            window = self._recover_others(window)
        return window

    def _claim(self, manifest: OpenManifest, *, check: bool) -> tuple[Window, bool]:
        """Wait for the window and enter it; the second value says that its last owner did not leave cleanly."""
        watch = Watch(self.io, grace=self.settings.grace)
        lost = 0
        while True:
            if check:
                self._check(manifest.state)
            epoch = manifest.state.epoch
            busy = epoch is not None and epoch.in_window
            if not busy or (epoch is not None and watch.overdue(epoch)):
                try:
                    return claim(self.io, manifest, operation_id=self.plan.operation_id, actor=self.plan.actor), busy
                except LanceConflictError:
                    lost += 1
            if self.io.seams.monotonic() >= self.deadline:
                raise WindowBusyError(
                    f"Branch {self.plan.branch!r} stayed busy for the whole patience of {self.settings.patience:g} s"
                )
            self.io.seams.wait(self.io.seams.jitter(attempt=lost, base=0.05, cap=min(1.0, self.settings.grace / 4)))
            manifest = refresh(self.reader.manifest, manifest, branch=self.plan.branch)

    def _check(self, state: GraphState) -> None:
        """Refuse, or re-pin, the plan on the fold it would land on; say so when it has landed already."""
        found = state.commit(self.plan.commit_id)
        if found is not None:
            raise AlreadyCommitted(PublishedCommit(found))
        if state.recovered(self.plan.operation_id):
            # A recovery met our record before we claimed: the record is gone, so this operation id may not claim.
            raise RolledBack
        self._check_token(state)
        head = state.head
        expected = self.plan.expected_version
        if expected is not None and (head is None or head.graph_version != expected):
            actual = head.graph_version if head else 0
            raise ConflictError(
                f"The graph is at version {actual}, not at the expected {expected}", expected=expected, actual=actual
            )
        self.plan = self.plan.repinned(tuple(self._repin(pin, state) for pin in self.plan.pins))
        if self.recheck is not None:
            self.recheck(self.plan, state)

    def _check_token(self, state: GraphState) -> None:
        token = self.plan.token
        applied = state.token(token.app_id) if token is not None else None
        if token is None or applied is None or applied.txn_version < token.txn_version:
            return
        first = state.commit(applied.commit_id)
        if first is None:
            raise ConflictError(f"Transaction {token.txn_version} of {token.app_id!r} was applied by a lost commit")
        raise AlreadyCommitted(PublishedCommit(first, repeated=True))

    def _repin(self, pin: TablePin, state: GraphState) -> TablePin:
        entry = state.tables.get(pin.table_key)
        if entry is None or entry.path != pin.path or entry.branch != pin.branch:
            raise ConflictError(f"{pin.table_key} was removed or moved by another commit", table_key=pin.table_key)
        if entry.version == pin.version:
            return pin
        strict = self.plan.operation_class(pin.table_key) is OperationClass.STRICT
        if strict and not self._only_maintenance(pin, entry):
            raise ConflictError(
                f"{pin.table_key} was changed by another commit (version {pin.version} → {entry.version})",
                table_key=pin.table_key,
                expected=pin.version,
                actual=entry.version,
            )
        return TablePin(entry.table_key, entry.path, entry.branch, entry.version, entry.row_count)

    def _only_maintenance(self, pin: TablePin, entry: TableEntry) -> bool:
        dataset = self.io.open(pin.uri(self.reader.root), table=pin.table_key, version=entry.version)
        between = transactions_between(dataset, after=pin.version, upto=entry.version)
        return all(t.is_maintenance for t in between)

    def _recovery(self, window: Window) -> Recovery:
        return Recovery(self.io, self.reader.manifest, self.sidecars, window)

    def _recover_others(self, window: Window) -> Window:
        recovery = self._recovery(window)
        try:
            recovery.resolve_all()
            self._check(recovery.refold())
        except BaseException:
            self._leave(recovery.window)
            raise
        return recovery.window

    def _heads(self, window: Window) -> tuple[Window, dict[str, TableHead]]:
        """Open the planned tables under the window; HEAD must be the pin, or maintenance after it."""
        heads = open_heads(self.io, self.reader.root, self.plan.pins)
        residue = residue_of_fenced(heads, epoch=window.epoch.number)
        if not residue:
            return window, heads
        recovery = self._recovery(window)
        recovery.undo_residue(residue)
        self._check(recovery.window.state)
        return recovery.window, open_heads(self.io, self.reader.root, self.plan.pins)

    # -- after effects -----------------------------------------------------------------------------------------------

    def _settle(self, window: Window, error: OmnigraphError) -> PublishedCommit:
        """An effect failed: resolve our own record while the window is ours, then answer what happened."""
        recovery = self._recovery(window)
        try:
            record = self.sidecars.read(self.plan.operation_id)
            if record is None:
                return self._fate(error)
            result = recovery.resolve(record)
            found = recovery.window.state.commit(self.plan.commit_id)
            self._leave(recovery.window)
        except OmnigraphError as second:
            raise self._unknown(error) from second
        if result is not None and result.kind == "RolledForward":
            return self._fate(error)
        if found is not None:
            return PublishedCommit(found)
        if isinstance(error, LanceConflictError):
            raise RolledBack from error
        raise error

    def _publish(self, window: Window, moved: dict[str, MovedTable]) -> PublishedCommit:
        error: OmnigraphError | None = None
        for _ in range(_MOST_SWAPS):
            state = window.state
            commit = commit_of_plan(
                self.plan, state, epoch=window.epoch, created_at=self.io.seams.now_micros(), moved=moved
            )
            left = replace(window.epoch, in_window=False)
            rows = rows_of_plan(self.reader.root, self.plan, state, commit=commit, moved=moved.values(), epoch=left)
            try:
                swap(self.io, window.manifest, rows, epoch=left)
                return PublishedCommit(commit)
            except StorageError as e:
                error = e
            manifest = self._fold_or_unknown(error)
            found = manifest.state.commit(self.plan.commit_id)
            if found is not None:
                return PublishedCommit(found)
            if not owns(manifest.state, window.epoch):
                return self._fate(error)
            if any(manifest.state.tables[p.table_key].version != p.version for p in self.plan.pins):
                return self._settle(window.with_manifest(manifest), error)
            window = window.with_manifest(manifest)
            self.io.seams.wait(self.io.seams.jitter(attempt=0))
        raise self._unknown(error)

    def _fate(self, error: OmnigraphError) -> PublishedCommit:
        """Fenced: wait until the commit is there, or the record is gone without it."""
        log.warning("fenced operation_id=%s commit_id=%s", self.plan.operation_id, self.plan.commit_id)
        watch = Watch(self.io, grace=self.settings.grace)
        while True:
            # The record is looked up before the fold: gone and then absent means rolled back, in this order only.
            try:
                left = self.sidecars.exists(self.plan.operation_id)
            except StorageError as e:
                raise self._unknown(error) from e
            manifest = self._fold_or_unknown(error)
            found = manifest.state.commit(self.plan.commit_id)
            if found is not None:
                return PublishedCommit(found)
            if not left:
                raise RolledBack from error
            epoch = manifest.state.epoch
            if epoch is None or not epoch.in_window or watch.overdue(epoch):
                self._recover_myself()
            if self.io.seams.monotonic() >= self.deadline:
                raise self._unknown(error)
            self.io.seams.wait(self.io.seams.jitter(attempt=2, base=0.05))

    def _recover_myself(self) -> None:
        plan = empty_plan(self.io.seams, branch=self.plan.branch, actor=self.plan.actor)
        Attempt(self.reader, self.sidecars, self.settings, plan, None, self.deadline).recover_only()

    def _fold_or_unknown(self, error: OmnigraphError | None) -> OpenManifest:
        try:
            return self.reader.manifest.open(branch=self.plan.branch)
        except StorageError as e:
            raise self._unknown(error) from e

    def _unknown(self, error: OmnigraphError | None) -> OutcomeUnknownError:
        reason = f": {error.message}" if error is not None else ""
        return OutcomeUnknownError(
            f"Commit {self.plan.commit_id} on branch {self.plan.branch!r} may or may not land{reason}",
            operation_id=self.plan.operation_id,
        )

    # -- leaving -----------------------------------------------------------------------------------------------------

    def _leave(self, window: Window) -> None:
        """Give the window up without a commit; if that fails, the next writer's grace ends it."""
        with contextlib.suppress(StorageError):
            release(self.io, window)
            self._forget()

    def _forget(self) -> None:
        """Remove a record that has no effects; a leftover one is rolled back by the next recovery."""
        with contextlib.suppress(StorageError):
            self.sidecars.delete(self.plan.operation_id)
