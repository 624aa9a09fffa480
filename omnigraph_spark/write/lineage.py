"""Rows of one publish: table versions, the commit, its head, the epoch and the token, always together (INV-04)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from omnigraph_spark.manifest.layout import branch_uri, manifest_file_path
from omnigraph_spark.manifest.rows import (
    CommitRow,
    EpochRow,
    ManifestRow,
    commit_rows,
    epoch_row,
    token_row,
    version_row,
)
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.storage.locations import join, object_path
from omnigraph_spark.write.effect import MovedTable
from omnigraph_spark.write.plan import PublishPlan

RECOVERY_ACTOR = "omnigraph:recovery"
RECOVERY_OF = "recovery_of"
RECOVERY_KIND = "recovery_kind"


@dataclass(frozen=True, slots=True)
class PublishedCommit:
    """What a publish leaves behind: the commit's row, and how the caller came to it."""

    row: CommitRow
    repeated: bool = False  # an idempotent repeat: this commit was made by an earlier run
    attempts: int = 1
    storage_ops: int = 0
    storage_stages: int = 0
    phase_seconds: Mapping[str, float] = field(default_factory=dict)


def commit_of_plan(
    plan: PublishPlan, state: GraphState, *, epoch: EpochRow, created_at: int, moved: Mapping[str, MovedTable]
) -> CommitRow:
    """Return the commit a plan makes on top of a state."""
    extra: dict[str, object] = {
        "epoch": epoch.number,
        "operation_id": plan.operation_id,
        "message": plan.message,
        "user_metadata": plan.user_metadata,
        "app_id": plan.token.app_id if plan.token else None,
        "txn_version": plan.token.txn_version if plan.token else None,
        "tables": {key: m.version for key, m in sorted(moved.items())},
        "stats": {k: dict(v) for k, v in sorted(plan.stats.items())} or None,
    }
    return CommitRow(
        commit_id=plan.commit_id,
        branch=plan.branch,
        graph_version=state.graph_version + 1,
        created_at=created_at,
        parent=state.head.commit_id if state.head else None,
        actor=plan.actor,
        extra={k: v for k, v in extra.items() if v is not None},
    )


def publish_rows(
    root: str, state: GraphState, commit: CommitRow, *, moved: Iterable[MovedTable], epoch: EpochRow
) -> list[ManifestRow]:
    """Return every row of a publish, in the order OmniGraph writes them."""
    rows = [_version(root, state, m) for m in moved]
    return [*rows, *commit_rows(commit), epoch_row(epoch)]


def _version(root: str, state: GraphState, moved: MovedTable) -> ManifestRow:
    path = object_path(branch_uri(join(root, moved.path), moved.branch))
    return version_row(
        state.layout,
        moved.table_key,
        version=moved.version,
        rows=moved.rows,
        branch=moved.branch,
        manifest_path=manifest_file_path(path, moved.version),
    )


def rows_of_plan(
    root: str, plan: PublishPlan, state: GraphState, *, commit: CommitRow, moved: Iterable[MovedTable], epoch: EpochRow
) -> list[ManifestRow]:
    """Return the rows of a plan's publish, its token included."""
    rows = publish_rows(root, state, commit, moved=moved, epoch=epoch)
    if plan.token is not None:
        rows.append(token_row(replace(plan.token, branch=plan.branch, commit_id=plan.commit_id)))
    return rows
