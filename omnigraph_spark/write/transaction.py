"""``with g.transaction() as tx``: several tables, one graph commit, or nothing.

Data is a Spark DataFrame (staged on executors) or Arrow data or dicts (staged here, no Spark needed). Later operations
see earlier ones. Leaving the block publishes; an exception in the block publishes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from omnigraph_spark.errors import OptionError, ValidationError
from omnigraph_spark.read.plan import check_filter
from omnigraph_spark.schema.catalog import Catalog, GraphType
from omnigraph_spark.storage.seams import Phase
from omnigraph_spark.values import Commit
from omnigraph_spark.write.draft import Draft, WriteIntent
from omnigraph_spark.write.lineage import PublishedCommit
from omnigraph_spark.write.mutate import inferred, require_predicate, require_settable, stage_delete, stage_update
from omnigraph_spark.write.probe import open_view
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.spark_stage import is_frame, stage_frame
from omnigraph_spark.write.stage import StagedPart, StageJob, WriteMode, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Data: TypeAlias = "DataFrame | pa.Table | pa.RecordBatch | pa.RecordBatchReader | Sequence[Mapping[str, object]]"

_BATCH_ROWS = 65_536


class Transaction:
    """The operations of one transaction; made by ``Graph.transaction``."""

    def __init__(self, authority: PublishAuthority, intent: WriteIntent) -> None:
        self._authority = authority
        self._intent = intent
        self._draft: Draft | None = None
        self._closed = False
        self.published: PublishedCommit | None = None

    def __enter__(self) -> Transaction:
        self._draft = Draft.capture(self._authority, self._intent)
        self.published = self._draft.applied()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        draft, self._closed = self._open(), True
        if kind is not None:
            draft.abandon()
        elif self.published is None:
            self.published = draft.publish()

    @property
    def commit_info(self) -> Commit | None:
        """The commit, after the block; None when the transaction changed nothing."""
        if self.published is None:
            return None
        return Commit.of(self.published.row).with_costs(
            storage_ops=self.published.storage_ops,
            storage_stages=self.published.storage_stages,
            phase_seconds=self.published.phase_seconds,
        )

    @property
    def repeated(self) -> bool:
        """True when an earlier run with the same application id and version has committed already."""
        return self.published is not None and self.published.repeated

    def append(self, type_name: str, data: Data) -> None:
        """Insert rows; an id that exists already is a key conflict."""
        self.stage_rows(type_name, data, WriteMode.APPEND)

    def merge(self, type_name: str, data: Data) -> None:
        """Insert rows, or replace those whose id exists: the whole row, its row id kept."""
        self.stage_rows(type_name, data, WriteMode.MERGE)

    def overwrite(self, type_name: str, data: Data) -> None:
        """Replace all rows of a type; refused when edges that stay would lose a node."""
        self.stage_rows(type_name, data, WriteMode.OVERWRITE)

    def update(self, type_name: str, *, set: Mapping[str, object], where: str | None = None) -> int:
        """Set properties of the rows a predicate matches; returns how many."""
        graph_type = self._type(type_name)
        predicate = require_predicate(where, verb="update")
        require_settable(graph_type, set)
        if self.repeated:
            return 0
        draft = self._open()
        job = draft.job(graph_type, WriteMode.MERGE, distributed=False)
        self._check_predicate(job, predicate)
        with self._staging():
            part = stage_update(job, where=predicate, values=set, io=draft.io)
        if part.rows:
            draft.add(job, [part], strict=True)
        return part.rows

    def delete(self, type_name: str, *, where: str | None = None, cascade: bool = True) -> int:
        """Remove the rows a predicate matches; returns how many.

        Edges of removed nodes go with them, or with ``cascade=False`` the delete is refused while there are any.
        """
        graph_type = self._type(type_name)
        predicate = require_predicate(where, verb="delete")
        if self.repeated:
            return 0
        draft = self._open()
        job = draft.job(graph_type, WriteMode.DELETE, distributed=False)
        self._check_predicate(job, predicate)
        with self._staging():
            part = stage_delete(job, where=predicate, io=draft.io)
        if part.rows:
            draft.remove(job, [part], cascade=cascade)
        return part.rows

    def delete_ids(self, type_name: str, data: Data, *, cascade: bool = True) -> int:
        """Remove the rows with the given ids (a column ``id``, or the key); returns how many existed."""
        graph_type = self._type(type_name)
        if self.repeated:
            return 0
        job = self._open().job(graph_type, WriteMode.DELETE, distributed=is_frame(data))
        parts = self._staged(job, data)
        self._open().remove(job, parts, cascade=cascade)
        return sum(len(part.removed) for part in parts)

    @property
    def catalog(self) -> Catalog:
        """The types of the graph."""
        return self._open().txn.catalog

    def stage_rows(self, type_name: str, data: Data, mode: WriteMode, *, last_wins: bool = False) -> None:
        """Stage rows; ``last_wins`` settles an id given twice in an ordered merge instead of refusing it."""
        graph_type = self._type(type_name)
        draft = self._open()
        draft.declare(mode)
        if self.repeated:
            return
        job = draft.job(graph_type, mode, distributed=is_frame(data), last_wins=last_wins)
        draft.add(job, self._staged(job, data), strict=mode is WriteMode.OVERWRITE)

    def _staged(self, job: StageJob, data: Data) -> list[StagedPart]:
        with self._staging():
            return stage_frame(data, job) if is_frame(data) else [stage(job, arrow_batches(data), io=self._open().io)]

    @contextlib.contextmanager
    def _staging(self) -> Iterator[None]:
        seams = self._open().io.seams
        seams.hook(Phase.STAGE, "enter")
        yield
        seams.hook(Phase.STAGE, "done")

    def _check_predicate(self, job: StageJob, predicate: str) -> None:
        dataset = open_view(self._open().io, job.target)
        check_filter(self._authority.reader, dataset, predicate, graph_type=job.graph_type)

    def _type(self, type_name: str) -> GraphType:
        return self.catalog.resolve(type_name)

    def _open(self) -> Draft:
        if self._draft is None or self._closed:
            raise OptionError("The transaction is not open", hint="Use it inside its with block.")
        return self._draft


def arrow_batches(data: object) -> Iterator[pa.RecordBatch]:
    """Return data that is not a DataFrame as Arrow batches."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        yield from data.to_batches(max_chunksize=_BATCH_ROWS)
    elif isinstance(data, pa.RecordBatchReader):
        yield from data
    elif hasattr(data, "__arrow_c_stream__"):  # pandas, polars and others that speak Arrow
        yield from pa.RecordBatchReader.from_stream(data)
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes, Mapping)):
        yield from _from_dicts(list(data))
    else:
        raise OptionError(
            f"Rows cannot be a {type(data).__name__}",
            hint="Give a Spark or pandas DataFrame, a pyarrow Table or RecordBatchReader, or a list of dicts.",
        )


def _from_dicts(rows: list[object]) -> Iterator[pa.RecordBatch]:
    strange = next((row for row in rows if not isinstance(row, Mapping)), None)
    if strange is not None:
        raise OptionError(f"A row must be a dict, not a {type(strange).__name__}")
    names = list(dict.fromkeys(name for row in rows if isinstance(row, Mapping) for name in row))
    unnamed = next((name for name in names if not isinstance(name, str)), None)
    if unnamed is not None:
        raise OptionError(f"A column is named by a text, not by {unnamed!r}")
    if rows and not names:
        names = ["id"]  # rows without a single value are rows all the same
    columns: list[pa.Array] = []
    for name in names:
        values = [row.get(name) for row in rows if isinstance(row, Mapping)]
        try:
            columns.append(inferred(values))
        except (pa.ArrowException, TypeError, OverflowError) as e:
            raise ValidationError(f"the values of {name!r} are not of one type: {e}") from e
    if rows:
        yield from pa.table(columns, names=names).to_batches(max_chunksize=_BATCH_ROWS)
