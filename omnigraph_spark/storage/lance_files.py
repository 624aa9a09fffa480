"""Which version a manifest file is of, which versions names point at, and the fence before a deletion."""

from __future__ import annotations

from dataclasses import dataclass

import lance
from lance import LanceOperation

from omnigraph_spark.storage.lance_errors import typed
from omnigraph_spark.storage.lance_io import LanceIO

DETACHED = "d"  # first letter of the manifest of a version outside the lineage
_NEWEST = (1 << 64) - 1  # manifests are named by the distance to it, so that the newest is listed first


@dataclass(frozen=True, slots=True)
class NamedVersion:
    """A tag: a name for a version of a branch (None is main)."""

    name: str
    branch: str | None
    version: int


def version_of(name: str) -> int | None:
    """Return the version a manifest file is of, by its name; None for anything else."""
    digits, _, ending = name.partition(".")
    return _NEWEST - int(digits) if ending == "manifest" and digits.isdigit() else None


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
