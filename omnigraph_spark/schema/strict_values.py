"""Columns of any accepted Arrow type to their table types, strictly.

One function per kind of value; lists and vectors apply them to their elements. Each accepts the variants that
Spark, pandas and Arrow users meet, and nothing whose meaning would have to be guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.schema.declarations import PropertyType, Scalar
from omnigraph_spark.schema.faults import Cast, Fault, WrongTypeError, fault_where
from omnigraph_spark.schema.lists import fix_size, is_list_like, relist
from omnigraph_spark.schema.mapping import BLOB_STRUCT, table_type
from omnigraph_spark.schema.strict_numbers import to_floats, to_integers

# What one stored unit, a millisecond, is in each timestamp unit.
_PER_MILLISECOND = {"us": 1_000, "ns": 1_000_000}
# Milliseconds that are still a valid number of microseconds: everything written must be readable by Spark.
_MAX_MILLISECONDS = (2**63 - 1) // 1000
# Lance stores no other URI, and says so only when the rows are written.
_ABSOLUTE_URI = r"^[A-Za-z][A-Za-z0-9+.-]*://."


def cast_strictly(array: pa.Array, *, to: PropertyType) -> Cast:
    """Cast a column to the table type of a property.

    Nulls pass through. Raises WrongTypeError when the column's type cannot stand for the property's at all.
    """
    array = decoded(array)
    if pa.types.is_null(array.type):
        return Cast(pa.nulls(len(array), table_type(to)))
    if to.dimension is not None:
        return _to_vectors(array, to=to, dimension=to.dimension)
    return _to_lists(array, to=to) if to.is_list else _CASTS[to.scalar](array)


def decoded(array: pa.Array) -> pa.Array:
    """Return a dictionary-encoded array as plain values, and any other array as it is."""
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


def to_strings(array: pa.Array) -> Cast:
    """Cast text of any layout to plain strings."""
    types = pa.types
    if types.is_string(array.type):
        return Cast(array)
    if types.is_large_string(array.type) or types.is_string_view(array.type):
        return Cast(array.cast(pa.string()))
    raise WrongTypeError


def _to_bools(array: pa.Array) -> Cast:
    if not pa.types.is_boolean(array.type):
        raise WrongTypeError
    return Cast(array)


def _to_dates(array: pa.Array) -> Cast:
    # A timestamp is refused: which day it falls on depends on a time zone nobody named.
    if not pa.types.is_date32(array.type):
        raise WrongTypeError
    return Cast(array)


def _to_datetimes(array: pa.Array) -> Cast:
    """Cast instants to stored milliseconds; a timestamp without a zone is taken as UTC."""
    if pa.types.is_date64(array.type):
        unit = "ms"
    elif pa.types.is_timestamp(array.type):
        unit = array.type.unit
    else:
        raise WrongTypeError
    ticks = array.view(pa.int64())
    if unit in _PER_MILLISECOND:
        per = _PER_MILLISECOND[unit]
        milliseconds = pc.divide(ticks, per)
        lost = pc.not_equal(pc.multiply(milliseconds, per), ticks)
        reason = "is finer than a millisecond, which DateTime cannot hold; truncate it first"
        faults = fault_where(lost, rule="datetime-precision", reason=reason, values=array)
        return Cast(array, faults) if faults else Cast(milliseconds.view(pa.date64()))
    most = _MAX_MILLISECONDS // (1000 if unit == "s" else 1)
    outside = pc.or_(pc.less(ticks, -most), pc.greater(ticks, most))
    faults = fault_where(outside, rule="datetime-range", reason="is too far from 1970", values=ticks)
    if faults:
        return Cast(array, faults)
    return Cast((pc.multiply(ticks, 1000) if unit == "s" else ticks).view(pa.date64()))


def _to_blobs(array: pa.Array) -> Cast:
    types = pa.types
    if array.type.equals(BLOB_STRUCT):
        return _to_blob_structs(array)
    accepted = types.is_binary(array.type) or types.is_large_binary(array.type) or types.is_binary_view(array.type)
    if not accepted:
        raise WrongTypeError
    data = array.cast(pa.large_binary())
    mask = data.is_null() if data.null_count else None
    uris = pa.nulls(len(data), pa.string())
    return Cast(pa.StructArray.from_arrays([data, uris], fields=list(BLOB_STRUCT), mask=mask))


def _to_blob_structs(array: pa.Array) -> Cast:
    """Accept the table's own layout: each value is bytes or the URI of bytes kept elsewhere."""
    # Flattened, so that a null value has null children too.
    data, uris = array.flatten()
    both_or_neither = pc.and_(array.is_valid(), pc.equal(data.is_valid(), uris.is_valid()))
    faults = fault_where(both_or_neither, rule="blob-content", reason="needs either data or a uri")
    relative = pc.invert(pc.match_substring_regex(uris, _ABSOLUTE_URI))
    reason = "is not an absolute URI such as s3://bucket/key"
    faults = (*faults, *fault_where(relative, rule="blob-uri", reason=reason, values=uris))
    mask = array.is_null() if array.null_count else None
    return Cast(pa.StructArray.from_arrays([data, uris], fields=list(BLOB_STRUCT), mask=mask), faults)


