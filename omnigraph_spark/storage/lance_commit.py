"""Writing Lance datasets: staging fragments, one commit per table, and the manifest's compare-and-swap.

Every function here names the one Lance call that is safe for its purpose. The unsafe neighbours lose data silently:
``__manifest`` is only ever written by ``merge_rows`` (INV-05), table effects only by ``commit_operation`` with
operations a Restore can fence (INV-07), and staging never moves a HEAD (INV-02).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import lance
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import FragmentMetadata, write_fragments
from lance.lance import RowIdSequence

from omnigraph_spark.errors import StorageError
from omnigraph_spark.storage.lance_errors import typed
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.parallel import run_parallel

# pylance 14 cannot read back a Rewrite transaction of an indexed table: its RewrittenIndex lacks defaults for three
# fields the reader does not pass. A constructor that accepts their absence changes nothing else.
if not getattr(LanceOperation.RewrittenIndex, "_accepts_missing", False):

    @dataclass
    class _RewrittenIndex:
        _accepts_missing = True
        old_id: str = ""
        new_id: str = ""
        new_details_type_url: str | None = None
        new_details_value: bytes | None = None
        new_index_version: int | None = None

    LanceOperation.RewrittenIndex = _RewrittenIndex  # type: ignore[assignment, misc]

MAINTENANCE = frozenset({"Rewrite", "CreateIndex", "ReserveFragments"})

# Requests of one call that wait for each other on an object store, measured; ``storage_stages`` adds them up.
MERGE_HOPS = 5  # read, data file, list, transaction, manifest
COMMIT_HOPS = 3  # list, transaction, manifest


@dataclass(frozen=True, slots=True)
class TableTransaction:
    """What one version of a table did, from Lance's own log."""

    version: int
    operation: str
    properties: Mapping[str, str]
    restored: int | None = None

    @property
    def is_maintenance(self) -> bool:
        """True for operations that keep every row as it is."""
        return self.operation in MAINTENANCE


def stage_rows(
    io: LanceIO, dataset: lance.LanceDataset, batches: Iterator[pa.RecordBatch], *, schema: pa.Schema
) -> list[str]:
    """Stream batches into uncommitted fragments of an open dataset; returns them as JSON.

    The reader is consumed exactly once: a retry of the task must bring its own input, or it would silently stage
    only what the first attempt had left.
    """
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    with typed(dataset.uri):
        staged = write_fragments(
            reader,
            dataset,
            schema=schema,
            mode="append",
            data_storage_version="2.2",
            storage_options=io.options,
            allow_external_blob_outside_bases=True,
            session=io.session,
        )
    return [json.dumps(f.to_json()) for f in staged]


def staged_rows(fragments: Iterable[str]) -> int:
    """Count the rows of staged fragments from their metadata."""
    return sum(int(json.loads(f)["physical_rows"]) for f in fragments)


def staged_files(fragments: Iterable[str]) -> list[str]:
    """Return the data file names of staged fragments, relative to the dataset's data directory."""
    return [str(file["path"]) for f in fragments for file in json.loads(f)["files"]]


def _metadata(fragment: str, *, row_ids: Sequence[int] | None = None) -> FragmentMetadata:
    meta = FragmentMetadata.from_json(fragment)
    if row_ids is None:
        return meta
    return dataclasses.replace(meta, row_id_meta=RowIdSequence(row_ids).to_inline_metadata())


def append_operation(fragments: Sequence[str]) -> LanceOperation.BaseOperation:
    """Add fragments."""
    return LanceOperation.Append([_metadata(f) for f in fragments])


def replace_operation(dataset: lance.LanceDataset, fragments: Sequence[str]) -> LanceOperation.BaseOperation:
    """Replace all rows. An Update, not an Overwrite, because a Restore does not fence a late Overwrite (INV-07)."""
    return LanceOperation.Update(
        removed_fragment_ids=[f.fragment_id for f in dataset.get_fragments()],
        updated_fragments=[],
        new_fragments=[_metadata(f) for f in fragments],
        fields_modified=[],
    )


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """Fragments after rows were removed from them; the deletion files are written but referenced by nothing yet."""

    updated: tuple[FragmentMetadata, ...]
    emptied: tuple[int, ...]


def remove_rows(dataset: lance.LanceDataset, offsets: Mapping[int, Sequence[int]]) -> RemovedRows:
    """Write one deletion file per fragment. One owner per fragment: a second file for one fragment would be lost."""
    by_id = {f.fragment_id: f for f in dataset.get_fragments()}
    chosen = sorted(offsets)
    with typed(dataset.uri):
        after = run_parallel([partial(by_id[n].delete_rows, offsets[n]) for n in chosen])
    left = [a if a is None or isinstance(a, FragmentMetadata) else a.metadata for a in after]
    emptied = tuple(n for n, a in zip(chosen, left, strict=True) if a is None)
    return RemovedRows(tuple(a for a in left if a is not None), emptied)


