"""Cleanup: delete the versions nobody retains, the files only they used, and what dead writers left behind.

surveyed (nothing written) → for each branch *fenced*: a no-op commit on ``__manifest`` that stays, so that a commit
prepared on an older version loses even when the versions between are gone; then the *boundary* raised, so that a writer
that re-creates a deleted version knows that it did not commit (INV-12) → deleted: a dataset's old manifests, then the
files. A crash at any point leaves a sound graph; the next run goes on. Beside live writers: a version is deleted only
below every retained one and older than the floor; a file only when no version that stays uses it, and one that no
version that was ever published uses (staged, or undone by recovery; its writer may try again) only after a week.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Literal

import lance

from omnigraph_spark.errors import StorageError, StorageNotFoundError
from omnigraph_spark.maintenance.boundary import Chain, Pins, PinSurvey, Retention
from omnigraph_spark.maintenance.cleanup_report import CleanupReport, CleanupRow
from omnigraph_spark.maintenance.standing import refuse_open_records, refuse_schema_change
from omnigraph_spark.manifest.boundary import BOUNDARY_TAG, raise_boundary
from omnigraph_spark.manifest.layout import MAIN, MANIFEST_DIR, branch_uri
from omnigraph_spark.manifest.rows import stored_branch
from omnigraph_spark.manifest.store import MANIFEST, ManifestStore
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.lance_copies import CopyingIO
from omnigraph_spark.storage.lance_errors import LanceConflictError
from omnigraph_spark.storage.lance_files import DETACHED, fence, named_versions, version_of
from omnigraph_spark.storage.lance_io import branch_names
from omnigraph_spark.storage.locations import join, object_path
from omnigraph_spark.storage.objects import StoredObject
from omnigraph_spark.storage.parallel import run_parallel
from omnigraph_spark.write.evidence import STAGING_DIR
from omnigraph_spark.write.publish import PublishAuthority

log = logging.getLogger(__name__)
ORPHAN_AGE = timedelta(days=7)  # a staged file younger than this may belong to a writer that is still at work
_FOLDERS = ("data", "_deletions", "_indices", "_transactions", "_versions")
_MOST_FENCES = 20


def cleanup_graph(
    authority: PublishAuthority,
    *,
    older_than: timedelta | float | None = None,
    keep: int | None = None,
    dry_run: bool = True,
    progress: Callable[[str], None] | None = None,
) -> CleanupReport:
    """Report what a policy lets go, and delete it unless this is a dry run."""
    floor = authority.settings.timeout + authority.settings.grace
    retention = Retention.checked(older_than=older_than, keep=keep, floor=floor)
    refuse_schema_change(authority.reader, verb="cleanup")
    refuse_open_records(authority, verb="cleanup")
    survey = Survey(authority.reader, retention, floor=timedelta(seconds=floor))
    with CopyingIO(authority.reader.io, authority.reader.objects) as io:
        survey.run(io)
        if not dry_run and any(row.action == "delete" for row in survey.rows):
            Deletion(authority.reader, survey, io, progress).run()
    report = CleanupReport(authority.reader.root, dry_run, tuple(survey.rows), survey.pins.boundaries)
    log.info("%s", repr(report).split("\n", 1)[0])
    return report


@dataclass(slots=True)
class Survey:
    """Decides what goes; reads only, and of each version's manifest at most one copy."""

    reader: GraphReader
    retention: Retention
    floor: timedelta
    pins: Pins = field(default_factory=Pins)
    rows: list[CleanupRow] = field(default_factory=list)
    sizes: dict[Chain, dict[int, int]] = field(default_factory=dict)  # of version manifests
    now: int = 0

    def run(self, io: CopyingIO) -> None:
        """List what is there first, then what must stay: whatever comes later is not in the list."""
        self.now = io.seams.now_micros()
        root, objects = self.reader.root, self.reader.objects
        listed = objects.walk(root)
        reader = GraphReader(root, io, objects, ManifestStore(root, io=io, objects=objects))
        self.pins = PinSurvey(reader, self.retention, self.now).run()
        for path in [MANIFEST_DIR, *sorted(self.pins.tables)]:
            below = [o for o in listed if o.name.startswith(f"{path}/")]
            self._dataset(io, path, below)
        io.settle()
        for item in listed:
            if item.name.startswith(f"{STAGING_DIR}/"):
                self._orphan(item, table="", branch="", what="evidence of a write that ended")

    def _before(self, item: StoredObject, age: timedelta) -> bool:
        return item.changed < self.now - int(age.total_seconds() * 1_000_000)

    def _dataset(self, io: CopyingIO, path: str, listed: Sequence[StoredObject]) -> None:
        uri = join(self.reader.root, path)
        try:
            dataset = io.open(uri, table=path)
        except StorageNotFoundError:
            return  # a table that was registered but never made
        forks = branch_names(dataset)
        for tag in named_versions(dataset):
            if tag.name != BOUNDARY_TAG:
                self.pins.point((path, tag.branch), tag.version, f"tag {tag.name!r}")
        for name, version, parent in forks:
            self.pins.point((path, stored_branch(parent or MAIN)), version, f"branch {name!r} starts here")
        chains: list[Chain] = [(path, None), *((path, name) for name, _, _ in forks)]
        users: dict[str, set[tuple[Chain, int]]] = {}
        for chain in chains:
            for file, versions in io.files_by_version(branch_uri(uri, chain[1])).items():
                users.setdefault(file, set()).update((chain, v) for v in versions)
        doomed = self._versions(chains, listed)
        self._files(chains, listed, users=users, doomed=doomed)

    def _versions(self, chains: Sequence[Chain], listed: Sequence[StoredObject]) -> set[tuple[Chain, int]]:
        doomed: set[tuple[Chain, int]] = set()
        for chain in chains:
            found = sorted(_manifests(chain, listed))
            self.sizes[chain] = {version: item.size for version, item in found}
            for version, item in found:
                why = self.pins.reason(chain, version)
                if why is None and version == found[-1][0]:
                    why = "the newest version"
                if why is None and not self._before(item, self.floor):
                    why = f"younger than the floor of {self.floor.total_seconds():g} s: a stalled writer may meet it"
                if why is None:
                    doomed.add((chain, version))
                self._row(item, chain, why, version=version)
        return doomed

    def _files(
        self,
        chains: Sequence[Chain],
        listed: Sequence[StoredObject],
        *,
        users: dict[str, set[tuple[Chain, int]]],
        doomed: set[tuple[Chain, int]],
    ) -> None:
        root = object_path(self.reader.root)
        for item in listed:
            chain = _chain_of(item, chains)
            inside = item.name.removeprefix(f"{_folder(chain)}/")
            top, _, name = inside.partition("/")
            if top == "_versions" and version_of(name) is not None:
                continue
            used = users.get(f"{root}/{item.name}") or users.get(f"{root}/{_blob_owner(item.name)}") or set()
            stays = sorted(version for owner, version in used if (owner, version) not in doomed)
            if stays:
                self._row(item, chain, f"version {stays[-1]} uses it")
            elif (chain[0] == MANIFEST_DIR and used) or used & self.pins.published:
                self._row(item, chain, None)
            elif used:
                # Undone effects: their writer may be alive and about to publish the same files again.
                self._orphan(item, table=chain[0], branch=chain[1] or MAIN, what="no published version used it")
            elif top not in _FOLDERS or (top == "_versions" and not name.startswith(DETACHED)):
                self._row(item, chain, "not a file of a version")
            else:
                self._orphan(item, table=chain[0], branch=chain[1] or MAIN, what="no version uses it")

    def _orphan(self, item: StoredObject, *, table: str, branch: str, what: str) -> None:
        age = max(ORPHAN_AGE, self.retention.older_than or ORPHAN_AGE)
        old = self._before(item, age)
        why = what if old else f"{what}, but it is younger than {age}: its writer may be at work"
        action: Literal["delete", "keep"] = "delete" if old else "keep"
        self.rows.append(CleanupRow(table, branch, "file", item.name, item.size, action, why, orphan=True))

    def _row(self, item: StoredObject, chain: Chain, why: str | None, *, version: int | None = None) -> None:
        path, branch = chain
        gone = "no retained graph version reads it"
        self.rows.append(
            CleanupRow(
                table=path,
                branch=branch or MAIN,
                kind="file" if version is None else "version",
                path=item.name,
                bytes=item.size,
                action="delete" if why is None else "keep",
                why=why or gone,
                version=version,
            )
        )


