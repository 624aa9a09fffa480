"""What the tests of Spark writes share: a small graph with keyed and unkeyed nodes, and saving with typed errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage

from omnigraph_spark import Graph, OmnigraphError
from omnigraph_spark.errors import typed_errors
from omnigraph_spark.source import OmnigraphDataSource
from tests.places import Place
from tests.soundness import assert_sound

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    email: String? @unique
}
node Note { text: String  score: F64? }
edge Knows: Person -> Person { since: Date? }
edge Wrote: Person -> Note
"""
PERSON = "name string, age int"
KNOWS = "id string, src string, dst string"


def new_graph(root: Place) -> Place:
    """Create the graph of these tests."""
    Graph.create(root.uri, schema=SCHEMA, storage=dict(root.storage))
    return root


def save(frame: DataFrame, place: Place, *, mode: str = "append", **options: Any) -> None:
    """Save through the format; errors of ours leave typed."""
    given = {name: str(value) for name, value in options.items()}
    with typed_errors():
        frame.write.format("omnigraph").options(**place.options(), **given).mode(mode).save(place.uri)


def save_here(frame: DataFrame, place: Place, *, mode: str = "append", **options: Any) -> None:
    """Do in this process what Spark does with a save of one partition: plan, task, commit, and abort when that fails.

    A Python worker ends with its first error, so a save that must fail costs Spark several starts of Python.
    """
    given = {name: str(value) for name, value in options.items()}
    source = OmnigraphDataSource({"path": place.uri, **place.options(), **given})
    writer = source.writer(frame.schema, mode == "overwrite")
    messages: list[WriterCommitMessage | None] = [writer.write(iter(frame.toArrow().to_batches()))]
    try:
        writer.commit(messages)
    except BaseException:
        writer.abort(messages)
        raise


def persons(spark: SparkSession, *names: str, age: int | None = None, partitions: int = 1) -> DataFrame:
    """Return Person rows spread evenly over so many partitions; some are empty when there are more than rows."""
    rows = spark.sparkContext.parallelize([(name, age) for name in names], partitions)
    return spark.createDataFrame(rows, PERSON)


def pairs(spark: SparkSession, *ends: tuple[str, str]) -> DataFrame:
    """Return Knows rows."""
    return spark.createDataFrame([(f"{a}-{b}", a, b) for a, b in ends], KNOWS)


def ids(place: Place, type_name: str = "Person") -> list[str]:
    """Return the ids a new reader sees, sorted."""
    found: list[str] = place.open(read_only=True).to_arrow(type_name, columns=["id"])["id"].to_pylist()
    return sorted(found)


def commits(place: Place) -> int:
    """Return how many commits the graph has."""
    return len(place.open(read_only=True).history())


def data_files(place: Place, type_name: str = "Person") -> set[str]:
    """Return the names of every data file below a type's table, referenced or not."""
    path = next(t.path for t in place.open(read_only=True).tables() if t.type == type_name)
    return {p.name for p in (Path(place.uri) / path / "data").glob("*.lance")}


def referenced_files(place: Place, type_name: str = "Person") -> set[str]:
    """Return the data files that some published version of a type's table names."""
    import lance

    path = next(t.path for t in place.open(read_only=True).tables() if t.type == type_name)
    dataset = lance.dataset(str(Path(place.uri) / path))
    versions = [dataset.checkout_version(v["version"]) for v in dataset.versions()]
    return {f.path for v in versions for fragment in v.get_fragments() for f in fragment.data_files()}


def witnessed(frame: DataFrame, witness: Path) -> DataFrame:
    """Return the same rows, leaving a file behind when a task asks for them."""

    def note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        witness.touch()
        yield from batches

    return frame.mapInArrow(note, frame.schema)


def refused(place: Place, error: type[OmnigraphError], act: Callable[[], object], *, match: str) -> OmnigraphError:
    """Assert that a write is refused with a typed error, that nothing changed, and return the error."""
    before = (commits(place), place.open(read_only=True).version)
    with pytest.raises(error, match=match) as caught:
        act()
    assert caught.value.outcome.value == "not_committed"
    assert (commits(place), place.open(read_only=True).version) == before
    assert_sound(place)
    return caught.value
