"""A write in the making: the pinned base, what was staged for each table, and the step that turns it into one plan.

capture → stage → validate happen here; arm, effect, publish and retire belong to the publish authority. A draft that
fails leaves staged files that nothing references; they are deleted only when no attempt to publish them can be open
(INV-10). Spark's writer and the transaction API share this class, so every verb is checked by the same code.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from omnigraph_spark.errors import ConflictError, OmnigraphError, OptionError, Outcome, StorageError
from omnigraph_spark.manifest.rows import TokenRow
from omnigraph_spark.schema.catalog import EdgeType, GraphType, NodeType
from omnigraph_spark.storage.keyhash import U64
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.lance_staged import detached_path, staged_paths
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write.actions import TableAction
from omnigraph_spark.write.evidence import Evidence, EvidenceReader
from omnigraph_spark.write.graph_check import GraphCheck
from omnigraph_spark.write.key_runs import Scratch
from omnigraph_spark.write.lineage import PublishedCommit
from omnigraph_spark.write.mutate import RemovedNodes, edges_of, removed_nodes
from omnigraph_spark.write.operation_check import OperationCheck
from omnigraph_spark.write.pending import PendingTable, staged_onto
from omnigraph_spark.write.plan import PublishPlan
from omnigraph_spark.write.probe import View
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.recheck import Recheck, ReliedOn
from omnigraph_spark.write.stage import StagedPart, StageJob, WriteMode
from omnigraph_spark.write.txn import WriteTxn, writable
from omnigraph_spark.write.unpublished import proved_unpublished

log = logging.getLogger(__name__)
_MOST_VERSION = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class WriteIntent:
    """Who writes, where and why; picklable."""

    branch: str = "main"
    actor: str | None = None
    message: str | None = None
    user_metadata: str | None = None
    app_id: str | None = None
    txn_version: int | None = None
    expected_version: int | None = None

    def __post_init__(self) -> None:
        for name in ("branch", "actor", "message", "user_metadata", "app_id"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise OptionError(f"{name} must be a text, but is {value!r}")
        for name in ("txn_version", "expected_version"):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and 0 <= value <= _MOST_VERSION):
                raise OptionError(f"{name} must be a number from 0 to {_MOST_VERSION}, but is {value!r}")
        if (self.app_id is None) != (self.txn_version is None):
            raise OptionError("txnAppId and txnVersion belong together", hint="Give both, or neither.")
        if self.app_id is not None and not self.app_id.strip():
            raise OptionError("txnAppId is empty")

    def token(self, commit_id: str) -> TokenRow | None:
        """Return the row that makes a repeat of this write a no-op."""
        if self.app_id is None or self.txn_version is None:
            return None
        return TokenRow(self.branch, self.app_id, self.txn_version, commit_id)


@dataclass(slots=True)
class Draft:
    """One write on top of one base."""

    authority: PublishAuthority
    txn: WriteTxn
    intent: WriteIntent
    tables: dict[str, PendingTable] = field(default_factory=dict)
    removed: dict[str, RemovedNodes] = field(default_factory=dict)
    scratch: Scratch = field(default_factory=Scratch)
    _destructive: bool | None = None
    _views: dict[str, View] = field(default_factory=dict)
    _staged: dict[str, str] = field(default_factory=dict)  # every fragment ever staged, with its table's location
    _evident: list[Evidence] = field(default_factory=list)
    _detached: list[str] = field(default_factory=list)  # views nobody needs after the write

    @classmethod
    def capture(cls, authority: PublishAuthority, intent: WriteIntent) -> Draft:
        """Pin the base; refuses one that is not the expected version, as arm does again on the base it lands on."""
        draft = cls(authority, authority.open_txn(branch=intent.branch, actor=intent.actor), intent)
        expected, head = intent.expected_version, draft.txn.head
        actual = head.graph_version if head else 0
        # A repeat of a write that was applied stays a repeat, whatever has been committed since.
        if expected is not None and actual != expected and draft.applied() is None:
            message = f"The graph is at version {actual}, not at the expected {expected}"
            raise ConflictError(message, expected=expected, actual=actual)
        return draft

    @property
    def io(self) -> LanceIO:
        """Storage of the operation."""
        return self.authority.reader.io

    def applied(self) -> PublishedCommit | None:
        """Return the commit of an earlier run of this same write, by its token."""
        state, app_id = self.txn.state, self.intent.app_id
        last = state.token(app_id) if state is not None and app_id is not None else None
        if state is None or last is None or self.intent.txn_version is None:
            return None
        if last.txn_version < self.intent.txn_version:
            return None
        first = state.commit(last.commit_id)
        return None if first is None else PublishedCommit(first, repeated=True)

    # -- staging -----------------------------------------------------------------------------------------------------

    def declare(self, mode: WriteMode) -> None:
        """Refuse to mix writing and deleting in one transaction, before any I/O (D2)."""
        destructive = mode is WriteMode.DELETE
        if self._destructive is not None and self._destructive != destructive:
            raise OptionError(
                "One transaction either writes rows (append, merge, overwrite, update) or deletes them, never both",
                hint="Split it into two transactions.",
            )
        self._destructive = destructive

    def job(self, graph_type: GraphType, mode: WriteMode, *, distributed: bool, last_wins: bool = False) -> StageJob:
        """Describe the staging of one operation; a distributed one gets views that any task can read."""
        self.declare(mode)
        key = graph_type.table_key
        writable(self.txn, key)
        ends: dict[str, View] = {}
        if isinstance(graph_type, EdgeType):
            names = {"src": graph_type.from_type, "dst": graph_type.to_type}
            ends = {end: self._end_view(f"node:{name}", distributed=distributed) for end, name in names.items()}
        return StageJob(
            root=self.txn.root,
            commit_id=self.txn.commit_id,
            mode=mode,
            graph_type=graph_type,
            target=self._base_view(key) if mode is WriteMode.OVERWRITE else self.view(key),
            config=self.txn.config,
            ends=ends,
            last_wins=last_wins,
        )

    def view(self, table_key: str) -> View:
        """Return a table as this transaction sees it now."""
        pending = self.tables.get(table_key)
        if pending is None:
            return self._base_view(table_key)
        if table_key not in self._views:
            seen = self._views[table_key] = pending.view(self.io)
            if seen.version != pending.entry.version:
                self._detached.append(detached_path(seen.uri, seen.version))
        return self._views[table_key]

    def _base_view(self, table_key: str) -> View:
        entry = self.txn.entry(table_key)
        return View(table_key, self.txn.uri(table_key), entry.version, entry.row_count)

    def _end_view(self, node_key: str, *, distributed: bool) -> View:
        """Nodes staged in this transaction are found at the end; tasks of a large job find them in the view."""
        pending = self.tables.get(node_key)
        if pending is None or (not distributed and not pending.replaced):
            return self._base_view(node_key)
        return self.view(node_key) if distributed else View(node_key, pending.uri, pending.entry.version, 0)

    def add(self, job: StageJob, parts: Sequence[StagedPart], *, strict: bool = False) -> None:
        """Take over what the tasks of one operation staged; raises when rows break a rule."""
        key = job.target.table_key
        base = PendingTable(job.graph_type, self.txn.entry(key), self.txn.uri(key))
        self.note(job, parts)
        with self._whole():
            OperationCheck(self.io, self._evidence(), job.graph_type, self.txn.uri(key), parts).run()
            grown = staged_onto(self.tables.get(key, base), parts, io=self.io, view=job.target, strict=strict)
            self._staged |= dict.fromkeys(grown.fragments, grown.uri)
            self.tables[key] = grown
            self._views.pop(key, None)

    def note(self, job: StageJob, parts: Sequence[StagedPart]) -> None:
        """Remember staged files, used or refused, for the clean-up."""
        for part in parts:
            self._staged |= dict.fromkeys(part.fragments, job.target.uri)
            self._evident += (part.keys, *part.uniques, *part.ends.values(), *part.unresolved.values())

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Take an operation over whole or not at all: a caller may catch its refusal and go on with the others."""
        tables, removed = dict(self.tables), dict(self.removed)
        try:
            yield
        except BaseException:
            self.tables, self.removed = tables, removed
            self._views.clear()
            raise

    def remove(self, job: StageJob, parts: Sequence[StagedPart], *, cascade: bool) -> None:
        """Take over rows to remove, with the edges that hang on them."""
        with self._whole():
            self.add(job, parts, strict=True)
            if not isinstance(job.graph_type, NodeType) or not any(len(part.removed) for part in parts):
                return
            key = job.target.table_key
            gone = removed_nodes(self.io, self._base_view(key), self.tables[key].removed, scratch=self.scratch)
            self.removed[key] = gone
            for edge in self.txn.catalog.edges_touching(job.graph_type.name):
                hanging = self.job(edge, WriteMode.DELETE, distributed=False)
                part = edges_of(hanging, [gone], io=self.io, cascade=cascade)
                if part is not None:
                    self.add(hanging, [part], strict=True)

    def _evidence(self) -> EvidenceReader:
        return EvidenceReader(self.authority.reader.objects, self.scratch)

    # -- finishing ---------------------------------------------------------------------------------------------------

    def publish(self) -> PublishedCommit | None:
        """Check the whole write and publish it; None when it changes nothing."""
        actions = [a for a in (t.action() for t in self.tables.values()) if a is not None]
        if not actions:
            self.abandon()
            return None
        self.io.seams.hook(Phase.VALIDATE, "enter")
        base = {key: self._base_view(key) for key in self.txn.tables}
        check = GraphCheck(self.io, self._evidence(), self.txn.catalog, self.tables, base, self.view)
        try:
            check.run()
        except OmnigraphError:
            self.abandon()
            raise
        gone: dict[str, U64] = {**check.removed_nodes, **{k: r.hashes() for k, r in self.removed.items()}}
        plan = self._plan(actions, removed=gone)
        self.io.seams.hook(Phase.VALIDATE, "done")
        try:
            commit = self.authority.publish(plan, recheck=self._recheck(gone, check.affected))
        except OmnigraphError as error:
            # An error that says "not committed" is believed only when the store says so too (INV-10).
            if error.outcome is Outcome.NOT_COMMITTED and self._proved_unpublished():
                self.abandon()
            raise
        # A repeat of an earlier run published that run's rows, none of these.
        self._sweep(kept=() if commit.repeated else {f for t in self.tables.values() for f in t.fragments})
        return commit

    def _proved_unpublished(self) -> bool:
        try:
            return proved_unpublished(self.authority, self.txn)
        except OmnigraphError as e:
            log.warning("staged files stay: commit_id=%s reason=%s", self.txn.commit_id, e.message)
            return False

    def _plan(self, actions: Sequence[TableAction], *, removed: Mapping[str, U64]) -> PublishPlan:
        chosen = tuple(sorted(actions, key=lambda a: a.table_key))
        return PublishPlan(
            operation_id="",
            commit_id=self.txn.commit_id,
            branch=self.txn.branch,
            base_version=self.txn.graph_version,
            started_at=self.io.seams.now_micros(),
            pins=tuple(self.tables[a.table_key].pin for a in chosen),
            actions=chosen,
            strict=frozenset(a.table_key for a in chosen if self.tables[a.table_key].strict),
            read_set=self._read_set(removed),
            actor=self.intent.actor,
            message=self.intent.message,
            user_metadata=self.intent.user_metadata,
            token=self.intent.token(self.txn.commit_id),
            expected_version=self.intent.expected_version,
            stats={a.table_key: self._stats(self.tables[a.table_key]) for a in chosen},
        )

    def _stats(self, pending: PendingTable) -> dict[str, int]:
        updated = sum(len(m.rows) for m in pending.matched)
        deleted = pending.entry.row_count if pending.replaced else len(pending.removed)
        counts = {"inserted": pending.rows - updated, "updated": updated, "deleted": deleted}
        return {name: count for name, count in counts.items() if count}

    def _read_set(self, removed: Mapping[str, U64]) -> dict[str, int]:
        """Return every table whose rows this write was checked against, with the version it saw."""
        keys: set[str] = set()
        for key, pending in self.tables.items():
            keys.add(key)
            if isinstance(pending.graph_type, EdgeType) and pending.fragments:
                keys |= {f"node:{pending.graph_type.from_type}", f"node:{pending.graph_type.to_type}"}
        for key in removed:
            keys |= {e.table_key for e in self.txn.catalog.edges_touching(key.partition(":")[2])}
        return {key: self.txn.entry(key).version for key in sorted(keys)}

    def _recheck(self, removed: Mapping[str, U64], affected: Mapping[str, U64]) -> Recheck:
        relied = ReliedOn(self.tables, removed_nodes=removed, affected_sources=affected)
        base = {key: (self.txn.uri(key), entry.version) for key, entry in self.txn.tables.items()}
        return Recheck(self.authority.reader, self.txn.catalog, relied, self._evidence(), base)

    def abandon(self) -> None:
        """Delete what was staged; call this only when no attempt to publish it can be open (INV-10)."""
        self._sweep(kept=())

    def _sweep(self, *, kept: Collection[str]) -> None:
        """Delete views and evidence, and staged fragments other than those a published plan names."""
        for fragment, uri in self._staged.items():
            if fragment not in kept:
                for path in staged_paths(uri, [fragment]):
                    self._delete(path)
        for uri in (*self._detached, *(uri for evidence in self._evident for uri in evidence.objects)):
            self._delete(uri)
        self.scratch.close()

    def _delete(self, uri: str) -> None:
        # Best effort: a leftover is unreferenced, and cleanup removes it.
        with contextlib.suppress(StorageError):
            self.authority.reader.objects.delete(uri)
