"""Every read option through Spark, on a real session."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import omnigraph_spark as og
from omnigraph_spark.errors import from_text
from tests.places import Place, knows, people

KEY = "node:Person"


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Three commits on main, one on a branch."""
    place = Place(str(tmp_path_factory.mktemp("town") / "graph")).built()
    builder = place.builder
    builder.publish({KEY: pa.concat_tables([people(f"p{i}", age=i) for i in range(5)])})
    builder.publish(
        {KEY: pa.concat_tables([people(f"p{i}", age=i) for i in range(5, 8)]), "edge:Knows": knows(("p0", "p1"))}
    )
    builder.create_branch("review/x")
    builder.publish({KEY: people("branched")}, branch="review/x")
    return place


def _load(spark: SparkSession, place: Place, **options: Any) -> DataFrame:
    return spark.read.format("omnigraph").options(**place.options(), **options).load(place.uri)


def _ids(frame: DataFrame) -> list[str]:
    return sorted(row["id"] for row in frame.collect())


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"node": "Person"}, 8),
        ({"type": "person"}, 8),
        ({"labels": "Person"}, 8),
        ({"edge": "Knows"}, 1),
        ({"node": "Company"}, 0),
        ({"node": "Person", "branch": "review/x"}, 9),
        ({"node": "Person", "versionAsOf": 4}, 5),
        ({"NODE": "Person", "VERSION_AS_OF": "4"}, 5),
        ({"node": "Person", "version-as.of": "1"}, 0),
        ({"node": "Person", "timestampAsOf": "2999-01-01T00:00:00Z"}, 8),
        ({"node": "Person", "filter": "age between 2 and 6"}, 5),
        ({"node": "Person", "where": "id = 'p3' or age > 6"}, 2),
        ({"node": "Person", "limit": 6}, 6),
        ({"node": "Person", "limit": 0}, 0),
        ({"node": "Person", "filter": "age > 1", "limit": 3}, 3),
        ({"node": "Person", "batchSize": 1}, 8),
        ({"node": "Person", "splitSize": "1kb"}, 8),
    ],
)  # fmt: skip
def test_options_choose_rows(spark: SparkSession, town: Place, options: dict[str, Any], found: int) -> None:
    """Types, branches, time travel, filters and limits return the right rows, whatever the spelling of the key."""
    assert len(_ids(_load(spark, town, **options))) == found


def test_a_commit_is_read_by_its_id(spark: SparkSession, town: Place) -> None:
    """Each commit of the history reads the rows it published."""
    commits = town.open(branch="review/x").history()
    counts = [_load(spark, town, node="Person", commit=c.id).count() for c in commits]
    assert counts == [9, 8, 5, 0]


def test_columns_shape_the_frame(spark: SparkSession, town: Place) -> None:
    """`columns` chooses and orders; metadata columns follow; without it a node has id first, then properties."""
    chosen = _load(spark, town, node="Person", columns="age, id", metadataColumns="_rowid")
    assert chosen.schema.simpleString() == "struct<age:int,id:string,_rowid:bigint>"
    assert chosen.filter("id = 'p5'").collect()[0].asDict() == {"age": 5, "id": "p5", "_rowid": 5}
    assert _load(spark, town, node="Person").schema.simpleString() == "struct<id:string,age:int,name:string>"
    assert _load(spark, town, edge="Knows").columns == ["id", "src", "dst", "since"]


@pytest.mark.parametrize(("options", "parts"), [({"partitions": 1}, 1), ({"splitSize": "1b"}, 2), ({}, 1)])
def test_partitions_follow_the_options(spark: SparkSession, town: Place, options: dict[str, Any], parts: int) -> None:
    """Spark runs as many tasks as the plan has splits."""
    frame = _load(spark, town, node="Person", **options)
    assert frame.rdd.getNumPartitions() == parts
    assert frame.count() == 8


