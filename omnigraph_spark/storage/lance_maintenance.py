"""Compaction and indexes in Lance: plan, execute anywhere, and the operations only a publish commits.

A job writes files and moves nothing; it is picklable and runs in a thread or in a Spark task. What it returns is text
for the plan: new fragments, index segments, and *marks* of the fragments they stand on. A mark names a fragment's files
and deletions, so the operation is refused when one of them changed since (Lance would not look that far back).
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import lance
import pyarrow as pa
from lance import LanceOperation
from lance.bitmap import Bitmap
from lance.dataset import Index, IndexFile
from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, CompactionTask

from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.lance_errors import LanceConflictError, typed
from omnigraph_spark.storage.lance_io import LanceIO, ScanSpec

TARGET_ROWS = 1 << 20
MOST_SEGMENTS = 4  # an index in more parts than this is built anew, as one


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index a column should have; ``name`` is the one Lance gives by default."""

    column: str
    kind: str  # BTREE, INVERTED or IVF_FLAT

    @property
    def name(self) -> str:
        """The index's name."""
        return f"{self.column}_idx"


@dataclass(frozen=True, slots=True)
class IndexGap:
    """What an index lacks: the fragments to build over, and the parts this replaces."""

    spec: IndexSpec
    fragments: tuple[int, ...]
    replaced: tuple[str, ...]  # encoded index parts
    first: bool = False  # the column has no index yet


@dataclass(frozen=True, slots=True)
class Place:
    """A table version a job reads and whose directory it writes to."""

    uri: str
    table_key: str
    version: int
    config: StorageConfig

    def open(self) -> lance.LanceDataset:
        """Open it; a job runs in its own process or thread."""
        return LanceIO(self.config).open(self.uri, table=self.table_key, version=self.version)


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """One group of fragments to write anew."""

    place: Place
    task: str

    def run(self) -> RewritePiece:
        """Write the new fragments; nothing refers to them yet."""
        dataset = self.place.open()
        with typed(self.place.uri):
            result = CompactionTask.from_json(self.task).execute(dataset)  # type: ignore[attr-defined]  # stubs lag
            old = [_mark(f) for f in result.original_fragments]
            new = [json.dumps(f.to_json()) for f in result.new_fragments]
        return RewritePiece(tuple(old), tuple(new))


@dataclass(frozen=True, slots=True)
class RewritePiece:
    """What a compaction job made: marks of the old fragments, and the new ones."""

    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexJob:
    """One index part to build."""

    place: Place
    gap: IndexGap

    def run(self) -> str:
        """Write the index files and return the part, encoded."""
        dataset = self.place.open()
        spec = self.gap.spec
        extra: dict[str, Any] = {"num_partitions": 1, "metric": "L2"} if spec.kind == "IVF_FLAT" else {}
        with typed(self.place.uri):
            part = dataset.create_index_uncommitted(
                spec.column, spec.kind, name=spec.name, fragment_ids=list(self.gap.fragments), replace=True, **extra
            )
            if spec.kind == "INVERTED":
                # A text index is written in pieces first; only the merged form can be read.
                part = dataclasses.replace(dataset.merge_existing_index_segments([part]), name=spec.name)
        return _encode(part)


# -- planning ----------------------------------------------------------------------------------------------------------


def compaction_jobs(
    dataset: lance.LanceDataset, place: Place, *, target_rows: int = TARGET_ROWS
) -> list[CompactionJob]:
    """Return the jobs Lance's planner sees; none when the table is in good shape."""
    with typed(place.uri):
        # The storage version is named: a file of another one would lock older readers out of the table.
        plan = Compaction.plan(dataset, {"target_rows_per_fragment": target_rows, "data_storage_version": "2.2"})
        return [CompactionJob(place, task.json()) for task in plan.tasks]  # type: ignore[attr-defined]  # stubs lag


