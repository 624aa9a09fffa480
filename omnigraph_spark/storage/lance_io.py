"""Opening and reading Lance datasets; with its ``lance_*`` siblings the only code that calls pylance.

One ``LanceIO`` belongs to one operation: it shares a Lance session among that operation's opens (so nothing is fetched
twice), counts every open, and reads Lance's own request counters. Tables are opened by location and pinned version; the
only "latest" opens are of ``__manifest`` and, under the write window, of the tables a plan touches.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa
from lance.lance import _Session as Session  # lance.Session, under the name its stubs export

from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.counters import OpCounter
from omnigraph_spark.storage.lance_errors import typed
from omnigraph_spark.storage.locations import is_s3
from omnigraph_spark.storage.seams import DEFAULT_SEAMS, Seams

# Caches are per operation; these bounds keep a task's memory flat whatever the table's size (INV-15).
_METADATA_CACHE = 64 << 20
_INDEX_CACHE = 128 << 20
# How much of a file's end Lance asks of S3 at once; what that covers costs no further request. It covers `__manifest`
# after well over a thousand commits and a table's manifest with as many fragments (INV-15). One size for all handles of
# an operation: each size is a store of its own to Lance, with counters of its own.
_BLOCK = 512 << 10


@dataclass(frozen=True, slots=True)
class FragmentInfo:
    """What planning needs to know of one fragment; picklable."""

    fragment_id: int
    rows: int
    size: int
    deletions: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScanSpec:
    """Which rows and columns of a dataset to read."""

    columns: tuple[str, ...] | None = None
    filter: str | None = None
    limit: int | None = None
    batch_size: int | None = None
    fragments: tuple[int, ...] | None = None
    row_ids: bool = False
    row_addresses: bool = False


class LanceIO:
    """Counted access to Lance datasets for one operation."""

    def __init__(
        self, config: StorageConfig, *, counter: OpCounter | None = None, seams: Seams = DEFAULT_SEAMS
    ) -> None:
        self.config = config
        self.counter = counter if counter is not None else OpCounter()
        self.seams = seams
        self.session = Session(index_cache_size_bytes=_INDEX_CACHE, metadata_cache_size_bytes=_METADATA_CACHE)
        self._witness: lance.LanceDataset | None = None
        self._seen = (0, 0)
        self._lock = threading.Lock()

    @property
    def options(self) -> dict[str, str]:
        """Storage options in pylance's spelling."""
        return self.config.lance_options()

    def open(self, uri: str, *, table: str, version: int | None = None) -> lance.LanceDataset:
        """Open a dataset at a version, or at its latest one; the storage error is typed."""
        self.counter.count_open(table)
        block = _BLOCK if is_s3(uri) else None
        with typed(uri):
            dataset = lance.dataset(
                uri, version=version, block_size=block, storage_options=self.options, session=self.session
            )
        return self.adopt(dataset)

    def adopt(self, dataset: lance.LanceDataset) -> lance.LanceDataset:
        """Remember a handle of this session, so that its counters can be read."""
        if self._witness is None:
            self._witness = dataset
        return dataset

    def settle(self) -> OpCounter:
        """Move what Lance counted since the last call into the operation's counter, and return that."""
        with self._lock:
            if self._witness is not None:
                stats = self._witness.io_stats_snapshot()
                now = (int(stats.read_iops), int(stats.write_iops))
                self.counter.count_lance(reads=now[0] - self._seen[0], writes=now[1] - self._seen[1])
                self._seen = now
        return self.counter

    def read(self, dataset: lance.LanceDataset, spec: ScanSpec) -> pa.Table:
        """Read the chosen rows into memory."""
        with typed(dataset.uri):
            return _scanner(dataset, spec).to_table()

    def batches(self, dataset: lance.LanceDataset, spec: ScanSpec) -> Iterator[pa.RecordBatch]:
        """Stream the chosen rows; memory is bounded by a few batches."""
        with typed(dataset.uri):
            yield from _scanner(dataset, spec).to_batches()

    def count(self, dataset: lance.LanceDataset, *, filter: str | None = None) -> int:
        """Count live rows."""
        with typed(dataset.uri):
            return int(dataset.count_rows(filter=filter))

    def check_filter(self, dataset: lance.LanceDataset, text: str) -> None:
        """Plan a filter without running it; raises ValueError with Lance's own text when it is malformed."""
        dataset.scanner(filter=text, limit=1).explain_plan()


def _scanner(dataset: lance.LanceDataset, spec: ScanSpec) -> lance.LanceScanner:
    fragments = None
    if spec.fragments is not None:
        by_id = {f.fragment_id: f for f in dataset.get_fragments()}
        fragments = [by_id[i] for i in spec.fragments]
    return dataset.scanner(
        columns=list(spec.columns) if spec.columns is not None else None,
        filter=spec.filter,
        limit=spec.limit,
        batch_size=spec.batch_size,
        fragments=fragments,
        with_row_id=spec.row_ids,
        with_row_address=spec.row_addresses,
        blob_handling="all_binary",
        # Bounds what a scan holds ahead of its consumer, so memory does not follow the table's size.
        batch_readahead=4,
        fragment_readahead=2,
        io_buffer_size=64 << 20,
    )


def fragment_infos(dataset: lance.LanceDataset) -> list[FragmentInfo]:
    """List a dataset's fragments from its manifest, without touching a data file."""
    out: list[FragmentInfo] = []
    for fragment in dataset.get_fragments():
        meta = fragment.metadata
        deletion = meta.deletion_file
        deleted = int(deletion.num_deleted_rows) if deletion is not None else 0
        size = sum(int(f.file_size_bytes or 0) for f in meta.files)
        files = tuple(f.path for f in meta.files)
        out.append(FragmentInfo(int(meta.id), int(meta.physical_rows) - deleted, size, deleted, files))
    return out


def schema_metadata(dataset: lance.LanceDataset) -> dict[str, str]:
    """Return the schema-level metadata as text."""
    raw = dataset.schema.metadata or {}
    return {_text(k): _text(v) for k, v in raw.items()}


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def branch_names(dataset: lance.LanceDataset) -> Sequence[tuple[str, int, str | None]]:
    """List (name, parent version, parent branch) of a dataset's Lance branches."""
    with typed(dataset.uri):
        found = dataset.branches.list()
    return [
        (name, int(entry.get("parent_version", 0)), entry.get("parent_branch")) for name, entry in sorted(found.items())
    ]


def indexed_columns(dataset: lance.LanceDataset) -> frozenset[str]:
    """Return the columns that have an index of their own."""
    with typed(dataset.uri):
        found = dataset.describe_indices()
    return frozenset(index.field_names[0] for index in found if len(index.field_names) == 1)


def create_dataset(
    io: LanceIO, rows: pa.Table, uri: str, *, table: str, properties: dict[str, str] | None = None
) -> lance.LanceDataset:
    """Create a dataset in the format every graph uses: storage 2.2, stable row ids, no auto-cleanup."""
    io.seams.fault("create", uri)
    io.counter.count_commit(table)
    with typed(uri):
        dataset = lance.write_dataset(
            rows,
            uri,
            mode="create",
            storage_options=io.options,
            data_storage_version="2.2",
            enable_stable_row_ids=True,
            allow_external_blob_outside_bases=True,
            transaction_properties=properties,
            session=io.session,
        )
    io.seams.fault("create.done", uri)
    return io.adopt(dataset)
