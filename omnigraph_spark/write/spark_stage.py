"""Staging a Spark DataFrame from the caller's own process: tasks stage, their answers come back as rows.

A failed or speculative task attempt leaves files nobody references and no answer, so every answer is of one winning
attempt. Errors of tasks arrive as text and leave as what they were.
"""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeGuard

import pyarrow as pa

from omnigraph_spark.errors import OptionError, SchemaError, typed_errors
from omnigraph_spark.write.columns import refuse_columns
from omnigraph_spark.write.stage import StagedPart, StageJob, WriteMode, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_ANSWER = pa.schema([("part", pa.binary())])


def is_frame(data: object) -> TypeGuard[DataFrame]:
    """Say whether data is a Spark DataFrame, classic or Connect, without importing Spark."""
    return type(data).__module__.startswith("pyspark.sql") and hasattr(data, "mapInArrow")


def stage_frame(frame: DataFrame, job: StageJob) -> list[StagedPart]:
    """Stage a DataFrame's rows on the executors."""
    if importlib.util.find_spec("pandas") is None:
        raise OptionError(
            "Writing a DataFrame in a transaction needs pandas, which Spark requires for Arrow functions",
            hint="pip install pandas, or write with df.write.format('omnigraph').",
        )
    check_columns(job, frame.schema)
    with typed_errors():
        rows = frame.mapInArrow(_staging(job), "part binary").collect()
    parts = [pickle.loads(bytes(row["part"])) for row in rows]
    return parts or [StagedPart(job.target.table_key, job.mode, 0)]


def check_columns(job: StageJob, schema: StructType) -> None:
    """Refuse columns that cannot become the type's, before any task runs and also when there are no rows."""
    refuse_columns(arrow_columns(schema), job.graph_type, delete=job.mode is WriteMode.DELETE)


def arrow_columns(schema: StructType) -> pa.Schema:
    """Return the Arrow columns in which Spark will send a DataFrame's rows."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import CharType, StringType, VarcharType

    columns = []
    for field in schema.fields:
        text = isinstance(field.dataType, (CharType, VarcharType))
        try:
            columns.append(
                pa.field(field.name, to_arrow_type(StringType() if text else field.dataType, timezone="UTC"))
            )
        except PySparkException as e:
            raise SchemaError(
                f"the column {field.name!r} is a {field.dataType.simpleString()}, which Spark cannot send",
                rule="type",
                hint="Cast the column or leave it out.",
            ) from e
    return pa.schema(columns)


def _staging(job: StageJob) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = stage(job, batches)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(part)], pa.binary())], schema=_ANSWER)

    return run
