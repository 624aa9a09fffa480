"""What reading costs on S3, counted by a proxy: flat in history, no recovery listing, no data file for a count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from omnigraph_spark.read.plan import plan_read
from omnigraph_spark.read.request import ReadRequest, Target
from omnigraph_spark.read.snapshot import Moment
from omnigraph_spark.storage.lance_commit import compact
from tests.places import Place, people
from tests.rig import builder_rows as rows
from tests.rig.builder_rows import Lineage
from tests.rig.proxy import CountingProxy
from tests.rig.proxy_log import Request, serial_hops
from tests.rig.s3_server import S3Server

KEY = "node:Person"
REQUESTS = 10
HOPS = 6
SCHEMA_READS = 3


class Meter:
    """A graph seen through a counting proxy."""

    def __init__(self, place: Place, *, proxy: CountingProxy, server: S3Server) -> None:
        self.proxy = proxy
        self.direct = place
        self.place = replace(place, storage=server.storage_options(endpoint=proxy.endpoint))

    def plan(self) -> list[Request]:
        """Open the graph and plan a read of Person; return the requests."""
        self.proxy.reset()
        self.proxy.set_latency(0.05)  # so that what may overlap does, and hops can be told from luck
        reader = self.place.reader()
        plan = plan_read(reader, ReadRequest(Target(node="Person"), Moment()))
        assert plan.splits
        self.proxy.set_latency(0.0)
        seen = self.proxy.requests()
        # What users are told is what was asked of the store.
        assert reader.io.settle().storage_ops == len(seen)
        return seen


@pytest.fixture
def meter(s3_graph: Place, s3_server: S3Server, proxy: CountingProxy) -> Meter:
    """A graph of example A with one person."""
    s3_graph.builder.publish({KEY: people("ann")})
    return Meter(s3_graph, proxy=proxy, server=s3_server)


def grow(place: Place, *, commits: int) -> None:
    """Add history: each commit is one manifest version with its lineage rows and a row the fold has to look past."""
    builder = place.builder
    template, parent = builder._version_row(builder.snapshot()[KEY]), builder.head()
    manifest = builder.manifest()
    for done in range(commits):
        lineage = Lineage(rows.new_id(), manifest.version + 1, rows.now_micros(), parent=parent)
        older = {**template, "object_id": f"{KEY}$old{lineage.commit_id}", "table_version": 1}
        merge = manifest.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
        changes = rows.to_table([older, *rows.lineage_rows(lineage)])
        merge.conflict_retries(0).use_index(False).execute(changes)
        parent = lineage.commit_id
        if done % 20 == 19:  # a merge reads every fragment: without this the test, not the code, would be slow
            builder.compact_manifest()
            manifest = builder.manifest()


def compact_manifest(place: Place) -> None:
    """Compact ``__manifest`` the way upkeep does."""
    reader = place.reader()
    assert compact(reader.io, reader.manifest.open_dataset(branch="main"), table="__manifest") == 1


def test_planning_a_read_is_cheap_and_flat_in_history(meter: Meter) -> None:
    """INV-15: open and plan is at most 10 requests in 6 hops, the same at 1 and at 300 commits, no recovery listing."""
    compact_manifest(meter.direct)
    young = meter.plan()
    grow(meter.direct, commits=299)
    compact_manifest(meter.direct)
    old = meter.plan()
    assert len(meter.direct.open().history()) == 301  # with the genesis commit
    assert sorted((r.kind, r.table_class) for r in old) == sorted((r.kind, r.table_class) for r in young)
    for seen in (young, old):
        assert len(seen) <= REQUESTS
        assert sum(r.table_class == "schema" for r in seen) == SCHEMA_READS
        assert not [r for r in seen if r.table_class == "recovery"]
        assert not [r for r in seen if r.durable]
        assert serial_hops(seen) <= HOPS


def test_a_count_reads_no_data_file(meter: Meter) -> None:
    """`count` and `tables` touch the schema files and the manifest, and nothing below a table's directory."""
    meter.proxy.reset()
    graph = meter.place.open(read_only=True)
    assert graph.count("Person") == 1
    assert sum(table.rows for table in graph.tables()) == 1
    assert {r.table_class for r in meter.proxy.requests()} == {"schema", "manifest"}


def test_planning_touches_only_the_table_that_is_read(meter: Meter) -> None:
    """Of the tables only the asked one is opened, at its pinned version, and no data file of it is fetched."""
    table = rows.table_path(KEY)
    below = [r.target for r in meter.plan() if r.table_class == "data"]
    assert below
    assert all(f"/{table}/_versions/" in target for target in below)


def test_spark_plans_as_cheaply(meter: Meter, spark: SparkSession) -> None:
    """INV-15: `load` through Spark is the same requests, once; an action then reads only the table's own files."""
    expected = len(meter.plan())
    meter.proxy.reset()
    frame = spark.read.format("omnigraph").options(node="Person", **meter.place.options()).load(meter.place.uri)
    assert len(meter.proxy.requests()) == expected
    meter.proxy.reset()
    assert frame.count() == 1
    assert {r.table_class for r in meter.proxy.requests()} == {"data"}


def test_a_projection_reads_fewer_bytes(meter: Meter) -> None:
    """`columns` fetches the chosen columns only, a filter on nothing that passes fetches no other column."""
    meter.direct.builder.publish({KEY: people(*(f"name-{n:030d}" for n in range(200_000)), age=7)})
    graph = meter.place.open()

    def fetched(**arguments: object) -> int:
        meter.proxy.reset()
        graph.to_arrow("Person", **arguments)  # type: ignore[arg-type]
        return sum(r.bytes_out for r in meter.proxy.requests() if "/data/" in r.target)

    whole, one, none = fetched(), fetched(columns=["age"]), fetched(where="age = 8")
    assert 0 < one < whole / 5
    assert 0 < none < whole / 5
