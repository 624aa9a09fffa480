"""The rules on constraints: which columns they may name, of which types, and on which kinds of type."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph_spark.errors import SchemaError
from omnigraph_spark.schema.declarations import (
    CheckConstraint,
    Constraint,
    EdgeDecl,
    IndexConstraint,
    KeyConstraint,
    NodeDecl,
    PropertyDecl,
    RangeConstraint,
    Scalar,
)

_WORDS: dict[type, str] = {
    KeyConstraint: "key",
    IndexConstraint: "index",
    RangeConstraint: "range",
    CheckConstraint: "check",
}
_NODES_ONLY = frozenset({"key", "range", "check"})


def broken_constraints(owner: NodeDecl | EdgeDecl) -> Iterator[SchemaError]:
    """Yield every broken rule among the constraints of one type."""
    # Of two properties with one name, the first counts; the duplicate is reported by its own rule.
    properties = {property.name: property for property in reversed(owner.properties)}
    keys = 0
    for constraint in owner.constraints:
        word = _WORDS.get(type(constraint), "unique")
        if isinstance(owner, EdgeDecl) and word in _NODES_ONLY:
            message = f"@{word} belongs on nodes, not on edge {owner.name}"
            yield _problem(message, rule=f"{word}-edge", constraint=constraint)
            continue
        if isinstance(constraint, KeyConstraint):
            keys += 1
            if keys > 1:
                message = f"node {owner.name} has more than one @key; name all key columns in one"
                yield _problem(message, rule="node-key-once", constraint=constraint)
        for column in _columns(constraint):
            if isinstance(owner, EdgeDecl) and column in ("src", "dst"):
                continue
            property = properties.get(column)
            if property is None:
                message = f"@{word} on {owner.name} names {column}, which is not a property"
                yield _problem(message, rule=f"{word}-column", constraint=constraint)
            else:
                yield from _broken_column(constraint, property=property, owner=owner.name)


def _columns(constraint: Constraint) -> tuple[str, ...]:
    if isinstance(constraint, RangeConstraint | CheckConstraint):
        return (constraint.property,)
    return constraint.columns


def _broken_column(constraint: Constraint, *, property: PropertyDecl, owner: str) -> Iterator[SchemaError]:
    name, type_ = f"{owner}.{property.name}", property.type
    if isinstance(constraint, KeyConstraint):
        if type_.nullable:
            yield _problem(f"the key column {name} is nullable", rule="key-nullable", constraint=constraint)
        if type_.is_list or type_.scalar in (Scalar.VECTOR, Scalar.BLOB):
            message = f"the key column {name} is {type_.text}; a key is a single plain value"
            yield _problem(message, rule="key-type", constraint=constraint)
    elif isinstance(constraint, IndexConstraint) and type_.scalar is Scalar.BLOB:
        yield _problem(f"@index cannot cover the Blob property {name}", rule="index-blob", constraint=constraint)
    # Both rules look at the element type only, as OmniGraph does: lists pass and are left unchecked by value.
    elif isinstance(constraint, RangeConstraint) and not type_.scalar.numeric:
        message = f"@range needs a number, but {name} is {type_.text}"
        yield _problem(message, rule="range-type", constraint=constraint)
    elif isinstance(constraint, CheckConstraint) and type_.scalar is not Scalar.STRING:
        message = f"@check needs a String, but {name} is {type_.text}"
        yield _problem(message, rule="check-type", constraint=constraint)


def _problem(message: str, *, rule: str, constraint: Constraint) -> SchemaError:
    at = constraint.position
    return SchemaError(message, rule=rule, line=at.line, column=at.column)
