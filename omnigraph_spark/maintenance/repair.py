"""Repair: tables whose newest version is not the one the graph publishes, and no recovery record says why.

Preview reads only. Confirmed, under the window and on a fresh look: what Lance's own log proves to be maintenance is
published as it stands; versions a fenced writer left are undone, as its successor would; anything else is refused, or
with ``force`` published too. All in one commit, made by one swap: killed before it nothing changed, after it all is
done, and the empty record in between tells recovery that there is nothing to undo.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from omnigraph_spark.errors import OptionError, RecoveryError, StorageError
from omnigraph_spark.maintenance.standing import refuse_open_records
from omnigraph_spark.manifest.rows import stored_branch
from omnigraph_spark.manifest.state import GraphState, TableEntry
from omnigraph_spark.storage.lance_commit import latest_version, transactions_between
from omnigraph_spark.write.arm import Arm
from omnigraph_spark.write.effect import EPOCH, MovedTable, live_count
from omnigraph_spark.write.lineage import publish_rows
from omnigraph_spark.write.plan import TablePin, empty_plan
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.recover import Recovery
from omnigraph_spark.write.window import swap

REPAIR_ACTOR = "omnigraph:repair"
FORCE_ACTOR = "omnigraph:repair:force"
Kind = Literal["no_drift", "verified_maintenance", "residue", "suspicious", "unverifiable"]
Action = Literal["no_op", "preview", "healed", "undone", "refused", "forced"]
_COLUMNS = ("table_key", "classification", "action", "published", "head", "operations", "problem")


@dataclass(frozen=True, slots=True)
class RepairRow:
    """One table: the version the graph publishes, the newest one, and what lies between."""

    table_key: str
    classification: Kind
    published: int
    head: int
    operations: tuple[str, ...] = ()
    problem: str | None = None
    action: Action = "no_op"


@dataclass(frozen=True, slots=True, repr=False)
class RepairReport:
    """What repair found, and did; ``graph_version`` is set when it committed."""

    uri: str
    branch: str
    rows: tuple[RepairRow, ...]
    graph_version: int | None = None

    @property
    def drifted(self) -> list[RepairRow]:
        """The tables that are not as the graph says."""
        return [row for row in self.rows if row.classification != "no_drift"]

    @property
    def refused(self) -> list[RepairRow]:
        """The tables that were left as they are because nobody can say that it is safe."""
        return [row for row in self.rows if row.action == "refused"]

    def to_arrow(self) -> pa.Table:
        """Return one row for each table."""
        rows = [{name: getattr(r, name) for name in _COLUMNS} for r in self.rows]
        text, number = pa.string(), pa.int64()
        kinds = dict.fromkeys(_COLUMNS, text) | {"published": number, "head": number, "operations": pa.list_(text)}
        return pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))

    def __repr__(self) -> str:
        lines = [self._headline()]
        for row in self.drifted:
            what = ", ".join(row.operations) or row.problem or ""
            lines.append(f"  {row.table_key}: {row.published} → {row.head} {row.classification} {row.action} ({what})")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(getattr(r, name)))}</td>" for name in _COLUMNS) + "</tr>"
            for r in self.drifted
        )
        return f"<p>{html.escape(self._headline())}</p><table><tr>{head}</tr>{body}</table>"

    def _headline(self) -> str:
        done = f"; committed graph version {self.graph_version}" if self.graph_version is not None else ""
        return f"repair of {self.uri} branch {self.branch!r}: {len(self.drifted)} tables drifted{done}"


def repair_graph(
    authority: PublishAuthority, *, branch: str, confirm: bool = False, force: bool = False
) -> RepairReport:
    """Preview the drift of a branch's tables, or heal it."""
    if force and not confirm:
        raise OptionError(
            "force needs confirm", hint="Look at the preview first, then repair(confirm=True, force=True)."
        )
    refuse_open_records(authority, verb="repair", branch=branch)
    if confirm:
        return _heal(authority, branch=branch, force=force)
    state = authority.reader.manifest.open(branch=branch).state
    rows = tuple(
        row if row.classification == "no_drift" else replace(row, action="preview")
        for row in _classified(authority, state)
    )
    return RepairReport(authority.reader.root, branch, rows)


def _classified(authority: PublishAuthority, state: GraphState) -> list[RepairRow]:
    own = stored_branch(state.branch)
    return [_classify(authority, entry) for entry in state.tables.values() if entry.branch == own]


