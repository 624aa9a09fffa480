"""Numbers to their table types: what does not fit is a fault, never a wrap or a rounding.

One rounding is allowed, from 64-bit to 32-bit floats, because that is what choosing F32 means.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.schema.declarations import Scalar
from omnigraph_spark.schema.faults import Cast, WrongTypeError, fault_where

_INTEGERS = {
    Scalar.I32: (pa.int32(), -(2**31), 2**31 - 1),
    Scalar.I64: (pa.int64(), -(2**63), 2**63 - 1),
    Scalar.U32: (pa.uint32(), 0, 2**32 - 1),
    Scalar.U64: (pa.uint64(), 0, 2**64 - 1),
}
_FLOATS = {Scalar.F32: pa.float32(), Scalar.F64: pa.float64(), Scalar.VECTOR: pa.float32()}
# The widest decimal there is; digits before the point are enough for any bound up to this scale.
_WIDEST = 76
_MAX_SCALE = _WIDEST - 20


def to_integers(array: pa.Array, *, scalar: Scalar) -> Cast:
    """Cast integers, whole floats or whole decimals to an integer type."""
    data_type, least, most = _INTEGERS[scalar]
    too_large = f"does not fit {scalar.value}"
    fraction = pa.nulls(len(array), pa.bool_())
    if pa.types.is_integer(array.type):
        source = array.cast(pa.uint64() if pa.types.is_unsigned_integer(array.type) else pa.int64())
        outside = _outside_integers(source, least=least, most=most)
    elif pa.types.is_floating(array.type):
        source = array.cast(pa.float64())
        fraction = pc.not_equal(pc.trunc(source), source)
        # The bound plus one is a power of two and exact as a float; the bound itself is not. NaN is
        # outside too.
        inside = pc.and_(pc.greater_equal(source, float(least)), pc.less(source, float(most + 1)))
        outside = pc.invert(inside)
    elif pa.types.is_decimal(array.type) and array.type.scale <= _MAX_SCALE:
        source = array.cast(pa.decimal256(_WIDEST, max(array.type.scale, 0)))
        fraction = pc.not_equal(pc.trunc(source), source)
        lower, upper = (pa.scalar(Decimal(bound), source.type) for bound in (least, most))
        outside = pc.or_(pc.less(source, lower), pc.greater(source, upper))
    else:
        raise WrongTypeError
    faults = fault_where(outside, rule="integer-range", reason=too_large, values=source)
    if not faults:
        reason = f"has a fraction, which {scalar.value} cannot hold"
        faults = fault_where(fraction, rule="integer-fraction", reason=reason, values=source)
    return Cast(array, faults) if faults else Cast(source.cast(data_type))


def to_floats(array: pa.Array, *, scalar: Scalar) -> Cast:
    """Cast floats or exactly representable integers to a float type; NaN and infinities pass as they are."""
    data_type = _FLOATS[scalar]
    name = "a Vector element" if scalar is Scalar.VECTOR else scalar.value
    if pa.types.is_floating(array.type):
        source = array.cast(pa.float64())
        cast = source.cast(data_type)
        overflow = pc.and_(pc.is_finite(source), pc.invert(pc.is_finite(cast)))
        faults = fault_where(overflow, rule="float-range", reason=f"is too large for {name}", values=source)
        return Cast(cast, faults)
    if not pa.types.is_integer(array.type):
        raise WrongTypeError
    source = array.cast(pa.uint64() if pa.types.is_unsigned_integer(array.type) else pa.int64())
    cast = source.cast(data_type, safe=False)
    reason = f"cannot be held exactly by {name}"
    return Cast(cast, fault_where(_inexact(source, cast), rule="float-exact", reason=reason, values=source))


def _outside_integers(source: pa.Array, *, least: int, most: int) -> pa.Array:
    lowest, highest = (0, 2**64 - 1) if pa.types.is_uint64(source.type) else (-(2**63), 2**63 - 1)
    lower = pa.scalar(max(least, lowest), source.type)
    upper = pa.scalar(min(most, highest), source.type)
    return pc.or_(pc.less(source, lower), pc.greater(source, upper))


def _inexact(source: pa.Array, cast: pa.Array) -> pa.Array:
    # Back and compare. The limit itself is a float but no integer of the type: casting it back is
    # undefined, and whatever was rounded up to it was inexact.
    limit = float(2**64 if pa.types.is_uint64(source.type) else 2**63)
    wide = cast.cast(pa.float64())
    returns = pc.less(wide, limit)
    back = pc.if_else(returns, wide, 0.0).cast(source.type, safe=False)
    return pc.or_(pc.invert(returns), pc.not_equal(back, source))
