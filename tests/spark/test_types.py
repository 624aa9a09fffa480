"""Every type through Spark, in any session time zone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.all_types import FULL, ROWS, graph_of_all_types
from tests.places import Place


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A graph with a column of every type."""
    return graph_of_all_types(Place(str(tmp_path_factory.mktemp("things") / "graph")))


@pytest.fixture
def tokyo(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with another time zone while the test runs."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_spark_types_are_those_of_the_table(spark: SparkSession, things: Place) -> None:
    """Unsigned, DateTime, Vector, Blob and lists have the documented Spark types; the key is required."""
    schema = spark.read.format("omnigraph").option("node", "Thing").load(things.uri).schema
    assert {f.name: f.dataType.simpleString() for f in schema} == {
        "id": "string",
        "blob": "binary",
        "bool_": "boolean",
        "date": "date",
        "f32": "float",
        "f64": "double",
        "flags": "array<boolean>",
        "i32": "int",
        "i64": "bigint",
        "key": "string",
        "kind": "string",
        "longs": "array<decimal(20,0)>",
        "strings": "array<string>",
        "time": "timestamp",
        "times": "array<timestamp>",
        "u32": "bigint",
        "u64": "decimal(20,0)",
        "vector": "array<float>",
    }
    assert [f.name for f in schema if not f.nullable] == ["id", "key"]


def test_every_type_reaches_python_unchanged(spark: SparkSession, things: Place) -> None:
    """What Spark collects equals what was stored, at the edges of every type."""
    rows = spark.read.format("omnigraph").option("node", "Thing").load(things.uri).collect()
    assert [_plain(row.asDict()) for row in rows] == [_plain(row) for row in ROWS]


def test_u64_above_2_to_the_63_can_be_computed_with(spark: SparkSession, things: Place) -> None:
    """The greatest U64 is a decimal, compares as a number, and is not wrapped."""
    frame = spark.read.format("omnigraph").option("node", "Thing").option("columns", "id,u64").load(things.uri)
    assert [r.u64 for r in frame.filter("u64 > 9223372036854775808").collect()] == [Decimal(2**64 - 1)]


def test_times_are_instants_in_any_session_zone(tokyo: SparkSession, things: Place) -> None:
    """A DateTime is the same instant in a session of another zone; only its rendering follows the session."""
    frame = tokyo.read.format("omnigraph").option("node", "Thing").option("columns", "id,time").load(things.uri)
    assert frame.filter("time = timestamp '2026-02-28 12:30:15.123 UTC'").count() == 1
    shown = frame.selectExpr("string(time)").collect()
    assert shown[0][0] == "2026-02-28 21:30:15.123"
    read = tokyo.read.format("omnigraph").option("node", "Thing").option("timestampAsOf", "2999-01-01").load(things.uri)
    assert read.count() == 3


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Spark hands out naive local times and bytearrays: compare instants and bytes."""
    return {name: _value(row[name]) for name in FULL}


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc)
    return bytes(value) if isinstance(value, bytearray) else value