def _classify(authority: PublishAuthority, entry: TableEntry) -> RepairRow:
    reader = authority.reader
    uri = _pin(entry).uri(reader.root)
    dataset = reader.io.open(uri, table=entry.table_key, version=entry.version)
    head = latest_version(dataset)
    if head < entry.version:
        raise RecoveryError(
            f"{entry.table_key} ends at version {head} but the graph publishes version {entry.version} ({uri})",
            hint="A published version is missing from storage: restore it from a backup. Older versions still read.",
        )
    row = RepairRow(entry.table_key, "no_drift", entry.version, head)
    if head == entry.version:
        return row
    try:
        between = transactions_between(dataset, after=entry.version, upto=head)
    except StorageError as e:
        return replace(row, classification="unverifiable", problem=e.message)
    operations = tuple(f"{t.version} {t.operation}" for t in between)
    logical = [t for t in between if not t.is_maintenance]
    kind: Kind = "suspicious"
    if not logical:
        kind = "verified_maintenance"
    elif all(t.properties.get(EPOCH, "").isdigit() for t in logical):
        kind = "residue"  # made under the protocol by a writer that was fenced: the next write undoes it
    return replace(row, classification=kind, operations=operations)


def _heal(authority: PublishAuthority, *, branch: str, force: bool) -> RepairReport:
    reader = authority.reader
    actor = FORCE_ACTOR if force else REPAIR_ACTOR
    plan = empty_plan(reader.io.seams, branch=branch, actor=actor)
    deadline = reader.io.seams.monotonic() + authority.settings.patience
    arm = Arm(reader, authority.sidecars, authority.settings, plan, deadline)
    entry = arm.enter(check=False)
    recovery = Recovery(reader.io, reader.manifest, authority.sidecars, entry.window)
    healing = _Healing(authority, recovery, actor, force)
    try:
        if entry.window.epoch.owed:
            recovery.resolve_owed()
        recovery.settled(healing.run)
    finally:
        arm.leave(recovery.window)
    return RepairReport(reader.root, branch, healing.rows, healing.version)


@dataclass(slots=True)
class _Healing:
    """The work inside the window; looked at anew after a lost race or answer, so that nothing is guessed."""

    authority: PublishAuthority
    recovery: Recovery
    actor: str
    force: bool
    rows: tuple[RepairRow, ...] = ()
    version: int | None = None

    def run(self, state: GraphState) -> None:
        """Decide on a fold, undo residue, and publish the rest in one commit."""
        found = tuple(_decided(row, force=self.force) for row in _classified(self.authority, state))
        if self.rows and not any(row.action in ("healed", "forced") for row in found):
            self.version = state.graph_version  # the swap had landed; only its answer was lost
            return
        self.rows = found
        residue = [_pin(state.tables[row.table_key]) for row in found if row.action == "undone"]
        if residue:
            self.recovery.undo_residue(residue)
            state = self.recovery.refold()
        chosen = [row for row in found if row.action in ("healed", "forced")]
        if chosen:
            self.version = self._publish(state, chosen)

    def _publish(self, state: GraphState, rows: Sequence[RepairRow]) -> int:
        recovery = self.recovery
        moved: list[MovedTable] = []
        for row in rows:
            pin = _pin(state.tables[row.table_key])
            dataset = recovery.io.open(pin.uri(recovery.store.root), table=pin.table_key, version=row.head)
            moved.append(MovedTable(pin.table_key, pin.path, pin.branch, row.head, live_count(dataset)))
        actor = self.actor if any(row.action == "forced" for row in rows) else REPAIR_ACTOR
        commit = replace(recovery.commit_on(state, moved), actor=actor)
        written = publish_rows(recovery.store.root, state, commit, moved=moved, epoch=recovery.window.epoch)
        recovery.window = recovery.window.with_manifest(swap(recovery.io, recovery.window.manifest, written))
        return recovery.window.state.graph_version


def _decided(row: RepairRow, *, force: bool) -> RepairRow:
    if row.classification == "no_drift":
        return row
    if row.classification == "residue":
        return replace(row, action="undone")
    if row.classification == "verified_maintenance":
        return replace(row, action="healed")
    return replace(row, action="forced" if force else "refused")


def _pin(entry: TableEntry) -> TablePin:
    return TablePin(entry.table_key, entry.path, entry.branch, entry.version, entry.row_count)