_CASTS: dict[Scalar, Callable[[pa.Array], Cast]] = {
    Scalar.STRING: to_strings,
    Scalar.BOOL: _to_bools,
    Scalar.I32: partial(to_integers, scalar=Scalar.I32),
    Scalar.I64: partial(to_integers, scalar=Scalar.I64),
    Scalar.U32: partial(to_integers, scalar=Scalar.U32),
    Scalar.U64: partial(to_integers, scalar=Scalar.U64),
    Scalar.F32: partial(to_floats, scalar=Scalar.F32),
    Scalar.F64: partial(to_floats, scalar=Scalar.F64),
    Scalar.DATE: _to_dates,
    Scalar.DATETIME: _to_datetimes,
    Scalar.BLOB: _to_blobs,
    Scalar.VECTOR: partial(to_floats, scalar=Scalar.VECTOR),
}


def _to_lists(array: pa.Array, *, to: PropertyType) -> Cast:
    elements, faults = _elements(array, scalar=to.scalar)
    if faults:
        return Cast(array, faults)
    return Cast(relist(array, elements, data_type=table_type(to)))


def _to_vectors(array: pa.Array, *, to: PropertyType, dimension: int) -> Cast:
    elements, faults = _elements(array, scalar=Scalar.VECTOR)
    lengths = pc.list_value_length(array)
    reason = f"elements where Vector({dimension}) needs {dimension}"
    wrong = fault_where(pc.not_equal(lengths, dimension), rule="vector-length", reason=reason, values=lengths)
    nulls = pc.list_parent_indices(array).filter(array.flatten().is_null())
    if len(nulls):
        rows = pc.unique(nulls).cast(pa.int64())
        wrong = (*wrong, Fault("vector-null", "has a null element", rows))
    faults = (*wrong, *faults)
    if faults:
        return Cast(array, faults)
    return Cast(fix_size(array, elements, data_type=table_type(to)))


def _elements(array: pa.Array, *, scalar: Scalar) -> tuple[pa.Array, tuple[Fault, ...]]:
    if not is_list_like(array.type):
        raise WrongTypeError
    values = decoded(array.flatten())
    if pa.types.is_null(values.type):
        # The element type of a list literal without elements.
        return pa.nulls(len(values), table_type(PropertyType(scalar))), ()
    cast = _CASTS[scalar](values)
    parents = pc.list_parent_indices(array)
    return cast.array, tuple(_first_in_each_row(fault, parents=parents) for fault in cast.faults)


def _first_in_each_row(fault: Fault, *, parents: pa.Array) -> Fault:
    rows = parents.take(fault.rows).cast(pa.int64())
    starts = pa.concat_arrays([pa.array([True]), pc.not_equal(rows[1:], rows[:-1])])
    values = None if fault.values is None else fault.values.filter(starts)
    return Fault(fault.rule, f"in the list {fault.reason}", rows.filter(starts), values)
