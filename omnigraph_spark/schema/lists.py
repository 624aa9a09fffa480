"""List arrays of any layout, taken apart and put together without a loop over rows.

Slices, nulls and several list layouts make offsets treacherous; flatten and lengths are defined for
all of them, so everything here is built on those two.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def is_list_like(data_type: pa.DataType) -> bool:
    """Whether values of a type are lists in one of the accepted layouts.

    List views are not: their values need not lie in row order, which everything here relies on.
    """
    return bool(
        pa.types.is_list(data_type) or pa.types.is_large_list(data_type) or pa.types.is_fixed_size_list(data_type)
    )


def relist(array: pa.Array, values: pa.Array, *, data_type: pa.DataType) -> pa.ListArray:
    """Return the lists of an array with other values: ``values`` replaces ``array.flatten()`` one for one."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    ends = pc.cumulative_sum_checked(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(offsets, values, type=data_type, mask=mask)


def fix_size(array: pa.Array, values: pa.Array, *, data_type: pa.DataType) -> pa.FixedSizeListArray:
    """Return lists that all have the length of ``data_type`` as fixed-size lists over other values.

    A null list becomes null children too, which a plain cast does not guarantee.
    """
    if not array.null_count:
        return pa.FixedSizeListArray.from_arrays(values, type=data_type)
    size = data_type.list_size
    slots = pa.FixedSizeListArray.from_arrays(pa.nulls(len(array) * size), size)
    filled = array.is_valid().take(pc.list_parent_indices(slots))
    places = pc.subtract(pc.cumulative_sum(filled.cast(pa.int64())), 1)
    children = values.take(pc.if_else(filled, places, pa.scalar(None, pa.int64())))
    return pa.FixedSizeListArray.from_arrays(children, type=data_type, mask=array.is_null())
