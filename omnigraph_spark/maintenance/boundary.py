"""What cleanup must leave: the retained graph versions of every branch, and every table version any of them reads.

A graph version is retained when it is newer than ``older_than`` or among the last ``keep``; so a branch retains a run
of versions up to its newest, and in each table it owns everything from the version the oldest of them reads. From
tables it never forked it reads single versions of its parent, which stay too. Tags, stream tokens and the points where
branches left their parents are single versions that stay whatever their age.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow.compute as pc

from omnigraph_spark.errors import NotFoundError, OptionError
from omnigraph_spark.manifest import rows as kinds
from omnigraph_spark.manifest.boundary import BOUNDARY_TAG, read_boundary
from omnigraph_spark.manifest.layout import MAIN, MANIFEST_DIR
from omnigraph_spark.manifest.rows import CommitRow, stored_branch
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.manifest.store import BranchRef
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.lance_files import named_versions

Chain = tuple[str, str | None]  # a dataset's path below the graph root, and its Lance branch (None is main)


@dataclass(frozen=True, slots=True)
class Retention:
    """How much history stays."""

    older_than: timedelta | None = None
    keep: int | None = None

    @classmethod
    def checked(cls, *, older_than: timedelta | float | None, keep: int | None, floor: float) -> Retention:
        """Refuse no policy, and one that could delete what a living writer still depends on."""
        if older_than is None and keep is None:
            raise OptionError(
                "cleanup needs a policy: older_than, keep, or both",
                hint="For example cleanup(older_than=timedelta(days=7), keep=10).",
            )
        if keep is not None and keep < 1:
            raise OptionError(f"keep must be at least 1, but is {keep}", hint="The newest version always stays.")
        age = timedelta(seconds=older_than) if isinstance(older_than, (int, float)) else older_than
        if age is not None and age.total_seconds() < floor:
            raise OptionError(
                f"older_than is {age.total_seconds():g} s, below the safe floor of {floor:g} s",
                hint="The floor is the window timeout plus the grace: a stalled writer may still depend on that much.",
            )
        return cls(age, keep)

    def oldest(self, commits: Sequence[CommitRow], *, now: int) -> int | None:
        """Return the oldest retained graph version of a branch's commits (oldest first); None without commits."""
        kept = list(commits[-self.keep :]) if self.keep is not None else []
        if self.older_than is not None:
            cutoff = now - int(self.older_than.total_seconds() * 1_000_000)
            kept += [c for c in commits if c.created_at > cutoff]
        kept += commits[-1:]
        return min((c.graph_version for c in kept), default=None)


@dataclass(slots=True)
class Pins:
    """Versions that stay, with the reason."""

    since: dict[Chain, tuple[int, str]] = field(default_factory=dict)  # every version from here on
    points: dict[Chain, dict[int, str]] = field(default_factory=dict)
    boundaries: dict[str, int] = field(default_factory=dict)  # by graph branch: the oldest retained manifest version
    tables: set[str] = field(default_factory=set)  # paths of all tables any branch knows
    published: set[tuple[Chain, int]] = field(default_factory=set)  # table versions any branch ever published

    def from_on(self, chain: Chain, version: int, why: str) -> None:
        """Keep a version and all after it."""
        if chain not in self.since or version < self.since[chain][0]:
            self.since[chain] = (version, why)

    def point(self, chain: Chain, version: int, why: str) -> None:
        """Keep one version."""
        self.points.setdefault(chain, {}).setdefault(version, why)

    def reason(self, chain: Chain, version: int) -> str | None:
        """Say why a version stays, or None."""
        first = self.since.get(chain)
        if first is None:
            return "no branch publishes from here"
        if version >= first[0]:
            return first[1]
        return self.points.get(chain, {}).get(version)


