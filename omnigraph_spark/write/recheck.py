"""Re-validation under the window: what other commits changed since the base, against what this write relied on.

Only the difference is looked at: ids added or removed in tables of the read-set, by comparing the fragments of the two
versions. A hit is a conflict, and the caller may run the write again; no hit means that everything checked against the
base still holds (INV-13). Both faces of write skew end here: a node removed under a staged edge, an edge added under a
removed node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import lance
import numpy as np

from omnigraph_spark.errors import ConflictError, ReadSetChangedError
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.schema.catalog import Catalog, EdgeType, GraphType, NodeType
from omnigraph_spark.storage.keyhash import U64, hash_text
from omnigraph_spark.storage.lance_commit import transactions_between
from omnigraph_spark.storage.lance_io import ScanSpec
from omnigraph_spark.storage.parallel import run_parallel
from omnigraph_spark.write.evidence import EvidenceReader, contained
from omnigraph_spark.write.gate import tuple_hashes
from omnigraph_spark.write.pending import PendingTable
from omnigraph_spark.write.plan import PublishPlan

_NO_HASHES = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Difference:
    """Hashes that one version of a table has and another has not, by name of what was hashed."""

    added: Mapping[str, U64]
    removed: Mapping[str, U64]
    sources: U64  # of edges added or removed


@dataclass(slots=True)
class Recheck:
    """Called with every fold a plan would land on; remembers how far it has looked."""

    reader: GraphReader
    catalog: Catalog
    tables: Mapping[str, PendingTable]
    evidence: EvidenceReader
    removed_nodes: Mapping[str, U64]
    base: Mapping[str, tuple[str, int]]
    _seen: dict[str, int] = field(default_factory=dict)

    def __call__(self, plan: PublishPlan, state: GraphState) -> None:
        """Raise ReadSetChangedError when a commit since the base breaks what this write relies on."""
        moved: list[tuple[str, int]] = []
        for key, version in plan.read_set.items():
            entry = state.tables.get(key)
            if entry is None:
                raise ConflictError(f"{key} was removed by another commit", table_key=key)
            if entry.version != self._seen.get(key, version):
                moved.append((key, entry.version))
        found = run_parallel([partial(self._difference, key, upto) for key, upto in moved])
        for (key, upto), difference in zip(moved, found, strict=True):
            if difference is not None:
                self._check(key, difference)
            self._seen[key] = upto

    # -- what changed ------------------------------------------------------------------------------------------------

    def _difference(self, key: str, upto: int) -> Difference | None:
        uri, base = self.base[key]
        since = self._seen.get(key, base)
        io = self.reader.io
        new = io.open(uri, table=key, version=upto)
        if all(t.is_maintenance for t in transactions_between(new, after=since, upto=upto)):
            return None
        old = io.open(uri, table=key, version=since)
        before = {f.fragment_id: _identity(f) for f in old.get_fragments()}
        after = {f.fragment_id: _identity(f) for f in new.get_fragments()}
        lost = [f for f, what in before.items() if after.get(f) != what]
        won = [f for f, what in after.items() if before.get(f) != what]
        graph_type = self.catalog.by_key(key)
        gone, come = self._hashes(old, lost, graph_type), self._hashes(new, won, graph_type)
        added = {name: np.setdiff1d(come[name], gone[name]) for name in come}
        removed = {name: np.setdiff1d(gone[name], come[name]) for name in gone}
        sources = [_NO_HASHES]
        if isinstance(graph_type, EdgeType):
            sources = [come["src"][np.isin(come["id"], added["id"])], gone["src"][np.isin(gone["id"], removed["id"])]]
        return Difference(added, removed, np.concatenate(sources))

    def _hashes(self, dataset: lance.LanceDataset, fragments: Sequence[int], graph_type: GraphType) -> dict[str, U64]:
        found: dict[str, list[U64]] = {name: [_NO_HASHES] for name in _hashed(graph_type)}
        columns = dict.fromkeys([*graph_type.system_columns, *(c for group in graph_type.unique for c in group)])
        if fragments:
            spec = ScanSpec(columns=tuple(columns), fragments=tuple(fragments))
            for batch in self.reader.io.batches(dataset, spec):
                for name in graph_type.system_columns:
                    found[name].append(hash_text(batch.column(name)))
                for number, group in enumerate(graph_type.unique):
                    found[f"unique{number}"].append(tuple_hashes(batch, group))
        return {name: np.concatenate(parts) for name, parts in found.items()}

    # -- what it means -----------------------------------------------------------------------------------------------

    def _check(self, key: str, difference: Difference) -> None:
        graph_type = self.catalog.by_key(key)
        pending = self.tables.get(key)
        if pending is not None and not pending.strict:
            self._own_rows(key, pending, difference)
        if isinstance(graph_type, NodeType):
            self._nodes_removed(key, graph_type, difference.removed["id"])
        else:
            self._edges_added(graph_type, difference)

    def _own_rows(self, key: str, pending: PendingTable, difference: Difference) -> None:
        keys = self.evidence.runs(part.keys for part in pending.parts)
        self._refuse(key, difference.added["id"], keys, "added an id this write adds too")
        if pending.matched:
            self._refuse(key, difference.removed["id"], keys, "removed a row this write replaces")
        for number, _ in enumerate(pending.graph_type.unique):
            values = self.evidence.runs(part.uniques[number] for part in pending.parts if part.uniques)
            self._refuse(key, difference.added[f"unique{number}"], values, "took a unique value this write uses")
        if isinstance(pending.graph_type, EdgeType) and _limited(pending.graph_type):
            sources = self.evidence.runs(part.ends["src"] for part in pending.parts)
            self._refuse(key, difference.sources, sources, "changed the edges of a source this write counts")

    def _nodes_removed(self, key: str, node: NodeType, removed: U64) -> None:
        for edge in self.catalog.edges_touching(node.name):
            staged = self.tables.get(edge.table_key)
            if staged is None:
                continue
            for end, at in (("src", edge.from_type), ("dst", edge.to_type)):
                if at == node.name:
                    ends = self.evidence.runs(part.ends[end] for part in staged.parts if end in part.ends)
                    self._refuse(key, removed, ends, f"removed a node an edge of this write has as its {end}")

    def _edges_added(self, edge: EdgeType, difference: Difference) -> None:
        for end, at in (("src", edge.from_type), ("dst", edge.to_type)):
            removed = self.removed_nodes.get(f"node:{at}")
            if removed is not None:
                self._refuse(edge.table_key, difference.added[end], [removed], "added an edge of a node this removes")

    def _refuse(self, key: str, changed: U64, relied_on: Sequence[U64], what: str) -> None:
        if len(changed) and contained(changed, relied_on).any():
            raise ReadSetChangedError(f"A concurrent commit on {key} {what}", table_key=key)


def _limited(edge: EdgeType) -> bool:
    return edge.cardinality.minimum > 0 or edge.cardinality.maximum is not None


def _hashed(graph_type: GraphType) -> Iterator[str]:
    yield from graph_type.system_columns
    yield from (f"unique{n}" for n in range(len(graph_type.unique)))


def _identity(fragment: lance.LanceFragment) -> tuple[object, ...]:
    """Return what makes a fragment's rows what they are: its files and its deletions."""
    meta = fragment.metadata
    deletion = meta.deletion_file
    marks = None if deletion is None else (deletion.read_version, deletion.id, deletion.num_deleted_rows)
    return (tuple(f.path for f in meta.files), marks)
