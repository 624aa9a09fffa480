"""Checks over all tables of a transaction: edges have both ends, no edge loses one, every source keeps its cardinality.

They run once, at the end, over the delta: ends that no base node satisfied are looked for among the nodes staged in the
same transaction, in any order; removed nodes are looked for at both ends of the edges that stay. Memory on the driver
is eight bytes per staged key, per removed node and per affected source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph_spark.errors import Violation
from omnigraph_spark.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph_spark.schema.faults import MAX_SHOWN
from omnigraph_spark.storage.keyhash import U64, distinct, hash_text
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.lance_staged import staged_batches
from omnigraph_spark.write.evidence import EvidenceReader, contained
from omnigraph_spark.write.gate import Faults
from omnigraph_spark.write.matching import Mask
from omnigraph_spark.write.operation_check import raise_faults
from omnigraph_spark.write.pending import PendingTable
from omnigraph_spark.write.probe import View, key_rows, open_view
from omnigraph_spark.write.rowids import RowIds

_NO_HASHES = np.empty(0, dtype=np.uint64)
_ENDS = ("src", "dst")
Counts = NDArray[np.int64]


@dataclass(slots=True)
class GraphCheck:
    """One transaction's tables, checked against each other and against the base."""

    io: LanceIO
    evidence: EvidenceReader
    catalog: Catalog
    tables: Mapping[str, PendingTable]
    base: Mapping[str, View]
    view: Callable[[str], View]  # a table as the whole transaction leaves it
    faults: Faults = field(default_factory=Faults)
    removed_nodes: dict[str, U64] = field(default_factory=dict)
    affected: dict[str, U64] = field(default_factory=dict)  # sources whose edges were counted, by edge table

    def run(self) -> None:
        """Raise ValidationError listing every violation."""
        for pending in self.tables.values():
            if isinstance(pending.graph_type, EdgeType):
                self._dangling(pending, pending.graph_type)
        for pending in self.tables.values():
            if isinstance(pending.graph_type, NodeType) and pending.replaced:
                self.removed_nodes[pending.entry.table_key] = self._removed_by_overwrite(pending)
        for key, removed in self.removed_nodes.items():
            self._orphans(key, removed)
        for pending in self.tables.values():
            if isinstance(pending.graph_type, EdgeType):
                self._cardinality(pending, pending.graph_type)
        raise_faults(self.faults, what="The write would break the graph")

    # -- ends --------------------------------------------------------------------------------------------------------

    def _dangling(self, pending: PendingTable, edge: EdgeType) -> None:
        for end, node in zip(_ENDS, (edge.from_type, edge.to_type), strict=True):
            runs = self.evidence.runs(part.unresolved[end] for part in pending.parts if end in part.unresolved)
            missing = distinct(np.concatenate([_NO_HASHES, *runs]))
            staged = self.tables.get(f"node:{node}")
            if len(missing) and staged is not None:
                for batch in staged_batches(self.io, staged.uri, staged.fragments, columns=("id",)):
                    missing = missing[~contained(missing, [np.sort(hash_text(batch.column("id")))])]
            if len(missing):
                rows = staged_batches(self.io, pending.uri, pending.fragments, columns=("id", end))
                self._report_ends(rows, edge, missing, end=end, node=node)

    def _report_ends(
        self, rows: Iterator[pa.RecordBatch], edge: EdgeType, missing: U64, *, end: str, node: str
    ) -> None:
        for batch in rows:
            hit = pa.array(contained(hash_text(batch.column(end)), [missing]))
            found = batch.filter(hit)
            self.faults.add([], total=found.num_rows)
            for row in found.slice(0, MAX_SHOWN).to_pylist():
                message = f"{edge.name} {row['id']!r}: {end} {row[end]!r} not found in {node}"
                self._list(_violation("endpoint", edge.name, end, row, message))

    def _list(self, violation: Violation) -> None:
        self.faults.add([violation], total=0)

    # -- removed nodes -----------------------------------------------------------------------------------------------

    def _removed_by_overwrite(self, pending: PendingTable) -> U64:
        """Return the hashes of the ids an overwrite drops."""
        base = self.base[pending.entry.table_key]
        kept = self.evidence.runs(part.keys for part in pending.parts)
        removed = [_NO_HASHES]
        if base.rows:
            for batch in key_rows(self.io, open_view(self.io, base), columns=("id",)):
                hashes = hash_text(batch.column("id"))
                removed.append(hashes[~contained(hashes, kept)])
        return distinct(np.concatenate(removed))

    def _orphans(self, node_key: str, removed: U64) -> None:
        """Report edges that would stay without one of their ends."""
        name = node_key.partition(":")[2]
        if not len(removed):
            return
        for edge in self.catalog.edges_touching(name):
            view = self.view(edge.table_key)
            ends = [end for end, node in zip(_ENDS, (edge.from_type, edge.to_type), strict=True) if node == name]
            if not view.rows:
                continue
            for batch in key_rows(self.io, open_view(self.io, view), columns=("id", "src", "dst")):
                hit = np.zeros(batch.num_rows, dtype=bool)
                for end in ends:
                    hit |= contained(hash_text(batch.column(end)), [removed])
                end_violations(batch.filter(pa.array(hit)), edge, [name], self.faults)

    # -- cardinality -------------------------------------------------------------------------------------------------

    def _cardinality(self, pending: PendingTable, edge: EdgeType) -> None:
        low, high = edge.cardinality.minimum, edge.cardinality.maximum
        if low == 0 and high is None:
            return
        affected = self.affected[edge.table_key] = self._affected(pending)
        if not len(affected):
            return
        counts = self._counts(self.view(edge.table_key), affected)
        wrong = counts < low if high is None else (counts < low) | (counts > high)
        if low and wrong.any():
            wrong &= ~self._idle(edge, affected, counts)
        if not wrong.any():
            return
        names = self._names(affected[wrong], [self.view(edge.table_key), self.base[edge.table_key]])
        for at in np.flatnonzero(wrong)[:MAX_SHOWN]:
            source, count = names[int(affected[at])], int(counts[at])
            bound = f"max {high}" if high is not None and count > high else f"min {low}"
            message = f"@card violation on edge {edge.name}: source {source!r} has {count} edges, {bound}"
            self._list(_violation("card", edge.name, "src", {"id": source, "src": source}, message))
        self.faults.add([], total=int(wrong.sum()))

    def _affected(self, pending: PendingTable) -> U64:
        """Return the sources whose edges this write adds, moves or removes."""
        found = self.evidence.runs(part.ends["src"] for part in pending.parts if "src" in part.ends)
        base = self.base[pending.entry.table_key]
        changed = RowIds.concat(
            [*(m.rows for m in pending.matched), *([pending.removed] if len(pending.removed) else [])]
        )
        if base.rows and (pending.replaced or len(changed)):
            ids = np.sort(changed.ids)
            for batch in key_rows(self.io, open_view(self.io, base), columns=("src",), positions=True):
                hashes = hash_text(batch.column("src"))
                mine = contained(batch.column("_rowid").to_numpy(), [ids])
                found.append(hashes if pending.replaced else hashes[mine])
        return distinct(np.concatenate([_NO_HASHES, *found]))

    def _counts(self, view: View, affected: U64) -> Counts:
        counts = np.zeros(len(affected), dtype=np.int64)
        for batch in self._sources(view):
            hashes = hash_text(batch.column("src"))
            hashes = hashes[contained(hashes, [affected])]
            counts += np.bincount(np.searchsorted(affected, hashes), minlength=len(affected))
        return counts

    def _sources(self, view: View) -> Iterator[pa.RecordBatch]:
        if view.rows:
            yield from key_rows(self.io, open_view(self.io, view), columns=("src",))

    def _names(self, sources: U64, views: Sequence[View]) -> dict[int, str]:
        """Find the texts of some sources again, for the message."""
        names: dict[int, str] = {}
        for view in views:
            for batch in self._sources(view):
                hashes = hash_text(batch.column("src"))
                for at in np.flatnonzero(contained(hashes, [sources])).tolist():
                    names.setdefault(int(hashes[at]), batch.column("src")[at].as_py())
        return names

    def _idle(self, edge: EdgeType, affected: U64, counts: Counts) -> Mask:
        """Say of which sources without edges nothing is required: removed themselves, or without edges before too."""
        idle: Mask = (counts == 0) & (self._counts(self.base[edge.table_key], affected) == 0)
        left = np.zeros(len(affected), dtype=bool)
        nodes = self.view(f"node:{edge.from_type}")
        if nodes.rows:
            for batch in key_rows(self.io, open_view(self.io, nodes), columns=("id",)):
                left |= contained(affected, [np.sort(hash_text(batch.column("id")))])
        idle |= (counts == 0) & ~left
        return idle


def end_violations(edges: pa.RecordBatch, edge: EdgeType, removed: Sequence[str], faults: Faults) -> None:
    """Report edges that would stay without one of their ends."""
    faults.add([], total=edges.num_rows)
    ends = [end for end, at in zip(_ENDS, (edge.from_type, edge.to_type), strict=True) if at in removed]
    for row in edges.slice(0, MAX_SHOWN).to_pylist():
        named = " or ".join(f"{end} {row[end]!r}" for end in ends)
        message = f"{edge.name} {row['id']!r} would lose its {named}: this write removes the node"
        faults.add([_violation("orphan-edge", edge.name, ends[0], row, message)], total=0)


def _violation(rule: str, type_name: str, property: str, row: Mapping[str, str], message: str) -> Violation:
    return Violation(
        rule=rule, type_name=type_name, property=property, row_id=row["id"], value=row.get(property), message=message
    )
