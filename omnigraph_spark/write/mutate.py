"""Rows chosen by a predicate or by their ids: new content for them, or their removal with the edges that hang on them.

Runs in the caller's process, a batch at a time; memory is 16 bytes per chosen row and what the ids of removed nodes
take in a local file. Edges are matched to removed nodes by text, never by hash alone: a wrong match would lose an edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import lance
import numpy as np
import pyarrow as pa

from omnigraph_spark.errors import OptionError, SchemaError, ValidationError
from omnigraph_spark.schema.catalog import EdgeType, GraphType, nearest
from omnigraph_spark.storage.keyhash import U64, distinct, hash_text
from omnigraph_spark.storage.lance_io import LanceIO, ScanSpec
from omnigraph_spark.storage.objects import ObjectStore
from omnigraph_spark.write.evidence import contained, pack, staging_folder
from omnigraph_spark.write.gate import Faults
from omnigraph_spark.write.graph_check import end_violations
from omnigraph_spark.write.key_runs import KeyRuns, Scratch
from omnigraph_spark.write.operation_check import raise_faults
from omnigraph_spark.write.probe import FEW, View, key_rows, open_view
from omnigraph_spark.write.rowids import RowIds
from omnigraph_spark.write.spill import TextIndex
from omnigraph_spark.write.stage import StagedPart, StageJob, WriteMode, stage_replacing


def require_predicate(where: str | None, *, verb: str) -> str:
    """Refuse to change a whole table by an omission."""
    if where is None or not where.strip():
        raise OptionError(
            f"{verb} needs a predicate", hint=f"Give where=..., for example where=\"name = 'Ada'\"; 'true' {verb}s all."
        )
    return where


def require_settable(graph_type: GraphType, values: Mapping[str, object]) -> None:
    """Refuse to set what identifies a row, or what does not exist."""
    if not values:
        raise OptionError("update sets nothing", hint="Give set={property: value}.")
    fixed = (*graph_type.system_columns, *graph_type.key)
    known = [p.name for p in graph_type.properties]
    for name in values:
        if name in fixed:
            raise SchemaError(
                f"{graph_type.name}.{name} identifies the row and cannot be updated",
                rule="update-key",
                hint="Delete the row and write it anew.",
            )
        if name not in known:
            message = f"{graph_type.name} has no property {name!r}{nearest(name, among=known)}"
            raise SchemaError(message, rule="unknown-column")


def stage_update(job: StageJob, *, where: str, values: Mapping[str, object], io: LanceIO) -> StagedPart:
    """Stage rows that match a predicate with some properties set to literals."""
    dataset = open_view(io, job.target)
    spec = ScanSpec(columns=job.graph_type.columns, filter=where, row_ids=True, row_addresses=True)
    return stage_replacing(job, (_with_values(batch, values) for batch in io.batches(dataset, spec)), io=io)


def inferred(values: Sequence[object]) -> pa.Array:
    """Return Python values as an Arrow array of the type they suggest; whole numbers may be as large as a U64."""
    try:
        return pa.array(values)
    except OverflowError:
        listed = any(isinstance(value, (list, tuple)) for value in values)
        return pa.array(values, pa.list_(pa.uint64()) if listed else pa.uint64())


def _with_values(batch: pa.RecordBatch, values: Mapping[str, object]) -> pa.RecordBatch:
    for name, value in values.items():
        at = batch.schema.get_field_index(name)
        try:
            column = pa.repeat(inferred([value])[0], batch.num_rows)
        except (pa.ArrowException, TypeError, OverflowError) as e:
            raise ValidationError(f"the value of {name!r} cannot be written: {value!r}") from e
        batch = batch.set_column(at, pa.field(name, column.type), column)
    return batch


def stage_delete(job: StageJob, *, where: str, io: LanceIO) -> StagedPart:
    """Choose the rows a predicate matches for removal."""
    dataset = open_view(io, job.target)
    spec = ScanSpec(columns=("id",), filter=where, row_ids=True, row_addresses=True)
    return _removal(job, io.batches(dataset, spec), io=io)


def _removal(job: StageJob, batches: Iterator[pa.RecordBatch], *, io: LanceIO) -> StagedPart:
    """Note rows, given with their positions, as removed."""
    rows: list[RowIds] = []
    with Scratch() as scratch:
        keys = KeyRuns(scratch, distinct=True)
        for batch in batches:
            ids, addresses = (batch.column(name).to_numpy() for name in ("_rowid", "_rowaddr"))
            rows.append(RowIds(ids, addresses, job.target.version))
            keys.add(hash_text(batch.column("id")))
        keys.close()
        removed = RowIds.concat(rows).distinct()
        objects = ObjectStore(job.config, counter=io.counter, seams=io.seams)
        folder = staging_folder(job.root, job.commit_id)
        evidence = pack(keys, objects=objects, folder=folder, name=f"{io.seams.new_id()}-ids")
    return StagedPart(job.target.table_key, WriteMode.DELETE, len(removed), removed=removed, keys=evidence)


@dataclass(frozen=True, slots=True)
class RemovedNodes:
    """The ids of nodes that a write removes, as texts."""

    type_name: str
    index: TextIndex
    few: pa.Array | None

    def hashes(self) -> U64:
        """Return the sorted hashes of the ids."""
        return distinct(np.concatenate([np.empty(0, dtype=np.uint64), *self.index.keys.runs]))


def removed_nodes(io: LanceIO, view: View, rows: RowIds, *, scratch: Scratch) -> RemovedNodes:
    """Read the ids of removed nodes."""
    index = TextIndex(scratch)
    wanted = np.sort(rows.ids)
    few: list[pa.Array] | None = [] if len(rows) <= FEW else None
    for batch in _chosen(io, open_view(io, view), wanted):
        ids = batch.column("id")
        index.add(ids)
        if few is not None:
            few.append(ids)
    index.close()
    texts = None if few is None else pa.concat_arrays([pa.array([], pa.string()), *few])
    return RemovedNodes(view.table_key.partition(":")[2], index, texts)


def _chosen(io: LanceIO, dataset: lance.LanceDataset, wanted: U64) -> Iterator[pa.RecordBatch]:
    listed = f"_rowid IN ({', '.join(map(str, wanted.tolist()))})" if len(wanted) <= FEW else None
    for batch in io.batches(dataset, ScanSpec(columns=("id",), filter=listed, row_ids=True)):
        hit = contained(batch.column("_rowid").to_numpy(), [wanted])
        yield batch.filter(pa.array(hit))


def edges_of(job: StageJob, nodes: Sequence[RemovedNodes], *, io: LanceIO, cascade: bool) -> StagedPart | None:
    """Choose the edges that hang on removed nodes for removal, or refuse when they may not go."""
    edge = job.graph_type
    if not isinstance(edge, EdgeType) or not job.target.rows:
        return None
    found = _hanging(job, edge, nodes, io=io)
    if cascade:
        part = _removal(job, found, io=io)
        return part if part.rows else None
    faults = Faults()
    for batch in found:
        end_violations(batch, edge, [n.type_name for n in nodes], faults)
    raise_faults(faults, what=f"Edges of {edge.name} would lose a node")
    return None


def _hanging(job: StageJob, edge: EdgeType, nodes: Sequence[RemovedNodes], *, io: LanceIO) -> Iterator[pa.RecordBatch]:
    dataset = open_view(io, job.target)
    for removed in nodes:
        ends = [end for end, at in (("src", edge.from_type), ("dst", edge.to_type)) if at == removed.type_name]
        rows = key_rows(io, dataset, columns=("id", "src", "dst"), among=removed.few, keys=ends, positions=True)
        for batch in rows:
            hit = np.zeros(batch.num_rows, dtype=bool)
            for end in ends:
                asked, _ = removed.index.find(batch.column(end))
                hit[asked] = True
            if hit.any():
                yield batch.filter(pa.array(hit))
