"""Columns of decoded JSON values to Arrow columns, strictly.

The whole column is converted at once; values are looked at one by one only where that fails, to name those at
fault. What Arrow then makes of the column is judged by the same strict casts as any other input.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_spark.schema.declarations import PropertyType, Scalar
from omnigraph_spark.schema.faults import Cast, Fault
from omnigraph_spark.schema.mapping import BLOB_STRUCT, table_type
from omnigraph_spark.schema.strict_values import cast_strictly
from omnigraph_spark.write.json_stream import Unusable

_Values: TypeAlias = list[object]
_Why: TypeAlias = tuple[str, str]

_DATE = r"^\d{4}-\d{2}-\d{2}$"
_DATETIME = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}(:?\d{2})?)?$"
_ZONE = r"(Z|[+-]\d{2}(:?\d{2})?)$"
# The time in front keeps the day of a date from being taken for a zone.
_WITH_ZONE = rf"\d{{2}}:\d{{2}}(:\d{{2}}(\.\d+)?)?{_ZONE}"
_FINER_THAN_MILLISECONDS = r"\.\d{3}\d*[1-9]"
_TRAILING_ZEROS = r"(\.\d{3})0+(Z|[+-]|$)"
_BASE64 = "base64:"
_MAX_VALUE_TEXT = 80
_KINDS = {str: "text", int: "a number", float: "a number", bool: "a truth value", list: "a list", type(None): "null"}


def json_text(value: object) -> str:
    """Return a value as JSON, cut to what a message can hold."""
    try:
        text = value.text if isinstance(value, Unusable) else json.dumps(value, default=lambda token: token.text)
    except (ValueError, RecursionError):
        # An integer too long to print, or lists within lists within lists.
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= _MAX_VALUE_TEXT else f"{text[:_MAX_VALUE_TEXT]}..."


def json_kind(value: object) -> str:
    """Return what a JSON value is, in words."""
    return value.reason if isinstance(value, Unusable) else f"is {_KINDS.get(type(value), 'an object')}"


def to_column(values: _Values, *, to: PropertyType) -> Cast:
    """Return the values as a column of a property's table type, with every value at fault as a fault.

    Rows at fault are null in the column. A null passes; whether it may is asked elsewhere.
    """
    if not any(value is not None for value in values):
        return Cast(pa.nulls(len(values), table_type(to)))
    if to.is_list or to.dimension is not None:
        array, faults = _lists(values, to=to)
    else:
        array, faults = _scalars(values, scalar=to.scalar, wanted=to.text)
    judged = cast_strictly(array, to=to)
    return Cast(judged.array, (*faults, *judged.faults))


@dataclass(frozen=True, slots=True)
class _Reader:
    """How the values of one scalar are read: from which JSON types, how, and what a refused value is guilty of."""

    accepts: frozenset[type]
    needs: str
    build: Callable[[_Values], pa.Array]
    why: Callable[[object], _Why]


def _scalars(values: _Values, *, scalar: Scalar, wanted: str) -> tuple[pa.Array, tuple[Fault, ...]]:
    reader = _READERS[scalar]
    if set(map(type, values)) <= reader.accepts:
        with contextlib.suppress(ValueError, OverflowError):
            return reader.build(values), ()
    why = {
        row: _wrong_type(value, scalar=scalar, reader=reader, wanted=wanted)
        for row, value in enumerate(values)
        if type(value) not in reader.accepts
    }
    for row in _refused(_without(values, why), build=reader.build):
        why[row] = reader.why(values[row])
    return reader.build(_without(values, why)), _faults(values, why)


def _wrong_type(value: object, *, scalar: Scalar, reader: _Reader, wanted: str) -> _Why:
    if isinstance(value, float) and scalar in _INTEGERS:
        return "integer-fraction", f"is written with a fraction or an exponent, but {wanted} needs {reader.needs}"
    return "type", f"{json_kind(value)}, but {wanted} needs {reader.needs}"


def _refused(values: _Values, *, build: Callable[[_Values], pa.Array], first: int = 0) -> list[int]:
    """Return the rows that keep a column from being built, found by halving."""
    try:
        build(values)
    except (ValueError, OverflowError):
        if len(values) == 1:
            return [first]
        half = len(values) // 2
        left = _refused(values[:half], build=build, first=first)
        return left + _refused(values[half:], build=build, first=first + half)
    return []


def _without(values: _Values, rows: dict[int, _Why]) -> _Values:
    if not rows:
        return values
    return [None if row in rows else value for row, value in enumerate(values)]


def _faults(values: _Values, why: dict[int, _Why]) -> tuple[Fault, ...]:
    groups: dict[_Why, list[int]] = defaultdict(list)
    for row, reason in sorted(why.items()):
        groups[reason].append(row)
    return tuple(
        Fault(rule, reason, pa.array(rows, pa.int64()), pa.array([json_text(values[row]) for row in rows]))
        for (rule, reason), rows in groups.items()
    )


def _lists(values: _Values, *, to: PropertyType) -> tuple[pa.Array, tuple[Fault, ...]]:
    why = {
        row: ("type", f"{json_kind(value)}, but {to.text} needs a list")
        for row, value in enumerate(values)
        if value is not None and type(value) is not list
    }
    faults = _faults(values, why)
    lists = cast("list[list[object] | None]", _without(values, why))
    elements, wrong = _elements(lists, to=to)
    if wrong:
        # One bad element spoils its list: the whole row is named once and left out.
        lists = [None if row in wrong else value for row, value in enumerate(lists)]
        elements, _ = _elements(lists, to=to)
        faults = (*faults, *wrong.values())
    ends = accumulate((0 if value is None else len(value) for value in lists), initial=0)
    mask = pa.array([value is None for value in lists], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), elements, mask=mask), faults


def _elements(lists: list[list[object] | None], *, to: PropertyType) -> tuple[pa.Array, dict[int, Fault]]:
    """Return all elements as one column, and the first fault of each list that has one, by row."""
    flat = list(chain.from_iterable(value for value in lists if value is not None))
    array, faults = _scalars(flat, scalar=to.scalar, wanted=to.text)
    if not faults:
        return array, {}
    parents = [row for row, value in enumerate(lists) if value is not None for _ in value]
    wrong: dict[int, Fault] = {}
    for fault in faults:
        for at, place in enumerate(fault.rows.to_pylist()):
            row = parents[place]
            if row not in wrong and fault.values is not None:
                only = pa.array([row], pa.int64())
                wrong[row] = Fault(fault.rule, f"in the list {fault.reason}", only, fault.values.slice(at, 1))
    return array, wrong


def _plain(data_type: pa.DataType) -> Callable[[_Values], pa.Array]:
    return lambda values: pa.array(values, data_type)


def _floats(data_type: pa.DataType) -> Callable[[_Values], pa.Array]:
    def build(values: _Values) -> pa.Array:
        try:
            array = pa.array(values, data_type)
        except pa.ArrowInvalid:
            # Arrow refuses every large integer, also those that the type holds exactly.
            array = pa.array([_exact(v, data_type) if type(v) is int else v for v in values], data_type)
        if not pc.all(pc.is_finite(array), min_count=0).as_py():
            raise OverflowError
        return array

    return build


def _exact(value: int, data_type: pa.DataType) -> float:
    near = float(pa.scalar(float(value), pa.float64()).cast(data_type).as_py())
    if near != value:
        raise OverflowError
    return near


def _mixed(
    numbers: Callable[[_Values], pa.Array], texts: Callable[[_Values], pa.Array]
) -> Callable[[_Values], pa.Array]:
    def build(values: _Values) -> pa.Array:
        kinds = set(map(type, values))
        if str not in kinds:
            return numbers(values)
        if int not in kinds:
            return texts(values)
        counted = numbers([value if type(value) is int else None for value in values])
        return pc.coalesce(counted, texts([value if type(value) is str else None for value in values]))

    return build


def _require_match(texts: pa.Array, pattern: str) -> None:
    if not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
        raise ValueError(pattern)


def _days(values: _Values) -> pa.Array:
    return pa.array(values, pa.int32()).view(pa.date32())


def _dates(values: _Values) -> pa.Array:
    texts = pa.array(values, pa.string())
    _require_match(texts, _DATE)
    return texts.cast(pa.date32())


def _milliseconds(values: _Values) -> pa.Array:
    return pa.array(values, pa.int64()).view(pa.timestamp("ms", tz="UTC"))


def _instants(values: _Values) -> pa.Array:
    texts = pa.array(values, pa.string())
    _require_match(texts, _DATETIME)
    texts = pc.replace_substring_regex(texts, _TRAILING_ZEROS, r"\1\2")
    named = pc.match_substring_regex(texts, _WITH_ZONE)
    texts = pc.if_else(named, texts, pc.binary_join_element_wise(texts, "Z", ""))
    return texts.cast(pa.timestamp("ms", tz="UTC"))


def _blobs(values: _Values) -> pa.Array:
    rows = [None if value is None else _blob(str(value)) for value in values]
    return pa.array(rows, BLOB_STRUCT)


def _blob(text: str) -> dict[str, object]:
    if text.startswith(_BASE64):
        return {"data": base64.b64decode(text[len(_BASE64) :], validate=True), "uri": None}
    return {"data": None, "uri": text}


def _integer_why(scalar: Scalar) -> Callable[[object], _Why]:
    return lambda _value: ("integer-range", f"does not fit {scalar.value}")


def _float_why(name: str) -> Callable[[object], _Why]:
    def why(value: object) -> _Why:
        if isinstance(value, int):
            return "float-exact", f"cannot be held exactly by {name}"
        return "float-range", f"is too large for {name}"

    return why


def _text_why(_value: object) -> _Why:
    return "text", "is not valid Unicode text"


def _date_why(value: object) -> _Why:
    if isinstance(value, int):
        return "date-range", "is too far from 1970"
    return "date", "is not a date such as 2024-01-31"


def _datetime_why(value: object) -> _Why:
    if isinstance(value, int):
        return "datetime-range", "is too far from 1970"
    text = str(value)
    valid = text.isascii() and pc.match_substring_regex(pa.scalar(text), _DATETIME).as_py()
    if valid and pc.match_substring_regex(pa.scalar(text), _FINER_THAN_MILLISECONDS).as_py():
        return "datetime-precision", "is finer than a millisecond, which DateTime cannot hold"
    return "datetime", "is not a date and time such as 2024-01-31T12:00:00Z"


def _blob_why(value: object) -> _Why:
    if str(value).startswith(_BASE64):
        return "blob-base64", "is not valid base64"
    return _text_why(value)


_INTEGERS = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})


def _or_null(*types: type) -> frozenset[type]:
    return frozenset({*types, type(None)})


def _integers(scalar: Scalar, data_type: pa.DataType) -> _Reader:
    return _Reader(_or_null(int), "an integer", _plain(data_type), _integer_why(scalar))


_READERS: dict[Scalar, _Reader] = {
    Scalar.STRING: _Reader(_or_null(str), "text", _plain(pa.string()), _text_why),
    Scalar.BOOL: _Reader(_or_null(bool), "true or false", _plain(pa.bool_()), _text_why),
    # Narrow integers are read as wide ones; the strict cast then says what does not fit.
    Scalar.I32: _integers(Scalar.I32, pa.int64()),
    Scalar.I64: _integers(Scalar.I64, pa.int64()),
    Scalar.U32: _integers(Scalar.U32, pa.int64()),
    Scalar.U64: _integers(Scalar.U64, pa.uint64()),
    Scalar.F32: _Reader(_or_null(int, float), "a number", _floats(pa.float32()), _float_why("F32")),
    Scalar.F64: _Reader(_or_null(int, float), "a number", _floats(pa.float64()), _float_why("F64")),
    Scalar.VECTOR: _Reader(_or_null(int, float), "numbers", _floats(pa.float32()), _float_why("a Vector element")),
    Scalar.DATE: _Reader(_or_null(int, str), "a date or a number of days", _mixed(_days, _dates), _date_why),
    Scalar.DATETIME: _Reader(
        _or_null(int, str), "a date and time or milliseconds", _mixed(_milliseconds, _instants), _datetime_why
    ),
    Scalar.BLOB: _Reader(_or_null(str), "text: base64:... or a URI", _blobs, _blob_why),
}
