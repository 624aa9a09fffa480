"""Schema text to declarations.

The grammar file says what is well formed; this module turns its trees into values, with the literal rules
of the language. Whatever the text holds, the only error that leaves here is a SchemaError with line,
column, rule.
"""

from __future__ import annotations

import math
import re
from typing import TypeAlias

from lark import Token, Tree

from omnigraph_spark.errors import SchemaError
from omnigraph_spark.schema.declarations import (
    Annotation,
    Bound,
    Cardinality,
    CheckConstraint,
    Constraint,
    Declaration,
    EdgeDecl,
    IndexConstraint,
    InterfaceDecl,
    KeyConstraint,
    NodeDecl,
    Position,
    PropertyDecl,
    PropertyType,
    RangeConstraint,
    Scalar,
    Schema,
    TypeReference,
    UniqueConstraint,
    property_constraints,
)
from omnigraph_spark.schema.resolve import merge_interfaces
from omnigraph_spark.schema.rules import broken_rules
from omnigraph_spark.schema.syntax import parse_tree

_Tree: TypeAlias = Tree[Token]

_MAX_CARDINALITY = 2**32 - 1
_MAX_DIMENSION = 2**31 - 1
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


def parse_schema(text: str) -> Schema:
    """Parse, resolve and check a schema text; raise SchemaError for the first problem in source order."""
    merged, problems = merge_interfaces(parse_declarations(text))
    problems = [*problems, *broken_rules(merged)]
    if problems:
        raise min(problems, key=lambda problem: (problem.line or 0, problem.column or 0))
    return merged


def parse_declarations(text: str) -> Schema:
    """Parse a schema text without resolving interfaces and without checking the rules across declarations."""
    return Schema(tuple(_declaration(child) for child in _trees(parse_tree(text))))


def _declaration(tree: _Tree) -> Declaration:
    if tree.data == "interface":
        name = _tokens(tree)[0]
        return InterfaceDecl(str(name), _properties(tree), _position(name))
    return _node(tree) if tree.data == "node" else _edge(tree)


def _node(tree: _Tree) -> NodeDecl:
    name = _tokens(tree)[0]
    properties = _properties(tree)
    implements = [token for clause in _trees(tree, "implements") for token in _tokens(clause)]
    return NodeDecl(
        name=str(name),
        annotations=tuple(_annotation(child) for child in _trees(tree, "node_annotation")),
        implements=tuple(_reference(token) for token in implements),
        properties=properties,
        constraints=_constraints(tree, properties=properties),
        position=_position(name),
    )


def _edge(tree: _Tree) -> EdgeDecl:
    name, source, target = _tokens(tree)
    properties = _properties(tree)
    cardinality = [_cardinality(child) for child in _trees(tree, "cardinality")]
    return EdgeDecl(
        name=str(name),
        from_type=_reference(source),
        to_type=_reference(target),
        cardinality=cardinality[0] if cardinality else Cardinality(),
        annotations=tuple(_annotation(child) for child in _trees(tree, "edge_annotation")),
        properties=properties,
        constraints=_constraints(tree, properties=properties),
        position=_position(name),
    )


def _cardinality(tree: _Tree) -> Cardinality:
    at, *bounds = _tokens(tree)
    values = [_bounded_integer(token, most=_MAX_CARDINALITY) for token in bounds]
    for token, value in zip(bounds, values, strict=True):
        if value is None:
            raise _error(token, f"a cardinality is at most {_MAX_CARDINALITY}", rule="cardinality-size")
    minimum, maximum = values[0] or 0, values[1] if len(values) > 1 else None
    if maximum is not None and minimum > maximum:
        message = f"the minimum of @card, {minimum}, exceeds its maximum, {maximum}"
        raise _error(at, message, rule="cardinality-order")
    return Cardinality(minimum, maximum)


def _properties(tree: _Tree) -> tuple[PropertyDecl, ...]:
    return tuple(_property(child) for child in _trees(tree, "property"))


def _property(tree: _Tree) -> PropertyDecl:
    name, *nullable = _tokens(tree)
    spelled, *annotations = _trees(tree)
    return PropertyDecl(
        name=str(name),
        type=_property_type(spelled, nullable=bool(nullable)),
        annotations=tuple(_annotation(child) for child in annotations),
        position=_position(name),
    )


