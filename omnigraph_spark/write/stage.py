"""Stage: stream rows into uncommitted fragments of one table, where the rows are (executor or plain process).

Nothing here moves a HEAD (INV-02): a killed, retried or speculative task leaves files nobody references. Append and
overwrite write while they read; merge and delete keep their rows locally, find the existing ones, then write. Existing
rows are matched by id exactly and keep their stable row id. What must be compared across tasks travels as evidence.
Memory: one batch, one run of keys (a million), and page cache; flat in the number of rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import pyarrow as pa

from omnigraph_spark.errors import StorageError, Violation
from omnigraph_spark.schema.catalog import GraphType
from omnigraph_spark.schema.mapping import table_arrow_schema
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.keyhash import hash_text
from omnigraph_spark.storage.lance_commit import stage_rows, staged_rows
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.objects import ObjectStore
from omnigraph_spark.storage.parallel import run_parallel
from omnigraph_spark.write.actions import MatchedFragment
from omnigraph_spark.write.evidence import Evidence, pack, staging_folder
from omnigraph_spark.write.gate import RowGate
from omnigraph_spark.write.key_runs import KeyRuns, Scratch
from omnigraph_spark.write.matching import last_of_each, matched_fragments, matching, winning
from omnigraph_spark.write.probe import View, open_view
from omnigraph_spark.write.rowids import RowIds
from omnigraph_spark.write.spill import RowSpill, TextIndex
from omnigraph_spark.write.stage_checks import BaseChecks

_SMALL_ROWS = 20_000  # so many rows are kept until the base has been asked, which saves waiting for one after the other


class WriteMode(str, Enum):
    """What a write does with its rows."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class StageJob:
    """Everything a task needs to stage rows of one table; picklable."""

    root: str
    commit_id: str
    mode: WriteMode
    graph_type: GraphType
    target: View
    config: StorageConfig
    ends: Mapping[str, View] = field(default_factory=dict)
    last_wins: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class StagedPart:
    """What one task staged for one table, and what it learned; picklable."""

    table_key: str
    mode: WriteMode
    rows: int
    inserted: tuple[str, ...] = ()
    matched: tuple[MatchedFragment, ...] = ()
    removed: RowIds = field(default_factory=RowIds.empty)
    keys: Evidence = field(default_factory=Evidence)
    uniques: tuple[Evidence, ...] = ()
    ends: Mapping[str, Evidence] = field(default_factory=dict)
    unresolved: Mapping[str, Evidence] = field(default_factory=dict)
    unique_hits: tuple[bytes, ...] = ()
    violations: tuple[Violation, ...] = ()
    violation_total: int = 0

    @property
    def fragments(self) -> tuple[str, ...]:
        """Every staged fragment."""
        return (*(m.fragment for m in self.matched), *self.inserted)


def stage_replacing(job: StageJob, batches: Iterable[pa.RecordBatch], *, io: LanceIO) -> StagedPart:
    """Stage new content of rows that are known to exist: batches carry their ``_rowid`` and ``_rowaddr``."""
    with Scratch() as scratch:
        return _Task(job, io, scratch).replacing(batches)


def stage(job: StageJob, batches: Iterable[pa.RecordBatch], *, io: LanceIO | None = None) -> StagedPart:
    """Stage the rows of one task."""
    io = io if io is not None else LanceIO(job.config)
    with Scratch() as scratch:
        task = _Task(job, io, scratch, note_ids=job.mode is not WriteMode.MERGE)
        if job.mode is WriteMode.DELETE:
            return task.delete(batches)
        return task.merge(batches) if job.mode is WriteMode.MERGE else task.insert(batches)


