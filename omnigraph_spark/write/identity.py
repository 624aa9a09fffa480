"""Where a row's ``id`` comes from: its key, the caller, or a fresh ULID; one rule for every way to write.

A keyed node's id is the text of its key; with several key columns it is the whole tuple, so two rows that share only
the first column are two rows. Text is canonical, so a number or date gives the same id on every path.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.errors import SchemaError, ValidationError, Violation
from omnigraph_spark.schema.catalog import EdgeType, GraphType, NodeType
from omnigraph_spark.schema.declarations import PropertyType, Scalar
from omnigraph_spark.schema.faults import FaultReport, WrongTypeError, fault_where
from omnigraph_spark.schema.strict_values import cast_strictly
from omnigraph_spark.storage.seams import Seams

_CROCKFORD = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", dtype=np.uint8)
_TIME_CHARACTERS, _RANDOM_CHARACTERS = 10, 16
_SEED_BYTES = 32
_ENDS = {"from": "src", "to": "dst"}


def fresh_ids(count: int, *, seams: Seams) -> pa.Array:
    """Return new ULIDs, made as one column."""
    size = _TIME_CHARACTERS + _RANDOM_CHARACTERS
    letters = np.empty((count, size), dtype=np.uint8)
    milliseconds = seams.now_micros() // 1_000
    shifts = 5 * np.arange(_TIME_CHARACTERS - 1, -1, -1)
    letters[:, :_TIME_CHARACTERS] = _CROCKFORD[(milliseconds >> shifts) & 31]
    # The system's randomness seeds each column anew; asking it for every byte would cost more than writing the rows.
    source = np.random.Generator(np.random.PCG64(int.from_bytes(seams.entropy(_SEED_BYTES), "big")))
    noise = source.integers(0, 32, (count, _RANDOM_CHARACTERS), dtype=np.uint8)
    letters[:, _TIME_CHARACTERS:] = _CROCKFORD[noise]
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * size)
    return pa.StringArray.from_buffers(count, offsets.buffers()[1], pa.py_buffer(letters.tobytes()))


def key_text(array: pa.Array, *, scalar: Scalar) -> pa.Array:
    """Return stored key values as canonical text."""
    if scalar is Scalar.DATETIME:
        text = array.view(pa.timestamp("ms")).cast(pa.string())
        return pc.binary_join_element_wise(pc.replace_substring(text, " ", "T"), "Z", "")
    return array.cast(pa.string())


def key_ids(columns: list[pa.Array], *, scalars: list[Scalar]) -> pa.Array:
    """Return the ids of keyed rows: the key itself, or the tuple as a JSON array of texts."""
    texts = [key_text(c, scalar=s) for c, s in zip(columns, scalars, strict=True)]
    if len(texts) == 1:
        return texts[0]
    escaped = [pc.replace_substring(pc.replace_substring(t, "\\", "\\\\"), '"', '\\"') for t in texts]
    return pc.binary_join_element_wise('["', pc.binary_join_element_wise(*escaped, '","'), '"]', "")


def identified(
    batch: pa.RecordBatch, graph_type: GraphType, *, seams: Seams, first_row: int = 0
) -> tuple[pa.RecordBatch, bool]:
    """Return a batch of input rows with its ``id`` column filled; the flag says that every id is fresh.

    Raises:
        SchemaError: Two columns stand for one end of an edge.
        ValidationError: An id disagrees with its row's key, or a key column is missing.
    """
    batch = _with_ends(batch, graph_type)
    if isinstance(graph_type, NodeType) and graph_type.key:
        return _keyed(batch, graph_type, first_row=first_row), False
    at = batch.schema.get_field_index("id")
    if at < 0:
        return _put(batch, fresh_ids(batch.num_rows, seams=seams)), True
    given = batch.column(at)
    if not given.null_count:
        return batch, False
    if pa.types.is_null(given.type):
        return _put(batch, fresh_ids(batch.num_rows, seams=seams)), True
    fresh = fresh_ids(batch.num_rows, seams=seams).cast(given.type)
    return _put(batch, pc.if_else(given.is_valid(), given, fresh)), False


def _with_ends(batch: pa.RecordBatch, graph_type: GraphType) -> pa.RecordBatch:
    """Accept ``from`` and ``to`` for ``src`` and ``dst`` where no property has that name."""
    if not isinstance(graph_type, EdgeType):
        return batch
    names = batch.schema.names
    renamed = [_ENDS[n] if n in _ENDS and n not in graph_type.columns else n for n in names]
    for name in ("src", "dst"):
        if renamed.count(name) > 1:
            raise SchemaError(f"the column {name!r} of {graph_type.name} is given twice", rule="duplicate-column")
    return batch.rename_columns(renamed) if renamed != names else batch


def _keyed(batch: pa.RecordBatch, graph_type: NodeType, *, first_row: int) -> pa.RecordBatch:
    columns: list[pa.Array] = []
    for name in graph_type.key:
        at = batch.schema.get_field_index(name)
        if at < 0:
            raise _missing_key(graph_type, name)
        try:
            columns.append(cast_strictly(batch.column(at), to=graph_type.property_named(name).type).array)
        except (WrongTypeError, pa.ArrowException):
            return _put_if_absent(batch)  # the strict cast of the whole batch names this fault
    scalars = [graph_type.property_named(name).scalar for name in graph_type.key]
    try:
        ids = key_ids(columns, scalars=scalars)
    except pa.ArrowException:
        return _put_if_absent(batch)
    at = batch.schema.get_field_index("id")
    if at >= 0:
        given = _as_text(batch.column(at))
        if given is None:
            return batch  # the strict cast of the whole batch refuses such ids
        _require_agreement(given, ids, graph_type=graph_type, first_row=first_row)
    return _put(batch, ids)


def _as_text(given: pa.Array) -> pa.Array | None:
    try:
        return cast_strictly(given, to=PropertyType(Scalar.STRING)).array
    except (WrongTypeError, pa.ArrowException):
        return None


def _require_agreement(given: pa.Array, ids: pa.Array, *, graph_type: NodeType, first_row: int) -> None:
    report = FaultReport(graph_type.name, ids=ids, first_row=first_row)
    different = pc.not_equal(given, ids)
    reason = f"is not the key of its row; the id of {graph_type.name} is {', '.join(graph_type.key)}"
    for fault in fault_where(different, rule="id-is-key", reason=reason, values=given):
        report.add_rows("id", fault=fault)
    report.raise_if_any()


def _missing_key(graph_type: NodeType, name: str) -> ValidationError:
    message = f"{graph_type.name}.{name}: the key column is missing"
    violation = Violation(rule="required", type_name=graph_type.name, property=name, message=message)
    return ValidationError(f"rows do not fit {graph_type.name}", violations=[violation])


def _put(batch: pa.RecordBatch, ids: pa.Array) -> pa.RecordBatch:
    at = batch.schema.get_field_index("id")
    field = pa.field("id", ids.type)
    return batch.append_column(field, ids) if at < 0 else batch.set_column(at, field, ids)


def _put_if_absent(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave room for an id that cannot be told, so that only the fault of the key is reported."""
    return _put(batch, pa.array([""] * batch.num_rows, pa.string()))
