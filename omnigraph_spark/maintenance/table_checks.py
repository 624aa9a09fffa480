"""Checks of one table of a graph version: the pin, its files, its schema, its HEAD, then its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import lance
import numpy as np
import pyarrow as pa

from omnigraph_spark.errors import OmnigraphError
from omnigraph_spark.maintenance.report import CheckRun, Examination, Reporting
from omnigraph_spark.maintenance.row_checks import (
    EndsWatch,
    GroupWatch,
    HashBag,
    KeyWatch,
    RequiredWatch,
    ValueWatch,
    Watch,
    cardinality_of,
    group_columns,
    rule_columns,
    watch_rows,
)
from omnigraph_spark.manifest.layout import branch_uri
from omnigraph_spark.manifest.rows import stored_branch
from omnigraph_spark.manifest.state import TableEntry
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.schema.catalog import EdgeType, GraphType, NodeType
from omnigraph_spark.schema.mapping import BLOB_STRUCT, table_arrow_schema
from omnigraph_spark.storage.keyhash import U64
from omnigraph_spark.storage.lance_check import FileRef, referenced_files, validate
from omnigraph_spark.storage.lance_commit import latest_version, transactions_between
from omnigraph_spark.storage.locations import join
from omnigraph_spark.storage.parallel import Together

NO_IDS: U64 = np.empty(0, dtype=np.uint64)  # of a node type without a table


@dataclass(frozen=True, slots=True)
class TableCase:
    """A table to check, and what its rows are checked against."""

    branch: str
    entry: TableEntry
    graph_type: GraphType | None
    ends: Mapping[str, U64] = field(default_factory=dict)  # node type -> sorted hashes of its ids
    records: frozenset[str] = frozenset()  # operations with a recovery record

    @property
    def owned(self) -> bool:
        """Whether the table moves with this branch; one inherited from another branch moves with its owner."""
        return self.entry.branch == stored_branch(self.branch)

    def exam(self, name: str, *, subject: str = "") -> Examination:
        """Start a check of this table."""
        return Examination(name, branch=self.branch, table_key=self.entry.table_key, subject=subject)


@dataclass(frozen=True, slots=True, eq=False)
class TableResult:
    """The checks of a table, and its ids for the edges that end there; None when they could not be read."""

    runs: tuple[CheckRun, ...]
    ids: U64 | None = None


def check_table(reader: GraphReader, case: TableCase) -> TableResult:
    """Check one table; later checks are left out where an earlier one shows that they can only repeat it."""
    entry = case.entry
    uri = branch_uri(join(reader.root, entry.path), entry.branch)
    opening = case.exam("pin-opens", subject=f"version {entry.version}")
    opening.look()
    dataset: lance.LanceDataset | None = None
    with Reporting(opening):
        dataset = reader.io.open(uri, table=entry.table_key, version=entry.version)
    if dataset is None:
        return TableResult((opening.done(),))
    with Together() as group:
        counting = group.start(lambda: _row_count(reader, dataset, case))
        listing = group.start(lambda: _files(reader, dataset, case, uri=uri))
        heading = group.start(lambda: _head(reader, dataset, case))
    files = listing.result()
    runs = [opening.done(), counting.result(), files, *heading.result()]
    usable = _schema(dataset, case, runs=runs)
    if files.findings:
        return TableResult(tuple(runs))  # reading would only name the missing files again
    checking = case.exam("validate")
    checking.look(len(dataset.get_fragments()))
    with Reporting(checking):
        validate(dataset)
    runs.append(checking.done())
    return _rows(reader, dataset, case, usable=usable, runs=runs)


def _row_count(reader: GraphReader, dataset: lance.LanceDataset, case: TableCase) -> CheckRun:
    exam = case.exam("row-count")
    with Reporting(exam):
        live = reader.io.count(dataset)
        exam.look(live)
        if live != case.entry.row_count:
            exam.error(case.entry.table_key, f"The manifest counts {case.entry.row_count} rows, the table has {live}")
    return exam.done()


def _files(reader: GraphReader, dataset: lance.LanceDataset, case: TableCase, *, uri: str) -> CheckRun:
    exam = case.exam("files")
    with Reporting(exam):
        needed = sorted(set(referenced_files(dataset, uri=uri)), key=lambda f: (f.folder, f.name))
        present = {folder: set(reader.objects.list(folder)) for folder in {f.folder for f in needed}}
        exam.look(len(needed))
        for file in needed:
            if file.name not in present[file.folder]:
                exam.error(file.name, f"{_place(file)} is part of version {case.entry.version} but is not there")
    return exam.done()


def _place(file: FileRef) -> str:
    return join(file.folder, file.name)


def _head(reader: GraphReader, dataset: lance.LanceDataset, case: TableCase) -> list[CheckRun]:
    """HEAD = pin, for tables this branch owns."""
    entry = case.entry
    if not case.owned:
        return []
    exam = case.exam("drift", subject=f"version {entry.version}")
    with Reporting(exam):
        exam.look()
        head = latest_version(dataset)
        # A writer may have published since the fold: what it published is no drift.
        now = (
            reader.manifest.open(branch=case.branch).state.tables.get(entry.table_key) if head > entry.version else None
        )
        pin = max(entry.version, now.version if now else 0)
        if head > pin:
            _report_drift(exam, dataset, case, pin=pin, head=head)
    return [exam.done()]


def _report_drift(exam: Examination, dataset: lance.LanceDataset, case: TableCase, *, pin: int, head: int) -> None:
    try:
        moved = transactions_between(dataset, after=pin, upto=head)
        names = ", ".join(f"{t.version} ({t.operation})" for t in moved)
        explained = all(t.properties.get("operation_id") in case.records for t in moved)
    except OmnigraphError as e:
        names, explained = f"{pin + 1} to {head} (unreadable: {e.message})", False
    message = f"The table is at version {head}, the graph at {pin}; not published: {names}"
    if explained:
        exam.warn(f"version {head}", f"{message}; a recovery record names them, so the next write resolves it")
    else:
        exam.error(f"version {head}", message)


def _schema(dataset: lance.LanceDataset, case: TableCase, *, runs: list[CheckRun]) -> frozenset[str]:
    """Compare stored columns with the type; returns the columns whose values can be checked."""
    if case.graph_type is None:
        return frozenset()
    exam = case.exam("stored-schema")
    wanted = table_arrow_schema(case.graph_type)
    stored: pa.Schema = dataset.schema
    usable: set[str] = set()
    for f in wanted:
        exam.look()
        at = stored.get_field_index(f.name)
        if at < 0:
            exam.error(f.name, f"The column {f.name!r} of {f.type} is missing")
            continue
        told = stored.field(at)
        if _plain(told.type) != f.type:
            exam.error(f.name, f"The column {f.name!r} is {told.type}, the schema says {f.type}")
            continue
        usable.add(f.name)
        if told.nullable != f.nullable:
            kind = {True: "may be null", False: "may not be null"}
            exam.error(
                f.name, f"The stored column {f.name!r} {kind[told.nullable]}, by the schema it {kind[f.nullable]}"
            )
    for name in sorted(set(stored.names) - set(wanted.names)):
        exam.error(name, f"The column {name!r} is not in the schema")
    if not exam.findings and stored.names != wanted.names:
        exam.error("", f"The columns are in the order {stored.names}, the schema says {wanted.names}")
    runs.append(exam.done())
    return frozenset(usable)


def _plain(data_type: pa.DataType) -> pa.DataType:
    """Return the type under an extension: Lance shows blob columns as one, over storage with more children."""
    if isinstance(data_type, pa.BaseExtensionType):
        return BLOB_STRUCT if data_type.extension_name == "lance.blob.v2" else data_type.storage_type
    return data_type


def _rows(
    reader: GraphReader, dataset: lance.LanceDataset, case: TableCase, *, usable: frozenset[str], runs: list[CheckRun]
) -> TableResult:
    if case.graph_type is None or "id" not in usable:
        return TableResult(tuple(runs))
    expected = dataset.count_rows()
    watches = [w for w in _watches(case, case.graph_type, dataset, expected=expected) if usable.issuperset(w.columns)]
    reading = case.exam("rows-read")
    watch_rows(reader.io, dataset, watches, reads=reading)
    runs.append(reading.done())
    if reading.findings:
        return TableResult(tuple(runs))  # half a table proves nothing about duplicates or ends
    ids: U64 | None = None
    for watch in watches:
        if isinstance(watch, GroupWatch):
            with Reporting(watch.exam):
                hashes = watch.settle(reader.io, dataset)
                ids = hashes if watch.columns == ("id",) else ids
        runs.append(watch.exam.done())
    runs.extend(_required_blobs(reader, dataset, case, usable=usable))
    return TableResult(tuple(runs), ids if isinstance(case.graph_type, NodeType) else None)


def _watches(case: TableCase, graph_type: GraphType, dataset: lance.LanceDataset, *, expected: int) -> Iterator[Watch]:
    stored: pa.Schema = dataset.schema
    needed = [*graph_type.system_columns, *(p.name for p in graph_type.properties if not p.nullable)]
    present = [n for n in needed if n in stored.names and not isinstance(stored.field(n).type, pa.BaseExtensionType)]
    yield RequiredWatch(case.exam("required", subject=", ".join(present)), tuple(present))
    if isinstance(graph_type, NodeType) and graph_type.key:
        yield KeyWatch(case.exam("key-is-id", subject=", ".join(graph_type.key)), graph_type)
    ruled = rule_columns(graph_type)
    if ruled:
        yield ValueWatch(case.exam("values", subject=", ".join(ruled[1:])), graph_type, ruled)
    for name, columns in group_columns(graph_type):
        # Lists and vectors have no canonical text; the schema allows @unique on them, no writer enforces it.
        if not any(c in stored.names and pa.types.is_nested(_plain(stored.field(c).type)) for c in columns):
            yield GroupWatch(case.exam(name, subject=", ".join(columns)), columns, HashBag(expected))
    bounds = cardinality_of(graph_type)
    if bounds is not None:
        exam = case.exam("cardinality", subject=f"src {bounds[0]}..{'*' if bounds[1] is None else bounds[1]}")
        yield GroupWatch(exam, ("src",), HashBag(expected), maximum=bounds[1], minimum=bounds[0])
    if isinstance(graph_type, EdgeType):
        named = {"src": graph_type.from_type, "dst": graph_type.to_type}
        ends = {end: (node, case.ends[node]) for end, node in named.items() if node in case.ends}
        if ends:
            yield EndsWatch(case.exam("edge-ends", subject=", ".join(ends)), ends)


def _required_blobs(
    reader: GraphReader, dataset: lance.LanceDataset, case: TableCase, *, usable: frozenset[str]
) -> list[CheckRun]:
    """Count absent required blobs by a filter: their bytes are not read."""
    done: list[CheckRun] = []
    properties = case.graph_type.properties if case.graph_type else ()
    for property in properties:
        extension = property.name in usable and isinstance(
            dataset.schema.field(property.name).type, pa.BaseExtensionType
        )
        if not property.nullable and extension:
            exam = case.exam("required", subject=property.name)
            exam.look(dataset.count_rows())
            with Reporting(exam):
                absent = reader.io.count(dataset, filter=f"`{property.name}` IS NULL")
                if absent:
                    exam.error(property.name, f"the required column {property.name!r} has no value in {absent} rows")
            done.append(exam.done())
    return done
