"""Values the public API returns: commits, branches, tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from omnigraph_spark.manifest.rows import CommitRow, optional_text


@dataclass(frozen=True, slots=True)
class TableInfo:
    """One table of a graph version."""

    key: str
    kind: str
    type: str
    version: int
    rows: int
    branch: str | None
    path: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch, where it left its parent, and its newest commit."""

    name: str
    parent: str | None
    parent_version: int | None
    graph_version: int
    head: str | None


@dataclass(frozen=True, slots=True)
class Commit:
    """A graph commit: what it is, who made it, which tables it moved, what it cost."""

    id: str
    parent: str | None
    merged_parent: str | None
    branch: str
    graph_version: int
    actor: str | None
    message: str | None
    created_at: datetime
    tables: Mapping[str, int] = field(default_factory=dict)
    epoch: int | None = None
    operation_id: str | None = None
    storage_ops: int | None = None
    storage_stages: int | None = None
    phase_seconds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, row: CommitRow) -> Commit:
        """Read a commit from its manifest row."""
        extra = row.extra
        epoch = extra.get("epoch")
        tables = extra.get("tables")
        return cls(
            id=row.commit_id,
            parent=row.parent,
            merged_parent=row.merged_parent,
            branch=row.branch,
            graph_version=row.graph_version,
            actor=row.actor,
            message=optional_text(extra.get("message")),
            created_at=datetime.fromtimestamp(row.created_at / 1_000_000, tz=timezone.utc),
            tables={str(k): int(v) for k, v in tables.items()} if isinstance(tables, dict) else {},
            epoch=epoch if isinstance(epoch, int) else None,
            operation_id=optional_text(extra.get("operation_id")),
        )

    def with_costs(self, *, storage_ops: int, storage_stages: int, phase_seconds: Mapping[str, float]) -> Commit:
        """Return the commit with what making it cost this process."""
        return replace(self, storage_ops=storage_ops, storage_stages=storage_stages, phase_seconds=phase_seconds)
