"""The executor's side of a read: open by location and pinned version, stream batches, cast to exactly what Spark
expects.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from omnigraph_spark.errors import StorageNotFoundError
from omnigraph_spark.read.plan import ReadPlan, ReadSplit
from omnigraph_spark.schema.mapping import to_spark_batch
from omnigraph_spark.storage.lance_io import LanceIO, ScanSpec


def scan(plan: ReadPlan, split: ReadSplit, *, io: LanceIO | None = None) -> Iterator[pa.RecordBatch]:
    """Stream one split's rows; memory is bounded by a few batches whatever the table's size."""
    io = io if io is not None else LanceIO(plan.config)
    dataset = io.open(plan.uri, table=plan.table_key, version=plan.version)
    spec = ScanSpec(
        columns=tuple(plan.schema.names),
        filter=plan.filter,
        limit=split.limit,
        batch_size=plan.batch_size,
        fragments=split.fragments,
    )
    try:
        for batch in io.batches(dataset, spec):
            if batch.num_rows:
                yield to_spark_batch(batch, plan.schema)
    except StorageNotFoundError as e:
        raise StorageNotFoundError(
            f"A data file of {plan.table_key} version {plan.version} is gone: {e.message}",
            hint="The version may have been cleaned up while it was read; read the current graph version again.",
        ) from e
