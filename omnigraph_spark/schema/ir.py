"""The compiled schema (SchemaIR version 1): its values, its JSON and its hash.

The hash of the compact JSON ties the three schema files of a graph together, so key order, escapes and number
spelling here are part of the on-disk format, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

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
)

IR_VERSION = 1

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


@dataclass(frozen=True, slots=True)
class PropertyIR:
    """A property with its identity."""

    name: str
    prop_id: int
    type: PropertyType
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True, slots=True)
class InterfaceIR:
    """An interface with its identity."""

    name: str
    type_id: int
    properties: tuple[PropertyIR, ...]


@dataclass(frozen=True, slots=True)
class NodeIR:
    """A node type with its identity, interface properties included."""

    name: str
    type_id: int
    annotations: tuple[Annotation, ...]
    implements: tuple[str, ...]
    properties: tuple[PropertyIR, ...]
    constraints: tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class EdgeIR:
    """An edge type with its identity."""

    name: str
    type_id: int
    from_type: str
    to_type: str
    cardinality: Cardinality
    annotations: tuple[Annotation, ...]
    properties: tuple[PropertyIR, ...]
    constraints: tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class SchemaIR:
    """A whole compiled schema."""

    interfaces: tuple[InterfaceIR, ...]
    nodes: tuple[NodeIR, ...]
    edges: tuple[EdgeIR, ...]


def ir_document(ir: SchemaIR) -> dict[str, Json]:
    """Return the compiled schema as nested dicts in the order the format prescribes."""
    return {
        "ir_version": IR_VERSION,
        "interfaces": [_interface(interface) for interface in ir.interfaces],
        "nodes": [_node(node) for node in ir.nodes],
        "edges": [_edge(edge) for edge in ir.edges],
    }


def ir_bytes(ir: SchemaIR) -> bytes:
    """Return the compact JSON that the hash is taken over."""
    return "".join(_written(ir_document(ir), indent=None, depth=0)).encode("utf-8")


def ir_text(ir: SchemaIR) -> str:
    """Return the indented JSON that is stored next to the schema text."""
    return "".join(_written(ir_document(ir), indent="  ", depth=0))


def schema_ir_hash(ir: SchemaIR) -> str:
    """Return the hash that identifies a compiled schema."""
    return f"sha256:{hashlib.sha256(ir_bytes(ir)).hexdigest()}"


def _interface(interface: InterfaceIR) -> dict[str, Json]:
    return {
        "name": interface.name,
        "type_id": interface.type_id,
        "properties": [_property(property) for property in interface.properties],
    }


def _node(node: NodeIR) -> dict[str, Json]:
    return {
        "name": node.name,
        "type_id": node.type_id,
        "annotations": [_annotation(annotation) for annotation in node.annotations],
        "implements": list(node.implements),
        "properties": [_property(property) for property in node.properties],
        "constraints": [_constraint(constraint) for constraint in node.constraints],
    }


def _edge(edge: EdgeIR) -> dict[str, Json]:
    return {
        "name": edge.name,
        "type_id": edge.type_id,
        "from_type": edge.from_type,
        "to_type": edge.to_type,
        "cardinality": {"min": edge.cardinality.minimum, "max": edge.cardinality.maximum},
        "annotations": [_annotation(annotation) for annotation in edge.annotations],
        "properties": [_property(property) for property in edge.properties],
        "constraints": [_constraint(constraint) for constraint in edge.constraints],
    }


def _property(property: PropertyIR) -> dict[str, Json]:
    type_ = property.type
    vector = type_.scalar is Scalar.VECTOR
    return {
        "name": property.name,
        "prop_id": property.prop_id,
        "prop_type": {
            "scalar": {"Vector": type_.dimension} if vector else type_.scalar.value,
            "nullable": type_.nullable,
            "list": type_.is_list,
            "enum_values": None if type_.enum_values is None else list(type_.enum_values),
        },
        "annotations": [_annotation(annotation) for annotation in property.annotations],
    }


def _annotation(annotation: Annotation) -> dict[str, Json]:
    document: dict[str, Json] = {"name": annotation.name, "value": annotation.value}
    if annotation.kwargs:
        document["kwargs"] = dict(annotation.kwargs)
    return document


def _constraint(constraint: Constraint) -> dict[str, Json]:
    if isinstance(constraint, RangeConstraint):
        bounds = {"min": _bound(constraint.minimum), "max": _bound(constraint.maximum)}
        return {"Range": {"property": constraint.property, **bounds}}
    if isinstance(constraint, CheckConstraint):
        return {"Check": {"property": constraint.property, "pattern": constraint.pattern}}
    columns = list(constraint.columns)
    if isinstance(constraint, KeyConstraint):
        return {"Key": columns}
    return {"Index": columns} if isinstance(constraint, IndexConstraint) else {"Unique": columns}


def _bound(bound: Bound | None) -> dict[str, Json] | None:
    if bound is None:
        return None
    return {"Integer": bound} if isinstance(bound, int) else {"Float": bound}


def float_text(value: float) -> str:
    """Spell a float as the format's JSON does: shortest round trip, always a fraction or an exponent.

    Python agrees between 1e-4 and 1e16; outside, the exponent loses its plus sign and padding, and fixed
    notation goes on one more decimal place downwards.
    """
    spelled = repr(value)
    mantissa, exponential, exponent = spelled.partition("e")
    if not exponential:
        return spelled
    if int(exponent) == -5:
        return format(Decimal(spelled), "f")
    return f"{mantissa}e{int(exponent)}"


def _written(value: Json, *, indent: str | None, depth: int) -> Iterator[str]:
    # json.dumps would do, but for floats: it offers no say in their spelling.
    if isinstance(value, float):
        yield float_text(value)
    elif isinstance(value, Mapping):
        gap = "" if indent is None else " "
        entries = [(f"{json.dumps(key, ensure_ascii=False)}:{gap}", item) for key, item in value.items()]
        yield from _written_items(entries, brackets="{}", indent=indent, depth=depth)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from _written_items([("", item) for item in value], brackets="[]", indent=indent, depth=depth)
    else:
        yield json.dumps(value, ensure_ascii=False)


def _written_items(entries: list[tuple[str, Json]], *, brackets: str, indent: str | None, depth: int) -> Iterator[str]:
    yield brackets[0]
    for place, (prefix, item) in enumerate(entries):
        yield "," if place else ""
        yield "" if indent is None else "\n" + indent * (depth + 1)
        yield prefix
        yield from _written(item, indent=indent, depth=depth + 1)
    if entries and indent is not None:
        yield "\n" + indent * depth
    yield brackets[1]
