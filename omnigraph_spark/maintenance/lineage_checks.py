"""Checks of one manifest version by itself: its rows, the chain of commits, the head, the epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.maintenance.report import SHOWN, CheckRun, Examination, Reporting
from omnigraph_spark.manifest import rows as kinds
from omnigraph_spark.manifest.rows import CommitRow, ManifestRow, decode_commit, load_json
from omnigraph_spark.manifest.state import GraphState

Commits = Mapping[str, CommitRow]


def lineage_checks(state: GraphState) -> list[CheckRun]:
    """Run every check that needs nothing but the rows of a manifest version."""
    decoding = Examination("commit-rows", branch=state.branch)
    found: list[CommitRow] = []
    for row in _of_kind(state.rows, kinds.GRAPH_COMMIT):
        decoding.look()
        with Reporting(decoding, subject=row.object_id):
            found.append(decode_commit(row))
    commits = {c.commit_id: c for c in sorted(found, key=CommitRow.order)}
    return [
        _object_ids(state),
        decoding.done(),
        _parents(state, commits),
        _acyclic(state, commits),
        _linear(state, commits),
        _versions(state, commits),
        _head(state, commits),
        _commit_tables(state, commits),
        _epoch(state),
    ]


def _object_ids(state: GraphState) -> CheckRun:
    exam = Examination("object-ids", branch=state.branch)
    exam.look(state.rows.num_rows)
    counted = state.rows.group_by("object_id").aggregate([([], "count_all")])
    doubled = counted.filter(pc.greater(counted["count_all"], 1))
    for row in doubled.slice(0, SHOWN).to_pylist():
        name = str(row["object_id"])
        exam.error(name, f"__manifest holds {row['count_all']} rows with the object_id {name!r}")
    exam.more(max(0, doubled.num_rows - SHOWN))
    return exam.done()


def _parents(state: GraphState, commits: Commits) -> CheckRun:
    exam = Examination("lineage-parents", branch=state.branch)
    for commit in commits.values():
        exam.look()
        if commit.parent is not None and commit.parent not in commits:
            exam.error(commit.commit_id, f"Commit {commit.commit_id} has a parent {commit.parent} that is not visible")
    return exam.done()


def _acyclic(state: GraphState, commits: Commits) -> CheckRun:
    exam = Examination("lineage-acyclic", branch=state.branch)
    exam.look(len(commits))
    settled: set[str] = set()
    for start in commits:
        path: dict[str, None] = {}
        at: str | None = start
        while at is not None and at in commits and at not in settled and at not in path:
            path[at] = None
            at = commits[at].parent
        if at in path:
            exam.error(str(at), f"Commit {at} is its own ancestor")
        settled.update(path)
    return exam.done()


def _linear(state: GraphState, commits: Commits) -> CheckRun:
    """One chain: a commit has at most one child on each branch, and only one commit has no parent."""
    exam = Examination("lineage-linear", branch=state.branch)
    exam.look(len(commits))
    children = Counter((c.parent, c.branch) for c in commits.values())
    for (parent, branch), count in children.items():
        if parent is None:
            continue
        if count > 1:
            names = ", ".join(c.commit_id for c in commits.values() if (c.parent, c.branch) == (parent, branch))
            exam.error(parent, f"Commit {parent} has {count} children on branch {branch!r}: {names}")
    roots = [c.commit_id for c in commits.values() if c.parent is None]
    if len(roots) > 1:
        exam.error(roots[1], f"{len(roots)} commits have no parent: {', '.join(roots[:SHOWN])}")
    return exam.done()


def _versions(state: GraphState, commits: Commits) -> CheckRun:
    exam = Examination("lineage-versions", branch=state.branch)
    for commit in commits.values():
        exam.look()
        parent = commits.get(commit.parent or "")
        if parent is not None and parent.graph_version >= commit.graph_version:
            exam.error(
                commit.commit_id,
                f"Commit {commit.commit_id} made graph version {commit.graph_version},"
                f" not above {parent.graph_version} of its parent {parent.commit_id}",
            )
        if commit.graph_version > state.graph_version:
            exam.error(
                commit.commit_id,
                f"Commit {commit.commit_id} names graph version {commit.graph_version},"
                f" but __manifest is at {state.graph_version}",
            )
    return exam.done()


def _head(state: GraphState, commits: Commits) -> CheckRun:
    """The newest commit is the end of the chain, and the head row names it."""
    exam = Examination("lineage-head", branch=state.branch)
    exam.look()
    head = state.head
    if head is None:
        exam.error("", f"Branch {state.branch!r} has no commit")
        return exam.done()
    later = [c.commit_id for c in commits.values() if c.parent == head.commit_id]
    if later:
        exam.error(head.commit_id, f"The newest commit {head.commit_id} is the parent of {', '.join(later)}")
    name = f"graph_head:{state.branch}"
    rows = [r for r in _of_kind(state.rows, kinds.GRAPH_HEAD) if r.object_id == name]
    # A branch that has not been written yet inherits its commits and has no head row of its own.
    if not rows and head.branch == state.branch:
        exam.error(name, f"The row {name!r} is missing")
    for row in rows:
        exam.look()
        with Reporting(exam, subject=name):
            told = load_json(row.metadata, object_id=name).get("head_commit_id")
            if told != head.commit_id:
                exam.error(name, f"{name!r} names {told!r}, but the newest commit is {head.commit_id}")
    return exam.done()


def _commit_tables(state: GraphState, commits: Commits) -> CheckRun:
    """Every table version a commit says it published has its row, and no pin lies below a commit's."""
    exam = Examination("commit-tables", branch=state.branch)
    published = {key: state.published_versions(key) for key in state.registered}
    for commit in commits.values():
        tables = commit.extra.get("tables")
        for key, version in sorted(tables.items()) if isinstance(tables, dict) else ():
            exam.look()
            if not isinstance(version, int) or version not in published.get(key, ()):
                exam.error(
                    commit.commit_id, f"Commit {commit.commit_id} published {key} version {version}, which has no row"
                )
    for key, entry in state.tables.items():
        exam.look()
        if entry.version not in published.get(key, ()):
            exam.error(key, f"{key} is pinned to version {entry.version}, which was never published")
    return exam.done()


