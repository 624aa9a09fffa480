"""From (branch, version | timestamp | commit) to one pinned snapshot of the graph.

Everything a reader uses afterwards is in the snapshot, so a DataFrame sees one graph version for its whole life
(INV-14). The schema contract and the manifest are independent, so they are fetched at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial

import lance

from omnigraph_spark.errors import NotFoundError, OptionError, StorageNotFoundError
from omnigraph_spark.manifest.layout import MAIN, STAMP_KEY, branch_uri, layout_for
from omnigraph_spark.manifest.rows import CommitRow
from omnigraph_spark.manifest.state import GraphState, TableEntry
from omnigraph_spark.manifest.store import ManifestStore, OpenManifest, normalize_branch
from omnigraph_spark.schema.catalog import Catalog
from omnigraph_spark.schema.contract import CONTRACT_FILES, Contract, check_contract
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.counters import OpCounter
from omnigraph_spark.storage.lance_io import LanceIO, schema_metadata
from omnigraph_spark.storage.locations import join, normalize_root
from omnigraph_spark.storage.objects import ObjectStore
from omnigraph_spark.storage.parallel import Together, run_parallel
from omnigraph_spark.storage.seams import DEFAULT_SEAMS, Seams


@dataclass(frozen=True, slots=True)
class Moment:
    """Which graph version a caller asked for; nothing set means the latest."""

    branch: str = MAIN
    version: int | None = None
    timestamp: int | None = None
    commit: str | None = None

    def __post_init__(self) -> None:
        given = [n for n in ("version", "timestamp", "commit") if getattr(self, n) is not None]
        if len(given) > 1:
            names = {"version": "versionAsOf", "timestamp": "timestampAsOf", "commit": "commit"}
            both = " and ".join(names[n] for n in given)
            raise OptionError(f"{both} exclude each other", hint="Give only one of them.")

    @property
    def is_latest(self) -> bool:
        """True when nothing but a branch is named."""
        return self.version is None and self.timestamp is None and self.commit is None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One graph version: where every table is, and the schema that describes it."""

    root: str
    branch: str
    graph_version: int
    head: CommitRow | None
    tables: Mapping[str, TableEntry]
    catalog: Catalog

    def entry(self, table_key: str) -> TableEntry:
        """Return a table's entry; a type of the schema without one does not exist at this version."""
        found = self.tables.get(table_key)
        if found is None:
            raise NotFoundError(
                f"{table_key} does not exist in graph version {self.graph_version} of branch {self.branch!r}",
                hint="Read a version in which the type exists.",
            )
        return found

    def table_uri(self, entry: TableEntry) -> str:
        """Return the dataset URI of a table."""
        return branch_uri(join(self.root, entry.path), entry.branch)


@dataclass(slots=True)
class GraphReader:
    """Opens a graph for one operation: storage access, counters and the manifest."""

    root: str
    io: LanceIO
    objects: ObjectStore
    manifest: ManifestStore

    @classmethod
    def begin(cls, uri: str, config: StorageConfig, *, seams: Seams = DEFAULT_SEAMS) -> GraphReader:
        """Start an operation on a graph with fresh counters."""
        root = normalize_root(uri)
        io = LanceIO(config, counter=OpCounter(), seams=seams)
        objects = ObjectStore(config, counter=io.counter, seams=seams)
        return cls(root, io, objects, ManifestStore(root, io=io, objects=objects))

    def resolve(self, moment: Moment) -> tuple[Snapshot, GraphState]:
        """Resolve a moment to its snapshot, with the folded manifest it came from."""
        branch = normalize_branch(moment.branch)
        with Together() as group:
            files = [group.start(partial(self._read_text, name)) for name in CONTRACT_FILES]
            opening = group.start(lambda: self._manifest_at(branch, moment.version))
        opened = opening.result()
        contract = self._check_contract([f.result() for f in files])
        if moment.timestamp is not None or moment.commit is not None:
            commit = self._find_commit(opened.state, moment)
            opened = self.manifest.open(branch=commit.branch, version=commit.graph_version, layout=opened.state.layout)
        return self.snapshot_of(opened.state, contract.catalog, branch=branch), opened.state

    def snapshot_of(self, state: GraphState, catalog: Catalog, *, branch: str) -> Snapshot:
        """Wrap a folded state."""
        return Snapshot(self.root, branch, state.graph_version, state.head, state.tables, catalog)

    def contract(self) -> Contract:
        """Read and check the schema contract alone."""
        jobs = [partial(self._read_text, name) for name in CONTRACT_FILES]
        return self._check_contract(run_parallel(jobs, counter=self.io.counter))

    def open_table(self, snapshot: Snapshot, entry: TableEntry) -> lance.LanceDataset:
        """Open a table at the version the snapshot pins."""
        uri = snapshot.table_uri(entry)
        try:
            return self.io.open(uri, table=entry.table_key, version=entry.version)
        except StorageNotFoundError as e:
            raise StorageNotFoundError(
                f"{entry.table_key} version {entry.version} is part of graph version {snapshot.graph_version}"
                f" but storage has no such dataset at {uri}",
                hint="Restore the directory from a backup, or read another graph version; verify() lists all losses.",
            ) from e

    def _manifest_at(self, branch: str, version: int | None) -> OpenManifest:
        if version is None:
            return self.manifest.open(branch=branch)
        latest = self.manifest.open_dataset(branch=branch)
        layout = layout_for(schema_metadata(latest).get(STAMP_KEY))
        return self.manifest.open(branch=branch, version=version, layout=layout)

    def _read_text(self, name: str) -> str | None:
        try:
            return self.objects.read(join(self.root, name)).data.decode("utf-8", errors="replace")
        except StorageNotFoundError:
            return None

    def _check_contract(self, texts: list[str | None]) -> Contract:
        pg, ir, state = texts
        # Only a contract whose two JSON files are both gone needs to know about branches (format §6.10).
        derived = pg is not None and ir is None and state is None
        others = derived and len(self.manifest.branches()) > 1
        return check_contract(pg, ir, state, other_branches=others)

    def _find_commit(self, state: GraphState, moment: Moment) -> CommitRow:
        if moment.commit is not None:
            return self._commit_by_id(state, moment.commit)
        commits = state.commits()
        wanted = moment.timestamp or 0
        found = [c for c in commits if c.created_at <= wanted]
        if not found:
            first = f"the first commit is of {_iso(commits[0].created_at)}" if commits else "it has no commits"
            raise NotFoundError(
                f"Branch {state.branch!r} has no commit at or before {_iso(wanted)}: {first}",
                hint="Choose a later time.",
            )
        return found[-1]

    def _commit_by_id(self, state: GraphState, commit_id: str) -> CommitRow:
        found = state.commit(commit_id)
        if found is not None:
            return found
        for branch in self.manifest.branches():
            if branch.name != state.branch:
                found = self.manifest.open(branch=branch.name).state.commit(commit_id)
                if found is not None:
                    return found
        raise NotFoundError(
            f"No branch of {self.root} has a commit {commit_id!r}", hint="Choose a commit from history()."
        )


def _iso(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1_000_000, tz=timezone.utc).isoformat()
