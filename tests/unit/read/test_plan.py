"""Plans: which columns, which fragments per task, which limits, and what a scan of them returns."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from omnigraph_spark.errors import NotFoundError, OptionError, StorageNotFoundError
from omnigraph_spark.read.plan import ReadPlan, plan_read, split
from omnigraph_spark.read.request import METADATA_COLUMNS, ReadRequest, Target
from omnigraph_spark.read.scan import scan
from omnigraph_spark.read.snapshot import Moment
from omnigraph_spark.storage.lance_io import FragmentInfo
from tests.places import Place, people

KEY = "node:Person"
PERSON = Target(node="Person")


def _plan(place: Place, **arguments: Any) -> ReadPlan:
    return plan_read(place.reader(), ReadRequest(PERSON, Moment(), **arguments))


def _rows(plan: ReadPlan) -> list[dict[str, Any]]:
    return [row for part in plan.splits for batch in scan(plan, part) for row in batch.to_pylist()]


def _crowd(place: Place) -> Place:
    builder = place.builder
    for first, count in ((0, 4), (4, 3), (7, 2), (9, 1)):
        names = [f"p{i}" for i in range(first, first + count)]
        builder.publish({KEY: pa.concat_tables([people(n, age=int(n[1:])) for n in names])})
    builder.delete_rows(KEY, predicate="id = 'p1'")
    return place


@pytest.fixture
def crowd(local_graph: Place) -> Place:
    """Ten people in four fragments, one of them with a deletion."""
    return _crowd(local_graph)


def test_a_plan_reads_from_s3_what_it_reads_from_disk(s3_graph: Place, crowd: Place) -> None:
    """Columns, filter, limit and metadata columns give the same rows on both kinds of storage."""
    _crowd(s3_graph)
    for arguments in (
        {},
        {"columns": ("age", "id"), "metadata_columns": METADATA_COLUMNS},
        {"filter": "age > 3", "limit": 2},
        {"limit": 4, "batch_size": 2},
    ):
        assert _rows(_plan(s3_graph, **arguments)) == _rows(_plan(crowd, **arguments))


def test_projection_reads_the_named_columns_in_their_order(crowd: Place) -> None:
    """The result has exactly the chosen columns, and no other is fetched."""
    plan = _plan(crowd, columns=("age", "id"))
    assert plan.schema.names == ["age", "id"]
    assert _rows(plan)[0] == {"age": 0, "id": "p0"}


def test_a_filter_is_evaluated_before_rows_leave_storage(crowd: Place) -> None:
    """Only matching rows come back, also when the filter names a column that is not returned."""
    plan = _plan(crowd, columns=("name",), filter="age >= 8 or id = 'p1'")
    assert _rows(plan) == [{"name": "p8"}, {"name": "p9"}]


@pytest.mark.parametrize("limit", [0, 1, 3, 4, 9, 50])
def test_a_limit_is_exact_without_a_filter(crowd: Place, limit: int) -> None:
    """The tasks together return min(limit, live rows); fragments beyond the limit get no task."""
    plan = _plan(crowd, limit=limit)
    assert len(_rows(plan)) == min(limit, 9)
    assert len(plan.splits) == {0: 0, 1: 1, 3: 1, 4: 2, 9: 4, 50: 4}[limit]


@pytest.mark.parametrize(("limit", "found"), [(0, 0), (1, 1), (2, 2), (50, 2)])
def test_a_limit_is_exact_with_a_filter(crowd: Place, limit: int, found: int) -> None:
    """How many rows pass is unknown, so one task stops at the limit."""
    plan = _plan(crowd, limit=limit, filter="age > 7")
    assert len(_rows(plan)) == found
    assert len(plan.splits) == (1 if limit else 0)


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 9])
def test_splits_cover_every_fragment_once(crowd: Place, partitions: int) -> None:
    """Whatever the number of partitions, each row is read exactly once."""
    plan = _plan(crowd, partitions=partitions)
    assert len(plan.splits) <= min(partitions, 4)
    assert [f for s in plan.splits for f in s.fragments] == [0, 1, 2, 3]
    assert sorted(r["id"] for r in _rows(plan)) == ["p0", *[f"p{i}" for i in range(2, 10)]]


def test_splits_follow_the_target_size() -> None:
    """Fragments are grouped to about the target size, evenly and in order; a larger one is a split of its own."""
    sizes = [10, 10, 200, 10, 10, 10]
    fragments = [FragmentInfo(i, 1, size << 20, 0, ()) for i, size in enumerate(sizes)]
    equal = [FragmentInfo(i, 1, 8 << 20, 0, ()) for i in range(6)]
    assert [s.fragments for s in split(equal, ReadRequest(PERSON, Moment(), partitions=2))] == [(0, 1, 2), (3, 4, 5)]
    request = ReadRequest(PERSON, Moment(), split_size=32 << 20)
    assert [s.fragments for s in split(fragments, request)] == [(0, 1), (2,), (3, 4, 5)]
    assert [s.fragments for s in split(equal[:4], request)] == [(0, 1), (2, 3)]  # not three and a rest of one
    assert split([], request) == []


def test_batches_have_at_most_the_asked_size(crowd: Place) -> None:
    """`batch_size` bounds the rows of a batch."""
    plan = _plan(crowd, batch_size=2, partitions=1)
    sizes = [b.num_rows for s in plan.splits for b in scan(plan, s)]
    assert max(sizes) == 2
    assert sum(sizes) == 9


def test_metadata_columns_come_on_request(crowd: Place) -> None:
    """Row id, address and versions are read as longs after the asked columns, and are not there otherwise."""
    plan = _plan(crowd, columns=("id",), metadata_columns=METADATA_COLUMNS, filter="id = 'p4'")
    assert plan.schema.names == ["id", *METADATA_COLUMNS]
    assert {f.type for f in plan.schema if f.name != "id"} == {pa.int64()}
    assert _rows(plan) == [
        {"id": "p4", "_rowid": 4, "_rowaddr": 1 << 32, "_row_created_at_version": 3, "_row_last_updated_at_version": 3}
    ]
    assert _plan(crowd, columns=("_rowid",)).schema.names == ["_rowid"]
    assert not set(_plan(crowd).schema.names) & set(METADATA_COLUMNS)


def test_a_plan_pickles_and_needs_no_graph_afterwards(local_graph: Place) -> None:
    """INV-14: a pickled plan reads its own version after others were committed and the manifest is out of sight."""
    builder = local_graph.builder
    builder.publish({KEY: people("ann")})
    plan = pickle.loads(pickle.dumps(_plan(local_graph)))
    builder.publish({KEY: people("bob")})
    builder.store.remove_tree("__manifest")
    assert [r["id"] for r in _rows(plan)] == ["ann"]


def test_an_empty_table_has_no_splits_and_keeps_its_columns(local_graph: Place) -> None:
    """No rows, no tasks, all columns."""
    plan = _plan(local_graph)
    assert (plan.splits, plan.schema.names) == ((), ["id", "age", "name"])
    assert local_graph.open().to_arrow("Person").schema == plan.schema


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"columns": ("nme",)}, "no column 'nme'; did you mean 'name'"),
        ({"columns": ("name", "name")}, "named twice"),
        ({"metadata_columns": ("_row",)}, "'_row'"),
        ({"batch_size": 0}, "batchSize"),
        ({"partitions": 0}, "partitions"),
        ({"filter": " "}, "filter is empty"),
    ],
)
def test_a_bad_request_is_an_option_error(local_graph: Place, arguments: dict[str, Any], names: str) -> None:
    """What cannot be planned is refused with the thing at fault."""
    with pytest.raises(OptionError, match=names):
        _plan(local_graph, **arguments)


def test_a_dropped_table_is_not_found(local_graph: Place) -> None:
    """A type the schema has but the graph version dropped is NotFoundError; before the drop it is there."""
    local_graph.builder.tombstone("edge:WorksAt")
    request = ReadRequest(Target(edge="WorksAt"), Moment())
    with pytest.raises(NotFoundError, match="edge:WorksAt does not exist in graph version 4"):
        plan_read(local_graph.reader(), request)
    assert plan_read(local_graph.reader(), ReadRequest(Target(edge="WorksAt"), Moment(version=3))).version == 1


def test_a_table_version_without_a_column_says_so(local_graph: Place) -> None:
    """A column the schema names but the pinned version lacks is refused at planning, and can be left out."""
    builder = local_graph.builder
    builder.publish({KEY: people("ann")})
    dataset = builder.open_table(KEY)
    dataset.drop_columns(["age"])
    pin = builder.snapshot()[KEY]
    builder.publish_rows([builder._version_row(builder._moved(pin, dataset=dataset))])
    with pytest.raises(NotFoundError, match="node:Person version 3 has no column age"):
        _plan(local_graph)
    assert _rows(_plan(local_graph, columns=("name",))) == [{"name": "ann"}]


def test_a_lost_data_file_is_named(crowd: Place) -> None:
    """A version whose file is gone fails while reading, names table, version and file, and says why that may be."""
    plan = _plan(crowd)
    builder = crowd.builder
    builder.store.remove_tree(f"{builder.snapshot()[KEY].path}/data")
    with pytest.raises(StorageNotFoundError, match=r"data file of node:Person version 6 is gone.*data/\w+\.lance") as e:
        _rows(plan)
    assert "cleaned up" in e.value.hint
