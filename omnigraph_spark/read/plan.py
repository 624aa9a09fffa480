"""From a request and a snapshot to a picklable plan: which fragments each task reads, and the exact columns it returns.

Partitions are groups of whole fragments of about ``split_size`` bytes; tasks open the table by location and pinned
version, so nothing an executor does can see another graph version (INV-14).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa

from omnigraph_spark.errors import NotFoundError, OptionError
from omnigraph_spark.manifest.state import TableEntry
from omnigraph_spark.read.request import METADATA_COLUMNS, ReadRequest
from omnigraph_spark.read.snapshot import GraphReader, Snapshot
from omnigraph_spark.schema.catalog import EdgeType, NodeType
from omnigraph_spark.schema.mapping import read_arrow_schema
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.lance_io import FragmentInfo, fragment_infos

# A fragment of tiny bytes still costs an open; below this a split is not worth a task.
_OPEN_COST = 256 << 10


@dataclass(frozen=True, slots=True)
class ReadSplit:
    """What one task reads."""

    fragments: tuple[int, ...]
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Everything a task needs; picklable, and complete without another look at the graph."""

    uri: str
    table_key: str
    version: int
    graph_version: int
    schema: pa.Schema
    filter: str | None
    batch_size: int
    splits: tuple[ReadSplit, ...]
    config: StorageConfig


def plan_read(reader: GraphReader, request: ReadRequest) -> ReadPlan:
    """Resolve, open and split one table."""
    snapshot, _ = reader.resolve(request.moment)
    return plan_table(reader, snapshot, request)


def plan_table(reader: GraphReader, snapshot: Snapshot, request: ReadRequest) -> ReadPlan:
    """Plan a read of a table of an already resolved snapshot."""
    graph_type = request.target.resolve(snapshot.catalog)
    entry = snapshot.entry(graph_type.table_key)
    schema = output_schema(graph_type, request)
    dataset = reader.open_table(snapshot, entry)
    _require_columns(dataset, schema, entry=entry)
    if request.filter is not None:
        check_filter(reader, dataset, request.filter, graph_type=graph_type)
    return ReadPlan(
        uri=snapshot.table_uri(entry),
        table_key=entry.table_key,
        version=entry.version,
        graph_version=snapshot.graph_version,
        schema=schema,
        filter=request.filter,
        batch_size=request.batch_size,
        splits=tuple(split(fragment_infos(dataset), request)),
        config=reader.io.config,
    )


def _require_columns(dataset: lance.LanceDataset, schema: pa.Schema, *, entry: TableEntry) -> None:
    # The schema contract has no history: an old table version may lack a column the schema has now.
    stored = set(dataset.schema.names)
    absent = [name for name in schema.names if name not in stored and name not in METADATA_COLUMNS]
    if absent:
        raise NotFoundError(
            f"{entry.table_key} version {entry.version} has no column {', '.join(absent)}: the schema got it later",
            hint="Choose the columns that existed with the columns option, or read a newer graph version.",
        )


def output_schema(graph_type: NodeType | EdgeType, request: ReadRequest) -> pa.Schema:
    """Return the Arrow schema of the result: chosen columns, then metadata columns."""
    extra = list(request.metadata_columns)
    columns = None
    if request.columns is not None:
        known = read_arrow_schema(graph_type).names
        for name in request.columns:
            if name not in known and name not in METADATA_COLUMNS:
                raise OptionError(_unknown_column(name, [*known, *METADATA_COLUMNS], graph_type.name))
        if len(set(request.columns)) != len(request.columns):
            raise OptionError(f"A column is named twice in {', '.join(request.columns)}")
        columns = tuple(c for c in request.columns if c not in METADATA_COLUMNS)
        extra = [c for c in (*request.columns, *extra) if c in METADATA_COLUMNS]
    fields = list(read_arrow_schema(graph_type, columns=columns))
    fields += [pa.field(name, pa.int64()) for name in dict.fromkeys(extra)]
    if not fields:
        raise OptionError("No column is chosen", hint="Name at least one column.")
    return pa.schema(fields)


def _unknown_column(name: str, known: Sequence[str], type_name: str) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    maybe = f"; did you mean {close[0]!r}?" if close else ""
    return f"{type_name} has no column {name!r}{maybe} (columns: {', '.join(known)})"


def check_filter(
    reader: GraphReader, dataset: lance.LanceDataset, text: str, *, graph_type: NodeType | EdgeType
) -> None:
    """Refuse a filter that Lance cannot plan, naming the column or the place."""
    try:
        reader.io.check_filter(dataset, text)
    except (ValueError, OSError) as e:
        reason = str(e).split(", /", 1)[0].removeprefix("Invalid user input: ")
        unknown = re.search(r"No field named ([^\s.]+)", reason)
        if unknown:
            name = unknown.group(1).strip('"`')
            raise OptionError(
                f"Filter {text!r}: {_unknown_column(name, read_arrow_schema(graph_type).names, graph_type.name)}",
                hint="Correct the filter.",
            ) from e
        raise OptionError(
            f"Filter {text!r} on {graph_type.name} is not valid: {reason}",
            hint="Write it as a SQL predicate, e.g. \"age > 30 and name = 'Ada'\".",
        ) from e


def split(fragments: Sequence[FragmentInfo], request: ReadRequest) -> list[ReadSplit]:
    """Group fragments, in order, into the asked number of splits or as many as the target size makes of them."""
    if request.limit is not None:
        return _limited(fragments, request)
    if request.partitions is not None:
        return _balanced(fragments, request.partitions)
    total = sum(f.size + _OPEN_COST for f in fragments)
    # Splits of equal size rather than full ones and a rest: the largest split decides when a stage ends.
    return _balanced(fragments, -(-total // request.split_size))


def _balanced(fragments: Sequence[FragmentInfo], partitions: int) -> list[ReadSplit]:
    """Cut the fragments into at most so many splits of about equal bytes: each goes where its middle lies."""
    total = sum(f.size + _OPEN_COST for f in fragments)
    groups: dict[int, list[int]] = {}
    before = 0
    for f in fragments:
        cost = f.size + _OPEN_COST
        groups.setdefault((2 * before + cost) * partitions // (2 * total), []).append(f.fragment_id)
        before += cost
    return [ReadSplit(tuple(group)) for group in groups.values()]


def _limited(fragments: Sequence[FragmentInfo], request: ReadRequest) -> list[ReadSplit]:
    limit = request.limit or 0
    if limit == 0 or not fragments:
        return []
    if request.filter is not None:
        # How many rows pass is unknown, so one task scans in order and stops at the limit.
        return [ReadSplit(tuple(f.fragment_id for f in fragments), limit)]
    chosen: list[ReadSplit] = []
    left = limit
    for f in fragments:
        if left <= 0:
            break
        if f.rows:
            chosen.append(ReadSplit((f.fragment_id,), min(left, f.rows)))
            left -= f.rows
    return chosen