def index_gaps(io: LanceIO, dataset: lance.LanceDataset, specs: Sequence[IndexSpec]) -> list[IndexGap]:
    """Return what is missing of the wanted indexes, and the gaps of any other index of a known kind."""
    with typed(dataset.uri):
        described = {i.name: i for i in dataset.describe_indices()}
    wanted = {s.name: s for s in specs}
    for name, index in described.items():
        kind = {"BTree": "BTREE", "Inverted": "INVERTED", "IVF_FLAT": "IVF_FLAT"}.get(index.index_type)
        if (
            name not in wanted
            and kind is not None
            and len(index.field_names) == 1
            and name == f"{index.field_names[0]}_idx"
        ):
            wanted[name] = IndexSpec(index.field_names[0], kind)
    fragments = {f.fragment_id for f in dataset.get_fragments()}
    gaps: list[IndexGap] = []
    for name, spec in sorted(wanted.items()):
        found = described.get(name)
        parts = list(found.segments) if found is not None else []
        alive = [p for p in parts if set(p.fragment_ids) & fragments]
        missing = fragments - {f for p in alive for f in p.fragment_ids}
        if not missing or not fragments:
            continue
        whole = not alive or len(alive) + 1 > MOST_SEGMENTS
        if spec.kind == "INVERTED" and not whole:
            # A text index in parts would still find a replaced row by its old words: its row id is in both.
            whole = _has_replaced(io, dataset, missing)
        gone = parts if whole else [p for p in parts if p not in alive]
        chosen = fragments if whole else missing
        fields = list(found.fields) if found is not None else []
        replaced = tuple(_encode(_reference(p.uuid, name, fields, int(dataset.version))) for p in gone)
        gaps.append(IndexGap(spec, tuple(sorted(chosen)), replaced, first=not alive))
    return gaps


def has_values(io: LanceIO, dataset: lance.LanceDataset, column: str, *, fragments: Sequence[int]) -> bool:
    """Say whether a column has any value in some fragments."""
    spec = ScanSpec(columns=(column,), filter=f"`{column}` IS NOT NULL", limit=1, fragments=tuple(fragments))
    return any(batch.num_rows for batch in io.batches(dataset, spec))


def _has_replaced(io: LanceIO, dataset: lance.LanceDataset, fragments: Iterable[int]) -> bool:
    """Say whether some fragments hold rows that took over another row's id, rather than new ones."""
    made, changed = "_row_created_at_version", "_row_last_updated_at_version"
    spec = ScanSpec(columns=(made, changed), fragments=tuple(sorted(fragments)))
    return any(not batch.column(made).equals(batch.column(changed)) for batch in io.batches(dataset, spec))


def has_blobs(dataset: lance.LanceDataset) -> bool:
    """Say whether a table has blob columns, which Lance cannot compact without reading every blob."""
    return any(isinstance(f.type, pa.BaseExtensionType) and "blob" in f.type.extension_name for f in dataset.schema)


def marks_of(dataset: lance.LanceDataset, fragments: Iterable[int] | None = None) -> tuple[str, ...]:
    """Return the marks of a version's fragments, all of them by default."""
    chosen = None if fragments is None else set(fragments)
    return tuple(_mark(f.metadata) for f in dataset.get_fragments() if chosen is None or f.fragment_id in chosen)


def changed_marks(dataset: lance.LanceDataset, marks: Iterable[str], *, deletions: bool) -> list[str]:
    """Return the marks that no fragment of a version bears any more; deletions may be left out of the comparison."""
    now = marks_of(dataset)
    if deletions:
        return sorted(set(marks) - set(now))
    return sorted({_files(m) for m in marks} - {_files(m) for m in now})


# -- operations, committed under the window ----------------------------------------------------------------------------


def rewrite_operation(dataset: lance.LanceDataset, groups: Sequence[RewritePiece]) -> LanceOperation.BaseOperation:
    """Replace fragments by the same rows in fewer ones, with fragment ids nobody else has.

    The ids must be known before the commit: with Lance's placeholder 0 an index would be told that it covers another
    fragment. A detached append is asked which ids come next; the caller holds the window, and a commit that slips in
    between shows in the version number.
    """
    _unchanged(dataset, [mark for g in groups for mark in g.old], deletions=True)
    by_id = {f.fragment_id: f.metadata for f in dataset.get_fragments()}
    pieces = [([by_id[_id(m)] for m in g.old], [FragmentMetadata.from_json(f) for f in g.new]) for g in groups]
    _unsplit(dataset, [[f.id for f in old] for old, _ in pieces])
    # Not a trial of the rewrite itself: with two groups of id 0, index parts would overlap, and Lance panics.
    bare = [FragmentMetadata(f.id, f.files, f.physical_rows) for _, new in pieces for f in new]
    plain = LanceOperation.Append(bare)
    with typed(dataset.uri):
        trial = lance.LanceDataset.commit(dataset, plain, read_version=int(dataset.version), detached=True)
        ids = {_names(f.metadata): f.fragment_id for f in trial.get_fragments()}
    numbered = [(old, [dataclasses.replace(f, id=ids[_names(f)]) for f in new]) for old, new in pieces]
    return LanceOperation.Rewrite([LanceOperation.RewriteGroup(old, new) for old, new in numbered], [])


