"""Loading OmniGraph JSONL: records of any types become one transaction.

Records of one type are gathered in a local file and staged together, so that a load sees each type once: an overwrite
replaces it with all its records, and in a merge the last record of an edge id wins, as in OmniGraph. An input without
records commits nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import IO, TypeAlias

import pyarrow as pa

from omnigraph_spark.errors import OptionError
from omnigraph_spark.schema.catalog import EdgeType, GraphType
from omnigraph_spark.schema.mapping import table_arrow_schema
from omnigraph_spark.values import Commit
from omnigraph_spark.write.jsonl import read_records
from omnigraph_spark.write.key_runs import Scratch
from omnigraph_spark.write.spill import RowSpill
from omnigraph_spark.write.stage import WriteMode
from omnigraph_spark.write.transaction import Transaction

Source: TypeAlias = "str | os.PathLike[str] | Iterable[str] | IO[str] | IO[bytes]"


class LoadMode(str, Enum):
    """What a load does with records whose id exists."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"

    @classmethod
    def parse(cls, mode: LoadMode | str) -> LoadMode:
        """Read a mode; there is no default, because each loses something the others keep."""
        try:
            return cls(mode)
        except ValueError as e:
            choices = ", ".join(m.value for m in cls)
            raise OptionError(f"Unknown load mode {mode!r}", hint=f"Choose one of {choices}.") from e


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load did: records per type, and the commit; None when there was nothing to do."""

    branch: str
    mode: str
    records: Mapping[str, int] = field(default_factory=dict)
    commit: Commit | None = None

    @property
    def nodes_loaded(self) -> dict[str, int]:
        """Records per node type."""
        return _of_kind(self.records, "node")

    @property
    def edges_loaded(self) -> dict[str, int]:
        """Records per edge type."""
        return _of_kind(self.records, "edge")


def _of_kind(records: Mapping[str, int], kind: str) -> dict[str, int]:
    split = ((key.partition(":"), count) for key, count in records.items())
    return {name: count for (found, _, name), count in split if found == kind}


def load_records(tx: Transaction, source: Source, *, mode: LoadMode) -> dict[str, int]:
    """Stage all records of a source in a transaction; returns how many there were of each type, nodes first."""
    catalog = tx.catalog
    with Scratch() as scratch:
        gathered: dict[str, RowSpill] = {}
        for typed in read_records(source, catalog=catalog):
            graph_type = catalog.by_key(typed.table_key)
            if typed.table_key not in gathered:
                gathered[typed.table_key] = RowSpill(_gathered_schema(graph_type), scratch)
            gathered[typed.table_key].add(_widened(typed.rows, gathered[typed.table_key].schema))
        counts: dict[str, int] = {}
        for key in (k for k in catalog.table_keys() if k in gathered):
            rows = gathered[key]
            rows.close()
            counts[key] = rows.rows
            _stage(tx, catalog.by_key(key), rows.batches(), rows.schema, mode=mode)
        return counts


def _stage(
    tx: Transaction, graph_type: GraphType, batches: Iterator[pa.RecordBatch], schema: pa.Schema, *, mode: LoadMode
) -> None:
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    last_wins = mode is LoadMode.MERGE and isinstance(graph_type, EdgeType)
    tx.stage_rows(graph_type.table_key, reader, WriteMode(mode.value), last_wins=last_wins)


def _gathered_schema(graph_type: GraphType) -> pa.Schema:
    """Return the table's columns, all nullable: ids are made and rules are checked when the rows are staged."""
    return pa.schema([f.with_nullable(nullable=True) for f in table_arrow_schema(graph_type)])


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    named = set(batch.schema.names)
    columns = [batch.column(f.name) if f.name in named else pa.nulls(batch.num_rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
