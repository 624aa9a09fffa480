"""Declarations to the canonical compiled schema.

Order in the text must not matter: every list is sorted as the format prescribes. Nothing else is dropped or
changed, because each entry is in the hash.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph_spark.schema.declarations import (
    Annotation,
    Bound,
    CheckConstraint,
    Constraint,
    EdgeDecl,
    IndexConstraint,
    InterfaceDecl,
    KeyConstraint,
    NodeDecl,
    PropertyDecl,
    RangeConstraint,
    Schema,
)
from omnigraph_spark.schema.ids import Kind, property_id, type_id
from omnigraph_spark.schema.ir import EdgeIR, InterfaceIR, NodeIR, PropertyIR, SchemaIR


def compile_schema(schema: Schema) -> SchemaIR:
    """Compile a parsed schema; equal up to order and layout means equal result."""
    return SchemaIR(
        interfaces=tuple(sorted(map(_interface, schema.interfaces), key=lambda i: i.name)),
        nodes=tuple(sorted(map(_node, schema.nodes), key=lambda n: n.name)),
        edges=tuple(sorted(map(_edge, schema.edges), key=lambda e: e.name)),
    )


def _interface(declaration: InterfaceDecl) -> InterfaceIR:
    return InterfaceIR(
        name=declaration.name,
        type_id=type_id("interface", name=declaration.name),
        properties=_properties(declaration.properties, kind="interface", owner=declaration.name),
    )


def _node(declaration: NodeDecl) -> NodeIR:
    return NodeIR(
        name=declaration.name,
        type_id=type_id("node", name=declaration.name),
        annotations=_annotations(declaration.annotations),
        implements=tuple(sorted({reference.name for reference in declaration.implements})),
        properties=_properties(declaration.properties, kind="node", owner=declaration.name),
        constraints=_constraints(declaration.constraints),
    )


def _edge(declaration: EdgeDecl) -> EdgeIR:
    return EdgeIR(
        name=declaration.name,
        type_id=type_id("edge", name=declaration.name),
        from_type=declaration.from_type.name,
        to_type=declaration.to_type.name,
        cardinality=declaration.cardinality,
        annotations=_annotations(declaration.annotations),
        properties=_properties(declaration.properties, kind="edge", owner=declaration.name),
        constraints=_constraints(declaration.constraints),
    )


def _properties(properties: tuple[PropertyDecl, ...], *, kind: Kind, owner: str) -> tuple[PropertyIR, ...]:
    compiled = [
        PropertyIR(
            name=property.name,
            prop_id=property_id(kind, type_name=owner, name=property.name),
            type=property.type,
            annotations=_annotations(property.annotations),
        )
        for property in properties
    ]
    return tuple(sorted(compiled, key=lambda property: property.name))


def _annotations(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    # No value sorts before every value; keyword arguments take no part, and equal entries keep their order.
    return tuple(sorted(annotations, key=lambda a: (a.name, a.value is not None, a.value or "")))


def _constraints(constraints: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    return tuple(sorted(map(_sorted_columns, constraints), key=_sort_key))


def _sorted_columns(constraint: Constraint) -> Constraint:
    if isinstance(constraint, RangeConstraint | CheckConstraint):
        return constraint
    return replace(constraint, columns=tuple(sorted(constraint.columns)))


def _sort_key(constraint: Constraint) -> str:
    if isinstance(constraint, RangeConstraint):
        bounds = f"{_bound_key(constraint.minimum)}:{_bound_key(constraint.maximum)}"
        return f"range:{constraint.property}:{bounds}"
    if isinstance(constraint, CheckConstraint):
        return f"check:{constraint.property}:{constraint.pattern}"
    columns = ",".join(constraint.columns)
    if isinstance(constraint, KeyConstraint):
        return f"key:{columns}"
    return f"index:{columns}" if isinstance(constraint, IndexConstraint) else f"unique:{columns}"


def _bound_key(bound: Bound | None) -> str:
    if bound is None:
        return "None"
    if isinstance(bound, int):
        return f"Some(Integer({bound}))"
    mantissa, exponential, exponent = repr(bound).partition("e")
    return f"Some(Float({mantissa}{exponential}{int(exponent) if exponent else ''}))"
