"""``PublishPlan``: everything one graph commit will do, as a value; serialised it *is* the recovery sidecar.

The sidecar is one JSON document a person can read after a crash: the keys OmniGraph 0.8 knows, plus ``plan``. Recovery
runs the same plan the writer would have run, so there is nothing to keep in step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from omnigraph_spark.errors import RecoveryError
from omnigraph_spark.manifest.layout import MAIN, branch_uri
from omnigraph_spark.manifest.rows import TokenRow, optional_text
from omnigraph_spark.storage.locations import join
from omnigraph_spark.storage.seams import Seams
from omnigraph_spark.write.actions import OperationClass, TableAction, action_from_json, is_maintenance
from omnigraph_spark.write.txn import WriteTxn

SIDECAR_VERSION = 2  # the generation OmniGraph 0.8 writes and reads


@dataclass(frozen=True, slots=True)
class TablePin:
    """Where a planned table is and the version the plan starts from."""

    table_key: str
    path: str
    branch: str | None
    version: int
    rows: int

    def uri(self, root: str) -> str:
        """Return the dataset URI."""
        return branch_uri(join(root, self.path), self.branch)


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """One graph commit: base, actions, lineage intent and what must still hold."""

    operation_id: str
    commit_id: str
    branch: str
    base_version: int
    started_at: int
    pins: tuple[TablePin, ...]
    actions: tuple[TableAction, ...]
    strict: frozenset[str] = frozenset()
    read_set: Mapping[str, int] = field(default_factory=dict)
    actor: str | None = None
    message: str | None = None
    user_metadata: str | None = None
    token: TokenRow | None = None
    expected_version: int | None = None
    writer_kind: str = "Load"
    stats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def operation_class(self, table_key: str) -> OperationClass:
        """Say how this plan meets a concurrent change of a table."""
        if any(a.table_key == table_key and is_maintenance(a) for a in self.actions):
            return OperationClass.MAINTENANCE
        return OperationClass.STRICT if table_key in self.strict else OperationClass.ADDITIVE

    def pin(self, table_key: str) -> TablePin:
        """Return a planned table's pin."""
        return next(p for p in self.pins if p.table_key == table_key)

    def attempt(self, operation_id: str) -> PublishPlan:
        """Return the same logical write under a new operation id (the commit id stays)."""
        return replace(self, operation_id=operation_id)

    def repinned(self, pins: tuple[TablePin, ...]) -> PublishPlan:
        """Return the plan on top of newer versions of its tables."""
        return replace(self, pins=pins)


def empty_plan(seams: Seams, *, branch: str, actor: str | None) -> PublishPlan:
    """Return a plan that moves nothing: the record of somebody who enters the window only to recover."""
    return PublishPlan(
        operation_id=seams.new_id(),
        commit_id=seams.new_id(),
        branch=branch,
        base_version=0,
        started_at=seams.now_micros(),
        pins=(),
        actions=(),
        actor=actor,
    )


def pins_of(txn: WriteTxn, actions: tuple[TableAction, ...]) -> tuple[TablePin, ...]:
    """Pin the planned tables to the base."""
    entries = [txn.entry(a.table_key) for a in actions]
    return tuple(TablePin(e.table_key, e.path, e.branch, e.version, e.row_count) for e in entries)


def to_sidecar(plan: PublishPlan, *, root: str) -> bytes:
    """Render the sidecar document."""
    tables: list[dict[str, object]] = []
    for pin in plan.pins:
        # OmniGraph expects the plain dataset path here, never the tree/ path, and omits the branch for main.
        item: dict[str, object] = {
            "table_key": pin.table_key,
            "table_path": join(root, pin.path),
            "expected_version": pin.version,
            "post_commit_pin": pin.version + 1,
        }
        if pin.branch is not None:
            item["table_branch"] = pin.branch
        tables.append(item)
    document: dict[str, object] = {
        "schema_version": SIDECAR_VERSION,
        "operation_id": plan.operation_id,
        "started_at": str(plan.started_at),
        "branch": None if plan.branch == MAIN else plan.branch,
        "actor_id": plan.actor,
        "writer_kind": plan.writer_kind,
        "tables": tables,
        "plan": _plan_json(plan),
    }
    return json.dumps(document, indent=2, ensure_ascii=False).encode()


def _plan_json(plan: PublishPlan) -> dict[str, object]:
    token = plan.token
    return {
        "commit_id": plan.commit_id,
        "base_version": plan.base_version,
        "pins": [
            {"table_key": p.table_key, "path": p.path, "branch": p.branch, "version": p.version, "rows": p.rows}
            for p in plan.pins
        ],
        "actions": [a.to_json() for a in plan.actions],
        "strict": sorted(plan.strict),
        "read_set": dict(plan.read_set),
        "message": plan.message,
        "user_metadata": plan.user_metadata,
        "token": None if token is None else {"app_id": token.app_id, "txn_version": token.txn_version},
        "expected_version": plan.expected_version,
        "stats": {k: dict(v) for k, v in plan.stats.items()},
    }


def from_sidecar(document: Mapping[str, object]) -> PublishPlan:
    """Read a plan back from a sidecar of ours."""
    try:
        return _from_sidecar(document)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise RecoveryError(f"The recovery record {document.get('operation_id')!r} holds a damaged plan") from e


def _from_sidecar(document: Mapping[str, object]) -> PublishPlan:
    plan = document["plan"]
    if not isinstance(plan, dict):
        raise TypeError("plan is not an object")
    branch = optional_text(document.get("branch")) or MAIN
    token = plan.get("token")
    return PublishPlan(
        operation_id=str(document["operation_id"]),
        commit_id=str(plan["commit_id"]),
        branch=branch,
        base_version=int(plan["base_version"]),
        started_at=int(str(document.get("started_at", "0"))),
        pins=tuple(
            TablePin(p["table_key"], p["path"], p["branch"], int(p["version"]), int(p["rows"])) for p in plan["pins"]
        ),
        actions=tuple(action_from_json(a) for a in plan["actions"]),
        strict=frozenset(plan.get("strict", ())),
        read_set={str(k): int(v) for k, v in plan.get("read_set", {}).items()},
        actor=optional_text(document.get("actor_id")),
        message=plan.get("message"),
        user_metadata=plan.get("user_metadata"),
        token=None
        if token is None
        else TokenRow(branch, str(token["app_id"]), int(token["txn_version"]), str(plan["commit_id"])),
        expected_version=plan.get("expected_version"),
        writer_kind=str(document.get("writer_kind", "Load")),
        stats=plan.get("stats", {}),
    )
