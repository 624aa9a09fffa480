"""``Graph``: the handle a person holds. Every method is a thin call into ``read/``, ``write/`` and their siblings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph_spark.errors import SchemaError, typed_errors
from omnigraph_spark.manifest.layout import MAIN
from omnigraph_spark.manifest.store import normalize_branch
from omnigraph_spark.options import parse_time
from omnigraph_spark.read.metadata import metadata_rows
from omnigraph_spark.read.plan import plan_read
from omnigraph_spark.read.request import ReadRequest, Target
from omnigraph_spark.read.scan import scan
from omnigraph_spark.read.snapshot import GraphReader, Moment, Snapshot
from omnigraph_spark.schema.catalog import Catalog
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.locations import normalize_root
from omnigraph_spark.upkeep import GraphUpkeep
from omnigraph_spark.values import Branch, Commit, TableInfo
from omnigraph_spark.write.audit import RecoveryResult, read_audit
from omnigraph_spark.write.create import create_graph
from omnigraph_spark.write.settings import UpkeepLimits, WindowSettings
from omnigraph_spark.writing import GraphWrites

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Graph(GraphWrites, GraphUpkeep):
    """A graph on a directory or an S3 prefix, seen from one branch."""

    def __init__(
        self,
        uri: str,
        *,
        moment: Moment,
        storage: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        actor: str | None = None,
        read_only: bool = False,
        settings: WindowSettings | None = None,
    ) -> None:
        self.uri = normalize_root(uri)
        self.read_only = read_only
        self.actor = actor
        self._moment = moment
        self._storage = dict(storage or {})
        self._spark = spark
        self._settings = settings if settings is not None else WindowSettings.resolve()
        self._pinned: Snapshot | None = None

    @classmethod
    def create(
        cls,
        uri: str,
        *,
        schema: str | Path,
        storage: Mapping[str, str] | None = None,
        actor: str | None = None,
    ) -> Graph:
        """Create an empty graph from ``.pg`` text, or from a file of it, and open it."""
        graph = cls(uri, moment=Moment(), storage=storage, actor=actor)
        create_graph(graph._begin(), _schema_text(schema), actor=actor)
        return graph

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        branch: str = MAIN,
        storage: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        actor: str | None = None,
        read_only: bool = False,
        window_grace: float | None = None,
        window_timeout: float | None = None,
        patience: float | None = None,
        limits: UpkeepLimits | None = None,
    ) -> Graph:
        """Open a graph, checking its stamp, its schema contract and that the branch exists."""
        moment = Moment(branch=normalize_branch(branch))
        settings = WindowSettings.resolve(grace=window_grace, timeout=window_timeout, patience=patience, limits=limits)
        graph = cls(
            uri, moment=moment, storage=storage, spark=spark, actor=actor, read_only=read_only, settings=settings
        )
        graph._resolve()
        if not read_only:
            graph._authority().recover_at_open(branch=graph.branch, actor=actor)
        return graph

    @property
    def branch(self) -> str:
        """The branch this handle reads and writes."""
        return self._moment.branch

    @property
    def version(self) -> int:
        """The graph version this handle sees now."""
        return self._resolve().graph_version

    @property
    def head(self) -> Commit | None:
        """The newest commit this handle sees."""
        row = self._resolve().head
        return Commit.of(row) if row else None

    @property
    def schema(self) -> Catalog:
        """The types of the graph."""
        return self._resolve().catalog

    def at(
        self,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        commit: str | None = None,
        branch: str | None = None,
    ) -> Graph:
        """Return a read-only view pinned to one graph version for its whole life."""
        moment = self._moment_of(version=version, timestamp=timestamp, commit=commit, branch=branch)
        snapshot, state = self._begin().resolve(moment)
        view = Graph(
            self.uri,
            moment=Moment(branch=state.branch, version=snapshot.graph_version),
            storage=self._storage,
            spark=self._spark,
            actor=self.actor,
            read_only=True,
        )
        view._pinned = snapshot
        return view

    def tables(self) -> list[TableInfo]:
        """List the tables of this graph version."""
        return [
            TableInfo(e.table_key, e.kind, e.type_name, e.version, e.row_count, e.branch, e.path)
            for e in self._resolve().tables.values()
        ]

    def count(self, type_name: str) -> int:
        """Return a type's row count from the manifest; no data file is read."""
        snapshot = self._resolve()
        return snapshot.entry(snapshot.catalog.resolve(type_name).table_key).row_count

    def history(self, limit: int | None = None, *, branch: str | None = None) -> list[Commit]:
        """List commits, newest first, including those inherited from the parent branch."""
        moment = self._moment if branch is None else Moment(branch=normalize_branch(branch))
        _, state = self._begin().resolve(moment)
        commits = [Commit.of(c) for c in reversed(state.commits())]
        return commits if limit is None else commits[:limit]

    def branches(self) -> list[Branch]:
        """List the branches, main first."""
        rows = metadata_rows(self._begin(), Moment(), table="branches").to_pylist()
        return [Branch(**row) for row in rows]

    def to_arrow(
        self,
        type_name: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        commit: str | None = None,
        branch: str | None = None,
    ) -> pa.Table:
        """Read a type into memory without Spark."""
        request = ReadRequest(
            target=Target(type=type_name),
            moment=self._moment_of(version=version, timestamp=timestamp, commit=commit, branch=branch),
            columns=tuple(columns) if columns is not None else None,
            filter=where,
            limit=limit,
        )
        reader = self._begin()
        plan = plan_read(reader, request)
        batches = [batch for part in plan.splits for batch in scan(plan, part, io=reader.io)]
        return pa.Table.from_batches(batches, schema=plan.schema)

    def nodes(
        self,
        type_name: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        commit: str | None = None,
        branch: str | None = None,
    ) -> DataFrame:
        """Return a node type as a DataFrame of one graph version."""
        moment = self._moment_of(version=version, timestamp=timestamp, commit=commit, branch=branch)
        return self._frame({"node": type_name}, moment, columns=columns, where=where, limit=limit)

    def edges(
        self,
        type_name: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        commit: str | None = None,
        branch: str | None = None,
    ) -> DataFrame:
        """Return an edge type as a DataFrame of one graph version."""
        moment = self._moment_of(version=version, timestamp=timestamp, commit=commit, branch=branch)
        return self._frame({"edge": type_name}, moment, columns=columns, where=where, limit=limit)

    def _frame(
        self,
        target: Mapping[str, str],
        moment: Moment,
        *,
        columns: Sequence[str] | None,
        where: str | None,
        limit: int | None,
    ) -> DataFrame:
        from omnigraph_spark.session import is_remote, require_session

        session = require_session(self._spark)
        if is_remote(session):
            moment = self._pinned_moment(moment)
        options = {**target, "branch": moment.branch}
        options.update({f"storage.{k}": v for k, v in self._storage.items()})
        wanted: dict[str, object | None] = {
            "versionAsOf": moment.version,
            "commit": moment.commit,
            "timestampAsOf": _iso(moment.timestamp),
            "columns": ",".join(columns) if columns is not None else None,
            "filter": where,
            "limit": limit,
        }
        options.update({k: str(v) for k, v in wanted.items() if v is not None})
        with typed_errors():
            frame = session.read.format("omnigraph").options(**options).load(self.uri)
            frame.schema  # noqa: B018 - over Connect a frame is analysed only when asked; errors belong here
            return frame

    def _pinned_moment(self, moment: Moment) -> Moment:
        """Name the graph version itself: a Connect server re-analyses frames it has forgotten (INV-14)."""
        if moment.version is not None:
            return moment
        snapshot, state = self._begin().resolve(moment)
        return Moment(branch=state.branch, version=snapshot.graph_version)

    def _moment_of(
        self,
        *,
        version: int | None,
        timestamp: datetime | str | None,
        commit: str | None,
        branch: str | None,
    ) -> Moment:
        if version is None and timestamp is None and commit is None and branch is None:
            return self._moment
        micros = parse_time("timestamp", _time_text(timestamp)) if timestamp is not None else None
        name = self.branch if branch is None else normalize_branch(branch)
        return Moment(branch=name, version=version, timestamp=micros, commit=commit)

    def recoveries(self) -> list[RecoveryResult]:
        """List what recovery has done to this graph so far, oldest first."""
        return read_audit(metadata_rows(self._begin(), Moment(), table="recoveries").to_pylist())

    def _begin(self) -> GraphReader:
        return GraphReader.begin(self.uri, StorageConfig.resolve(self._storage))

    def _resolve(self) -> Snapshot:
        if self._pinned is not None:
            return self._pinned
        snapshot, _ = self._begin().resolve(self._moment)
        return snapshot

    def __repr__(self) -> str:
        return f"Graph({self.uri!r}, branch={self.branch!r}, version={self._moment.version or 'latest'})"


def _schema_text(schema: str | Path) -> str:
    """Accept schema text or a path to it: text has a brace or a newline, a path has neither."""
    if isinstance(schema, str) and ("{" in schema or "\n" in schema or ":" in schema):
        return schema
    try:
        return Path(schema).read_text(encoding="utf-8")
    except OSError as e:
        raise SchemaError(f"Cannot read the schema file {schema}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise SchemaError(f"The schema file {schema} is not UTF-8 text") from e


def _time_text(value: datetime | str | None) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _iso(micros: int | None) -> str | None:
    if micros is None:
        return None
    return (datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)).isoformat()
