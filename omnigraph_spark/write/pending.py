"""What a transaction has staged for each table so far, and the view later operations get of it.

One operation on a table is kept as it was staged. A later one that replaces rows of an earlier one has both rewritten
together, so that in the end every table has one action: rows that take over existing ones, and new rows. The view is a
detached Lance version over base and staged fragments: readable by any task, part of no lineage (INV-02).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.errors import OptionError
from omnigraph_spark.manifest.state import TableEntry
from omnigraph_spark.schema.catalog import GraphType
from omnigraph_spark.schema.declarations import Scalar
from omnigraph_spark.schema.mapping import table_arrow_schema
from omnigraph_spark.storage.lance_commit import detached_view, stage_rows, staged_rows
from omnigraph_spark.storage.lance_io import LanceIO, fragment_infos
from omnigraph_spark.storage.lance_staged import staged_batches
from omnigraph_spark.write.actions import Append, Delete, MatchedFragment, Overwrite, TableAction, Upsert
from omnigraph_spark.write.effect import TableHead, operation_of
from omnigraph_spark.write.matching import Mask, matched_fragments
from omnigraph_spark.write.plan import TablePin
from omnigraph_spark.write.probe import View
from omnigraph_spark.write.rowids import U64, RowIds
from omnigraph_spark.write.stage import StagedPart, WriteMode

_NONE = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True, slots=True, eq=False)
class PendingTable:
    """One table's share of a transaction."""

    graph_type: GraphType
    entry: TableEntry
    uri: str
    inserted: tuple[str, ...] = ()
    matched: tuple[MatchedFragment, ...] = ()
    removed: RowIds = field(default_factory=RowIds.empty)
    replaced: bool = False
    strict: bool = False
    parts: tuple[StagedPart, ...] = ()

    @property
    def pin(self) -> TablePin:
        """The base the table starts from."""
        e = self.entry
        return TablePin(e.table_key, e.path, e.branch, e.version, e.row_count)

    @property
    def rows(self) -> int:
        """How many staged rows there are."""
        return staged_rows([*(m.fragment for m in self.matched), *self.inserted])

    @property
    def fragments(self) -> tuple[str, ...]:
        """Every staged fragment."""
        return (*(m.fragment for m in self.matched), *self.inserted)

    def action(self) -> TableAction | None:
        """Return what publishing does to the table; None when it changes nothing."""
        key = self.entry.table_key
        if self.replaced and (self.inserted or self.entry.row_count):
            return Overwrite(key, self.inserted, self.rows)
        if self.matched:
            return Upsert(key, self.matched, self.inserted, self.rows)
        if self.inserted:
            return Append(key, self.inserted, self.rows)
        return Delete(key, self.removed) if len(self.removed) else None

    def base_view(self) -> View:
        """Return the table as it was before the transaction."""
        return View(self.entry.table_key, self.uri, self.entry.version, self.entry.row_count)

    def view(self, io: LanceIO) -> View:
        """Return the table as the transaction has it now."""
        action = self.action()
        if action is None:
            return self.base_view()
        base = io.open(self.uri, table=self.entry.table_key, version=self.entry.version)
        head = TableHead(self.pin, base, ())
        seen = detached_view(base, operation_of(io, head, action))
        return View(self.entry.table_key, self.uri, int(seen.version), io.count(seen))


def staged_onto(
    pending: PendingTable, parts: Sequence[StagedPart], *, io: LanceIO, view: View, strict: bool
) -> PendingTable:
    """Add what one operation staged against ``view`` to what the table has already."""
    inserted = tuple(f for part in parts for f in part.inserted)
    matched = tuple(m for part in parts for m in part.matched)
    if parts[0].mode is WriteMode.OVERWRITE:
        # Whatever was staged before is replaced too.
        return replace(
            pending,
            inserted=inserted,
            matched=(),
            removed=RowIds.empty(),
            replaced=True,
            strict=True,
            parts=tuple(parts),
        )
    grown = replace(pending, parts=(*pending.parts, *parts), strict=pending.strict or strict)
    removed = RowIds.concat([r for r in (pending.removed, *(part.removed for part in parts)) if len(r)]).distinct()
    if view.version != pending.entry.version and matched:
        return _over_pending(grown, inserted, matched, io=io)
    return replace(
        grown,
        inserted=(*pending.inserted, *inserted),
        matched=(*pending.matched, *matched),
        removed=removed,
    )


