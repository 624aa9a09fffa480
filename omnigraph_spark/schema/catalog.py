"""The types of a graph as the rest of the package sees them.

Built from the compiled schema, so properties come in table order (by name) and every list is canonical. Plain
frozen values: a catalog travels to executors by pickle.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, TypeVar

from omnigraph_spark.errors import NotFoundError, OptionError
from omnigraph_spark.schema.declarations import (
    Annotation,
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
from omnigraph_spark.schema.ir import EdgeIR, NodeIR, PropertyIR, SchemaIR


@dataclass(frozen=True, slots=True)
class Property:
    """One property column."""

    name: str
    type: PropertyType
    annotations: tuple[Annotation, ...] = ()

    @property
    def scalar(self) -> Scalar:
        """The value type; the element type for a list."""
        return self.type.scalar

    @property
    def nullable(self) -> bool:
        """Whether rows may leave it out."""
        return self.type.nullable

    @property
    def is_list(self) -> bool:
        """Whether it holds a list of values."""
        return self.type.is_list

    @property
    def enum_values(self) -> tuple[str, ...] | None:
        """The allowed values of an enum, sorted; None for any other type."""
        return self.type.enum_values

    @property
    def dimension(self) -> int | None:
        """The length of a Vector; None for any other type."""
        return self.type.dimension


@dataclass(frozen=True, slots=True)
class Rules:
    """What the rows of a type must obey, and what is indexed; every column list is sorted by name."""

    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[RangeConstraint, ...] = ()
    checks: tuple[CheckConstraint, ...] = ()


@dataclass(frozen=True, slots=True)
class _TableType:
    """What node and edge types share; not a type of its own."""

    kind: ClassVar[str]
    system_columns: ClassVar[tuple[str, ...]]

    name: str
    type_id: int
    properties: tuple[Property, ...]
    rules: Rules
    annotations: tuple[Annotation, ...]

    @property
    def table_key(self) -> str:
        """The name of the type's table in the manifest."""
        return f"{self.kind}:{self.name}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column of the table, in table order."""
        return (*self.system_columns, *(property.name for property in self.properties))

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, sorted; empty where rows have no key."""
        return self.rules.key

    @property
    def unique(self) -> tuple[tuple[str, ...], ...]:
        """The column groups whose values may occur together only once; the key is not among them."""
        return self.rules.unique

    @property
    def indexes(self) -> tuple[tuple[str, ...], ...]:
        """The declared index column groups, in the order indexes are built; the key is not among them."""
        return self.rules.indexes

    @property
    def ranges(self) -> tuple[RangeConstraint, ...]:
        """The value bounds."""
        return self.rules.ranges

    @property
    def checks(self) -> tuple[CheckConstraint, ...]:
        """The text patterns."""
        return self.rules.checks

    def property_named(self, name: str) -> Property:
        """Return a property by its exact name; raise NotFoundError with the nearest one."""
        for property in self.properties:
            if property.name == name:
                return property
        known = [property.name for property in self.properties]
        raise NotFoundError(f"{self.kind} type {self.name} has no property {name!r}{nearest(name, among=known)}")


@dataclass(frozen=True, slots=True)
class NodeType(_TableType):
    """A node type."""

    kind: ClassVar[str] = "node"
    system_columns: ClassVar[tuple[str, ...]] = ("id",)

    @property
    def key_property(self) -> str | None:
        """The property that ``id`` is taken from: the first key column by name; None without a key."""
        return self.rules.key[0] if self.rules.key else None

    @property
    def index_columns(self) -> tuple[str, ...]:
        """The properties with an index of their own: single-column index and key, in build order."""
        groups = [*self.rules.indexes, self.rules.key]
        return tuple(dict.fromkeys(group[0] for group in groups if len(group) == 1))


@dataclass(frozen=True, slots=True)
class EdgeType(_TableType):
    """An edge type; its declared indexes are recorded, but OmniGraph builds none on edge properties."""

    kind: ClassVar[str] = "edge"
    system_columns: ClassVar[tuple[str, ...]] = ("id", "src", "dst")

    from_type: str
    to_type: str
    cardinality: Cardinality


GraphType: TypeAlias = NodeType | EdgeType
_Named = TypeVar("_Named", NodeType, EdgeType, GraphType)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All types of one graph, each kind sorted by name."""

    nodes: tuple[NodeType, ...]
    edges: tuple[EdgeType, ...]

    @classmethod
    def from_ir(cls, ir: SchemaIR) -> Catalog:
        """Build the catalog of a compiled schema."""
        return cls(
            nodes=tuple(sorted(map(_node_type, ir.nodes), key=lambda node: node.name)),
            edges=tuple(sorted(map(_edge_type, ir.edges), key=lambda edge: edge.name)),
        )

    @property
    def types(self) -> tuple[GraphType, ...]:
        """Every type, nodes first."""
        return (*self.nodes, *self.edges)

    def table_keys(self) -> tuple[str, ...]:
        """Return the table key of every type, nodes first."""
        return tuple(type_.table_key for type_ in self.types)

    def by_key(self, table_key: str) -> GraphType:
        """Return the type of a table key such as ``node:Person``; raise NotFoundError with what exists."""
        for type_ in self.types:
            if type_.table_key == table_key:
                return type_
        raise _not_found("table", table_key, among=self.table_keys())

    def node(self, name: str) -> NodeType:
        """Return a node type by name; another case is accepted where only one type fits."""
        return _only(name, found=_matches(self.nodes, name=name), known=self.nodes, what="node type")

    def edge(self, name: str) -> EdgeType:
        """Return an edge type by name; another case is accepted where only one type fits."""
        return _only(name, found=_matches(self.edges, name=name), known=self.edges, what="edge type")

    def resolve(self, name: str) -> GraphType:
        """Return the node or edge type of a name or table key.

        Raises:
            NotFoundError: No type has the name; the message lists what exists.
            OptionError: The name fits more than one type.
        """
        if ":" in name:
            return self.by_key(name)
        return _only(name, found=_matches(self.types, name=name), known=self.types, what="type")

    def edges_touching(self, node: str) -> tuple[EdgeType, ...]:
        """Return the edge types that start or end at a node type."""
        return tuple(edge for edge in self.edges if node in (edge.from_type, edge.to_type))


