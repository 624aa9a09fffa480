"""Which indexes a type's table should have."""

from __future__ import annotations

from omnigraph_spark.schema.catalog import GraphType, Property
from omnigraph_spark.schema.declarations import Scalar
from omnigraph_spark.storage.lance_maintenance import IndexSpec

_UNINDEXED = frozenset({Scalar.BLOB})


def wanted_indexes(graph_type: GraphType) -> list[IndexSpec]:
    """Return a BTREE on every id and end, and one index for each single-column ``@index`` or ``@key``."""
    specs = {column: IndexSpec(column, "BTREE") for column in graph_type.system_columns}
    groups = [*graph_type.indexes, graph_type.key]
    for column in dict.fromkeys(group[0] for group in groups if len(group) == 1):
        kind = _kind(graph_type.property_named(column))
        if kind is not None:
            specs.setdefault(column, IndexSpec(column, kind))
    return list(specs.values())


def _kind(property: Property) -> str | None:
    if property.is_list or property.scalar in _UNINDEXED:
        return None
    if property.scalar is Scalar.VECTOR:
        return "IVF_FLAT"
    if property.scalar is Scalar.STRING and property.enum_values is None:
        return "INVERTED"
    return "BTREE"
