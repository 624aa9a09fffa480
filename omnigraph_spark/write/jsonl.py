"""Records in OmniGraph's JSON format to typed rows, one batch per type at a time.

A node is ``{"type": T, "data": {...}}``, an edge ``{"edge": T, "from": id, "to": id, "data": {...}}``. Stricter than
OmniGraph 0.8 on purpose: what it drops, wraps or turns into null is refused here, with the record and the rule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import NoReturn

import pyarrow as pa

from omnigraph_spark.errors import NotFoundError, OptionError, ValidationError, Violation
from omnigraph_spark.schema.catalog import Catalog, EdgeType, GraphType, nearest
from omnigraph_spark.schema.declarations import PropertyType, Scalar
from omnigraph_spark.schema.faults import MAX_SHOWN, Fault
from omnigraph_spark.write.json_stream import JsonStream, MalformedError, RepeatedKey, Source, open_texts
from omnigraph_spark.write.json_values import json_kind, json_text, to_column

BATCH_ROWS = 65_536
# Long values (vectors, inline blobs) end a batch early: decoded JSON takes several times the memory of its text.
_BATCH_CHARACTERS = 16 << 20
_NODE_KEYS = frozenset({"type", "data"})
_EDGE_KEYS = frozenset({"edge", "from", "to", "data"})
_ENDPOINTS = {"src": "from", "dst": "to"}
_OPTIONAL_TEXT = PropertyType(Scalar.STRING, nullable=True)
_TEXT = PropertyType(Scalar.STRING)


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Rows of one type and the numbers of the records they come from, counted from 1."""

    table_key: str
    rows: pa.RecordBatch
    records: pa.Array | range


def read_records(source: Source, *, catalog: Catalog, batch_rows: int = BATCH_ROWS) -> Iterator[TypedRows]:
    """Read records and yield their rows type by type, in batches of at most ``batch_rows``.

    ``source`` is a local path, JSON text (it has a brace or a newline in it), an open file, or an iterable of lines
    or of records as dicts. Records are JSON values separated by any whitespace. Memory is one batch per type.

    A batch has the columns its records name, in table order and table types: ``id`` where at least one record has
    ``data.id`` (null for the others) or where nothing else is named, ``src`` and ``dst`` for edges, and properties.
    Making ids, and the rules that need other rows, come later.

    Values: integers have no fraction, not even ``.0``, and fit their type; an integer for a float is held exactly; a
    Date is ``YYYY-MM-DD`` or days; a DateTime is ISO text with an offset (none is UTC), no finer than milliseconds,
    or milliseconds; a Blob is ``base64:`` text or an absolute URI. NaN and Infinity are not JSON. A null means "not
    given". Unknown and repeated keys, inside ``data`` and outside, are refused; node types are spelled exactly, edge
    types may differ in case.

    Raises:
        ValidationError: Records break a rule. After the first such record nothing more is yielded, but reading goes
            on to find the others: up to 100 are listed, and reading stops when there are more. Text that is not JSON
            ends the reading too.
        OptionError, StorageError: The source cannot be read.
    """
    if batch_rows < 1:
        raise OptionError(f"batch_rows must be at least 1, not {batch_rows}")
    return _Reading(catalog, batch_rows=batch_rows).run(source)


@dataclass(slots=True)
class _Pending:
    """Records of one type that are not a batch yet."""

    type: GraphType
    fields: frozenset[str]
    data: list[dict[str, object]] = field(default_factory=list)
    ends: list[tuple[object, object]] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    characters: int = 0


class _Faults:
    """Violations of the whole input; more than can be listed end the reading."""

    def __init__(self) -> None:
        self.total = 0
        self.violations: list[Violation] = []

    def add(self, violation: Violation) -> None:
        self.total += 1
        if self.total > MAX_SHOWN:
            self.stop(f"more than {MAX_SHOWN} violations, reading stopped")
        self.violations.append(violation)

    def stop(self, count: str) -> NoReturn:
        message = f"records do not fit the schema: {count}"
        raise ValidationError(
            message, violations=self.violations, total=self.total, hint="Correct the records and load again."
        )

    def raise_if_any(self) -> None:
        if self.total:
            self.stop("1 violation" if self.total == 1 else f"{self.total} violations")


