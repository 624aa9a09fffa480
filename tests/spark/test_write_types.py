"""Rows of every type through `df.write`, whatever the session's time zone and string layout are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from omnigraph_spark import Graph, ValidationError
from tests.all_types import FULL, PG, ROWS
from tests.places import Place
from tests.soundness import assert_sound
from tests.spark.saving import ids, refused, save

THING = """
    key string, bool_ boolean, i32 int, i64 bigint, u32 bigint, u64 decimal(20,0), f32 float, f64 double, date date,
    time timestamp, kind string, vector array<float>, blob binary, strings array<string>, longs array<decimal(20,0)>,
    times array<timestamp>, flags array<boolean>
"""


@pytest.fixture
def things(local_root: Place) -> Place:
    """An empty graph with a column of every type."""
    Graph.create(local_root.uri, schema=PG)
    return local_root


@pytest.fixture(scope="module")
def no_things(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The same, for tests that must leave it empty."""
    place = Place(str(tmp_path_factory.mktemp("things") / "graph"))
    Graph.create(place.uri, schema=PG)
    return place


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, whose settings are put back afterwards."""
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


def rows(spark: SparkSession) -> DataFrame:
    """Return the rows of the reading tests as a DataFrame."""
    names = [part.split()[0] for part in THING.replace("decimal(20,0)", "decimal").split(",")]
    return spark.createDataFrame([tuple(row[name] for name in names) for row in ROWS], THING)


def stored(place: Place) -> list[dict[str, Any]]:
    """Return what is in the table, without Spark."""
    found = place.open(read_only=True).to_arrow("Thing").sort_by("id").to_pylist()
    return [{name: _plain(row[name]) for name in FULL} for row in found]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.astimezone(timezone.utc) if isinstance(value, datetime) else value


EXPECTED = sorted(ROWS, key=lambda row: str(row["id"]))


@pytest.mark.parametrize(
    ("zone", "large", "partitions"), [("UTC", "false", 1), ("Asia/Tokyo", "true", 3), ("America/St_Johns", "false", 2)]
)
def test_every_type_arrives_as_it_was_given(
    settings: SparkSession, things: Place, zone: str, large: str, partitions: int
) -> None:
    """Values at the edges of every type are stored exactly, in any session zone and with large strings."""
    settings.conf.set("spark.sql.session.timeZone", zone)
    settings.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
    save(rows(settings).repartition(partitions), things, node="Thing")
    assert stored(things) == EXPECTED
    save(rows(settings), things, node="Thing", writeMode="merge")
    assert stored(things) == EXPECTED
    gone = settings.createDataFrame([("nulls",)], "id string")
    save(gone, things, node="Thing", writeMode="delete")
    assert ids(things, "Thing") == ["edges", "full"]
    assert_sound(things)


def test_what_was_read_can_be_written_back(spark: SparkSession, things: Place, local_root: Place) -> None:
    """The DataFrame a read returns is accepted by a write, unchanged and without naming columns."""
    save(rows(spark), things, node="Thing")
    copy = local_root.under("copy")
    Graph.create(copy.uri, schema=PG)
    save(spark.read.format("omnigraph").option("node", "Thing").load(things.uri), copy, node="Thing")
    assert stored(copy) == EXPECTED
    assert_sound(copy)


def test_an_instant_without_a_zone_is_utc(settings: SparkSession, things: Place) -> None:
    """timestamp_ntz is taken as UTC and timestamp as the instant it is, also when the session is elsewhere."""
    settings.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    save(settings.sql("select 'ntz' as key, timestamp_ntz'2026-01-01 00:00:00' as time"), things, node="Thing")
    save(settings.sql("select 'ltz' as key, timestamp'2026-01-01 09:00:00' as time"), things, node="Thing")
    times = {row["time"] for row in stored(things)}
    assert times == {datetime(2026, 1, 1, tzinfo=timezone.utc)}
    assert_sound(things)


WRONG_VALUES = {
    "i32 as wider integer": ("select 'a' as key, bigint(2147483648) as i32", "i32"),
    "u32 negative": ("select 'a' as key, bigint(-1) as u32", "u32"),
    "u64 too large": ("select 'a' as key, cast('18446744073709551616' as decimal(20,0)) as u64", "u64"),
    "vector length": ("select 'a' as key, array(float(1)) as vector", "vector"),
    "microseconds": ("select 'a' as key, timestamp'2026-01-01 00:00:00.000001' as time", "time"),
    "enum": ("select 'a' as key, 'huge' as kind", "kind"),
    "null key": ("select string(null) as key, 1 as i32", "null"),
}


@pytest.mark.parametrize("query", WRONG_VALUES)
def test_a_value_that_does_not_fit_is_refused(spark: SparkSession, no_things: Place, query: str) -> None:
    """Overflow, a wrong length, lost precision, a strange enum value, a null key: named, never bent."""
    text, match = WRONG_VALUES[query]
    refused(no_things, ValidationError, lambda: save(spark.sql(text), no_things, node="Thing"), match=match)
    assert ids(no_things, "Thing") == []
