"""The rules a well-formed schema must obey."""

from __future__ import annotations

import pytest

from omnigraph_spark.errors import SchemaError
from omnigraph_spark.schema import ids
from omnigraph_spark.schema.parse import parse_schema

BROKEN = [
    ("node A @key {}", "header-annotation", 1, 8),
    ("node A @unique {}", "header-annotation", 1, 8),
    ("node A @index {}", "header-annotation", 1, 8),
    ("node A @embed(x) {}", "header-annotation", 1, 8),
    *[
        (f"node A {{}}\nedge E: A -> A {mark}", "header-annotation", 2, 16)
        for mark in ("@key", "@unique", "@index", "@embed(x)")
    ],
    ('node A @description("a")\n@description("b") {}', "text-annotation-once", 2, 1),
    ('node A {}\nedge E: A -> A @instruction("a") @instruction("b")', "text-annotation-once", 2, 34),
    ('node A {\n p: I32 @description("a") @description("b")\n}', "text-annotation-once", 2, 27),
    ("node A @description {}", "text-annotation-blank", 1, 8),
    ('node A @instruction(" \\t") {}', "text-annotation-blank", 1, 8),
    ('node A { p: I32 @description("") }', "text-annotation-blank", 1, 17),
    ('node A { p: I32 @instruction("x") }', "instruction-on-property", 1, 17),
    ("node A { p: [I32] @key }", "list-annotation", 1, 19),
    ("node A { p: [I32] @unique }", "list-annotation", 1, 19),
    ("node A { p: [I32] @index }", "list-annotation", 1, 19),
    ("node A { p: [String] @embed(p) }", "list-annotation", 1, 22),
    ("node A { p: Vector(2) @key }", "vector-annotation", 1, 23),
    ("node A { p: Vector(2) @unique }", "vector-annotation", 1, 23),
    ("node A { p: Blob @key }", "blob-annotation", 1, 18),
    ("node A { p: Blob @unique }", "blob-annotation", 1, 18),
    ("node A { p: Blob @index }", "blob-annotation", 1, 18),
    ("node A { p: Blob @embed(p) }", "blob-annotation", 1, 18),
    ("node A {}\nedge E: A -> A { p: I32 @key }", "edge-property-annotation", 2, 25),
    (
        "node A {}\nedge E: A -> A { s: String v: Vector(2) @embed(s) }",
        "edge-property-annotation",
        2,
        41,
    ),
    ("node A { p: I32 @key @key }", "annotation-once", 1, 22),
    ("node A { p: I32 @unique @unique }", "annotation-once", 1, 25),
    ("node A { p: I32 @index @index }", "annotation-once", 1, 24),
    ("node A { s: String v: Vector(2) @embed(s) @embed(s) }", "annotation-once", 1, 43),
    ("node A { s: String v: String @embed(s) }", "embed-vector", 1, 30),
    ("node A { v: Vector(2) @embed }", "embed-source", 1, 23),
    ("node A { v: Vector(2) @embed(s) }", "embed-source", 1, 23),
    ("node A { s: [String] v: Vector(2) @embed(s) }", "embed-source", 1, 35),
    ("node A { s: I32 v: Vector(2) @embed(s) }", "embed-source", 1, 30),
    ('node A { s: String v: Vector(2) @embed(s, modl="m") }', "embed-argument", 1, 33),
    ("node A { p: I32 @key q: I32 @key }", "node-key-once", 1, 29),
    ("node A { p: I32 @key\n @key(p) }", "node-key-once", 1, 17),
    ("node A { @key(p) }", "key-column", 1, 10),
    ("node A { p: I32? @key }", "key-nullable", 1, 18),
    ("node A { p: I32 q: I32? @key(p, q) }", "key-nullable", 1, 25),
    ("node A { p: [I32] @key(p) }", "key-type", 1, 19),
    ("node A { p: Vector(2) @key(p) }", "key-type", 1, 23),
    ("node A { p: Blob @key(p) }", "key-type", 1, 18),
    ("node A { @unique(p) }", "unique-column", 1, 10),
    ("node A { @unique(src) }", "unique-column", 1, 10),
    ("node A { @index(p) }", "index-column", 1, 10),
    ("node A {}\nedge E: A -> A { @unique(src, p) }", "unique-column", 2, 18),
    ("node A {}\nedge E: A -> A { @index(p) }", "index-column", 2, 18),
    ("node A {}\nedge E: A -> A { p: Blob @index(p) }", "index-blob", 2, 26),
    ("node A { p: Blob @index(p) }", "index-blob", 1, 18),
    ("node A { @range(p, 0..1) }", "range-column", 1, 10),
    ("node A { p: String @range(p, 0..1) }", "range-type", 1, 20),
    ("node A { p: DateTime @range(p, 0..1) }", "range-type", 1, 22),
    ("node A {}\nedge E: A -> A { p: I32 @range(p, 0..1) }", "range-edge", 2, 25),
    ('node A { @check(p, "x") }', "check-column", 1, 10),
    ('node A { p: I32 @check(p, "x") }', "check-type", 1, 17),
    ('node A {}\nedge E: A -> A { p: String @check(p, "x") }', "check-edge", 2, 28),
    ("node A {}\nedge E: A -> A { p: I32 @key(p) }", "key-edge", 2, 25),
    ("node A implements I {}", "implements-unknown", 1, 19),
    ("interface I { p: I32 }\nnode A implements I { p: I32? }", "implements-type", 2, 23),
    ("interface I { p: enum(a) }\nnode A implements I { p: enum(b) }", "implements-type", 2, 23),
    ("interface I { p: I32 }\nnode A implements I { p: [I32] }", "implements-type", 2, 23),
    ("node A {}\nnode A {}", "duplicate-type", 2, 6),
    ("interface A {} interface A {}", "duplicate-type", 1, 26),
    ("node A {} edge E: A -> A edge E: A -> A", "duplicate-type", 1, 31),
    ("node A { p: I32 p: I64 }", "duplicate-property", 1, 17),
    ("interface A { p: I32 p: I32 }", "duplicate-property", 1, 22),
    ("edge E: A -> B node B {}", "edge-endpoint", 1, 9),
    ("node A {} edge E: A -> B", "edge-endpoint", 1, 24),
    ("interface A {} edge E: A -> A", "edge-endpoint", 1, 24),
    ("node A {} edge Ab: A -> A edge AB: A -> A", "edge-name-case", 1, 32),
    ("node A { id: String }", "reserved-name", 1, 10),
    ("interface A { id: String }", "reserved-name", 1, 15),
    ("node A {} edge E: A -> A { id: String }", "reserved-name", 1, 28),
    ("node A {} edge E: A -> A { src: String }", "reserved-name", 1, 28),
    ("node A {} edge E: A -> A { dst: String }", "reserved-name", 1, 28),
    *[
        (f"node A {{ {name}: String }}", "reserved-name", 1, 10)
        for name in (
            "_rowid",
            "_rowaddr",
            "_rowoffset",
            "_row_created_at_version",
            "_row_last_updated_at_version",
        )
    ],
]