class _Reading:
    """One pass over the input."""

    def __init__(self, catalog: Catalog, *, batch_rows: int) -> None:
        self.catalog = catalog
        self.batch_rows = batch_rows
        self.faults = _Faults()
        self.nodes = {node.name: node for node in catalog.nodes}
        # By the name as it is spelled in the records; several spellings of an edge type share one.
        self.by_name: dict[tuple[str, str], _Pending] = {}
        self.by_key: dict[str, _Pending] = {}

    def run(self, source: Source) -> Iterator[TypedRows]:
        number = 0
        try:
            with contextlib.closing(open_texts(source)) as texts:
                for number, (value, characters) in enumerate(JsonStream(texts), start=1):
                    pending = self._take(value, number=number)
                    if pending is None:
                        continue
                    pending.characters += characters
                    if len(pending.records) >= self.batch_rows or pending.characters >= _BATCH_CHARACTERS:
                        yield from self._flush(pending)
        except MalformedError as error:
            self._flag(number + 1, rule="json", reason=f"is not JSON ({error}); nothing after it was read")
        for key in self.catalog.table_keys():
            if key in self.by_key:
                yield from self._flush(self.by_key[key])
        self.faults.raise_if_any()

    def _take(self, record: object, *, number: int) -> _Pending | None:
        """Put a record with its type, or report why it cannot be."""
        if type(record) is not dict:
            self._flag_object(record, number=number, what="the record")
            return None
        pending = self._pending(record, number=number)
        if pending is None:
            return None
        data = record.get("data")
        if data is None and "data" not in record:
            data = {}
        if type(data) is not dict:
            self._flag_object(data, number=number, what="data", type_name=pending.type.name)
            return None
        allowed = _EDGE_KEYS if isinstance(pending.type, EdgeType) else _NODE_KEYS
        if not (record.keys() <= allowed and data.keys() <= pending.fields):
            self._flag_strange_keys(record, data, number=number, pending=pending)
        if isinstance(pending.type, EdgeType):
            pending.ends.append((record.get("from"), record.get("to")))
        pending.data.append(data)
        pending.records.append(number)
        return pending

    def _pending(self, record: dict[str, object], *, number: int) -> _Pending | None:
        kinds = [kind for kind in ("type", "edge") if kind in record]
        if len(kinds) != 1:
            reason = "has both type and edge" if kinds else 'has neither "type" nor "edge"'
            self._flag(number, rule="record-kind", reason=f"{reason}; a record is a node or an edge")
            return None
        name = record[kinds[0]]
        if not isinstance(name, str):
            reason = f"{json_text(name)} {json_kind(name)}, but a type name is text"
            self._flag(number, rule="type", property=kinds[0], reason=reason)
            return None
        known = self.by_name.get((kinds[0], name))
        return known or self._new_pending(kinds[0], name=name, number=number)

    def _new_pending(self, kind: str, *, name: str, number: int) -> _Pending | None:
        try:
            found = self._type(kind, name=name)
        except (NotFoundError, OptionError) as error:
            self._flag(number, rule="unknown-type", type_name=name, reason=error.message)
            return None
        fields = frozenset({"id", *(property.name for property in found.properties)})
        pending = self.by_key.setdefault(found.table_key, _Pending(found, fields))
        self.by_name[kind, name] = pending
        return pending

    def _type(self, kind: str, *, name: str) -> GraphType:
        if kind == "edge":
            return self.catalog.edge(name)
        if name not in self.nodes:
            raise NotFoundError(f"the graph has no node type {name!r}{nearest(name, among=list(self.nodes))}")
        return self.nodes[name]

    def _flag_object(self, value: object, *, number: int, what: str, type_name: str = "") -> None:
        if isinstance(value, RepeatedKey):
            rule, reason = "duplicate-column", f"{what} has the key {value.name!r} more than once"
        else:
            rule, reason = "type", f"{what} {json_kind(value)}, but an object is needed: {json_text(value)}"
        self._flag(number, rule=rule, type_name=type_name, reason=reason)

    def _flag_strange_keys(
        self, record: dict[str, object], data: dict[str, object], *, number: int, pending: _Pending
    ) -> None:
        name = pending.type.name
        allowed = _EDGE_KEYS if isinstance(pending.type, EdgeType) else _NODE_KEYS
        for key in sorted(record.keys() - allowed):
            reason = f"unknown key {key!r}; {pending.type.kind} records have {', '.join(sorted(allowed))}"
            self._flag(number, rule="unknown-key", type_name=name, property=key, reason=reason)
        for key in sorted(data.keys() - pending.fields):
            reason = f"unknown property{nearest(key, among=sorted(pending.fields))}"
            self._flag(number, rule="unknown-column", type_name=name, property=key, reason=reason)

    def _flag(self, number: int, *, rule: str, reason: str, type_name: str = "", property: str | None = None) -> None:
        of = f", {type_name}" if type_name else ""
        at = f".{property}" if type_name and property else f", {property}" if property else ""
        message = f"record {number}{_printable(of)}{_printable(at)}: {reason}"
        self.faults.add(Violation(rule=rule, type_name=type_name, property=property, message=message))

    def _flush(self, pending: _Pending) -> Iterator[TypedRows]:
        """Make a batch of what is pending; it is yielded while the whole input is without fault."""
        if not pending.records:
            return
        columns = {
            name: self._column(values, name=name, to=to, pending=pending)
            for name, values, to in _named_columns(pending)
        }
        records = pending.records
        pending.data, pending.ends, pending.records, pending.characters = [], [], [], 0
        if self.faults.total:
            return
        whole = records[-1] - records[0] + 1 == len(records)
        numbers = range(records[0], records[-1] + 1) if whole else pa.array(records, pa.int64())
        yield TypedRows(pending.type.table_key, pa.RecordBatch.from_pydict(columns), numbers)

    def _column(self, values: list[object], *, name: str, to: PropertyType, pending: _Pending) -> pa.Array:
        column = to_column(values, to=to)
        for fault in column.faults:
            self._flag_rows(fault, name=name, pending=pending)
        if not to.nullable and None in values:
            rows = [row for row, value in enumerate(values) if value is None]
            missing = Fault("required", "a value is required", pa.array(rows, pa.int64()))
            self._flag_rows(missing, name=name, pending=pending)
        return column.array

    def _flag_rows(self, fault: Fault, *, name: str, pending: _Pending) -> None:
        type_name = pending.type.name
        name = _ENDPOINTS.get(name, name)
        for at in range(len(fault.rows)):
            row = fault.rows[at].as_py()
            value = None if fault.values is None else str(fault.values[at].as_py())
            row_id = pending.data[row].get("id")
            said = "" if value is None else f"{value} "
            self.faults.add(
                Violation(
                    rule=fault.rule,
                    type_name=type_name,
                    property=name,
                    row_id=row_id if isinstance(row_id, str) else None,
                    value=value,
                    message=f"record {pending.records[row]}, {type_name}.{name}: {said}{fault.reason}",
                )
            )


def _named_columns(pending: _Pending) -> Iterator[tuple[str, list[object], PropertyType]]:
    """Yield the columns that the pending records name, and those they must have, in table order."""
    named: set[str] = set().union(*pending.data)
    properties = [p for p in pending.type.properties if p.name in named or not p.nullable]
    is_edge = isinstance(pending.type, EdgeType)
    # Rows that say nothing at all are still rows; a batch without a column could not count them.
    if "id" in named or not (properties or is_edge):
        yield "id", list(map(dict.get, pending.data, repeat("id"))), _OPTIONAL_TEXT
    if is_edge:
        sources, targets = zip(*pending.ends, strict=True)
        yield "src", list(sources), _TEXT
        yield "dst", list(targets), _TEXT
    for property in properties:
        yield property.name, list(map(dict.get, pending.data, repeat(property.name))), property.type


def _printable(text: str) -> str:
    """Return text from the input so that any stream can print it: half a surrogate pair cannot be encoded."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")
