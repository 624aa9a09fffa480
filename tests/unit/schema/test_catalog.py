"""Looking types up."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from omnigraph_spark.errors import NotFoundError, OptionError
from omnigraph_spark.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph_spark.schema.compile import compile_schema
from omnigraph_spark.schema.declarations import Cardinality, CheckConstraint, RangeConstraint, Scalar
from omnigraph_spark.schema.parse import parse_schema

GOLDEN = Path(__file__).parent / "golden"


def catalog_of(text: str) -> Catalog:
    """Build the catalog of a schema text."""
    return Catalog.from_ir(compile_schema(parse_schema(text)))


@pytest.fixture
def documents() -> Catalog:
    """The catalog of the schema with every encoding."""
    return catalog_of((GOLDEN / "documents.pg").read_text(encoding="utf-8"))


def test_properties_come_in_table_order(documents: Catalog) -> None:
    """Properties are sorted by name, interface properties among them, after the system columns."""
    assert documents.node("Doc").columns == (
        "id",
        "embedding",
        "payload",
        "published",
        "score",
        "slug",
        "status",
        "tags",
        "title",
    )
    assert documents.edge("Cites").columns == ("id", "src", "dst", "note")


def test_a_property_tells_its_type(documents: Catalog) -> None:
    """Scalar, nullability, list, enum values and dimension are on the property."""
    doc = documents.node("Doc")
    embedding, status, tags = map(doc.property_named, ("embedding", "status", "tags"))
    assert (embedding.scalar, embedding.dimension, embedding.nullable) == (Scalar.VECTOR, 3, True)
    assert (status.scalar, status.enum_values, status.nullable) == (Scalar.STRING, ("closed", "open"), False)
    assert (tags.scalar, tags.is_list, tags.dimension) == (Scalar.STRING, True, None)
    assert embedding.annotations[0].kwargs == (("model", "m1"),)


def test_an_unknown_property_is_refused_with_the_nearest(documents: Catalog) -> None:
    """The message names what was probably meant."""
    with pytest.raises(NotFoundError, match="did you mean 'title'"):
        documents.node("Doc").property_named("titel")


def test_rules_of_a_node(documents: Catalog) -> None:
    """Key, unique groups, indexes in build order, ranges and checks come from the constraints."""
    doc = documents.node("Doc")
    assert doc.key == ("slug",)
    assert doc.key_property == "slug"
    assert doc.unique == (("score", "title"),)
    assert doc.indexes == (("embedding",), ("status",), ("title",))
    assert doc.index_columns == ("embedding", "status", "title", "slug")
    assert doc.ranges == (RangeConstraint("score", 0.0, 10),)
    assert doc.checks == (CheckConstraint("slug", "^[a-z]+$"),)


def test_an_edge_knows_its_ends(documents: Catalog) -> None:
    """End types, cardinality and unique groups are on the edge."""
    cites = documents.edge("Cites")
    assert (cites.from_type, cites.to_type, cites.cardinality) == ("Doc", "Doc", Cardinality(0, 1))
    assert cites.unique == (("dst", "src"),)
    assert cites.key == ()


def test_the_key_property_is_the_first_by_name() -> None:
    """Of several key columns the alphabetically first one feeds the id; multi-column groups get no index."""
    node = catalog_of("node N { b: String a: String @key(b, a) @index(b, a) @index(a) @index(a) }").node("N")
    assert node.key == ("a", "b")
    assert node.key_property == "a"
    assert node.index_columns == ("a",)
    assert catalog_of("node N {}").node("N").key_property is None


def test_table_keys_name_every_table(documents: Catalog) -> None:
    """One key per type, nodes first, and each finds its type."""
    assert documents.table_keys() == ("node:Doc", "edge:Cites")
    assert [documents.by_key(key).table_key for key in documents.table_keys()] == ["node:Doc", "edge:Cites"]
    with pytest.raises(NotFoundError, match=r"did you mean 'node:Doc'\? \(known: node:Doc, edge:Cites\)"):
        documents.by_key("node:Docs")


def test_names_are_found_exactly_or_ignoring_case() -> None:
    """The exact name wins; another case works while only one type fits."""
    catalog = catalog_of("node Person {} node PERSON {} node Company {} edge Knows: Person -> Person")
    assert catalog.node("Person").name == "Person"
    assert catalog.node("company").name == "Company"
    assert catalog.edge("KNOWS").name == "Knows"
    with pytest.raises(OptionError, match="'person' is ambiguous: it can be node:PERSON or node:Person"):
        catalog.node("person")


def test_resolve_finds_either_kind() -> None:
    """A bare name finds the node or edge type, a table key exactly one."""
    catalog = catalog_of("node Person {} edge Knows: Person -> Person")
    assert isinstance(catalog.resolve("person"), NodeType)
    assert isinstance(catalog.resolve("Knows"), EdgeType)
    assert catalog.resolve("edge:Knows") is catalog.edge("Knows")


def test_resolve_refuses_a_name_of_both_kinds() -> None:
    """A name of a node and an edge type needs its kind."""
    catalog = catalog_of("node Link {} edge Link: Link -> Link")
    with pytest.raises(OptionError, match="ambiguous") as caught:
        catalog.resolve("Link")
    assert "node or the edge" in caught.value.hint
    assert catalog.resolve("edge:Link") is catalog.edge("Link")


def test_an_unknown_type_lists_what_exists() -> None:
    """The message has the nearest name and all names."""
    catalog = catalog_of("node Person {} node Company {} edge Knows: Person -> Person")
    expected = r"no type 'Persn'; did you mean 'Person'\? \(known: Company, Person, Knows\)"
    with pytest.raises(NotFoundError, match=expected):
        catalog.resolve("Persn")
    with pytest.raises(NotFoundError, match=r"no node type 'knows' \(known: Company, Person\)"):
        catalog.node("knows")
    with pytest.raises(NotFoundError, match="known: none"):
        catalog_of("").resolve("Person")


def test_edges_touching_a_node() -> None:
    """Every edge type that starts or ends at a node type is found once."""
    catalog = catalog_of("node A {} node B {} edge X: A -> B edge Y: B -> B edge Z: A -> A")
    assert [edge.name for edge in catalog.edges_touching("B")] == ["X", "Y"]


def test_a_catalog_survives_pickling(documents: Catalog) -> None:
    """Executors get an equal catalog that still answers."""
    copy = pickle.loads(pickle.dumps(documents))
    assert copy == documents
    assert copy.resolve("doc").key_property == "slug"