class _Task:
    def __init__(self, job: StageJob, io: LanceIO, scratch: Scratch, *, note_ids: bool = True) -> None:
        self.job = job
        self.io = io
        self.scratch = scratch
        self.schema = table_arrow_schema(job.graph_type)
        self.gate = RowGate(job.graph_type, scratch=scratch, seams=io.seams, note_ids=note_ids)
        self.checks = BaseChecks(io, job.graph_type, self.gate, scratch, target=job.target, ends=job.ends)

    def insert(self, batches: Iterable[pa.RecordBatch]) -> StagedPart:
        """Append and overwrite: stage every row as new; append also asks the base for ids it has already."""
        admitted = self.gate.stream(batches)
        first = list(_until(admitted, rows=_SMALL_ROWS))
        asked = [self.checks.resolve_ends]
        if self.job.mode is WriteMode.APPEND:
            asked += [self.checks.find_taken, self.checks.find_unique]
        staged: list[str] = []
        if sum(b.num_rows for b in first) < _SMALL_ROWS:
            run_parallel([lambda: staged.extend(self._write(iter(first))), *asked], counter=self.io.counter)
        else:
            staged.extend(self._write(itertools.chain(first, admitted)))
            run_parallel(asked, counter=self.io.counter)
        self._require_count(staged, self.gate.rows)
        self.checks.confirm_taken(staged)
        hits = self.checks.unique_hits(lambda: self.checks.staged_rows(staged))
        return self._part(inserted=staged, unique_hits=hits)

    def merge(self, batches: Iterable[pa.RecordBatch]) -> StagedPart:
        """Upsert: rows whose id exists replace it and keep its row id, the others are new."""
        kept = RowSpill(self.schema, self.scratch)
        index = TextIndex(self.scratch, texts=kept)
        for batch in self.gate.stream(batches):
            kept.add(batch)
            if not self.gate.all_fresh:
                index.add(batch.column("id"))
        kept.close()
        if self.gate.all_fresh:
            return self._merge_fresh(kept)
        index.close()
        keep = last_of_each(index) if self.job.last_wins else None
        self.gate.ids = index.keys if keep is None else self._distinct_ids(kept)
        found = matching(self.io, self.job.target, index, few=self.gate.few_ids, scratch=self.scratch)
        run_parallel([found.look_up, self.checks.resolve_ends, self.checks.find_unique], counter=self.io.counter)
        replacing = self._write(found.select(kept.batches(), existing=True, keep=keep))
        adding = self._write(found.select(kept.batches(), existing=False, keep=keep))
        self._require_count([*replacing, *adding], kept.rows if keep is None else int(keep.sum()))
        hits = self.checks.unique_hits(lambda: winning(kept.batches(), keep))
        return self._part(inserted=adding, matched=found.fragments(replacing, keep=keep), unique_hits=hits)

    def _distinct_ids(self, kept: RowSpill) -> KeyRuns:
        """Note each id once: repeats within this ordered input are settled, the last one wins."""
        keys = KeyRuns(self.scratch, distinct=True)
        for batch in kept.batches():
            keys.add(hash_text(batch.column("id")))
        keys.close()
        return keys

    def _merge_fresh(self, kept: RowSpill) -> StagedPart:
        staged: list[str] = []
        jobs: list[Callable[[], None]] = [
            lambda: staged.extend(self._write(kept.batches())),
            self.checks.resolve_ends,
            self.checks.find_unique,
        ]
        run_parallel(jobs, counter=self.io.counter)
        self._require_count(staged, kept.rows)
        return self._part(inserted=staged, unique_hits=self.checks.unique_hits(kept.batches))

    def replacing(self, batches: Iterable[pa.RecordBatch]) -> StagedPart:
        """Rows that were read from the table and changed: each takes over the row it was."""
        places: list[RowIds] = []
        kept = RowSpill(self.schema, self.scratch)

        def plain() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                ids, addresses = (batch.column(name).to_numpy() for name in ("_rowid", "_rowaddr"))
                places.append(RowIds(ids, addresses, self.job.target.version))
                yield batch.drop_columns(["_rowid", "_rowaddr"])

        for batch in self.gate.stream(plain()):
            kept.add(batch)
        kept.close()
        self.checks.find_unique()
        staged = self._write(kept.batches())
        self._require_count(staged, self.gate.rows)
        hits = self.checks.unique_hits(kept.batches)
        return self._part(inserted=[], matched=matched_fragments(staged, RowIds.concat(places)), unique_hits=hits)

    def delete(self, batches: Iterable[pa.RecordBatch]) -> StagedPart:
        """Find the rows of the given ids; ids that do not exist are not an error."""
        index = TextIndex(self.scratch)
        for ids in self.gate.ids_only(batches):
            index.add(ids)
        index.close()
        found = matching(self.io, self.job.target, index, few=self.gate.few_ids, scratch=self.scratch)
        found.look_up()
        removed, self.gate.ids = found.removed()
        return replace(self._part(inserted=[]), removed=removed)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> list[str]:
        """Write fragments; an empty stream writes nothing."""
        first = next(batches, None)
        if first is None:
            return []
        dataset = open_view(self.io, self.job.target)
        source = _Source(itertools.chain([first], batches))
        try:
            return stage_rows(self.io, dataset, source, schema=self.schema)
        except StorageError:
            if source.error is not None:
                raise source.error from None  # the input failed, not the store
            raise

    def _require_count(self, staged: list[str], rows: int) -> None:
        if self.gate.faults.total:
            return
        written = staged_rows(staged)
        if written != rows:
            raise StorageError(
                f"{self.job.target.table_key}: {rows} rows were given but {written} were staged",
                hint="Run the write again; if it repeats, report it.",
            )

    def _pack(self, keys: KeyRuns, name: str) -> Evidence:
        folder = staging_folder(self.job.root, self.job.commit_id)
        objects = ObjectStore(self.job.config, counter=self.io.counter, seams=self.io.seams)
        unique = f"{self.io.seams.new_id()}-{name}"
        return pack(keys, objects=objects, folder=folder, name=unique)

    def _part(
        self,
        *,
        inserted: list[str],
        matched: tuple[MatchedFragment, ...] = (),
        unique_hits: tuple[bytes, ...] = (),
    ) -> StagedPart:
        gate, faults = self.gate, self.gate.faults
        faults.add(self.checks.taken, total=self.checks.taken_total)
        return StagedPart(
            table_key=self.job.target.table_key,
            mode=self.job.mode,
            rows=gate.rows,
            inserted=tuple(inserted),
            matched=matched,
            keys=self._pack(gate.ids, "ids"),
            uniques=tuple(self._pack(keys, f"unique{n}") for n, keys in enumerate(gate.uniques)),
            ends={end: self._pack(keys, end) for end, keys in gate.ends.items()},
            unresolved={end: self._pack(keys, f"open-{end}") for end, keys in self.checks.unresolved.items()},
            unique_hits=unique_hits,
            violations=tuple(faults.violations),
            violation_total=faults.total,
        )


class _Source:
    """Batches on their way through Lance, which turns an error of the input into one of its own: remembered here."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except Exception as e:
            self.error = e
            raise


def _until(batches: Iterator[pa.RecordBatch], *, rows: int) -> Iterator[pa.RecordBatch]:
    """Take batches until so many rows were taken; the rest stays in the iterator."""
    taken = 0
    while taken < rows:
        batch = next(batches, None)
        if batch is None:
            return
        taken += batch.num_rows
        yield batch