def _over_pending(
    pending: PendingTable, inserted: tuple[str, ...], matched: tuple[MatchedFragment, ...], *, io: LanceIO
) -> PendingTable:
    """Add an operation that may replace rows this transaction staged itself."""
    base = io.open(pending.uri, table=pending.entry.table_key, version=pending.entry.version)
    on_base = _on_base(RowIds.concat([m.rows for m in matched]), base, replaced=pending.replaced)
    if on_base.all():
        kept = [MatchedFragment(m.fragment, replace(m.rows, at_version=pending.entry.version)) for m in matched]
        return replace(pending, inserted=(*pending.inserted, *inserted), matched=(*pending.matched, *kept))
    if any(p.scalar is Scalar.BLOB for p in pending.graph_type.properties):
        raise OptionError(
            f"{pending.graph_type.name} has Blob properties: a transaction cannot change rows it wrote itself",
            hint="Write the rows in one operation, or in two transactions.",
        )
    return _restaged(pending, inserted, matched, io=io, base=base)


def _on_base(rows: RowIds, base: lance.LanceDataset, *, replaced: bool) -> Mask:
    """Say which rows of a view lie in fragments of the base."""
    fragments = [] if replaced else [info.fragment_id for info in fragment_infos(base)]
    found: Mask = np.isin((rows.addresses >> np.uint64(32)).astype(np.int64), fragments)
    return found


def _restaged(
    pending: PendingTable,
    inserted: tuple[str, ...],
    matched: tuple[MatchedFragment, ...],
    *,
    io: LanceIO,
    base: lance.LanceDataset,
) -> PendingTable:
    """Stage the rows of both operations anew, the later row winning for each id."""
    schema = table_arrow_schema(pending.graph_type)
    before = RowIds.concat([m.rows for m in pending.matched])
    now = RowIds.concat([m.rows for m in matched])
    on_base = _on_base(now, base, replaced=pending.replaced)
    carries = on_base | np.isin(now.ids, before.ids)
    newer = _rows_of(io, pending.uri, [*(m.fragment for m in matched), *inserted], schema)
    older = _rows_of(io, pending.uri, pending.fragments, schema)
    kept = pc.invert(pc.is_in(older.column("id"), value_set=newer.column("id").combine_chunks()))
    older_ids = _filled(before.ids, older.num_rows)[kept.to_numpy()]
    newer_ids = _filled(np.where(carries, now.ids, _NONE), newer.num_rows)
    rows = pa.concat_tables([older.filter(kept), newer])
    ids = np.concatenate([older_ids, newer_ids])
    # A row that replaces one of ours takes over that one's place in the base, never its place in the view.
    places = RowIds.concat([before, RowIds(now.ids[on_base], now.addresses[on_base])])
    takes = ids != _NONE
    replacing = _stage(io, base, rows.filter(pa.array(takes)), schema)
    adding = _stage(io, base, rows.filter(pa.array(~takes)), schema)
    taken = _placed(ids[takes], places, version=pending.entry.version)
    return replace(pending, inserted=tuple(adding), matched=matched_fragments(replacing, taken))


def _filled(ids: U64, count: int) -> U64:
    return np.concatenate([ids, np.full(count - len(ids), _NONE, dtype=np.uint64)])


def _placed(ids: U64, places: RowIds, *, version: int) -> RowIds:
    order = np.argsort(places.ids)
    at = order[np.searchsorted(places.ids, ids, sorter=order)]
    return RowIds(ids, places.addresses[at], version)


def _rows_of(io: LanceIO, uri: str, fragments: Sequence[str], schema: pa.Schema) -> pa.Table:
    batches = list(staged_batches(io, uri, fragments, columns=schema.names))
    return pa.Table.from_batches(batches).select(schema.names).cast(schema) if batches else schema.empty_table()


def _stage(io: LanceIO, base: lance.LanceDataset, rows: pa.Table, schema: pa.Schema) -> list[str]:
    return stage_rows(io, base, iter(rows.to_batches()), schema=schema) if rows.num_rows else []
