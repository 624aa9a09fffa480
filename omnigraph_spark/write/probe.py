"""Looking keys up in a table: by the rows' own ids when they are few or indexed, else by streaming the key column.

Memory is bounded by the caller's keys, never by the table. A ``View`` names the version to look at: the base of the
write, or base plus what the same transaction staged before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.storage.lance_io import LanceIO, ScanSpec, indexed_columns

_SCAN_ROWS = 65_536
FEW = 1_000  # ids that fit in one predicate without an index
FEW_INDEXED = 50_000  # ids an index answers faster than a scan of the column
_IN_ONE_FILTER = 10_000


@dataclass(frozen=True, slots=True)
class View:
    """One version of one table, as a write sees it; picklable."""

    table_key: str
    uri: str
    version: int
    rows: int


def open_view(io: LanceIO, view: View) -> lance.LanceDataset:
    """Open a view."""
    return io.open(view.uri, table=view.table_key, version=view.version)


class FewTexts:
    """Remembers texts while they are few; None once they are not."""

    def __init__(self, *, most: int = FEW_INDEXED) -> None:
        self._most = most
        self._parts: list[pa.Array] | None = []
        self._count = 0

    def add(self, texts: pa.Array) -> None:
        """Remember more."""
        if self._parts is None:
            return
        self._count += len(texts)
        if self._count > self._most:
            self._parts = None
        else:
            self._parts.append(texts)

    def all(self) -> pa.Array | None:
        """Return each text once, or None when there were too many."""
        if self._parts is None:
            return None
        return pc.unique(pa.concat_arrays(self._parts)) if self._parts else pa.array([], pa.string())


def key_rows(
    io: LanceIO,
    dataset: lance.LanceDataset,
    *,
    columns: Sequence[str],
    among: pa.Array | None = None,
    keys: Sequence[str] = ("id",),
    positions: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Stream key columns of a table; with ``among``, at least the rows that have one of those texts in a key column.

    With several key columns a row may come more than once.
    """
    for text in _filters(dataset, among, keys=keys):
        spec = ScanSpec(
            columns=tuple(columns), filter=text, batch_size=_SCAN_ROWS, row_ids=positions, row_addresses=positions
        )
        yield from (batch for batch in io.batches(dataset, spec) if batch.num_rows)


def _filters(dataset: lance.LanceDataset, among: pa.Array | None, *, keys: Sequence[str]) -> list[str | None]:
    if among is None or len(among) > FEW_INDEXED:
        return [None]
    if len(among) > FEW and not indexed_columns(dataset).issuperset(keys):
        return [None]
    texts = among.to_pylist()
    lists = [", ".join(map(quoted, texts[n : n + _IN_ONE_FILTER])) for n in range(0, len(texts), _IN_ONE_FILTER)]
    return [" OR ".join(f"{key} IN ({listed})" for key in keys) for listed in lists]


def quoted(text: str) -> str:
    """Return a text as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"