def test_one_frame_can_be_used_many_ways(spark: SparkSession, town: Place) -> None:
    """Spark's own filters on one frame do not leak into its other uses: filter, then count, union and join."""
    frame = _load(spark, town, node="Person")
    assert frame.filter("age = 3").count() == 1
    assert frame.count() == 8
    assert _ids(frame.filter("age = 3").union(frame.filter("age = 4"))) == ["p3", "p4"]
    assert frame.filter("age = 3").crossJoin(frame).count() == 8


@pytest.mark.parametrize(
    ("table", "rows"), [("commits", 3), ("branches", 2), ("tables", 4), ("files", 3), ("recoveries", 0)]
)
def test_metadata_tables_are_frames(spark: SparkSession, town: Place, table: str, rows: int) -> None:
    """`table` reads the graph about itself."""
    assert _load(spark, town, table=table).count() == rows


def test_a_schema_given_by_the_user_must_be_ours(spark: SparkSession, town: Place) -> None:
    """Names and types must be those of the read, nullability may be relaxed; anything else is OG-OPTION."""
    reader = spark.read.format("omnigraph").option("node", "Person")
    relaxed = reader.schema("id string, age int, name string").load(town.uri)
    assert _ids(relaxed) == [f"p{i}" for i in range(8)]
    assert relaxed.schema["id"].nullable
    for wrong in ("id string, age long, name string", "name string", "id string, age int not null, name string"):
        with pytest.raises(PySparkException, match=r"\[OG-OPTION\] The given schema"):
            spark.read.format("omnigraph").option("node", "Person").schema(wrong).load(town.uri).collect()


def test_graph_methods_return_frames(spark: SparkSession, town: Place) -> None:
    """`nodes` and `edges` take the same choices as the options."""
    graph = og.Graph.open(town.uri, spark=spark)
    assert _ids(graph.nodes("Person", where="age > 5")) == ["p6", "p7"]
    assert graph.nodes("Person", columns=["name"], limit=2).columns == ["name"]
    assert graph.nodes("Person", limit=2).count() == 2
    assert graph.nodes("Person", version=4).count() == 5
    assert graph.nodes("Person", branch="review/x").count() == 9
    assert graph.nodes("Person", timestamp=graph.history()[1].created_at).count() == 5
    assert graph.at(commit=graph.history()[1].id).nodes("Person").count() == 5
    assert graph.edges("Knows").collect()[0].src == "p0"


def test_graph_methods_raise_what_spark_flattened(spark: SparkSession, town: Place) -> None:
    """Through `Graph` an error is our class again; through plain Spark its text holds the code and restores it."""
    graph = og.Graph.open(town.uri, spark=spark)
    with pytest.raises(og.NotFoundError, match="did you mean 'Person'") as typed:
        graph.nodes("Persn")
    assert typed.value.code == "OG-NOT-FOUND"
    with pytest.raises(AnalysisException, match=r"\[OG-OPTION\] Unknown option 'nod'; did you mean 'node'") as raw:
        spark.read.format("omnigraph").option("nod", "Person").load(town.uri)
    restored = from_text(str(raw.value))
    assert isinstance(restored, og.OptionError)
    assert restored.hint == "Correct the option; docs/options.md lists them all."


def test_a_failure_in_a_task_keeps_its_code(spark: SparkSession, town: Place, tmp_path: Any) -> None:
    """What an executor meets reaches the driver with its own code, not with that of its cause."""
    place = Place(str(tmp_path / "graph")).built()
    place.builder.publish({KEY: people("ann")})
    frame = _load(spark, place, node="Person")
    place.builder.store.remove_tree(f"{place.builder.snapshot()[KEY].path}/data")
    with pytest.raises(PySparkException) as raw:
        frame.collect()
    restored = from_text(str(raw.value))
    assert isinstance(restored, og.StorageNotFoundError)
    assert "data file of node:Person version 2 is gone" in restored.message


def test_s3_is_read_by_executors(spark: SparkSession, s3_graph: Place) -> None:
    """Storage options reach the tasks."""
    s3_graph.builder.publish({KEY: people("ann", "bob")})
    assert _ids(_load(spark, s3_graph, node="Person")) == ["ann", "bob"]
    assert og.Graph.open(s3_graph.uri, storage=dict(s3_graph.storage), spark=spark).nodes("Person").count() == 2
