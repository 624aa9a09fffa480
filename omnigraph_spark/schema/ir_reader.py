"""Stored JSON back to a compiled schema.

Unknown keys are skipped: a hash is taken over what this version understands and writes again. Anything
else that does not fit is a FormatError with the path of the value at fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

from omnigraph_spark.errors import FormatError
from omnigraph_spark.schema.declarations import (
    Annotation,
    Bound,
    Cardinality,
    CheckConstraint,
    Constraint,
    IndexConstraint,
    KeyConstraint,
    PropertyType,
    RangeConstraint,
    Scalar,
    UniqueConstraint,
)
from omnigraph_spark.schema.ir import IR_VERSION, EdgeIR, InterfaceIR, NodeIR, PropertyIR, SchemaIR

_T = TypeVar("_T")
_U32 = 2**32 - 1
_PLAIN: dict[str, Scalar] = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}


class _Value:
    """One JSON value and its path, read with the type the format demands."""

    def __init__(self, raw: object, *, path: str) -> None:
        self.raw = raw
        self.path = path

    def refuse(self, wanted: str) -> NoReturn:
        raise FormatError(f"the compiled schema is malformed: {self.path} is not {wanted}")

    def get(self, key: str) -> _Value:
        if not isinstance(self.raw, Mapping):
            self.refuse("an object")
        return _Value(self.raw.get(key), path=f"{self.path}.{key}")

    def text(self) -> str:
        if not isinstance(self.raw, str):
            self.refuse("a string")
        return self.raw

    def flag(self) -> bool:
        if not isinstance(self.raw, bool):
            self.refuse("true or false")
        return self.raw

    def integer(self, *, least: int = 0, most: int = _U32) -> int:
        if not isinstance(self.raw, int) or isinstance(self.raw, bool) or not least <= self.raw <= most:
            self.refuse(f"an integer from {least} to {most}")
        return self.raw

    def optional(self, read: Callable[[_Value], _T]) -> _T | None:
        return None if self.raw is None else read(self)

    def each(self, read: Callable[[_Value], _T]) -> tuple[_T, ...]:
        if not isinstance(self.raw, list):
            self.refuse("a list")
        return tuple(read(_Value(item, path=f"{self.path}[{at}]")) for at, item in enumerate(self.raw))

    def variant(self) -> tuple[str, _Value]:
        if not isinstance(self.raw, Mapping) or len(self.raw) != 1:
            self.refuse("an object with one key")
        (name,) = self.raw
        return name, self.get(name)


def parse_ir(text: str) -> SchemaIR:
    """Read a stored compiled schema; raise FormatError for another version or a malformed document."""
    root = _Value(_loaded(text), path="$")
    version = root.get("ir_version").raw
    if version != IR_VERSION or isinstance(version, bool):
        raise FormatError(
            f"the compiled schema has ir_version {version!r}; this version reads {IR_VERSION}",
            hint="Open the graph with a release that supports its format.",
        )
    return SchemaIR(
        interfaces=root.get("interfaces").each(_interface),
        nodes=root.get("nodes").each(_node),
        edges=root.get("edges").each(_edge),
    )


def _loaded(text: str) -> object:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the compiled schema is not JSON: {error}") from None


def _interface(value: _Value) -> InterfaceIR:
    return InterfaceIR(
        name=value.get("name").text(),
        type_id=value.get("type_id").integer(),
        properties=value.get("properties").each(_property),
    )


def _node(value: _Value) -> NodeIR:
    return NodeIR(
        name=value.get("name").text(),
        type_id=value.get("type_id").integer(),
        annotations=value.get("annotations").each(_annotation),
        implements=value.get("implements").each(_Value.text),
        properties=value.get("properties").each(_property),
        constraints=value.get("constraints").each(_constraint),
    )


def _edge(value: _Value) -> EdgeIR:
    cardinality = value.get("cardinality")
    return EdgeIR(
        name=value.get("name").text(),
        type_id=value.get("type_id").integer(),
        from_type=value.get("from_type").text(),
        to_type=value.get("to_type").text(),
        cardinality=Cardinality(cardinality.get("min").integer(), cardinality.get("max").optional(_Value.integer)),
        annotations=value.get("annotations").each(_annotation),
        properties=value.get("properties").each(_property),
        constraints=value.get("constraints").each(_constraint),
    )


def _property(value: _Value) -> PropertyIR:
    return PropertyIR(
        name=value.get("name").text(),
        prop_id=value.get("prop_id").integer(),
        type=_property_type(value.get("prop_type")),
        annotations=value.get("annotations").each(_annotation),
    )


def _property_type(value: _Value) -> PropertyType:
    spelled = value.get("scalar")
    dimension = None
    if isinstance(spelled.raw, str):
        scalar = _PLAIN.get(spelled.raw)
    else:
        name, inner = spelled.variant()
        scalar = Scalar.VECTOR if name == Scalar.VECTOR.value else None
        dimension = inner.integer(least=1, most=2**31 - 1) if scalar is not None else None
    if scalar is None:
        spelled.refuse("a scalar type")
    return PropertyType(
        scalar,
        nullable=value.get("nullable").flag(),
        is_list=value.get("list").flag(),
        enum_values=value.get("enum_values").optional(lambda values: values.each(_Value.text)),
        dimension=dimension,
    )


def _annotation(value: _Value) -> Annotation:
    kwargs = value.get("kwargs")
    entries: list[tuple[str, str]] = []
    if kwargs.raw is not None:
        if not isinstance(kwargs.raw, Mapping):
            kwargs.refuse("an object")
        entries = [(key, kwargs.get(key).text()) for key in sorted(kwargs.raw)]
    return Annotation(value.get("name").text(), value.get("value").optional(_Value.text), tuple(entries))


def _constraint(value: _Value) -> Constraint:
    kind, inner = value.variant()
    if kind == "Key":
        return KeyConstraint(inner.each(_Value.text))
    if kind == "Unique":
        return UniqueConstraint(inner.each(_Value.text))
    if kind == "Index":
        return IndexConstraint(inner.each(_Value.text))
    if kind == "Check":
        return CheckConstraint(inner.get("property").text(), inner.get("pattern").text())
    if kind == "Range":
        return RangeConstraint(
            inner.get("property").text(),
            inner.get("min").optional(_bound),
            inner.get("max").optional(_bound),
        )
    return value.refuse("a known constraint")


def _bound(value: _Value) -> Bound:
    kind, inner = value.variant()
    if kind == "Integer":
        return inner.integer(least=-(2**63), most=2**63 - 1)
    if kind == "Float" and isinstance(inner.raw, int | float) and not isinstance(inner.raw, bool):
        try:
            return float(inner.raw)
        except OverflowError:
            inner.refuse("a number that fits 64 bits")
    return value.refuse("a bound")
