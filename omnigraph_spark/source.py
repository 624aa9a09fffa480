"""The Spark Data Source: ``spark.read/write.format("omnigraph")`` routed to ``read/`` and ``write/``.

Spark runs each method in another Python process and moves objects by pickle, so everything is decided in ``schema()``
and kept on ``self``: the snapshot pinned there is what every later use of the DataFrame reads (INV-14). ``pushFilters``
is not overridden: in Spark 4.1 to 4.3 a pushed filter leaks into other uses of the same DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph_spark.errors import OptionError
from omnigraph_spark.options import Options, Scope, parse_options
from omnigraph_spark.read.metadata import metadata_rows
from omnigraph_spark.read.plan import ReadPlan, ReadSplit, plan_read
from omnigraph_spark.read.request import moment_of, request_of
from omnigraph_spark.read.scan import scan
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.schema.mapping import spark_schema_of
from omnigraph_spark.storage.config import StorageConfig


class SplitPartition(InputPartition):
    """One task's share of a table."""

    def __init__(self, split: ReadSplit) -> None:
        self.split = split


class TableReader(DataSourceReader):
    """Reads one type at one pinned version."""

    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan

    def partitions(self) -> list[InputPartition]:
        """Return one partition per split of the plan."""
        return [SplitPartition(s) for s in self.plan.splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Stream a split; Spark sends ``None`` as the only partition of an empty table."""
        if isinstance(partition, SplitPartition):
            yield from scan(self.plan, partition.split)


class RowsReader(DataSourceReader):
    """Serves rows that were computed when the DataFrame was made."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        """All rows in one task."""
        return [InputPartition(0)]

    def read(self, _partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows."""
        yield from self.rows.combine_chunks().to_batches()


class OmnigraphDataSource(DataSource):
    """``format("omnigraph")``."""

    _plan: ReadPlan | pa.Table | None = None

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "omnigraph"

    def schema(self) -> StructType:
        """Resolve and pin the read; its columns are the DataFrame's."""
        plan = self._planned()
        schema = spark_schema_of(plan.schema)
        # Over Connect a client learns here, without a job, which version a read would see (read/connect.py).
        schema[0].metadata.update({key.decode(): value.decode() for key, value in (plan.schema.metadata or {}).items()})
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the pinned plan; a schema given by the user must describe what we return."""
        plan = self._planned()
        wanted = _agreed(schema, plan.schema)
        if isinstance(plan, ReadPlan):
            return TableReader(replace(plan, schema=wanted))
        return RowsReader(plan.cast(wanted))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's signature
        """Pin the base of a save; its tasks and its commit get what is decided here."""
        # Imported here: planning a read should not wait for the writing half.
        from omnigraph_spark.write.spark_writer import begin_write

        return begin_write(parse_options(self.options, scope=Scope.WRITE), schema, overwrite=overwrite)

    def _planned(self) -> ReadPlan | pa.Table:
        if self._plan is None:
            options = parse_options(self.options, scope=Scope.READ)
            self._plan = plan_options(options)
        return self._plan


def _agreed(given: StructType, ours: pa.Schema) -> pa.Schema:
    """Return our schema with the nullability Spark was told; names and types must be ours."""
    expected = spark_schema_of(ours)
    # simpleString leaves nullability out, at every depth.
    if given.simpleString() != expected.simpleString():
        raise OptionError(
            f"The given schema is {given.simpleString()}, the read returns {expected.simpleString()}",
            hint="Leave .schema(...) out and choose columns with the columns option.",
        )
    told = to_arrow_schema(given, timezone="UTC")
    if any(own.nullable and not field.nullable for own, field in zip(ours, told, strict=True)):
        raise OptionError("The given schema requires values in a column that may hold nulls")
    return told


def plan_options(options: Options) -> ReadPlan | pa.Table:
    """Plan a read of a type, or compute a metadata table."""
    reader = GraphReader.begin(options.require("path", str), StorageConfig.resolve(options.storage))
    table = options.get("table", str)
    if table is None:
        return plan_read(reader, request_of(options))
    for name in ("node", "edge", "type", "columns", "filter", "limit", "metadataColumns"):
        if options.given(name):
            raise OptionError(f"Options table and {name} exclude each other")
    return metadata_rows(reader, moment_of(options), table=table)
