"""Graphs big enough to measure: one edge type of five columns, filled straight through Lance and published once."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark import Graph
from omnigraph_spark.manifest.layout import MAIN
from omnigraph_spark.manifest.rows import CommitRow, commit_rows, rows_to_arrow, version_row
from omnigraph_spark.manifest.store import MANIFEST
from omnigraph_spark.read.snapshot import GraphReader, Moment
from omnigraph_spark.schema.mapping import table_arrow_schema
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.lance_commit import append_operation, commit_operation, merge_rows, stage_rows
from omnigraph_spark.storage.seams import Seams

SCHEMA = """
node Place { name: String @key }
edge Road: Place -> Place { length: F64  lanes: I64 }
"""
_BATCH = 100_000
# The first character of an id tells its fragment, so that ids are unique in the table.
_LETTERS = string.ascii_letters + string.digits + "-_"


def edge_batches(rows: int, *, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield edges with 16-character ids; ``lanes`` cycles through 100 values, so ``lanes = 7`` selects 1 %."""
    for start in range(0, rows, _BATCH):
        count = min(_BATCH, rows - start)
        numbers = np.arange(start, start + count)
        columns = {
            "id": pa.array([f"r{n:015d}" for n in numbers]),
            "src": pa.array([f"p{n * 7919 % 1_000_003:015d}" for n in numbers]),
            "dst": pa.array([f"p{n * 104729 % 1_000_003:015d}" for n in numbers]),
            "lanes": pa.array(numbers % 100, type=pa.int64()),
            "length": pa.array(np.sqrt(numbers), type=pa.float64()),
        }
        yield pa.record_batch([columns[name] for name in schema.names], schema=schema)


def build_edges(root: Path, *, rows: int, fragments: int = 4) -> Graph:
    """Create a graph whose ``Road`` table holds ``rows`` rows in a few fragments, 64 at most."""
    graph = Graph.create(str(root), schema=SCHEMA)
    reader = GraphReader.begin(str(root), StorageConfig.resolve())
    snapshot, _ = reader.resolve(Moment())
    schema = table_arrow_schema(snapshot.catalog.edge("Road"))
    entry = snapshot.entry("edge:Road")
    dataset = reader.open_table(snapshot, entry)
    batches = list(edge_batches(rows // fragments, schema=schema))
    staged: list[str] = []
    for letter in _LETTERS[:fragments]:
        staged += stage_rows(reader.io, dataset, (_renamed(b, letter) for b in batches), schema=schema)
    committed = commit_operation(reader.io, dataset, append_operation(staged), table=entry.table_key, properties={})
    opened = reader.manifest.open(branch=MAIN)
    seams, layout = Seams(), opened.state.layout
    head = opened.state.head
    commit = CommitRow(
        seams.new_id(), MAIN, opened.state.graph_version + 1, seams.now_micros(), head.commit_id if head else None
    )
    version = version_row(
        layout,
        entry.table_key,
        version=int(committed.version),
        rows=committed.count_rows(),
        branch=None,
        manifest_path="",
    )
    merge_rows(reader.io, opened.dataset, rows_to_arrow(layout, [version, *commit_rows(commit)]), table=MANIFEST)
    return graph


def _renamed(batch: pa.RecordBatch, letter: str) -> pa.RecordBatch:
    ids = pc.binary_replace_slice(batch.column("id"), 0, 1, letter)
    return batch.set_column(batch.schema.get_field_index("id"), batch.schema.field("id"), ids)