def _epoch(state: GraphState) -> CheckRun:
    exam = Examination("epoch", branch=state.branch, subject=f"writer_epoch:{state.branch}")
    for row in _of_kind(state.rows, kinds.WRITER_EPOCH):
        if row.object_id != exam.subject:
            continue
        exam.look()
        with Reporting(exam):
            told = load_json(row.metadata, object_id=row.object_id)
            owner, inside, since = told.get("operation_id"), told.get("in_window"), told.get("claimed_at")
            if not isinstance(owner, str) or not isinstance(inside, bool) or not isinstance(since, int):
                exam.error(exam.subject, f"{exam.subject!r} does not say who is in the write window: {row.metadata}")
            elif not row.table_version:
                exam.error(exam.subject, f"{exam.subject!r} has no epoch number")
            elif inside:
                exam.warn(
                    exam.subject,
                    f"A writer is in the window: epoch {row.table_version}, operation {owner},"
                    f" since {utc(since)}; it may be alive, else the next write recovers it",
                )
    return exam.done()


def utc(micros: int) -> str:
    """Return a time as people read it; a number no calendar has is shown as it is."""
    try:
        return datetime.fromtimestamp(micros / 1_000_000, tz=timezone.utc).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return str(micros)


def _of_kind(rows: pa.Table, kind: str) -> Iterator[ManifestRow]:
    names = [f.name for f in rows.schema if f.name != "base_objects"]
    for values in rows.filter(pc.equal(rows["object_type"], kind)).select(names).to_pylist():
        yield ManifestRow(**values)
