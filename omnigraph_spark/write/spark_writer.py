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
from pathlib import Path
from types import TracebackType

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from omnigraph_spark.errors import OptionError, ValidationError
from omnigraph_spark.options import Options
from omnigraph_spark.read.request import Target
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.write.draft import Draft, WriteIntent
from omnigraph_spark.write.fan_out import NO_TABLE, check_fan_out, one_error, refuse_strays, stage_by_type
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.settings import UpkeepLimits, WindowSettings
from omnigraph_spark.write.spark_stage import arrow_columns, check_columns
from omnigraph_spark.write.stage import StagedPart, StageJob, WriteMode, stage
from omnigraph_spark.write.txn import WriteTxn
from omnigraph_spark.write.unpublished import abort_turn, commit_turn, open_turn, proved_unpublished

log = logging.getLogger(__name__)


@dataclass
class StagedMessage(WriterCommitMessage):
    """What one task tells the driver."""

    parts: tuple[StagedPart, ...]


def target_of(options: Options) -> Target | None:
    """Return the one type a write names, or None when a column names each row's type."""
    if options.get("typeColumn", str) is None:
        if not any(options.given(name) for name in ("node", "edge", "type")):
            raise OptionError("No type is named", hint="Set option node, edge or type, or typeColumn.")
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


def cascade_of(options: Options, mode: WriteMode) -> bool:
    """Read whether edges go with their nodes; only a delete asks."""
    if options.given("cascade") and mode is not WriteMode.DELETE:
        raise OptionError(f"Option cascade belongs to writeMode=delete, not to {mode.value}")
    return options.require("cascade", bool)


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
        limits=UpkeepLimits.resolve(
            warn_fragments=options.get("warnFragments", int),
            refuse_fragments=options.get("refuseFragments", int),
            warn_versions=options.get("warnVersions", int),
            refuse_versions=options.get("refuseVersions", int),
        ),
    )


def begin_write(options: Options, schema: StructType, *, overwrite: bool) -> GraphWriter:
    """Pin the base of a save and describe its staging; refuses what can be refused before any task runs."""
    mode, target, intent = mode_of(options, overwrite=overwrite), target_of(options), intent_of(options)
    cascade = cascade_of(options, mode)
    root, config = options.require("path", str), StorageConfig.resolve(options.storage)
    settings = settings_of(options)
    reader = GraphReader.begin(root, config)
    draft = Draft.capture(PublishAuthority(reader, settings), intent)
    catalog = draft.txn.catalog
    types = catalog.types if target is None else (target.resolve(catalog),)
    type_column = options.get("typeColumn", str)
    jobs: dict[str, StageJob] = {}
    for graph_type in types:
        job = draft.job(graph_type, mode, distributed=True)
        jobs[graph_type.table_key if target is None else ""] = job
        if target is None and sum(t.name == graph_type.name for t in types) == 1:
            jobs[graph_type.name] = job
    if type_column is None:
        check_columns(jobs[""], schema)
    else:
        check_fan_out(types, arrow_columns(schema), column=type_column)
    turn = None if draft.applied() is not None else open_turn(draft.txn.commit_id)
    return GraphWriter(draft.txn.portable(), intent, settings, jobs, type_column, turn=turn, cascade=cascade)


class _Logged:
    """Ends a block whatever fails in it, with a line in the log: a failing abort would hide why it was called."""

    def __init__(self, commit_id: str) -> None:
        self.commit_id = commit_id

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Exception):
            log.warning("abort keeps staged files: commit_id=%s reason=%r", self.commit_id, error)
        return isinstance(error, Exception)


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
        turn: Path | None,
        cascade: bool,
    ) -> None:
        self.txn = txn
        self.intent = intent
        self.settings = settings
        self.jobs = dict(jobs)
        self.type_column = type_column
        self.turn = turn  # the right to publish; None when an earlier run has published this write already
        self.cascade = cascade

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one task's rows; runs on an executor, moves nothing (INV-02)."""
        if self.turn is None:
            return StagedMessage(())
        if self.type_column is not None:
            return StagedMessage(tuple(stage_by_type(self.jobs, iterator, column=self.type_column)))
        return StagedMessage((stage(self.jobs[""], iterator),))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Validate and publish what the winning tasks staged."""
        if self.turn is None:
            log.info("repeated app_id=%s txn_version=%s", self.intent.app_id, self.intent.txn_version)
            return
        with commit_turn(self.turn, commit_id=self.txn.commit_id):
            self._publish(_parts(messages))

    def _publish(self, parts: Mapping[str, list[StagedPart]]) -> None:
        draft, refusals = self._draft(), list[ValidationError]()
        for key in sorted(parts, key=lambda k: (not k.startswith("node:"), k)):
            try:
                self._take_over(draft, key, parts[key])
            except ValidationError as e:
                refusals.append(e)  # the other tables are judged too: one error names the faults of all
        if refusals:
            raise one_error(refusals)
        draft.publish()

    def _take_over(self, draft: Draft, key: str, parts: Sequence[StagedPart]) -> None:
        if key == NO_TABLE:
            refuse_strays(parts)
            return
        job = self._jobs()[key]
        if job.mode is WriteMode.DELETE:
            draft.remove(job, parts, cascade=self.cascade)
        else:
            draft.add(job, parts, strict=job.mode is WriteMode.OVERWRITE)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the staged files of a write that is proved not to be published; keep everything otherwise."""
        commit_id = self.txn.commit_id
        if self.turn is None:
            return  # a repeat stages nothing
        with _Logged(commit_id), abort_turn(self.turn) as alone:
            draft, jobs = self._draft(), self._jobs()
            if not alone or not proved_unpublished(draft.authority, self.txn):
                log.warning("abort keeps staged files: commit_id=%s may be published", commit_id)
                return
            for key, parts in _parts(messages).items():
                if key != NO_TABLE:
                    draft.note(jobs[key], parts)
            draft.abandon()

    def _jobs(self) -> dict[str, StageJob]:
        return {job.target.table_key: job for job in self.jobs.values()}

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