def nearest(name: str, *, among: Sequence[str]) -> str:
    """Return a tail for messages about an unknown name: the nearest known one and the list of all."""
    folded = {known.casefold(): known for known in among}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1)
    guess = f"; did you mean {folded[close[0]]!r}?" if close else ""
    return f"{guess} (known: {', '.join(among) or 'none'})"


def _matches(types: tuple[_Named, ...], *, name: str) -> list[_Named]:
    exact = [type_ for type_ in types if type_.name == name]
    return exact or [type_ for type_ in types if type_.name.casefold() == name.casefold()]


def _only(name: str, *, found: list[_Named], known: tuple[_Named, ...], what: str) -> _Named:
    if not found:
        raise _not_found(what, name, among=[type_.name for type_ in known])
    if len(found) > 1:
        keys = [type_.table_key for type_ in found]
        kinds = {type_.kind for type_ in found}
        hint = "Say whether you mean the node or the edge type." if len(kinds) > 1 else "Spell it exactly."
        raise OptionError(f"{name!r} is ambiguous: it can be {' or '.join(keys)}", hint=hint)
    return found[0]


def _not_found(what: str, name: str, *, among: Sequence[str]) -> NotFoundError:
    return NotFoundError(f"the graph has no {what} {name!r}{nearest(name, among=among)}")


def _node_type(node: NodeIR) -> NodeType:
    return NodeType(
        name=node.name,
        type_id=node.type_id,
        properties=_properties(node.properties),
        rules=_rules(node.constraints),
        annotations=node.annotations,
    )


def _edge_type(edge: EdgeIR) -> EdgeType:
    return EdgeType(
        name=edge.name,
        type_id=edge.type_id,
        properties=_properties(edge.properties),
        rules=_rules(edge.constraints),
        annotations=edge.annotations,
        from_type=edge.from_type,
        to_type=edge.to_type,
        cardinality=edge.cardinality,
    )


def _properties(properties: tuple[PropertyIR, ...]) -> tuple[Property, ...]:
    # Table order is by name in bytes, which for these names is the order of str.
    columns = [Property(property.name, property.type, property.annotations) for property in properties]
    return tuple(sorted(columns, key=lambda column: column.name))


def _rules(constraints: tuple[Constraint, ...]) -> Rules:
    keys = [c.columns for c in constraints if isinstance(c, KeyConstraint)]
    return Rules(
        key=keys[0] if keys else (),
        unique=tuple(c.columns for c in constraints if isinstance(c, UniqueConstraint)),
        indexes=tuple(c.columns for c in constraints if isinstance(c, IndexConstraint)),
        ranges=tuple(c for c in constraints if isinstance(c, RangeConstraint)),
        checks=tuple(c for c in constraints if isinstance(c, CheckConstraint)),
    )
