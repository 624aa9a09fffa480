"""Re-validation under the window: what other commits changed since the base, against what this write relied on.

Only the difference is looked at: ids added or removed in tables of the read-set, by comparing the fragments of the two
versions. A hit is a conflict, and the caller may run the write again; no hit means that everything checked against the
base still holds (INV-13). Both faces of write skew end here: a node removed under a staged edge, an edge added under a
removed node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import lance
import numpy as np

from omnigraph_spark.errors import ConflictError, ReadSetChangedError
from omnigraph_spark.manifest.layout import branch_uri
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.schema.catalog import Catalog, EdgeType, GraphType, NodeType
from omnigraph_spark.storage.keyhash import U64
from omnigraph_spark.storage.lance_commit import transactions_between
from omnigraph_spark.storage.lance_io import ScanSpec
from omnigraph_spark.storage.locations import join
from omnigraph_spark.storage.parallel import run_parallel
from omnigraph_spark.write.evidence import EvidenceReader, contained
from omnigraph_spark.write.gate import tuple_hashes
from omnigraph_spark.write.pending import PendingTable
from omnigraph_spark.write.plan import PublishPlan
from omnigraph_spark.write.rowids import RowIds

_NO_HASHES = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Difference:
    """What one version of a table has and another has not: hashes by name of what was hashed, and stable row ids.

    A value counts as added, or removed, with the row that holds it: one that moved between rows is both.
    """

    added: Mapping[str, U64]
    removed: Mapping[str, U64]
    lost_rows: U64


@dataclass(frozen=True, slots=True)
class ReliedOn:
    """What a write was checked against: its own tables, the nodes it removes, the sources whose edges it counted."""

    tables: Mapping[str, PendingTable]
    removed_nodes: Mapping[str, U64]
    affected_sources: Mapping[str, U64]


@dataclass(slots=True)
class Recheck:
    """Called with every fold a plan would land on; remembers how far it has looked."""

    reader: GraphReader
    catalog: Catalog
    relied: ReliedOn
    evidence: EvidenceReader
    base: Mapping[str, tuple[str, int]]
    _seen: dict[str, int] = field(default_factory=dict)

    def __call__(self, plan: PublishPlan, state: GraphState) -> None:
        """Raise ReadSetChangedError when a commit since the base breaks what this write relies on."""
        moved: list[tuple[str, int]] = []
        for key, version in plan.read_set.items():
            entry = state.tables.get(key)
            if entry is None or branch_uri(join(self.reader.root, entry.path), entry.branch) != self.base[key][0]:
                raise ConflictError(f"{key} was removed or moved by another commit", table_key=key)
            if entry.version != self._seen.get(key, version):
                moved.append((key, entry.version))
        found = run_parallel([partial(self._difference, key, upto) for key, upto in moved])
        for (key, upto), difference in zip(moved, found, strict=True):
            if difference is not None:
                self._check(key, difference)
            self._seen[key] = upto

    def _matters(self, key: str) -> bool:
        """Say whether rows of a table could break this write; rows with fresh ids that nothing counts could not."""
        graph_type, pending = self.catalog.by_key(key), self.relied.tables.get(key)
        if isinstance(graph_type, NodeType):
            touching = self.catalog.edges_touching(graph_type.name)
            elsewhere = any(edge.table_key in self.relied.tables for edge in touching)
        else:
            ends = (graph_type.from_type, graph_type.to_type)
            elsewhere = any(f"node:{name}" in self.relied.removed_nodes for name in ends)
        if pending is None or elsewhere or pending.matched or pending.graph_type.unique:
            return True
        return key in self.relied.affected_sources or pending.strict or any(part.keys.count for part in pending.parts)

    # -- what changed ------------------------------------------------------------------------------------------------

    def _difference(self, key: str, upto: int) -> Difference | None:
        uri, base = self.base[key]
        since = self._seen.get(key, base)
        io = self.reader.io
        old, new = (io.open(uri, table=key, version=version) for version in (since, upto))
        if old.schema != new.schema:
            raise ConflictError(f"The schema of {key} was changed by another commit", table_key=key)
        if not self._matters(key):
            return None
        before = {f.fragment_id: _identity(f) for f in old.get_fragments()}
        after = {f.fragment_id: _identity(f) for f in new.get_fragments()}
        lost = [f for f, what in before.items() if after.get(f) != what]
        won = [f for f, what in after.items() if before.get(f) != what]
        # Only rewritten fragments can be maintenance; what merely grew need not be looked up in the log.
        if lost and all(t.is_maintenance for t in transactions_between(new, after=since, upto=upto)):
            return None
        graph_type = self.catalog.by_key(key)
        gone, come = self._rows(old, lost, graph_type), self._rows(new, won, graph_type)
        return Difference(
            added={name: come.only(name, gone) for name in come.values},
            removed={name: gone.only(name, come) for name in gone.values},
            lost_rows=np.setdiff1d(gone.row_ids, come.row_ids),
        )

    def _rows(self, dataset: lance.LanceDataset, fragments: Sequence[int], graph_type: GraphType) -> _Rows:
        groups = _groups(graph_type)
        values: dict[str, list[U64]] = {name: [_NO_HASHES] for name in groups}
        held: dict[str, list[U64]] = {name: [_NO_HASHES] for name in groups}
        row_ids = [_NO_HASHES]
        if fragments:
            columns = dict.fromkeys(["id", *(c for group in groups.values() for c in group)])
            spec = ScanSpec(columns=tuple(columns), fragments=tuple(fragments), row_ids=True)
            for batch in self.reader.io.batches(dataset, spec):
                row_ids.append(batch.column("_rowid").to_numpy())
                for name, group in groups.items():
                    values[name].append(tuple_hashes(batch, group))
                    held[name].append(tuple_hashes(batch, (*group, "id")))
        return _Rows(
            {name: np.concatenate(parts) for name, parts in values.items()},
            {name: np.concatenate(parts) for name, parts in held.items()},
            np.concatenate(row_ids),
        )

    # -- what it means -----------------------------------------------------------------------------------------------

    def _check(self, key: str, difference: Difference) -> None:
        graph_type = self.catalog.by_key(key)
        pending = self.relied.tables.get(key)
        if pending is not None and not pending.strict:
            self._own_rows(key, pending, difference)
        if isinstance(graph_type, NodeType):
            self._nodes_removed(key, graph_type, difference.removed["id"])
        else:
            self._edges_added(graph_type, difference)

    def _own_rows(self, key: str, pending: PendingTable, difference: Difference) -> None:
        keys = self.evidence.runs(part.keys for part in pending.parts)
        self._refuse(key, difference.added["id"], keys, "added an id this write adds too")
        replaced = np.sort(RowIds.concat([m.rows for m in pending.matched]).ids)
        self._refuse(key, difference.lost_rows, [replaced], "removed a row this write replaces")
        for number, _ in enumerate(pending.graph_type.unique):
            values = self.evidence.runs(part.uniques[number] for part in pending.parts if part.uniques)
            self._refuse(key, difference.added[f"unique{number}"], values, "took a unique value this write uses")
        counted = self.relied.affected_sources.get(key)
        if counted is not None:
            for sources in (difference.added["src"], difference.removed["src"]):
                self._refuse(key, sources, [counted], "changed the edges of a source this write counts")

    def _nodes_removed(self, key: str, node: NodeType, removed: U64) -> None:
        for edge in self.catalog.edges_touching(node.name):
            staged = self.relied.tables.get(edge.table_key)
            if staged is None:
                continue
            for end, at in (("src", edge.from_type), ("dst", edge.to_type)):
                if at == node.name:
                    ends = self.evidence.runs(part.ends[end] for part in staged.parts if end in part.ends)
                    self._refuse(key, removed, ends, f"removed a node an edge of this write has as its {end}")

    def _edges_added(self, edge: EdgeType, difference: Difference) -> None:
        for end, at in (("src", edge.from_type), ("dst", edge.to_type)):
            removed = self.relied.removed_nodes.get(f"node:{at}")
            if removed is not None:
                self._refuse(edge.table_key, difference.added[end], [removed], "added an edge of a node this removes")

    def _refuse(self, key: str, changed: U64, relied_on: Sequence[U64], what: str) -> None:
        if len(changed) and contained(changed, relied_on).any():
            raise ReadSetChangedError(f"A concurrent commit on {key} {what}", table_key=key)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Hashes of some rows: each value by itself, and together with the id of the row that holds it."""

    values: Mapping[str, U64]
    held: Mapping[str, U64]
    row_ids: U64

    def only(self, name: str, other: _Rows) -> U64:
        """Return the values these rows hold and the others, of the same ids, do not."""
        found: U64 = np.unique(self.values[name][~np.isin(self.held[name], other.held[name])])
        return found


def _groups(graph_type: GraphType) -> dict[str, tuple[str, ...]]:
    """Return what is compared: the system columns and the unique groups."""
    groups = {name: (name,) for name in graph_type.system_columns}
    return groups | {f"unique{n}": tuple(group) for n, group in enumerate(graph_type.unique)}


def _identity(fragment: lance.LanceFragment) -> tuple[object, ...]:
    """Return what makes a fragment's rows what they are: its files and its deletions."""
    meta = fragment.metadata
    deletion = meta.deletion_file
    marks = None if deletion is None else (deletion.read_version, deletion.id, deletion.num_deleted_rows)
    return (tuple(f.path for f in meta.files), marks)
