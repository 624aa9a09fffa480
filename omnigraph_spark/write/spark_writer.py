"""``df.write.format("omnigraph")``: the base is pinned once, tasks stage, and Spark's commit hook publishes.

Spark runs each step in another process: ``writer()`` captures, ``write()`` stages on executors, ``commit()`` validates
and publishes on the driver. A failed commit is followed by ``abort`` with all messages, also when the commit took
effect and only its answer was lost; so abort first proves that nothing was and nothing can be published, and otherwise
deletes nothing (INV-10). It never raises: that would hide the error that caused it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from omnigraph_spark.errors import OmnigraphError, OptionError, SchemaError
from omnigraph_spark.options import Options
from omnigraph_spark.read.request import Target
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.schema.catalog import GraphType, nearest
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.write.draft import Draft, WriteIntent
from omnigraph_spark.write.fan_out import stage_by_type
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.settings import WindowSettings
from omnigraph_spark.write.stage import StagedPart, StageJob, WriteMode, stage
from omnigraph_spark.write.txn import WriteTxn
from omnigraph_spark.write.unpublished import proved_unpublished

log = logging.getLogger(__name__)


@dataclass
class StagedMessage(WriterCommitMessage):
    """What one task tells the driver."""

    parts: tuple[StagedPart, ...]


def target_of(options: Options) -> Target | None:
    """Return the one type a write names, or None when a column names each row's type."""
    if options.get("typeColumn", str) is None:
        return Target(node=options.get("node", str), edge=options.get("edge", str), type=options.get("type", str))
    for name in ("node", "edge", "type"):
        if options.given(name):
            raise OptionError(f"Options typeColumn and {name} exclude each other")
    return None


def mode_of(options: Options, *, overwrite: bool) -> WriteMode:
    """Combine Spark's save mode with the writeMode option."""
    given = options.get("writeMode", str)
    if given is None:
        return WriteMode.OVERWRITE if overwrite else WriteMode.APPEND
    if overwrite and given != WriteMode.OVERWRITE.value:
        raise OptionError(f"mode('overwrite') and writeMode={given} contradict each other", hint="Use mode('append').")
    return WriteMode(given)


def intent_of(options: Options) -> WriteIntent:
    """Read who writes, where and why."""
    return WriteIntent(
        branch=options.require("branch", str),
        actor=options.get("actor", str),
        message=options.get("commitMessage", str),
        user_metadata=options.get("userMetadata", str),
        app_id=options.get("txnAppId", str),
        txn_version=options.get("txnVersion", int),
        expected_version=options.get("expectedVersion", int),
    )


def settings_of(options: Options) -> WindowSettings:
    """Read how long to wait, and for what."""
    return WindowSettings.resolve(
        grace=options.get("windowGrace", float),
        timeout=options.get("windowTimeout", float),
        patience=options.get("patience", float),
    )


def begin_write(options: Options, schema: StructType, *, overwrite: bool) -> GraphWriter:
    """Pin the base of a save and describe its staging; refuses what can be refused before any task runs."""
    mode, target, intent = mode_of(options, overwrite=overwrite), target_of(options), intent_of(options)
    root, config = options.require("path", str), StorageConfig.resolve(options.storage)
    settings = settings_of(options)
    reader = GraphReader.begin(root, config)
    draft = Draft.capture(PublishAuthority(reader, settings), intent)
    catalog = draft.txn.catalog
    types = catalog.types if target is None else (target.resolve(catalog),)
    type_column = options.get("typeColumn", str)
    if type_column is not None and type_column not in schema.names:
        listed = nearest(type_column, among=schema.names)
        raise OptionError(f"The type column {type_column!r} is not in the DataFrame{listed}")
    if target is not None:
        _require_columns(types[0], schema, mode=mode)
    jobs: dict[str, StageJob] = {}
    for graph_type in types:
        job = draft.job(graph_type, mode, distributed=True)
        jobs[graph_type.table_key if target is None else ""] = job
        if target is None and sum(t.name == graph_type.name for t in types) == 1:
            jobs[graph_type.name] = job
    repeated = draft.applied() is not None
    cascade = options.require("cascade", bool)
    return GraphWriter(draft.txn.portable(), intent, settings, jobs, type_column, repeated=repeated, cascade=cascade)


def _require_columns(graph_type: GraphType, schema: StructType, *, mode: WriteMode) -> None:
    known = ["id", *graph_type.key] if mode is WriteMode.DELETE else [*graph_type.columns]
    ends = {"from", "to"} if graph_type.kind == "edge" and mode is not WriteMode.DELETE else set()
    for name in schema.names:
        if name not in known and name not in ends:
            raise SchemaError(
                f"{graph_type.name} has no column {name!r}{nearest(name, among=known)}",
                rule="unknown-column",
                hint="Rename the column or leave it out.",
            )


class GraphWriter(DataSourceArrowWriter):
    """One save: pickled once, and the same in every task and in commit."""

    def __init__(
        self,
        txn: WriteTxn,
        intent: WriteIntent,
        settings: WindowSettings,
        jobs: Mapping[str, StageJob],
        type_column: str | None,
        *,
        repeated: bool,
        cascade: bool,
    ) -> None:
        self.txn = txn
        self.intent = intent
        self.settings = settings
        self.jobs = dict(jobs)
        self.type_column = type_column
        self.repeated = repeated
        self.cascade = cascade

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one task's rows; runs on an executor, moves nothing (INV-02)."""
        if self.repeated:
            return StagedMessage(())
        if self.type_column is not None:
            return StagedMessage(tuple(stage_by_type(self.jobs, iterator, column=self.type_column)))
        return StagedMessage((stage(self.jobs[""], iterator),))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Validate and publish what the winning tasks staged."""
        if self.repeated:
            log.info("repeated app_id=%s txn_version=%s", self.intent.app_id, self.intent.txn_version)
            return
        draft = self._draft()
        parts = _parts(messages)
        jobs = {job.target.table_key: job for job in self.jobs.values()}
        for key in sorted(parts, key=lambda k: (not k.startswith("node:"), k)):
            job = jobs[key]
            if job.mode is WriteMode.DELETE:
                draft.remove(job, parts[key], cascade=self.cascade)
            else:
                draft.add(job, parts[key], strict=job.mode is WriteMode.OVERWRITE)
        draft.publish()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the staged files of a write that is proved not to be published; keep everything otherwise."""
        try:
            draft = self._draft()
            if not proved_unpublished(draft.authority, branch=self.txn.branch, commit_id=self.txn.commit_id):
                log.warning("abort keeps staged files: commit_id=%s may be published", self.txn.commit_id)
                return
            jobs = {job.target.table_key: job for job in self.jobs.values()}
            for key, parts in _parts(messages).items():
                draft.note(jobs[key], parts)
            draft.abandon()
        except OmnigraphError as e:
            log.warning("abort keeps staged files: commit_id=%s reason=%s", self.txn.commit_id, e)

    def _draft(self) -> Draft:
        reader = GraphReader.begin(self.txn.root, self.txn.config)
        return Draft(PublishAuthority(reader, self.settings), self.txn, self.intent)


def _parts(messages: Sequence[WriterCommitMessage | None]) -> dict[str, list[StagedPart]]:
    """Group what tasks staged by table; a task that failed has no message."""
    found: dict[str, list[StagedPart]] = {}
    for message in messages:
        if isinstance(message, StagedMessage):
            for part in message.parts:
                found.setdefault(part.table_key, []).append(part)
    return found
