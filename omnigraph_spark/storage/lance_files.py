"""Which files the versions of a dataset stand on, which versions names point at, and the fence before a deletion."""

from __future__ import annotations

from dataclasses import dataclass

import lance
import pyarrow as pa
from lance import LanceOperation

from omnigraph_spark.storage.lance_errors import typed
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.locations import object_path

DETACHED = "d"  # first letter of the manifest of a version outside the lineage


@dataclass(frozen=True, slots=True)
class NamedVersion:
    """A tag: a name for a version of a branch (None is main)."""

    name: str
    branch: str | None
    version: int


def files_by_version(dataset: lance.LanceDataset) -> dict[str, set[int]]:
    """Return, for each file any version of this dataset's own branch refers to, the versions that do.

    Files are named as an object store names them (see ``object_path``); a branch refers to files of its parent too.
    Lance reads each manifest once for this.
    """
    found: dict[str, set[int]] = {}
    with typed(dataset.uri):
        rows: pa.Table = dataset.tracked_files().read_all()
    bases = rows["base_uri"].cast(pa.string()).to_pylist()
    for base, path, version in zip(bases, rows["path"].to_pylist(), rows["version"].to_pylist(), strict=True):
        found.setdefault(f"{object_path(base).rstrip('/')}/{path}", set()).add(int(version))
    return found


def named_versions(dataset: lance.LanceDataset) -> list[NamedVersion]:
    """List a dataset's tags, over all its branches."""
    with typed(dataset.uri):
        listed = dataset.tags.list()
    return [NamedVersion(name, tag["branch"], int(tag["version"])) for name, tag in sorted(listed.items())]


def fence(io: LanceIO, dataset: lance.LanceDataset, *, table: str) -> int:
    """Commit a change of nothing that every commit prepared on an older version will meet and lose against.

    Lance's conflict check passes over versions that are gone, so before versions are deleted there must be one after
    them that stays and conflicts with everything. A no-op Merge is one, and it lands only if nothing changed since the
    handle was opened; raises LanceConflictError otherwise.
    """
    io.counter.count_commit(table)
    io.seams.fault("fence", dataset.uri)
    with typed(dataset.uri):
        operation = LanceOperation.Merge([f.metadata for f in dataset.get_fragments()], dataset.lance_schema)
        transaction = lance.Transaction(read_version=int(dataset.version), operation=operation)
        landed = lance.LanceDataset.commit(dataset, transaction, max_retries=0)
    io.seams.fault("fence.done", dataset.uri)
    return int(landed.version)