@pytest.mark.parametrize(("text", "rule", "line", "column"), BROKEN)
def test_a_broken_rule_is_named_with_its_place(text: str, rule: str, line: int, column: int) -> None:
    """Each rule refuses its case with its name, line and column, in the error's text too."""
    with pytest.raises(SchemaError) as caught:
        parse_schema(text)
    assert (caught.value.rule, caught.value.line, caught.value.column) == (rule, line, column)
    assert f"line {line}, column {column}: " in str(caught.value)
    assert f"(rule: {rule})" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "node A {} edge A: A -> A interface A {}",
        "node Ab {} node AB {}",
        "node A { src: String dst: String }",
        "node A {} edge E: A -> A { p: I32 @unique @index @unique(src, dst) @index(dst, p) }",
        "node A { s: String v: Vector(2)? @embed(s, model=1) @index }",
        'node A { s: enum(a) v: Vector(2) @embed(s) @check(s, "a") }',
        "node A { p: Blob @unique(p) q: [I32] @unique(q) @index(q) }",
        'node A { p: [I32] @range(p, 0..1) q: [String] @check(q, "x") }',
        "node A { p: I32 q: I32 @key(q, p) }",
        "node A @made_up(x) { p: I32 @made_up @made_up }",
        "interface I { p: [I32] @key @key @instruction q: Vector(2) @embed }",
        "node A { p: I32 @rename_from(old) }",
    ],
)
def test_what_no_rule_forbids_is_accepted(text: str) -> None:
    """Unknown annotations, shared names over kinds and unused interfaces are no errors."""
    assert parse_schema(text).declarations


def test_interface_marks_are_judged_where_a_node_takes_them_over() -> None:
    """The place of the error is the interface's annotation."""
    with pytest.raises(SchemaError) as caught:
        parse_schema("interface I { p: Blob @key }\nnode A implements I {}")
    assert (caught.value.rule, caught.value.line, caught.value.column) == ("blob-annotation", 1, 23)


def test_the_first_problem_in_source_order_is_reported() -> None:
    """Of several problems the one written first is raised, whatever rule finds it."""
    text = "node A { p: I32? @key }\nnode B implements X {}\nedge E: A -> C"
    with pytest.raises(SchemaError) as caught:
        parse_schema(text)
    assert caught.value.rule == "key-nullable"


def test_two_names_with_one_identity_cannot_share_a_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collision of 32-bit identities is refused for types and for properties."""
    monkeypatch.setattr(ids, "_PRIME", 0)
    with pytest.raises(SchemaError) as types:
        parse_schema("node A {} node B {}")
    assert (types.value.rule, types.value.line, types.value.column) == ("id-collision", 1, 16)
    with pytest.raises(SchemaError) as properties:
        parse_schema("node A { p: I32 q: I32 }")
    assert (properties.value.rule, properties.value.column) == ("id-collision", 17)