def _property_type(tree: _Tree, *, nullable: bool) -> PropertyType:
    tokens = _tokens(tree)
    if tree.data == "enum_type":
        values: set[str] = set()
        for token in tokens:
            if str(token) in values:
                raise _error(token, f"the enum lists {str(token)!r} twice", rule="enum-duplicate")
            values.add(str(token))
        return PropertyType(Scalar.STRING, nullable, enum_values=tuple(sorted(values)))
    if tree.data == "vector_type":
        dimension = _bounded_integer(tokens[0], most=_MAX_DIMENSION)
        if not dimension:
            message = f"a Vector has between 1 and {_MAX_DIMENSION} elements"
            raise _error(tokens[0], message, rule="vector-dimension")
        return PropertyType(Scalar.VECTOR, nullable, dimension=dimension)
    scalar, is_list = Scalar(str(tokens[0])), tree.data == "list_type"
    if is_list and scalar is Scalar.BLOB:
        raise _error(tokens[0], "a list cannot hold Blob values", rule="list-blob")
    return PropertyType(scalar, nullable, is_list=is_list)


def _annotation(tree: _Tree) -> Annotation:
    at, name, *value = _tokens(tree)
    # Sorted, and the last of equal names wins: the compiled form keeps them in an ordered map.
    kwargs = {str(key): _literal(word) for key, word in map(_tokens, _trees(tree))}
    return Annotation(
        name=str(name),
        value=_literal(value[0]) if value else None,
        kwargs=tuple(sorted(kwargs.items())),
        position=_position(at),
    )


def _constraints(tree: _Tree, *, properties: tuple[PropertyDecl, ...]) -> tuple[Constraint, ...]:
    written = [_constraint(child) for child in _trees(tree, "constraint")]
    implied = [constraint for property in properties for constraint in property_constraints(property)]
    return (*written, *implied)


def _constraint(tree: _Tree) -> Constraint:
    at, name = _tokens(tree)[:2]
    arguments = tree.children[2:]
    if name == "key":
        return KeyConstraint(_columns(arguments, at=at, name=name), _position(at))
    if name == "unique":
        return UniqueConstraint(_columns(arguments, at=at, name=name), _position(at))
    if name == "index":
        return IndexConstraint(_columns(arguments, at=at, name=name), _position(at))
    wanted = "min..max" if name == "range" else '"pattern"'
    message = f"@{name} takes a property name and {wanted}"
    if len(arguments) < 2:
        raise _error(at, message, rule="constraint-arguments")
    # Anything after the second argument is ignored, as OmniGraph does.
    (column,), value = _columns(arguments[:1], at=at, name=name), arguments[1]
    if name == "range" and isinstance(value, Tree):
        # The one bound of an open minimum, "..100", is stored as the minimum: OmniGraph does so, and
        # hashes it.
        minimum, *maximum = [_bound(token) for token in _tokens(value)]
        return RangeConstraint(column, minimum, maximum[0] if maximum else None, _position(at))
    if name == "check" and isinstance(value, Token) and value.type == "STRING":
        return CheckConstraint(column, _literal(value), _position(at))
    raise _error(at, message, rule="constraint-arguments")


def _columns(arguments: list[Token | _Tree], *, at: Token, name: str) -> tuple[str, ...]:
    columns: list[str] = []
    for argument in arguments:
        if not isinstance(argument, Token) or argument.type != "IDENT":
            raise _error(at, f"@{name} expects property names", rule="constraint-arguments")
        columns.append(str(argument))
    return tuple(columns)


def _bound(token: Token) -> Bound:
    # Integers that fit 64 bits stay integers; the length test keeps absurd digit counts away from int().
    if "." not in token and len(token) < 64 and -(2**63) <= int(token) < 2**63:
        return int(token)
    value = float(token)
    if not math.isfinite(value):
        raise _error(token, "the bound is too large for a number", rule="range-bound-size")
    return value


def _bounded_integer(token: Token, *, most: int) -> int | None:
    digits = token.lstrip("0") or "0"
    if len(digits) > len(str(most)) or int(digits) > most:
        return None
    return int(digits)


def _literal(token: Token) -> str:
    if token.type != "STRING":
        return str(token)

    def decoded(found: re.Match[str]) -> str:
        escaped = found.group(1)
        if escaped not in _ESCAPES:
            raise _error(token, f"the string has an unknown escape \\{escaped}", rule="string-escape")
        return _ESCAPES[escaped]

    return re.sub(r"\\([\s\S])", decoded, token[1:-1])


def _reference(token: Token) -> TypeReference:
    return TypeReference(str(token), _position(token))


def _position(token: Token) -> Position:
    return Position(token.line or 0, token.column or 0)


def _error(token: Token, message: str, *, rule: str) -> SchemaError:
    return SchemaError(message, rule=rule, line=token.line, column=token.column)


def _tokens(tree: _Tree) -> list[Token]:
    return [child for child in tree.children if isinstance(child, Token)]


def _trees(tree: _Tree, name: str | None = None) -> list[_Tree]:
    return [child for child in tree.children if isinstance(child, Tree) and name in (None, child.data)]
