"""Effects: one Lance commit per planned table, every one marked with its plan, none of them visible to a reader.

States of a table under a held window: HEAD = pin → committed at HEAD+1 by this plan. Before that, ``heads`` proves that
nothing but maintenance lies between pin and HEAD; anything else is drift and stops the write. A crash after some of the
commits leaves versions that carry the operation id; recovery finds them by that id, never by counting (INV-06).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import lance
import numpy as np

from omnigraph_spark.errors import ConflictError, DriftError, RecoveryError
from omnigraph_spark.storage import lance_commit
from omnigraph_spark.storage.keyhash import distinct
from omnigraph_spark.storage.lance_commit import TableTransaction, transactions_between
from omnigraph_spark.storage.lance_errors import LanceConflictError
from omnigraph_spark.storage.lance_io import LanceIO, ScanSpec, fragment_infos
from omnigraph_spark.storage.lance_maintenance import index_operation, rewrite_operation
from omnigraph_spark.storage.parallel import run_parallel
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.write.actions import Append, BuildIndex, Delete, Overwrite, Rewrite, TableAction
from omnigraph_spark.write.plan import PublishPlan, TablePin
from omnigraph_spark.write.rowids import RowIds, offsets_by_fragment

OPERATION_ID = "operation_id"
EPOCH = "epoch"


@dataclass(frozen=True, slots=True)
class MovedTable:
    """A table after its effect: the version to publish and its live rows."""

    table_key: str
    path: str
    branch: str | None
    version: int
    rows: int


@dataclass(frozen=True, slots=True)
class TableHead:
    """A planned table's newest version, and what lies between it and the pin."""

    pin: TablePin
    dataset: lance.LanceDataset
    since_pin: tuple[TableTransaction, ...]

    def kept(self) -> list[TableTransaction]:
        """Return what happened since the pin and nobody restored away since, maintenance included."""
        found: list[TableTransaction] = []
        for transaction in self.since_pin:
            if transaction.restored is not None:
                found = [t for t in found if t.version <= (transaction.restored or 0)]
            else:
                found.append(transaction)
        return found

    def standing(self) -> list[TableTransaction]:
        """Return what changed rows since the pin and nobody restored away since."""
        return [t for t in self.kept() if not t.is_maintenance]

    def effect_of(self, operation_id: str) -> TableTransaction | None:
        """Return the version a plan left here and nobody restored away since (INV-06)."""
        return next((t for t in self.kept() if t.properties.get(OPERATION_ID) == operation_id), None)

    def only_of(self, operation_id: str) -> bool:
        """Say whether every standing change is a plan's own; publishing HEAD then publishes nobody else's rows."""
        return all(t.properties.get(OPERATION_ID) == operation_id for t in self.standing())

    def strangers(self) -> list[TableTransaction]:
        """Return standing changes that were made outside the protocol: they name no epoch."""
        return [t for t in self.standing() if not t.properties.get(EPOCH, "").isdigit()]


def open_head(io: LanceIO, root: str, pin: TablePin) -> TableHead:
    """Open a table at its newest version and read what happened since the pin."""
    uri = pin.uri(root)
    dataset = io.open(uri, table=pin.table_key)
    head = int(dataset.version)
    if head < pin.version:
        raise RecoveryError(
            f"{pin.table_key} ends at version {head} but the graph publishes version {pin.version} ({uri})",
            hint="A published version is missing from storage: restore it from a backup. Older versions still read.",
        )
    return TableHead(pin, dataset, tuple(transactions_between(dataset, after=pin.version, upto=head)))


def open_heads(io: LanceIO, root: str, pins: Sequence[TablePin]) -> dict[str, TableHead]:
    """Open all planned tables at once."""
    found = run_parallel([partial(open_head, io, root, pin) for pin in pins], counter=io.counter)
    return {head.pin.table_key: head for head in found}


def live_count(dataset: lance.LanceDataset) -> int:
    """Count a version's rows from its manifest; no request."""
    return sum(fragment.rows for fragment in fragment_infos(dataset))


def residue_of_fenced(heads: Mapping[str, TableHead], *, epoch: int) -> list[TableHead]:
    """Return tables on which fenced writers left unpublished versions; refuse any other drift.

    Only versions that name an older epoch are residue: they were made under this protocol, and their owner was fenced.
    """
    residue: list[TableHead] = []
    for head in heads.values():
        strange = [t for t in head.since_pin if not t.is_maintenance]
        if strange and all(t.properties.get(EPOCH, "").isdigit() and int(t.properties[EPOCH]) < epoch for t in strange):
            residue.append(head)
        elif strange:
            raise DriftError(
                f"{head.pin.table_key} has unpublished versions after {head.pin.version}: "
                + ", ".join(f"{t.version} ({t.operation})" for t in strange)
            )
    return residue