def delete_operation(removed: RemovedRows) -> LanceOperation.BaseOperation:
    """Remove rows."""
    return LanceOperation.Delete(list(removed.updated), list(removed.emptied), "rows by id")


def upsert_operation(
    removed: RemovedRows, *, matched: Sequence[tuple[str, Sequence[int]]], inserted: Sequence[str]
) -> LanceOperation.BaseOperation:
    """Replace rows keeping their stable row ids, and add new ones."""
    replaced = [_metadata(f, row_ids=ids) for f, ids in matched]
    return LanceOperation.Update(
        removed_fragment_ids=list(removed.emptied),
        updated_fragments=list(removed.updated),
        new_fragments=[*replaced, *(_metadata(f) for f in inserted)],
        fields_modified=[],
    )


def restore_operation(version: int) -> LanceOperation.BaseOperation:
    """Return to a version's content; fences every other operation prepared before it."""
    return LanceOperation.Restore(version)


def commit_operation(
    io: LanceIO,
    dataset: lance.LanceDataset,
    operation: LanceOperation.BaseOperation,
    *,
    table: str,
    properties: Mapping[str, str],
) -> lance.LanceDataset:
    """Commit one operation prepared against an open handle's version, marked with the plan it belongs to (INV-06)."""
    io.counter.count_commit(table)
    io.seams.fault("commit", dataset.uri)
    transaction = lance.Transaction(
        read_version=int(dataset.version), operation=operation, transaction_properties=dict(properties)
    )
    with typed(dataset.uri):
        committed = lance.LanceDataset.commit(dataset, transaction, max_retries=0)
    io.seams.fault("commit.done", dataset.uri)
    return io.adopt(committed)


def detached_view(dataset: lance.LanceDataset, operation: LanceOperation.BaseOperation) -> lance.LanceDataset:
    """Return a readable version over staged fragments that no lineage contains."""
    with typed(dataset.uri):
        return lance.LanceDataset.commit(dataset, operation, read_version=int(dataset.version), detached=True)


def merge_rows(io: LanceIO, dataset: lance.LanceDataset, rows: pa.Table, *, table: str) -> lance.LanceDataset:
    """Compare-and-swap on ``__manifest``: land exactly on top of the handle's version, or raise LanceConflictError.

    Only ``execute()`` with no index and no retries carries the row-level check: a BTREE on the key, an uncommitted
    execute, a plain append or a retry inside Lance would each let two writers through (INV-05).
    """
    io.counter.count_commit(table)
    io.seams.fault("swap", dataset.uri)
    target = dataset.checkout_version(dataset.version)
    with typed(dataset.uri):
        (
            target.merge_insert("object_id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .conflict_retries(0)
            .use_index(False)  # noqa: FBT003 - pylance takes it by position
            .execute(rows)
        )
    io.seams.fault("swap.done", dataset.uri)
    return io.adopt(target)


def latest_version(dataset: lance.LanceDataset) -> int:
    """Return the newest version of an open dataset: one request."""
    with typed(dataset.uri):
        return int(dataset.latest_version)


def newest(dataset: lance.LanceDataset) -> lance.LanceDataset:
    """Return a handle on the newest version of an open dataset, on the same branch."""
    with typed(dataset.uri):
        return dataset.checkout_version(dataset.latest_version)


def fragment_count(dataset: lance.LanceDataset) -> int:
    """Return how many fragments a version has, from its manifest."""
    return len(dataset.get_fragments())


def transactions_between(dataset: lance.LanceDataset, *, after: int, upto: int) -> list[TableTransaction]:
    """Read what each version in ``(after, upto]`` did; unreadable ones raise."""
    found: list[TableTransaction] = []
    for version in range(after + 1, upto + 1):
        with typed(dataset.uri):
            transaction = dataset.read_transaction(version)
        if transaction is None:
            raise StorageError(f"{dataset.uri} version {version} keeps no transaction record")
        operation = transaction.operation
        restored = int(operation.version) if isinstance(operation, LanceOperation.Restore) else None
        name = type(operation).__name__
        # ReserveFragments and UpdateBases have no class of their own; only compaction emits the former.
        found.append(
            TableTransaction(
                version=version,
                operation="ReserveFragments" if name == "BaseOperation" else name,
                properties=dict(transaction.transaction_properties or {}),
                restored=restored,
            )
        )
    return found


def compact(io: LanceIO, dataset: lance.LanceDataset, *, table: str, target_rows: int = 1 << 20) -> int:
    """Compact a dataset in place; returns the number of fragments left."""
    io.counter.count_commit(table)
    with typed(dataset.uri):
        dataset.optimize.compact_files(target_rows_per_fragment=target_rows)
    return len(dataset.get_fragments())
