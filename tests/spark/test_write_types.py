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


@pytest.mark.parametrize(("zone", "large", "partitions"), [("Asia/Tokyo", "true", 3), ("America/St_Johns", "false", 2)])
def test_every_type_arrives_as_it_was_given(
    settings: SparkSession, things: Place, zone: str, large: str, partitions: int
) -> None:
    """Values at the edges of every type are stored exactly by append and merge, in any zone and with large strings."""
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
    "i32": "bigint(2147483648)",
    "u32": "bigint(-1)",
    "u64": "cast('18446744073709551616' as decimal(20,0))",
    "vector": "array(float(1))",
    "time": "timestamp'2026-01-01 00:00:00.000001'",
}


def test_values_that_do_not_fit_are_refused(spark: SparkSession, things: Place) -> None:
    """Overflow, a wrong length, lost precision, a null key, a strange enum value: each named, never bent."""
    keys = ", ".join([*(f"'{name}'" for name in WRONG_VALUES), "null"])
    values = ", ".join(f"if(key = '{name}', {value}, null) as {name}" for name, value in WRONG_VALUES.items())
    frame = spark.sql(f"select key, {values} from (select explode(array({keys})) as key)")
    error = refused(things, ValidationError, lambda: save(frame, things, node="Thing"), match="violations")
    for name in WRONG_VALUES:
        assert f"Thing.{name}, row" in error.message
    assert "Thing.key, row 5: is null" in error.message
    # Values are looked at only when all of them fit their columns.
    strange = spark.sql("select 'a' as key, 'huge' as kind")
    refused(things, ValidationError, lambda: save(strange, things, node="Thing"), match=r"invalid enum .* Thing\.kind")
    assert ids(things, "Thing") == []
