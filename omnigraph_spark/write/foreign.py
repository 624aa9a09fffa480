"""Records OmniGraph 0.8 leaves: no plan and no operation id in its table commits, so versions are all there is.

Per table, with ``head`` = newest version on the branch the commits went to and ``pin`` = what the graph publishes:
head = pin → not moved; moved exactly as its kind of writer announced → rolled past; anything else → unexpected. All
rolled past → forward; one that is not → back; head below pin → an error, because a published version is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import lance

from omnigraph_spark.errors import RecoveryError, StorageNotFoundError
from omnigraph_spark.manifest.rows import optional_text
from omnigraph_spark.manifest.state import GraphState, TableEntry
from omnigraph_spark.schema.contract import CONTRACT_FILES
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.write.plan import TablePin
from omnigraph_spark.write.sidecar import Sidecar

STAGING_FILES = tuple(f"{name}.staging" for name in CONTRACT_FILES)
_STRICT = {"Load", "Mutation"}
_LOOSE = {"SchemaApply", "EnsureIndices", "Optimize"}


class Decision(str, Enum):
    """What to do with a record as a whole."""

    FORWARD = "forward"
    BACK = "back"
    STALE = "stale"  # its publish had landed; only the file was left


@dataclass(frozen=True, slots=True)
class ForeignPin:
    """One table of a record."""

    table_key: str
    branch: str | None
    expected: int
    post: int
    confirmed: int | None


@dataclass(frozen=True, slots=True)
class ForeignRecord:
    """A record of OmniGraph's, decoded."""

    operation_id: str
    branch: str
    actor: str | None
    writer_kind: str
    generation: int
    merged_parent: str | None
    pins: tuple[ForeignPin, ...]
    uri: str


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A table of a record as it stands now; ``dataset`` is None when there is nothing to restore."""

    pin: ForeignPin
    entry: TableEntry | None
    dataset: lance.LanceDataset | None

    @property
    def published(self) -> int:
        """What the graph publishes, 0 when it does not know the table."""
        return self.entry.version if self.entry is not None else 0

    @property
    def head(self) -> int:
        """The newest version where the record's commits went."""
        return int(self.dataset.version) if self.dataset is not None else self.published

    @property
    def moved(self) -> bool:
        """True when there are unpublished versions."""
        return self.head > self.published

    def target(self) -> TablePin:
        """Return where a Restore goes to: the published version, on the branch that was written."""
        entry = self.entry
        if entry is None:
            raise RecoveryError(f"{self.pin.table_key} is not part of the graph")
        return TablePin(entry.table_key, entry.path, self.pin.branch, entry.version, entry.row_count)


def parse(record: Sidecar) -> ForeignRecord:
    """Decode a record; damage is an error that names the file."""
    try:
        return _parse(record)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise RecoveryError(f"The recovery record {record.uri} is damaged: {e}") from e


def _parse(record: Sidecar) -> ForeignRecord:
    document = record.document
    tables, kind, generation = document["tables"], document["writer_kind"], document["schema_version"]
    if not isinstance(tables, list) or not isinstance(generation, int):
        raise TypeError("its tables or version are malformed")
    if kind not in _STRICT | _LOOSE | {"BranchMerge"}:
        raise ValueError(f"unknown writer kind {kind!r}")
    return ForeignRecord(
        operation_id=record.operation_id,
        branch=record.branch,
        actor=optional_text(document.get("actor_id")),
        writer_kind=str(kind),
        generation=generation,
        merged_parent=optional_text(document.get("merge_source_commit_id")),
        pins=tuple(_pin(table) for table in tables),
        uri=record.uri,
    )


def _pin(table: dict[str, object]) -> ForeignPin:
    confirmed = table.get("confirmed_version")
    return ForeignPin(
        table_key=str(table["table_key"]),
        branch=optional_text(table.get("table_branch")),
        expected=int(str(table["expected_version"])),
        post=int(str(table["post_commit_pin"])),
        confirmed=confirmed if isinstance(confirmed, int) else None,
    )


def survey(io: LanceIO, root: str, pin: ForeignPin, state: GraphState) -> ForeignTable:
    """Open a table where the record's commits went; a fork that was never made has not moved."""
    entry = state.tables.get(pin.table_key)
    if entry is None:
        return ForeignTable(pin, None, None)
    uri = TablePin(entry.table_key, entry.path, pin.branch, entry.version, entry.row_count).uri(root)
    try:
        dataset = io.open(uri, table=pin.table_key)
    except StorageNotFoundError:
        if entry.branch == pin.branch:
            raise
        return ForeignTable(pin, entry, None)
    found = ForeignTable(pin, entry, dataset)
    if found.head < found.published:
        raise RecoveryError(
            f"{pin.table_key} ends at version {found.head} but the graph publishes version {found.published} ({uri})",
            hint="A published version is missing from storage: restore it from a backup. Older versions still read.",
        )
    return found


def decide(record: ForeignRecord, tables: Sequence[ForeignTable]) -> Decision:
    """Decide for the record as a whole: all or nothing."""
    if tables and not any(t.moved for t in tables) and any(t.published > t.pin.expected for t in tables):
        return Decision.STALE
    if not all(_rolled_past(record, t) for t in tables):
        return Decision.BACK
    # The schema files were not promoted together with this: publishing the tables would part them from their schema.
    return Decision.BACK if record.writer_kind == "SchemaApply" else Decision.FORWARD


def _rolled_past(record: ForeignRecord, table: ForeignTable) -> bool:
    pin = table.pin
    if not table.moved or pin.expected != table.published:
        return False
    if record.writer_kind in _STRICT:
        return table.head == table.published + 1 and pin.post == table.head
    if record.writer_kind in _LOOSE or record.generation < 2:
        return True
    return pin.confirmed == table.head
