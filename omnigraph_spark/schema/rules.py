"""What a well-formed schema must still obey, one named rule per law.

Names, identities and annotations are judged here, constraints in ``constraint_rules``. Every problem
carries the place it was written at; the parser reports the first in source order. Interfaces are judged
by names only: their annotations count where a node takes them over.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph_spark.errors import SchemaError
from omnigraph_spark.schema.constraint_rules import broken_constraints
from omnigraph_spark.schema.declarations import (
    Annotation,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    NodeDecl,
    Position,
    PropertyDecl,
    Scalar,
    Schema,
)
from omnigraph_spark.schema.ids import Kind, property_id, type_id

VIRTUAL_COLUMNS = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)
_MARKS = frozenset({"key", "unique", "index", "embed"})
_REFUSED_BY_SHAPE = {
    "list": _MARKS,
    "vector": frozenset({"key", "unique"}),
    "blob": _MARKS,
}


def broken_rules(schema: Schema) -> Iterator[SchemaError]:
    """Yield every broken rule of a schema whose interfaces are already merged."""
    yield from _broken_type_names(schema)
    for declaration in schema.declarations:
        yield from _broken_property_names(declaration)
        if isinstance(declaration, InterfaceDecl):
            continue
        yield from _broken_header(declaration)
        for property in declaration.properties:
            yield from _broken_property(property, owner=declaration)
        yield from broken_constraints(declaration)
    yield from _broken_edges(schema)


def kind_of(declaration: Declaration) -> Kind:
    """Return the word that stands for a declaration's kind in identities and messages."""
    if isinstance(declaration, InterfaceDecl):
        return "interface"
    return "node" if isinstance(declaration, NodeDecl) else "edge"


def _problem(message: str, *, rule: str, at: Position) -> SchemaError:
    return SchemaError(message, rule=rule, line=at.line, column=at.column)


def _broken_type_names(schema: Schema) -> Iterator[SchemaError]:
    taken: dict[int, Declaration] = {}
    for declaration in schema.declarations:
        kind = kind_of(declaration)
        spelled = f"{kind} {declaration.name}"
        other = taken.setdefault(type_id(kind, name=declaration.name), declaration)
        if other is declaration:
            continue
        if (kind_of(other), other.name) == (kind, declaration.name):
            yield _problem(f"{spelled} is declared twice", rule="duplicate-type", at=declaration.position)
        else:
            message = f"{spelled} and {kind_of(other)} {other.name} share one 32-bit identity; rename one"
            yield _problem(message, rule="id-collision", at=declaration.position)


def _broken_property_names(declaration: Declaration) -> Iterator[SchemaError]:
    reserved = {"id", "src", "dst"} if isinstance(declaration, EdgeDecl) else {"id"}
    taken: dict[int, PropertyDecl] = {}
    for property in declaration.properties:
        name = f"{declaration.name}.{property.name}"
        if property.name in reserved | VIRTUAL_COLUMNS:
            message = f"{name} uses a column name that every table already has"
            yield _problem(message, rule="reserved-name", at=property.position)
        identity = property_id(kind_of(declaration), type_name=declaration.name, name=property.name)
        other = taken.setdefault(identity, property)
        if other is property:
            continue
        if other.name == property.name:
            yield _problem(f"{name} is declared twice", rule="duplicate-property", at=property.position)
        else:
            message = f"{name} and {declaration.name}.{other.name} share one 32-bit identity; rename one"
            yield _problem(message, rule="id-collision", at=property.position)


def _broken_header(declaration: NodeDecl | EdgeDecl) -> Iterator[SchemaError]:
    owner = f"{kind_of(declaration)} {declaration.name}"
    for annotation in declaration.annotations:
        if annotation.name in _MARKS:
            message = f"@{annotation.name} belongs on a property or in the body, not on the header of {owner}"
            yield _problem(message, rule="header-annotation", at=annotation.position)
    yield from _broken_text(declaration.annotations, name="description", owner=owner)
    yield from _broken_text(declaration.annotations, name="instruction", owner=owner)


def _broken_text(annotations: tuple[Annotation, ...], *, name: str, owner: str) -> Iterator[SchemaError]:
    found = [annotation for annotation in annotations if annotation.name == name]
    for annotation in found:
        if annotation.value is None or not annotation.value.strip():
            message = f"@{name} on {owner} needs a text that is not blank"
            yield _problem(message, rule="text-annotation-blank", at=annotation.position)
    for annotation in found[1:]:
        yield _problem(f"{owner} has @{name} twice", rule="text-annotation-once", at=annotation.position)


def _broken_property(property: PropertyDecl, *, owner: NodeDecl | EdgeDecl) -> Iterator[SchemaError]:
    name = f"{owner.name}.{property.name}"
    yield from _broken_text(property.annotations, name="description", owner=name)
    shape = _shape(property)
    seen: set[str] = set()
    for annotation in property.annotations:
        mark, at = annotation.name, annotation.position
        if mark == "instruction":
            yield _problem(f"@instruction belongs on a type, not on {name}", rule="instruction-on-property", at=at)
        if mark not in _MARKS:
            continue
        if mark in _REFUSED_BY_SHAPE.get(shape, ()):
            message = f"@{mark} cannot mark the {shape} property {name}"
            yield _problem(message, rule=f"{shape}-annotation", at=at)
        if isinstance(owner, EdgeDecl) and mark in ("key", "embed"):
            yield _problem(f"@{mark} cannot mark the edge property {name}", rule="edge-property-annotation", at=at)
        if mark in seen:
            yield _problem(f"{name} has @{mark} twice", rule="annotation-once", at=at)
        seen.add(mark)
        if mark == "embed":
            yield from _broken_embed(annotation, property=property, owner=owner)


def _shape(property: PropertyDecl) -> str:
    if property.type.is_list:
        return "list"
    return {Scalar.VECTOR: "vector", Scalar.BLOB: "blob"}.get(property.type.scalar, "plain")


def _broken_embed(
    annotation: Annotation, *, property: PropertyDecl, owner: NodeDecl | EdgeDecl
) -> Iterator[SchemaError]:
    name, at = f"{owner.name}.{property.name}", annotation.position
    if property.type.scalar is not Scalar.VECTOR:
        message = f"@embed needs a Vector, but {name} is {property.type.text}"
        yield _problem(message, rule="embed-vector", at=at)
    source = next((p for p in owner.properties if p.name == annotation.value), None)
    if source is None:
        message = f"@embed on {name} must name a String property of {owner.name}"
        yield _problem(message, rule="embed-source", at=at)
    elif source.type.is_list or source.type.scalar is not Scalar.STRING:
        message = f"@embed on {name} reads {source.name}, which is {source.type.text} and not String"
        yield _problem(message, rule="embed-source", at=at)
    for key, _ in annotation.kwargs:
        if key != "model":
            message = f"@embed on {name} takes model=, not {key}="
            yield _problem(message, rule="embed-argument", at=at)


def _broken_edges(schema: Schema) -> Iterator[SchemaError]:
    nodes = {node.name for node in schema.nodes}
    spelled: dict[str, str] = {}
    for edge in schema.edges:
        for reference in (edge.from_type, edge.to_type):
            if reference.name not in nodes:
                message = f"edge {edge.name} ends at {reference.name}, which is not a node type"
                yield _problem(message, rule="edge-endpoint", at=reference.position)
        other = spelled.setdefault(edge.name.lower(), edge.name)
        if other != edge.name:
            message = f"edge names must differ in more than case: {other} and {edge.name}"
            yield _problem(message, rule="edge-name-case", at=edge.position)
