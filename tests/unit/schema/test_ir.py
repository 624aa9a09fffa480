"""The compiled schema: canonical order, exact bytes, exact hash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph_spark.errors import FormatError
from omnigraph_spark.schema.compile import compile_schema
from omnigraph_spark.schema.declarations import Annotation, IndexConstraint, KeyConstraint, UniqueConstraint
from omnigraph_spark.schema.ids import property_id, type_id
from omnigraph_spark.schema.ir import (
    SchemaIR,
    float_text,
    ir_bytes,
    ir_document,
    ir_text,
    schema_ir_hash,
)
from omnigraph_spark.schema.ir_reader import parse_ir
from omnigraph_spark.schema.parse import parse_schema

GOLDEN = Path(__file__).parent / "golden"
PEOPLE_HASH = "sha256:e37013207fea258e1168975dae0d8a540c99e9f0aaa47da43171bed900a51a95"
DOCUMENTS_HASH = "sha256:2aad3bd2f348ab781c132919e0cec53a070a7e7c086a5a54bc8deadb551464c1"


def compiled(text: str) -> SchemaIR:
    """Compile schema text."""
    return compile_schema(parse_schema(text))


def golden(name: str) -> SchemaIR:
    """Compile a golden schema."""
    return compiled((GOLDEN / f"{name}.pg").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "size", "schema_hash"), [("people", 1206, PEOPLE_HASH), ("documents", 2285, DOCUMENTS_HASH)]
)
def test_worked_examples_compile_byte_for_byte(name: str, size: int, schema_hash: str) -> None:
    """The hash input, its size and its hash are those of the format."""
    expected = (GOLDEN / f"{name}.compact.json").read_bytes()
    assert len(expected) == size
    assert ir_bytes(golden(name)) == expected
    assert schema_ir_hash(golden(name)) == schema_hash


@pytest.mark.parametrize("name", ["people", "documents"])
def test_stored_text_is_the_same_value_indented(name: str) -> None:
    """Two spaces, a space after colons, empty lists in one line, no newline at the end."""
    compact = json.loads((GOLDEN / f"{name}.compact.json").read_bytes())
    assert ir_text(golden(name)) == json.dumps(compact, ensure_ascii=False, indent=2)


@pytest.mark.parametrize("name", ["people", "documents"])
def test_stored_text_reads_back_to_the_same_value(name: str) -> None:
    """Reading what was written loses nothing."""
    assert parse_ir(ir_text(golden(name))) == golden(name)
    assert parse_ir(ir_bytes(golden(name)).decode()) == golden(name)


def test_identities_are_fnv1a_of_kind_and_names() -> None:
    """Known identities of the worked examples."""
    assert type_id("node", name="Person") == 3227219152
    assert type_id("interface", name="Slugged") == 443139427
    assert property_id("edge", type_name="Knows", name="since") == 2596498354


def test_order_and_layout_of_the_text_do_not_matter() -> None:
    """Two spellings of one schema have one hash."""
    one = "node B { x: I32 @unique @index y: String @key } edge E: B -> A node A { } interface I {} interface H {}"
    two = """interface H {} interface I {}
    edge E: B -> A // comment
    node A {} node B { @index(x) y: String @key x: I32 @unique @index }"""
    assert ir_bytes(compiled(one)) != ir_bytes(compiled(two))  # @index is there twice in the second
    assert ir_bytes(compiled(one)) == ir_bytes(compiled(two.replace("@index(x)", "")))


def test_lists_are_sorted_as_the_format_says() -> None:
    """Annotations by name and value, columns by name, constraints by their text, nothing dropped but interfaces."""
    (node,) = compiled(
        """interface I {} interface H {}
        node N @b(z) @b(a) @b @a(x, k=1) @b(a) implements I, H, I {
            p: I32 q: I32 @key(q, p) @unique(q, p) @index(q) @index(p) @index(p)
            @range(p, 5..) @range(p, 10..) @range(p, 0.5..)
        }"""
    ).nodes
    assert node.annotations == (
        Annotation("a", "x", (("k", "1"),)),
        Annotation("b"),
        Annotation("b", "a"),
        Annotation("b", "a"),
        Annotation("b", "z"),
    )
    assert node.implements == ("H", "I")
    assert node.constraints[:4] == (
        IndexConstraint(("p",)),
        IndexConstraint(("p",)),
        IndexConstraint(("q",)),
        KeyConstraint(("p", "q")),
    )
    assert node.constraints[-1] == UniqueConstraint(("p", "q"))


def test_range_constraints_sort_by_the_text_of_their_bounds() -> None:
    """Text order: Float before Integer, 10 before 5."""
    (node,) = compiled("node N { p: I32 @range(p, 5..) @range(p, 10..) @range(p, 0.5..) @range(p, -1..) }").nodes
    bounds = [c.minimum for c in node.constraints]  # type: ignore[union-attr]
    assert bounds == [0.5, -1, 10, 5]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (10.0, "10.0"),
        (0.5, "0.5"),
        (0.1 + 0.2, "0.30000000000000004"),
        (0.0001, "0.0001"),
        (9007199254740993.0, "9007199254740992.0"),
        (0.00001, "0.00001"),
        (-0.000015, "-0.000015"),
        (0.000001, "1e-6"),
        (1e16, "1e16"),
        (1.5e300, "1.5e300"),
        (5e-324, "5e-324"),
    ],
)
def test_floats_are_spelled_as_the_format_does(value: float, text: str) -> None:
    """Shortest round trip, always a fraction or an unpadded exponent."""
    assert float_text(value) == text
    assert float(text) == value


def test_texts_are_escaped_as_the_format_does() -> None:
    """Non-ASCII and slashes stay raw, controls get their short escape or a lower-case one."""
    text = 'node N @x("é/\\"\\\\\\n\x08\x0c\x1f\x7f") {}'
    assert b'"value":"\xc3\xa9/\\"\\\\\\n\\b\\f\\u001f\x7f"' in ir_bytes(compiled(text))


def test_unknown_keys_are_skipped_and_do_not_change_the_hash() -> None:
    """A hash is taken over what is written again."""
    document = json.loads(ir_text(golden("documents")))

    def grown(value: object) -> object:
        if isinstance(value, list):
            return [grown(item) for item in value]
        if not isinstance(value, dict):
            return value
        more = {key: grown(item) for key, item in value.items()}
        # One-key objects are variants and keyword maps: their keys are values.
        return {"future": [1], **more} if len(value) > 1 else more

    assert schema_ir_hash(parse_ir(json.dumps(grown(document)))) == DOCUMENTS_HASH


def test_optional_keys_may_be_absent() -> None:
    """A missing optional value is null."""
    document = json.loads(ir_text(golden("people")))
    del document["edges"][0]["cardinality"]["max"]
    del document["nodes"][0]["properties"][0]["prop_type"]["enum_values"]
    del document["nodes"][0]["properties"][0]["annotations"][0]["value"]
    assert schema_ir_hash(parse_ir(json.dumps(document))) == PEOPLE_HASH


def test_whole_numbers_may_stand_for_float_bounds() -> None:
    """A float bound written without a fraction gets one when it is written again."""
    text = ir_text(golden("documents")).replace('"Float": 0.0', '"Float": 0')
    assert schema_ir_hash(parse_ir(text)) == DOCUMENTS_HASH


@pytest.mark.parametrize("version", ["2", "true", '"1"', "null"])
def test_other_ir_versions_are_refused(version: str) -> None:
    """Only version 1 is read, and the message says which one was found."""
    with pytest.raises(FormatError, match="ir_version"):
        parse_ir(f'{{"ir_version": {version}, "interfaces": [], "nodes": [], "edges": []}}')


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"name": "Person"', '"name": 5'),
        ('"type_id": 3227219152', '"type_id": -1'),
        ('"type_id": 3227219152', '"type_id": 4294967296'),
        ('"type_id": 3227219152', '"type_id": 1.5'),
        ('"nullable": true', '"nullable": 1'),
        ('"scalar": "I32"', '"scalar": "I33"'),
        ('"scalar": "I32"', '"scalar": "Vector"'),
        ('"scalar": "I32"', '"scalar": {"Matrix": 3}'),
        ('"scalar": "I32"', '"scalar": {"Vector": 0}'),
        ('"min": 0', '"min": -1'),
        ('"implements": []', '"implements": {}'),
        ('"Key": [', '"Kee": ['),
        ('"constraints": []', '"constraints": [{"Range": {"property": "p", "min": {"Real": 1}}}]'),
        ('"constraints": []', '"constraints": [{"Range": {"property": "p", "min": {"Float": null}}}]'),
        ('"constraints": []', f'"constraints": [{{"Range": {{"property": "p", "min": {{"Float": 1{"0" * 400}}}}}}}]'),
        ('"constraints": []', '"constraints": [{"Check": {"property": "p", "pattern": null}}]'),
        ('"constraints": []', '"constraints": ["Key"]'),
        ('"constraints": []', '"constraints": [NaN]'),
        ('"value": null', '"value": null, "kwargs": []'),
        ('"edges": [', '"edges": null, "x": ['),
    ],
)
def test_malformed_documents_are_refused(old: str, new: str) -> None:
    """Whatever does not fit is a format error, never a crash."""
    text = ir_text(golden("people"))
    assert old in text
    with pytest.raises(FormatError):
        parse_ir(text.replace(old, new, 1))


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "[" * 100_000, "\x00", '{"ir_version": 1}'])
def test_what_is_no_compiled_schema_is_refused(text: str) -> None:
    """Any other text is a format error."""
    with pytest.raises(FormatError):
        parse_ir(text)


def test_the_document_has_its_keys_in_order() -> None:
    """Key order is part of the format."""
    assert list(ir_document(golden("people"))) == ["ir_version", "interfaces", "nodes", "edges"]
