"""Interfaces into nodes: after this step a node declares everything it has.

An interface property the node lacks is appended with its annotations and what they imply. One the node
declares itself must have exactly the interface's type, and keeps its own annotations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph_spark.errors import SchemaError
from omnigraph_spark.schema.declarations import (
    Declaration,
    InterfaceDecl,
    NodeDecl,
    PropertyDecl,
    Schema,
    property_constraints,
)


def merge_interfaces(schema: Schema) -> tuple[Schema, list[SchemaError]]:
    """Return the schema with interface properties merged into their nodes, and what stood in the way."""
    interfaces = {interface.name: interface for interface in schema.interfaces}
    problems: list[SchemaError] = []
    merged: list[Declaration] = [
        _merge_node(declaration, interfaces=interfaces, problems=problems)
        if isinstance(declaration, NodeDecl)
        else declaration
        for declaration in schema.declarations
    ]
    return Schema(tuple(merged)), problems


def _merge_node(node: NodeDecl, *, interfaces: Mapping[str, InterfaceDecl], problems: list[SchemaError]) -> NodeDecl:
    properties = list(node.properties)
    constraints = list(node.constraints)
    known = {property.name: property for property in reversed(properties)}
    for reference in node.implements:
        interface = interfaces.get(reference.name)
        if interface is None:
            problems.append(
                SchemaError(
                    f"node {node.name} implements {reference.name}, which no interface declares",
                    rule="implements-unknown",
                    line=reference.position.line,
                    column=reference.position.column,
                )
            )
            continue
        for property in interface.properties:
            own = known.get(property.name)
            if own is None:
                known[property.name] = property
                properties.append(property)
                constraints.extend(property_constraints(property))
            elif own.type != property.type:
                problems.append(_mismatch(node, interface=interface, own=own, theirs=property))
    return replace(node, properties=tuple(properties), constraints=tuple(constraints))


def _mismatch(node: NodeDecl, *, interface: InterfaceDecl, own: PropertyDecl, theirs: PropertyDecl) -> SchemaError:
    return SchemaError(
        f"{node.name}.{own.name} is {own.type.text}, but interface {interface.name} declares it {theirs.type.text}",
        rule="implements-type",
        line=own.position.line,
        column=own.position.column,
    )
