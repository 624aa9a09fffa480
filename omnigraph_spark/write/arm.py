"""Arm: make the plan durable, check it on the newest fold, and claim the window; and every way to leave it again.

INV-03 in one sentence: the record is on storage before the claim is sent, and it stays there while a claim of it may
still land. A claim whose answer was lost is recognised on the next fold by its operation id.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import lance

from omnigraph_spark.errors import ConflictError, StorageError, WindowBusyError
from omnigraph_spark.manifest.rows import EpochRow
from omnigraph_spark.manifest.state import GraphState, TableEntry
from omnigraph_spark.manifest.store import OpenManifest
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.lance_commit import transactions_between
from omnigraph_spark.storage.lance_errors import LanceConflictError
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.parallel import Together
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write.actions import OperationClass
from omnigraph_spark.write.effect import TableHead
from omnigraph_spark.write.line import Line
from omnigraph_spark.write.lineage import PublishedCommit
from omnigraph_spark.write.plan import PublishPlan, TablePin
from omnigraph_spark.write.pressure import check_fragments
from omnigraph_spark.write.settings import WindowSettings
from omnigraph_spark.write.sidecar import SidecarStore
from omnigraph_spark.write.window import Watch, Window, claim, holds, owns, refresh, release

_MOST_RELEASES = 10

# Called under arm with the plan and the fold it would land on; raises when the write is no longer valid there.
Recheck = Callable[[PublishPlan, GraphState], None]


class RolledBack(Exception):
    """This attempt has no effects, or they were undone; the same logical write may try again under a new id."""


class AlreadyCommitted(Exception):
    """The logical write is in the manifest, through an earlier attempt or an earlier run."""

    def __init__(self, commit: PublishedCommit) -> None:
        super().__init__(commit.row.commit_id)
        self.commit = commit


@dataclass(frozen=True, slots=True)
class Entry:
    """A window just entered; its epoch names the displaced owners whose records must be resolved first."""

    window: Window
    entered: float


@dataclass(slots=True)
class Arm:
    """Brings one plan into the window, under its operation id."""

    reader: GraphReader
    sidecars: SidecarStore
    settings: WindowSettings
    plan: PublishPlan
    deadline: float
    recheck: Recheck | None = None
    _sent: bool = False
    _opened: dict[str, lance.LanceDataset] = field(default_factory=dict)

    @property
    def io(self) -> LanceIO:
        """Storage of the operation."""
        return self.reader.io

    def enter(self, *, check: bool = True) -> Entry:
        """Write the record, wait for the window and claim it; whatever fails leaves neither record nor window."""
        try:
            manifest = self._prepare()
            self.io.seams.hook(Phase.ARM, "armed")
            return self._claim(manifest, check=check)
        except BaseException:
            self._abandon()
            raise

    def _prepare(self) -> OpenManifest:
        """Write the record, fold the manifest and open the planned tables, all at once."""
        with Together(counter=self.io.counter) as group:
            # INV-03: the record is durable before the claim, so every claimed epoch names a record that exists.
            writing = group.start(lambda: self.sidecars.put(self.plan))
            folding = group.start(lambda: self.reader.manifest.open(branch=self.plan.branch))
            for pin in self.plan.pins:
                group.start(lambda pin=pin: self._open(pin))  # type: ignore[misc]
        writing.result()
        for key, dataset in sorted(self._opened.items()):
            if self.plan.operation_class(key) is not OperationClass.MAINTENANCE:
                check_fragments(key, dataset, self.settings.limits)
        return folding.result()

    def _open(self, pin: TablePin) -> None:
        # Only a head start: a table that is not exactly at its pin is opened again under the window, where it counts.
        with contextlib.suppress(StorageError):
            self._opened[pin.table_key] = self.io.open(pin.uri(self.reader.root), table=pin.table_key)

    def head_start(self) -> dict[str, TableHead]:
        """Return the tables whose HEAD was the pin when arm opened them; a later change shows at the commit."""
        opened = ((pin, self._opened.get(pin.table_key)) for pin in self.plan.pins)
        return {
            pin.table_key: TableHead(pin, dataset, ())
            for pin, dataset in opened
            if dataset is not None and int(dataset.version) == pin.version
        }

    def forget_head_start(self) -> None:
        """Drop the early handles: recovery has moved tables since."""
        self._opened.clear()

    def _claim(self, manifest: OpenManifest, *, check: bool) -> Entry:
        watch = Watch(self.io, grace=self.settings.grace)
        line = Line(self.sidecars, operation_id=self.plan.operation_id, seams=self.io.seams)
        checked: OpenManifest | None = None
        while True:
            epoch = manifest.state.epoch
            ours = holds(manifest.state, self.plan.operation_id)
            our_turn = ours or epoch is None or not epoch.in_window or watch.overdue(epoch)
            if check and manifest is not checked:
                if our_turn:
                    self.check(manifest.state)
                    checked = manifest
                else:
                    # The fold will have moved on when our turn comes: only what ends the wait counts now.
                    self._check_done(manifest.state)
            if epoch is not None and ours:
                return Entry(Window(epoch, manifest), self.io.seams.monotonic())
            if our_turn:
                window = self._send_claim(manifest)
                if window is not None:
                    return Entry(window, self.io.seams.monotonic())
            if self.io.seams.monotonic() >= self.deadline:
                raise WindowBusyError(
                    f"Branch {self.plan.branch!r} stayed busy for the whole patience of {self.settings.patience:g} s"
                )
            watch.pause(rest=line.rest(epoch) if epoch is not None else 0.0)
            manifest = refresh(self.reader.manifest, manifest, branch=self.plan.branch)

    def _send_claim(self, manifest: OpenManifest) -> Window | None:
        """Send one claim; None when it lost, or when its answer did and the next fold must say."""
        self._sent = True
        try:
            return claim(self.io, manifest, operation_id=self.plan.operation_id, actor=self.plan.actor)
        except LanceConflictError:
            return None
        except StorageError:
            if not holds(self.reader.manifest.open(branch=self.plan.branch).state, self.plan.operation_id):
                raise
            return None

    # -- checks ------------------------------------------------------------------------------------------------------

    def check(self, state: GraphState) -> None:
        """Refuse, or re-pin, the plan on the fold it would land on; say so when it has landed already."""
        self._check_done(state)
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

    def _check_done(self, state: GraphState) -> None:
        """Say so when the write has landed already, or when this attempt may not claim any more."""
        found = state.commit(self.plan.commit_id)
        if found is not None:
            raise AlreadyCommitted(PublishedCommit(found))
        if state.recovered(self.plan.operation_id):
            # A recovery met our record before we claimed: the record is gone, so this operation id may not claim.
            raise RolledBack
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
        between = tuple(transactions_between(dataset, after=pin.version, upto=entry.version))
        # A rollback's Restore takes back what lay between, so nothing changed; one to before the pin is a change.
        rewound = any(t.restored is not None and t.restored < pin.version for t in between)
        return not rewound and not TableHead(pin, dataset, between).standing()

    # -- leaving -----------------------------------------------------------------------------------------------------

    def leave(self, window: Window) -> bool:
        """Give the window up without effects; False when it could not be given up, and the next grace must end it."""
        for attempt in range(_MOST_RELEASES):
            if not owns(window.state, window.epoch):
                # Taken over: a release on top of the new owner's fold would land, and put their epoch back (INV-08).
                self.forget()
                return True
            with contextlib.suppress(StorageError):
                release(self.io, window)
                self.forget()
                return True
            try:
                manifest = self.reader.manifest.open(branch=self.plan.branch)
            except StorageError:
                return False
            if not owns(manifest.state, window.epoch) or not holds(manifest.state, window.epoch.operation_id):
                self.forget()
                return True
            window = window.with_manifest(manifest)
            self.io.seams.wait(self.io.seams.jitter(attempt=attempt))
        return False

    def _abandon(self) -> None:
        """Undo a failed arm. While a claim of ours may still land, the record stays: an epoch never names nothing."""
        if not self._sent:
            self.forget()
            return
        with contextlib.suppress(StorageError):
            manifest = self.reader.manifest.open(branch=self.plan.branch)
            epoch: EpochRow | None = manifest.state.epoch
            if epoch is not None and holds(manifest.state, self.plan.operation_id):
                self.leave(Window(epoch, manifest))
            else:
                self.forget()

    def forget(self) -> None:
        """Remove a record that has no effects; a leftover one is rolled back by the next recovery."""
        with contextlib.suppress(StorageError):
            self.sidecars.delete(self.plan.operation_id)

    def renewed(self) -> Arm:
        """Return an arm for the same plan under a new operation id."""
        plan = self.plan.attempt(self.io.seams.new_id())
        return replace(self, plan=plan, _sent=False, _opened={})