@dataclass(slots=True)
class PinSurvey:
    """Collects the pins of one graph: two folds a branch, one more for each token or tag below them."""

    reader: GraphReader
    retention: Retention
    now: int
    pins: Pins = field(default_factory=Pins)
    _refs: dict[str, BranchRef] = field(default_factory=dict)

    def run(self) -> Pins:
        """Look at every branch, then at tags."""
        self._refs = {ref.name: ref for ref in self.reader.manifest.branches()}
        for ref in self._refs.values():
            self._branch(ref)
        for tag in named_versions(self.reader.manifest.open_dataset(branch=MAIN)):
            if tag.name != BOUNDARY_TAG:
                self._single(tag.branch or MAIN, tag.version, f"tag {tag.name!r}")
        return self.pins

    def _branch(self, ref: BranchRef) -> None:
        state = self.reader.manifest.open(branch=ref.name).state
        wanted = self.retention.oldest(state.commits(), now=self.now)
        first = self._existing(ref, min(wanted or state.graph_version, state.graph_version))
        then = state if first == state.graph_version else self._at(ref.name, first, state)
        self._manifest_chain(ref, first)
        self._tables(ref, state, then)
        self._tokens(ref, state, first)

    def _at(self, branch: str, version: int, state: GraphState) -> GraphState:
        return self.reader.manifest.open(branch=branch, version=version, layout=state.layout).state

    def _lineage(self, ref: BranchRef) -> Iterator[tuple[BranchRef, int]]:
        """Yield a branch and its ancestors, each with the version it starts at."""
        while True:
            yield ref, ref.parent_version or 0
            if ref.parent is None or ref.parent not in self._refs:
                return
            ref = self._refs[ref.parent]

    def _existing(self, ref: BranchRef, wanted: int) -> int:
        """Return the oldest version from the wanted one on that no earlier cleanup has taken."""
        below: int | None = None  # where the branch below starts
        for owner, start in self._lineage(ref):
            if wanted >= start:
                floor = read_boundary(self.reader.objects, self.reader.root, branch=owner.name)
                found = max(wanted, floor)
                return found if below is None else min(found, below)
            below = start
        return wanted

    def _manifest_chain(self, ref: BranchRef, first: int) -> None:
        why = f"a retained graph version of branch {ref.name!r}"
        upto: int | None = None
        for owner, start in self._lineage(ref):
            chain = (MANIFEST_DIR, stored_branch(owner.name))
            low = max(first, start)
            if upto is None:
                self.pins.from_on(chain, low, why)
                self.pins.boundaries[owner.name] = low
            else:
                self.pins.point(chain, upto, f"branch {ref.name!r} starts here")
                for version in range(low, upto):
                    self.pins.point(chain, version, why)
            upto = start
            if first >= start and owner is not ref:
                return

    def _tables(self, ref: BranchRef, state: GraphState, then: GraphState) -> None:
        own = stored_branch(ref.name)
        self.pins.tables |= set(state.registered.values())
        chosen = state.rows.filter(pc.equal(state.rows["object_type"], kinds.TABLE_VERSION))
        columns = (chosen[name].to_pylist() for name in ("table_key", "table_version", "table_branch"))
        for key, version, branch in zip(*columns, strict=True):
            entry = then.tables.get(key)
            low = entry.version if entry is not None else then.tombstones.get(key, -1) + 1
            chain, why = (state.registered[key], branch), f"a retained graph version of branch {ref.name!r} reads it"
            self.pins.published.add((chain, int(version)))
            if version < low:
                continue
            if branch == own:
                self.pins.from_on(chain, int(version), why)
            else:
                self.pins.point(chain, int(version), why)

    def _tokens(self, ref: BranchRef, state: GraphState, first: int) -> None:
        chosen = state.rows.filter(pc.equal(state.rows["object_type"], kinds.STREAM_TXN))
        for object_id, metadata in zip(chosen["object_id"].to_pylist(), chosen["metadata"].to_pylist(), strict=True):
            commit = state.commit(str(kinds.load_json(metadata, object_id=object_id).get("commit_id")))
            if commit is not None and commit.graph_version < first:
                self._single(ref.name, commit.graph_version, f"token {object_id!r}")

    def _single(self, branch: str, version: int, why: str) -> None:
        """Keep one graph version with everything it reads; one that is gone already pins nothing."""
        if branch not in self._refs:
            return
        with contextlib.suppress(NotFoundError):
            state = self.reader.manifest.open(branch=branch).state
            state = self._at(branch, version, state)
            for owner, start in self._lineage(self._refs[branch]):
                if version >= start:
                    self.pins.point((MANIFEST_DIR, stored_branch(owner.name)), version, why)
                    break
            for entry in state.tables.values():
                self.pins.point((entry.path, entry.branch), entry.version, why)
