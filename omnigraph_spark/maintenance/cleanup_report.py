"""What cleanup would delete, or has deleted: one row for each version and each file, with its reason."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

_ROWS = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("branch", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("path", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("action", pa.string()),
        pa.field("why", pa.string()),
    ]
)
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class CleanupRow:
    """One version or file of one dataset: ``path`` is below the graph root."""

    table: str
    branch: str
    kind: Literal["version", "file"]
    path: str
    bytes: int
    action: Literal["delete", "keep"]
    why: str
    version: int | None = None
    orphan: bool = False  # a file that no version uses

    @property
    def reason(self) -> str:
        """``delete``, or ``keep:`` and why."""
        return self.action if self.action == "delete" else f"keep: {self.why}"


@dataclass(frozen=True, slots=True, repr=False)
class CleanupReport:
    """The rows, and whether they were acted on."""

    uri: str
    dry_run: bool
    rows: tuple[CleanupRow, ...]
    boundaries: Mapping[str, int] = field(default_factory=dict)  # branch → oldest graph version that stays

    @property
    def deleted(self) -> list[CleanupRow]:
        """What goes."""
        return [row for row in self.rows if row.action == "delete"]

    @property
    def versions_deleted(self) -> int:
        """How many versions go."""
        return sum(row.kind == "version" for row in self.deleted)

    @property
    def files_deleted(self) -> int:
        """How many files go, manifests of versions apart."""
        return sum(row.kind == "file" for row in self.deleted)

    @property
    def bytes_deleted(self) -> int:
        """How many bytes go."""
        return sum(row.bytes for row in self.deleted)

    @property
    def bytes_kept(self) -> int:
        """How many bytes stay."""
        return sum(row.bytes for row in self.rows if row.action == "keep")

    def to_arrow(self) -> pa.Table:
        """Return one row for each version and file."""
        return pa.Table.from_pylist([{f.name: getattr(row, f.name) for f in _ROWS} for row in self.rows], schema=_ROWS)

    def __repr__(self) -> str:
        lines = [self._headline()]
        lines += [f"  {row.reason} {row.kind} {row.path} ({row.bytes} bytes)" for row in self.deleted[:_SHOWN]]
        more = len(self.deleted) - _SHOWN
        return "\n".join([*lines, f"  ... and {more} more"] if more > 0 else lines)

    def _repr_html_(self) -> str:
        cells = ("action", "kind", "table", "branch", "path", "bytes", "why")
        head = "".join(f"<th>{name}</th>" for name in cells)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(getattr(row, name)))}</td>" for name in cells) + "</tr>"
            for row in self.deleted[:_SHOWN]
        )
        return f"<p>{html.escape(self._headline())}</p><table><tr>{head}</tr>{body}</table>"

    def _headline(self) -> str:
        verb = "would delete" if self.dry_run else "deleted"
        stays = ", ".join(f"{branch} from version {version}" for branch, version in sorted(self.boundaries.items()))
        return (
            f"cleanup of {self.uri} {verb} {self.versions_deleted} versions and {self.files_deleted} files, "
            f"{self.bytes_deleted} bytes; {self.bytes_kept} bytes stay ({stays})"
        )