@dataclass(frozen=True, slots=True)
class Effect:
    """A table's change, ready to commit: nothing has moved yet."""

    head: TableHead
    operation: lance.LanceOperation.BaseOperation


def prepare_effects(io: LanceIO, plan: PublishPlan, heads: Mapping[str, TableHead]) -> list[Effect]:
    """Turn every action into an operation on the version it starts from; conflicts show before any commit."""
    return run_parallel([partial(_prepare, io, heads[action.table_key], action) for action in plan.actions])


def _prepare(io: LanceIO, head: TableHead, action: TableAction) -> Effect:
    return Effect(head, operation_of(io, head, action))


def apply_effects(io: LanceIO, plan: PublishPlan, effects: Sequence[Effect], *, epoch: int) -> dict[str, MovedTable]:
    """Commit every prepared effect, all tables at once."""
    jobs = [partial(_apply, io, plan, effect, epoch) for effect in effects]
    moved = run_parallel(jobs, counter=io.counter, hops=lance_commit.COMMIT_HOPS)
    return {m.table_key: m for m in moved}


def _apply(io: LanceIO, plan: PublishPlan, effect: Effect, epoch: int) -> MovedTable:
    pin, dataset = effect.head.pin, effect.head.dataset
    io.seams.hook(Phase.EFFECT, f"before:{pin.table_key}")
    properties = {OPERATION_ID: plan.operation_id, EPOCH: str(epoch)}
    committed = lance_commit.commit_operation(io, dataset, effect.operation, table=pin.table_key, properties=properties)
    if int(committed.version) != int(dataset.version) + 1:
        # Somebody slipped in after the handle was opened: a fenced writer's late commit, or maintenance. Whose it is
        # decides recovery from the transaction log; publishing this version unseen could publish their rows.
        raise LanceConflictError(
            f"{pin.table_key} landed on version {committed.version}, not right after {dataset.version}"
        )
    io.seams.hook(Phase.EFFECT, f"after:{pin.table_key}")
    return MovedTable(pin.table_key, pin.path, pin.branch, int(committed.version), live_count(committed))


def operation_of(io: LanceIO, head: TableHead, action: TableAction) -> lance.LanceOperation.BaseOperation:
    """Return the Lance operation of an action on top of a table's version."""
    if isinstance(action, Append):
        return lance_commit.append_operation(action.fragments)
    if isinstance(action, Overwrite):
        return lance_commit.replace_operation(head.dataset, action.fragments)
    if isinstance(action, Delete):
        return lance_commit.delete_operation(_removed(io, head, action.removed))
    if isinstance(action, Rewrite):
        return rewrite_operation(head.dataset, action.groups)
    if isinstance(action, BuildIndex):
        return index_operation(head.dataset, built=action.built, removed=action.removed, covers=action.covers)
    matched = RowIds.concat([m.rows for m in action.matched])
    return lance_commit.upsert_operation(
        _removed(io, head, matched),
        matched=[(m.fragment, m.rows.ids.tolist()) for m in action.matched],
        inserted=action.inserted,
    )


def _removed(io: LanceIO, head: TableHead, rows: RowIds) -> lance_commit.RemovedRows:
    """Turn stable row ids into deletion files of the version the effect starts from."""
    addresses = current_addresses(io, head, rows)
    return lance_commit.remove_rows(head.dataset, offsets_by_fragment(addresses))


def current_addresses(io: LanceIO, head: TableHead, rows: RowIds) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Resolve row ids to their positions now; positions noted at staging are used while the table has not moved."""
    if int(head.dataset.version) == rows.at_version:
        return rows.addresses
    wanted = np.sort(rows.ids)
    found: list[np.ndarray[tuple[int], np.dtype[np.uint64]]] = []
    spec = ScanSpec(columns=(), row_ids=True, row_addresses=True)
    for batch in io.batches(head.dataset, spec):
        ids = batch.column("_rowid").to_numpy()
        at = np.searchsorted(wanted, ids)
        hit = wanted[np.minimum(at, len(wanted) - 1)] == ids
        found.append(batch.column("_rowaddr").to_numpy()[hit])
    addresses = np.concatenate(found) if found else np.empty(0, dtype=np.uint64)
    missing = len(distinct(wanted)) - len(addresses)
    if missing:
        raise ConflictError(
            f"{head.pin.table_key}: {missing} rows to change were removed by another commit",
            table_key=head.pin.table_key,
            expected=rows.at_version,
            actual=int(head.dataset.version),
        )
    return addresses
