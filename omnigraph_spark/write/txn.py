"""``WriteTxn``: the pinned base of a write. Captured once, immutable, picklable; every later phase reads only this
(INV-01).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph_spark.errors import FormatError, NotFoundError
from omnigraph_spark.manifest.layout import Layout, branch_uri
from omnigraph_spark.manifest.rows import CommitRow, TokenRow
from omnigraph_spark.manifest.state import GraphState, TableEntry
from omnigraph_spark.schema.catalog import Catalog
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.locations import join


@dataclass(frozen=True, slots=True)
class WriteTxn:
    """Branch and base: where every table was when the write began."""

    root: str
    branch: str
    graph_version: int
    head: CommitRow | None
    epoch: int
    tables: Mapping[str, TableEntry]
    catalog: Catalog
    layout: Layout
    config: StorageConfig
    commit_id: str
    actor: str | None = None
    token: TokenRow | None = None
    state: GraphState | None = field(default=None, repr=False, compare=False)

    def entry(self, table_key: str) -> TableEntry:
        """Return a table's entry in the base."""
        found = self.tables.get(table_key)
        if found is None:
            raise NotFoundError(f"{table_key} does not exist in graph version {self.graph_version}")
        return found

    def uri(self, table_key: str) -> str:
        """Return a table's dataset URI."""
        entry = self.entry(table_key)
        return branch_uri(join(self.root, entry.path), entry.branch)

    def portable(self) -> WriteTxn:
        """Return the base without its folded rows, for sending to tasks."""
        if self.state is None:
            return self
        values = {name: getattr(self, name) for name in self.__slots__ if name != "state"}
        return WriteTxn(**values)


def writable(txn: WriteTxn, table_key: str) -> None:
    """Refuse a table the branch does not own yet."""
    entry = txn.entry(table_key)
    owner = entry.branch or "main"
    if owner != txn.branch:
        raise FormatError(
            f"{table_key} on branch {txn.branch!r} still lives on {owner!r}; writing it needs a fork of the table",
            hint="Write to the branch that owns the table.",
        )
