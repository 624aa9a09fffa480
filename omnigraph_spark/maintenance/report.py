"""What ``verify`` hands back: every check that ran, how much it looked at, and what it found.

Each check is filled by one thread and becomes a frozen value, so nothing is shared while tables are checked at once.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

import pyarrow as pa

from omnigraph_spark.errors import OmnigraphError, StorageForbiddenError, StorageUnreachableError

Severity = Literal["error", "warning"]
SHOWN = 20  # findings kept of one check; all are counted

_ROWS = pa.schema(
    [
        pa.field("check", pa.string()),
        pa.field("branch", pa.string()),
        pa.field("table_key", pa.string()),
        pa.field("examined", pa.int64()),
        pa.field("findings", pa.int64()),
        pa.field("severity", pa.string()),
        pa.field("subject", pa.string()),
        pa.field("message", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be."""

    check: str
    severity: Severity
    table_key: str
    branch: str
    subject: str
    message: str

    def order(self) -> tuple[str, str, str, str, str, str]:
        """Return what findings are sorted by: errors first, then by place."""
        return (self.severity, self.branch, self.table_key, self.check, self.subject, self.message)

    def __str__(self) -> str:
        where = f"{self.branch} {self.table_key}".strip()
        return f"{self.severity} {self.check} [{where}] {self.message}"


@dataclass(frozen=True, slots=True)
class CheckRun:
    """One check on one subject: how many things it examined and how many it found wrong."""

    name: str
    branch: str
    table_key: str
    subject: str
    examined: int
    findings: int
    shown: tuple[Finding, ...] = field(default=(), repr=False)


class Examination:
    """A check while it runs; belongs to one thread."""

    def __init__(self, name: str, *, branch: str, table_key: str = "", subject: str = "") -> None:
        self.name = name
        self.branch = branch
        self.table_key = table_key
        self.subject = subject
        self.examined = 0
        self.findings = 0
        self._shown: list[Finding] = []

    @property
    def room(self) -> int:
        """How many more findings will be kept."""
        return max(0, SHOWN - len(self._shown))

    def look(self, count: int = 1) -> None:
        """Count things that were examined."""
        self.examined += count

    def error(self, subject: str, message: str) -> None:
        """Record something that makes the graph unsound."""
        self._add("error", subject, message)

    def warn(self, subject: str, message: str) -> None:
        """Record something that may be harmless."""
        self._add("warning", subject, message)

    def more(self, count: int) -> None:
        """Count findings that are not listed one by one."""
        self.findings += count

    def done(self) -> CheckRun:
        """Return the finished check."""
        shown = tuple(sorted(self._shown, key=Finding.order))
        return CheckRun(self.name, self.branch, self.table_key, self.subject, self.examined, self.findings, shown)

    def _add(self, severity: Severity, subject: str, message: str) -> None:
        self.findings += 1
        if self.room:
            self._shown.append(Finding(self.name, severity, self.table_key, self.branch, subject, message))


class Reporting:
    """Turns a failure inside its block into a finding; only a store that does not answer or refuses us is raised."""

    def __init__(self, examination: Examination, *, subject: str = "") -> None:
        self._examination = examination
        self._subject = subject or examination.subject

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        unusable = isinstance(error, (StorageUnreachableError, StorageForbiddenError))
        if not isinstance(error, OmnigraphError) or unusable:
            return False
        self._examination.error(self._subject, error.message)
        return True


@dataclass(frozen=True, slots=True, repr=False)
class VerifyReport:
    """The evidence of one ``verify``: ``ok``, ``findings`` and ``checks``."""

    uri: str
    versions: tuple[tuple[str, int], ...]
    checks: tuple[CheckRun, ...]

    @property
    def ok(self) -> bool:
        """True when nothing is wrong; warnings do not count."""
        return not any(f.severity == "error" for f in self.findings)

    @property
    def findings(self) -> list[Finding]:
        """What was found, errors first; at most twenty per check and subject (``checks`` has the full counts)."""
        return sorted((f for run in self.checks for f in run.shown), key=Finding.order)

    @property
    def total(self) -> int:
        """How many findings there are, listed or not."""
        return sum(run.findings for run in self.checks)

    def to_arrow(self) -> pa.Table:
        """Return one row per finding, and one with severity ``ok`` per check that found nothing."""
        rows: list[dict[str, object]] = []
        for run in self.checks:
            base = {
                "check": run.name,
                "branch": run.branch,
                "table_key": run.table_key,
                "examined": run.examined,
                "findings": run.findings,
            }
            if not run.shown:
                rows.append({**base, "severity": "ok", "subject": run.subject, "message": ""})
            for f in run.shown:
                rows.append({**base, "severity": f.severity, "subject": f.subject, "message": f.message})
        return pa.Table.from_pylist(rows, schema=_ROWS)

    def __repr__(self) -> str:
        lines = [self._headline(), *(f"  {f}" for f in self.findings)]
        hidden = self.total - len(self.findings)
        if hidden:
            lines.append(f"  ... and {hidden} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        cells = ("severity", "check", "branch", "table_key", "subject", "message")
        head = "".join(f"<th>{name}</th>" for name in cells)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(getattr(f, name)))}</td>" for name in cells) + "</tr>"
            for f in self.findings
        )
        table = f"<table><tr>{head}</tr>{body}</table>" if body else ""
        return f"<p>{html.escape(self._headline())}</p>{table}"

    def _headline(self) -> str:
        seen = ", ".join(f"{branch} at version {version}" for branch, version in self.versions) or "nothing readable"
        looked = f"{len(self.checks)} checks, {sum(run.examined for run in self.checks)} things examined"
        return f"{self.uri} is {'sound' if self.ok else 'NOT sound'}: {seen}; {looked}; {self.total} findings"