@dataclass(slots=True)
class Deletion:
    """Acts on a survey."""

    reader: GraphReader
    survey: Survey
    io: CopyingIO  # what the survey read
    progress: Callable[[str], None] | None = None

    def run(self) -> None:
        """Fence and raise the boundary of every branch; only then delete."""
        for branch, version in sorted(self.survey.pins.boundaries.items()):
            self._raise(branch, version)
        doomed = [row for row in self.survey.rows if row.action == "delete"]
        for kind in ("version", "file"):
            chosen = [row for row in doomed if row.kind == kind]
            # Oldest first: what is left after a crash is the newer part of the chain.
            chosen.sort(key=lambda row: (row.table, row.branch, row.version or 0))
            for at in range(0, len(chosen), _BATCH):
                part = chosen[at : at + _BATCH]
                run_parallel([partial(self.reader.objects.delete, join(self.reader.root, row.path)) for row in part])
                if self.progress is not None:
                    self.progress(f"deleted {at + len(part)} of {len(chosen)} {kind}s")

    def _raise(self, branch: str, version: int) -> None:
        chain: Chain = (MANIFEST_DIR, stored_branch(branch))
        rows = self.survey.rows
        if any(r.action == "delete" and (r.table, r.branch) == (MANIFEST_DIR, branch) for r in rows):
            self._fence(branch)
        size = self.survey.sizes.get(chain, {}).get(version, 0)
        now = self.reader.io.seams.now_micros()
        found = raise_boundary(
            self.reader.objects, self.reader.root, branch=branch, version=version, size=size, now=now
        )
        log.info("cleanup boundary branch=%s version=%s", branch, found)

    def _fence(self, branch: str) -> None:
        seams = self.reader.io.seams
        for attempt in range(_MOST_FENCES):
            # The version the survey saw is at hand; the fence loses if it is not the newest any more.
            dataset = self._seen(branch) if attempt == 0 else self.reader.manifest.open_dataset(branch=branch)
            with contextlib.suppress(LanceConflictError):
                fence(self.reader.io, dataset, table=MANIFEST)
                return
            seams.wait(seams.jitter(attempt=attempt))
        raise StorageError(
            f"Writers on branch {branch!r} were faster {_MOST_FENCES} times; nothing was deleted", retryable=True
        )

    def _seen(self, branch: str) -> lance.LanceDataset:
        return self.io.open(branch_uri(self.reader.manifest.uri, stored_branch(branch)), table=MANIFEST)


_BATCH = 64


def _folder(chain: Chain) -> str:
    return branch_uri(chain[0], chain[1])


def _manifests(chain: Chain, listed: Sequence[StoredObject]) -> Iterator[tuple[int, StoredObject]]:
    prefix = f"{_folder(chain)}/_versions/"
    for item in listed:
        version = version_of(item.name.removeprefix(prefix)) if item.name.startswith(prefix) else None
        if version is not None:
            yield version, item


def _chain_of(item: StoredObject, chains: Sequence[Chain]) -> Chain:
    """Return the branch whose directory holds a file; the deepest one, because branches may nest by name."""
    inside = [chain for chain in chains if item.name.startswith(f"{_folder(chain)}/")]
    return max(inside, key=lambda chain: len(_folder(chain)))


def _blob_owner(name: str) -> str:
    """Return the data file a blob file belongs to: ``data/<name>/x.blob`` is part of ``data/<name>.lance``."""
    return f"{name.rpartition('/')[0]}.lance"
