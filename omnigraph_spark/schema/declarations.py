"""What a schema text declares, as plain values.

The parser produces these, the rules judge them and the compiler turns them into the canonical form. Positions
never take part in comparisons: two texts that differ only in layout give equal declarations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the schema text, counted from 1; line 0 means "not from a text"."""

    line: int = 0
    column: int = 0


NOWHERE = Position()


class Scalar(str, Enum):
    """The value types of the language, by their spelling in schema text and compiled form."""

    STRING = "String"
    BLOB = "Blob"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATETIME = "DateTime"
    DATE = "Date"
    VECTOR = "Vector"

    @property
    def numeric(self) -> bool:
        """Whether ``@range`` may bound values of this type."""
        return self in _NUMERIC


_NUMERIC = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F32, Scalar.F64})


@dataclass(frozen=True, slots=True)
class PropertyType:
    """A property's full type; an enum is a String with ``enum_values``, sorted."""

    scalar: Scalar
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None

    @property
    def text(self) -> str:
        """The type as schema text spells it."""
        if self.enum_values is not None:
            spelled = f"enum({', '.join(self.enum_values)})"
        elif self.dimension is not None:
            spelled = f"Vector({self.dimension})"
        else:
            spelled = f"[{self.scalar.value}]" if self.is_list else self.scalar.value
        return f"{spelled}?" if self.nullable else spelled


@dataclass(frozen=True, slots=True)
class Annotation:
    """``@name``, ``@name(value)`` or ``@name(value, key=word)``; every value is kept as text."""

    name: str
    value: str | None = None
    kwargs: tuple[tuple[str, str], ...] = ()
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class KeyConstraint:
    """The columns that identify a node."""

    columns: tuple[str, ...]
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UniqueConstraint:
    """The columns whose values may occur together only once."""

    columns: tuple[str, ...]
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class IndexConstraint:
    """The columns an index is wanted on."""

    columns: tuple[str, ...]
    position: Position = field(default=NOWHERE, compare=False, repr=False)


Bound: TypeAlias = int | float


@dataclass(frozen=True, slots=True)
class RangeConstraint:
    """Inclusive bounds of a numeric property; an int and a float bound compile differently."""

    property: str
    minimum: Bound | None
    maximum: Bound | None
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """A regular expression that must match somewhere in a String property."""

    property: str
    pattern: str
    position: Position = field(default=NOWHERE, compare=False, repr=False)


Constraint: TypeAlias = KeyConstraint | UniqueConstraint | IndexConstraint | RangeConstraint | CheckConstraint


@dataclass(frozen=True, slots=True)
class Cardinality:
    """How many edges one source node may have; no maximum means any number."""

    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class TypeReference:
    """A type named by another declaration."""

    name: str
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PropertyDecl:
    """One property of an interface, node or edge."""

    name: str
    type: PropertyType
    annotations: tuple[Annotation, ...] = ()
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class InterfaceDecl:
    """A named set of properties that nodes can take over."""

    name: str
    properties: tuple[PropertyDecl, ...]
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NodeDecl:
    """A node type; ``properties`` holds those of its interfaces too once the schema is resolved."""

    name: str
    annotations: tuple[Annotation, ...]
    implements: tuple[TypeReference, ...]
    properties: tuple[PropertyDecl, ...]
    constraints: tuple[Constraint, ...]
    position: Position = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EdgeDecl:
    """An edge type between two node types."""

    name: str
    from_type: TypeReference
    to_type: TypeReference
    cardinality: Cardinality
    annotations: tuple[Annotation, ...]
    properties: tuple[PropertyDecl, ...]
    constraints: tuple[Constraint, ...]
    position: Position = field(default=NOWHERE, compare=False, repr=False)


Declaration: TypeAlias = InterfaceDecl | NodeDecl | EdgeDecl


@dataclass(frozen=True, slots=True)
class Schema:
    """All declarations of one schema text, in source order."""

    declarations: tuple[Declaration, ...]

    @property
    def interfaces(self) -> tuple[InterfaceDecl, ...]:
        """The interfaces, in source order."""
        return tuple(d for d in self.declarations if isinstance(d, InterfaceDecl))

    @property
    def nodes(self) -> tuple[NodeDecl, ...]:
        """The node types, in source order."""
        return tuple(d for d in self.declarations if isinstance(d, NodeDecl))

    @property
    def edges(self) -> tuple[EdgeDecl, ...]:
        """The edge types, in source order."""
        return tuple(d for d in self.declarations if isinstance(d, EdgeDecl))


def property_constraints(property: PropertyDecl) -> tuple[Constraint, ...]:
    """Return the single-column constraints that a property's bare key, unique and index marks stand for."""
    kinds: dict[str, type[KeyConstraint] | type[UniqueConstraint] | type[IndexConstraint]] = {
        "key": KeyConstraint,
        "unique": UniqueConstraint,
        "index": IndexConstraint,
    }
    return tuple(
        kinds[a.name]((property.name,), a.position) for a in property.annotations if a.name in kinds and a.value is None
    )
