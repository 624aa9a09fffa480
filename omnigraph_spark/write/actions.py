"""What a plan does to one table, as typed values; verbs are lowered to these and nothing else moves a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from omnigraph_spark.errors import RecoveryError
from omnigraph_spark.storage.lance_maintenance import RewritePiece
from omnigraph_spark.write.rowids import RowIds


class OperationClass(str, Enum):
    """How an operation meets a concurrent change of its table (one rule for every conflict)."""

    ADDITIVE = "additive"  # rebases over anything that did not touch what was validated
    STRICT = "strict"  # a logical advance of the table is a conflict
    MAINTENANCE = "maintenance"  # keeps every row; a change of what it stands on makes it plan anew


@dataclass(frozen=True, slots=True)
class MatchedFragment:
    """A staged fragment whose rows replace existing ones: row i takes over the stable row id ``rows.ids[i]``."""

    fragment: str
    rows: RowIds


@dataclass(frozen=True, slots=True)
class Append:
    """Add rows."""

    table_key: str
    fragments: tuple[str, ...]
    rows: int
    kind = "append"

    def to_json(self) -> dict[str, object]:
        """Encode for the sidecar."""
        return {"kind": self.kind, "table_key": self.table_key, "fragments": list(self.fragments), "rows": self.rows}


@dataclass(frozen=True, slots=True)
class Upsert:
    """Replace rows by id keeping their row ids, and add the rest."""

    table_key: str
    matched: tuple[MatchedFragment, ...]
    inserted: tuple[str, ...]
    rows: int
    kind = "upsert"

    def to_json(self) -> dict[str, object]:
        """Encode for the sidecar."""
        matched = [{"fragment": m.fragment, "rows": m.rows.to_json()} for m in self.matched]
        return {
            "kind": self.kind,
            "table_key": self.table_key,
            "matched": matched,
            "inserted": list(self.inserted),
            "rows": self.rows,
        }


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replace all rows of the table."""

    table_key: str
    fragments: tuple[str, ...]
    rows: int
    kind = "overwrite"

    def to_json(self) -> dict[str, object]:
        """Encode for the sidecar."""
        return {"kind": self.kind, "table_key": self.table_key, "fragments": list(self.fragments), "rows": self.rows}


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove rows."""

    table_key: str
    removed: RowIds = field(default_factory=RowIds.empty)
    kind = "delete"

    @property
    def rows(self) -> int:
        """How many rows go."""
        return len(self.removed)

    def to_json(self) -> dict[str, object]:
        """Encode for the sidecar."""
        return {"kind": self.kind, "table_key": self.table_key, "removed": self.removed.to_json()}


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Write the same rows into fewer fragments (compaction)."""

    table_key: str
    groups: tuple[RewritePiece, ...]
    kind = "rewrite"

    def to_json(self) -> dict[str, object]:
        """Encode for the sidecar."""
        groups = [{"old": list(g.old), "new": list(g.new)} for g in self.groups]
        return {"kind": self.kind, "table_key": self.table_key, "groups": groups}


@dataclass(frozen=True, slots=True)
class BuildIndex:
    """Add index parts built over the fragments in ``covers``, and remove the parts they replace."""

    table_key: str
    built: tuple[str, ...]
    removed: tuple[str, ...]
    covers: tuple[str, ...]
    kind = "build_index"

    def to_json(self) -> dict[str, object]:
        """Encode for the sidecar."""
        return {
            "kind": self.kind,
            "table_key": self.table_key,
            "built": list(self.built),
            "removed": list(self.removed),
            "covers": list(self.covers),
        }


TableAction = Append | Upsert | Overwrite | Delete | Rewrite | BuildIndex


def is_maintenance(action: TableAction) -> bool:
    """Say whether an action keeps every row as it is."""
    return isinstance(action, (Rewrite, BuildIndex))


def action_from_json(value: Mapping[str, object]) -> TableAction:
    """Decode an action from a sidecar."""
    kind, key = value.get("kind"), str(value.get("table_key"))
    rows = value.get("rows", 0)
    count = rows if isinstance(rows, int) else 0
    if kind == "append":
        return Append(key, _texts(value.get("fragments")), count)
    if kind == "overwrite":
        return Overwrite(key, _texts(value.get("fragments")), count)
    if kind == "delete":
        return Delete(key, _rows(value.get("removed")))
    if kind == "rewrite":
        pieces = value.get("groups")
        return Rewrite(
            key,
            tuple(RewritePiece(_texts(g["old"]), _texts(g["new"])) for g in pieces) if isinstance(pieces, list) else (),
        )
    if kind == "build_index":
        return BuildIndex(key, _texts(value.get("built")), _texts(value.get("removed")), _texts(value.get("covers")))
    if kind == "upsert":
        listed = value.get("matched")
        items = listed if isinstance(listed, list) else []
        matched = tuple(MatchedFragment(str(m["fragment"]), _rows(m["rows"])) for m in items)
        return Upsert(key, matched, _texts(value.get("inserted")), count)
    raise RecoveryError(f"The recovery record names an action {kind!r} this version does not know")


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(v) for v in value) if isinstance(value, list) else ()


def _rows(value: object) -> RowIds:
    return RowIds.from_json(value) if isinstance(value, dict) else RowIds.empty()


def staged_fragments(action: TableAction) -> tuple[str, ...]:
    """Return every staged fragment an action refers to."""
    if isinstance(action, (Append, Overwrite)):
        return action.fragments
    if isinstance(action, Upsert):
        return (*(m.fragment for m in action.matched), *action.inserted)
    if isinstance(action, Rewrite):
        return tuple(fragment for group in action.groups for fragment in group.new)
    return ()