def index_operation(
    dataset: lance.LanceDataset, *, built: Sequence[str], removed: Sequence[str], covers: Sequence[str]
) -> LanceOperation.BaseOperation:
    """Add index parts, and remove the ones they replace."""
    _unchanged(dataset, covers, deletions=False)
    taken = overlapping(dataset, built=built, removed=removed)
    if taken:
        raise LanceConflictError(f"{dataset.uri}: {', '.join(taken)} was built by somebody else meanwhile")
    return LanceOperation.CreateIndex([_decode(i) for i in built], [_decode(i) for i in removed])


def _unsplit(dataset: lance.LanceDataset, groups: Sequence[Sequence[int]]) -> None:
    """Refuse a group that an index covers in part: somebody built the index after the groups were planned."""
    with typed(dataset.uri):
        parts = [set(part.fragment_ids) for index in dataset.describe_indices() for part in index.segments]
    if any(0 < len(part.intersection(group)) < len(group) for part in parts for group in groups):
        raise LanceConflictError(f"{dataset.uri}: an index was built over some of the fragments since")


def overlapping(dataset: lance.LanceDataset, *, built: Sequence[str], removed: Sequence[str]) -> list[str]:
    """Name the indexes that have other parts over fragments of these: Lance would accept both, and be corrupt."""
    with typed(dataset.uri):
        described = {i.name: i for i in dataset.describe_indices()}
    gone = {str(_decode(i).uuid) for i in removed}
    found: set[str] = set()
    for index in (_decode(i) for i in built):
        parts = described[index.name].segments if index.name in described else ()
        held = {f for part in parts if str(part.uuid) not in gone for f in part.fragment_ids}
        if held & set(index.fragment_ids):
            found.add(index.name)
    return sorted(found)


def _unchanged(dataset: lance.LanceDataset, marks: Iterable[str], *, deletions: bool) -> None:
    changed = changed_marks(dataset, marks, deletions=deletions)
    if changed:
        raise LanceConflictError(f"{dataset.uri}: {len(changed)} fragments changed since the work was planned")


# -- encoding ----------------------------------------------------------------------------------------------------------


def _names(meta: FragmentMetadata) -> str:
    return "+".join(str(f.path) for f in meta.files)


def _mark(meta: FragmentMetadata) -> str:
    deletion = meta.deletion_file
    gone = "" if deletion is None else f"{deletion.read_version}-{deletion.id}-{deletion.num_deleted_rows}"
    return f"{meta.id}:{_names(meta)}:{gone}"


def _files(mark: str) -> str:
    return mark.rpartition(":")[0]


def _id(mark: str) -> int:
    return int(mark.partition(":")[0])


def _reference(uuid: str, name: str, fields: list[int], version: int) -> Index:
    none = Bitmap([])
    return Index(uuid=uuid, name=name, fields=fields, dataset_version=version, fragment_ids=none, index_version=0)


def _encode(index: Index) -> str:
    details = index.index_details
    value: dict[str, object] = {
        "uuid": index.uuid,
        "name": index.name,
        "fields": list(index.fields),
        "dataset_version": index.dataset_version,
        "fragment_ids": sorted(index.fragment_ids),
        "index_version": index.index_version,
        "created_at": index.created_at.isoformat() if index.created_at else None,
        "files": None if index.files is None else [[f.path, f.size_bytes] for f in index.files],
        "details": None if details is None else [details[0], base64.b64encode(details[1]).decode()],
        "covering_fields": list(index.covering_fields),
    }
    return json.dumps(value, separators=(",", ":"))


def _decode(text: str) -> Index:
    value: Mapping[str, Any] = json.loads(text)
    details, created, files = value["details"], value["created_at"], value["files"]
    return Index(
        uuid=value["uuid"],
        name=value["name"],
        fields=value["fields"],
        dataset_version=value["dataset_version"],
        fragment_ids=Bitmap(value["fragment_ids"]),
        index_version=value["index_version"],
        created_at=datetime.fromisoformat(created) if created else None,
        files=None if files is None else [IndexFile(path, size) for path, size in files],
        index_details=None if details is None else (details[0], base64.b64decode(details[1])),
        covering_fields=value["covering_fields"],
    )
