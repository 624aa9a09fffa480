"""Schema text to declarations."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from omnigraph_spark.errors import SchemaError
from omnigraph_spark.schema.declarations import (
    Annotation,
    Cardinality,
    CheckConstraint,
    IndexConstraint,
    KeyConstraint,
    NodeDecl,
    Position,
    PropertyType,
    RangeConstraint,
    Scalar,
    UniqueConstraint,
)
from omnigraph_spark.schema.parse import parse_declarations, parse_schema


def node(body: str, *, header: str = "") -> NodeDecl:
    """Parse one node with a body."""
    return parse_declarations(f"node T {header} {{ {body} }}").nodes[0]


def property_type(text: str) -> PropertyType:
    """Parse one property type."""
    return node(f"p: {text}").properties[0].type


def refused(text: str) -> tuple[str, int | None, int | None]:
    """Return rule, line and column of the error of a text."""
    with pytest.raises(SchemaError) as caught:
        parse_schema(text)
    return caught.value.rule, caught.value.line, caught.value.column


def test_an_empty_text_is_an_empty_schema() -> None:
    """No declaration is required."""
    assert parse_schema(" // nothing\n/* at all */").declarations == ()


@pytest.mark.parametrize("scalar", [s for s in Scalar if s is not Scalar.VECTOR])
def test_every_base_type_parses(scalar: Scalar) -> None:
    """Each base type parses plain, nullable and, Blob aside, as a list."""
    assert property_type(scalar.value) == PropertyType(scalar)
    assert property_type(f"{scalar.value} ?") == PropertyType(scalar, nullable=True)
    if scalar is not Scalar.BLOB:
        assert property_type(f"[ {scalar.value} ]?") == PropertyType(scalar, nullable=True, is_list=True)


def test_enum_values_are_sorted() -> None:
    """An enum is a String whose values are kept sorted."""
    assert property_type("enum(open, closed, -x, 0)").enum_values == ("-x", "0", "closed", "open")
    assert property_type("enum(a)").scalar is Scalar.STRING


def test_vector_keeps_its_dimension() -> None:
    """Leading zeros do not matter and the largest dimension is allowed."""
    assert property_type("Vector(007)").dimension == 7
    assert property_type("Vector(2147483647)?").dimension == 2147483647


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (PropertyType(Scalar.I32, nullable=True), "I32?"),
        (PropertyType(Scalar.DATE, is_list=True), "[Date]"),
        (PropertyType(Scalar.VECTOR, dimension=3), "Vector(3)"),
        (PropertyType(Scalar.STRING, nullable=True, enum_values=("a", "b")), "enum(a, b)?"),
    ],
)
def test_types_spell_themselves_as_schema_text(type_: PropertyType, text: str) -> None:
    """The text of a type parses back to it."""
    assert type_.text == text
    assert property_type(text) == type_


def test_blanks_and_comments_are_never_required() -> None:
    """Keywords need no space after them, types none before the next property."""
    schema = parse_declarations("nodePerson{name:Stringage:I32?tags:[Date]x:Bool}edgeKnows:Person->Person{}nodeB{}")
    assert [node.name for node in schema.nodes] == ["Person", "B"]
    properties = [(p.name, p.type.text) for p in schema.nodes[0].properties]
    assert properties == [("name", "String"), ("age", "I32?"), ("tags", "[Date]"), ("x", "Bool")]


def test_a_property_may_be_named_like_a_keyword() -> None:
    """Inside a body node, edge, interface and implements are plain names, also after an annotation."""
    declared = node("node: I32 @a edge: I32 @b(c) implements: I32 interface: I32? @d key: I32")
    assert [p.name for p in declared.properties] == ["node", "edge", "implements", "interface", "key"]


def test_a_keyword_may_touch_the_name_after_it() -> None:
    """After an edge without a body the next declaration needs no separator."""
    schema = parse_declarations("edge E: A -> B @x nodeA{}node B{}interfaceI{}")
    assert [n.name for n in schema.nodes] == ["A", "B"]
    assert schema.interfaces[0].name == "I"


@pytest.mark.parametrize("gap", ["", " ", "\t\r\n", "// c\n", "/* * / ** */", " /**/ // ( \n /* @key( */ "])
def test_gaps_may_hold_any_blanks_and_comments(gap: str) -> None:
    """Comments between tokens change nothing, inside a constraint's look-ahead too."""
    tokens = ["node", "T", "{", "a", ":", "String", "@", "key", "@", "index", "(", "a", ")", "}"]
    declared = parse_declarations(gap.join(tokens)).nodes[0]
    assert [a.name for a in declared.properties[0].annotations] == ["key"]
    assert declared.constraints == (IndexConstraint(("a",)), KeyConstraint(("a",)))


def test_a_marker_without_parentheses_is_an_annotation_and_implies_a_constraint() -> None:
    """The bare forms stay on the property and add one single-column constraint each, after the body's own."""
    declared = node("a: String @key @unique @index @unique(a)")
    assert [a.name for a in declared.properties[0].annotations] == ["key", "unique", "index"]
    assert declared.constraints == (
        UniqueConstraint(("a",)),
        KeyConstraint(("a",)),
        UniqueConstraint(("a",)),
        IndexConstraint(("a",)),
    )


def test_a_constraint_name_is_matched_whole_before_its_parenthesis() -> None:
    """A longer word is an annotation even when it starts like a constraint."""
    declared = node("a: I32 @keyed(a) @range @checks")
    assert [a.name for a in declared.properties[0].annotations] == ["keyed", "range", "checks"]
    assert declared.constraints == ()


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("5", "5"),
        ("1.50", "1.50"),
        ("true", "true"),
        ("bar", "bar"),
        ('"x y"', "x y"),
        (r'"\"\\\n\r\t"', '"\\\n\r\t'),
        ('"two\nlines"', "two\nlines"),
        ('"\x00é😀"', "\x00é😀"),
    ],
)
def test_annotation_values_are_kept_as_text(source: str, value: str) -> None:
    """Whatever an annotation is given, it holds text."""
    assert node("", header=f"@foo({source})").annotations == (Annotation("foo", value),)


def test_keyword_arguments_are_sorted_and_the_last_of_a_name_wins() -> None:
    """Keyword arguments form an ordered map."""
    (annotation,) = node("", header='@foo(a, z=1, b="x", z=true, trueish=2)').annotations
    assert annotation.kwargs == (("b", "x"), ("trueish", "2"), ("z", "true"))


@pytest.mark.parametrize(
    ("source", "minimum", "maximum"),
    [
        ("0..200", 0, 200),
        ("0.0 .. 10", 0.0, 10),
        ("-5..", -5, None),
        ("..100", 100, None),
        ("..-1.5", -1.5, None),
        ("-0..-0.0", 0, -0.0),
        ("9223372036854775807..9223372036854775808", 2**63 - 1, 2.0**63),
    ],
)
def test_range_bounds(source: str, minimum: float, maximum: float | None) -> None:
    """Bounds are 64-bit integers where possible, else floats; an open minimum stores its bound as the minimum."""
    (constraint,) = node(f"@range(p, {source})").constraints
    assert isinstance(constraint, RangeConstraint)
    assert repr((constraint.minimum, constraint.maximum)) == repr((minimum, maximum))


def test_further_constraint_arguments_are_ignored() -> None:
    """Range and check read two arguments and skip the rest."""
    declared = node('@range(p, 1..2, 3) @check(p, "x", "\\q", 1..)')
    assert declared.constraints == (RangeConstraint("p", 1, 2), CheckConstraint("p", "x"))


@pytest.mark.parametrize(
    ("header", "cardinality"),
    [
        ("", Cardinality(0, None)),
        ("@card(0..1)", Cardinality(0, 1)),
        ("@card ( 2 .. )", Cardinality(2, None)),
        ("@card(4294967295..4294967295) @x", Cardinality(4294967295, 4294967295)),
    ],
)
def test_cardinality(header: str, cardinality: Cardinality) -> None:
    """The cardinality directly follows the target type; without it any number is allowed."""
    assert parse_declarations(f"edge E: A -> B {header}").edges[0].cardinality == cardinality


def test_annotations_that_begin_like_card_stay_annotations() -> None:
    """Only the full cardinality form is one."""
    edge = parse_declarations("edge E: A -> B @cardinal @card(5)").edges[0]
    assert edge.annotations == (Annotation("cardinal"), Annotation("card", "5"))
    assert edge.cardinality == Cardinality()


def test_interface_properties_are_appended_with_their_constraints() -> None:
    """A node takes over what it lacks, in interface order, annotations and implied constraints included."""
    (declared,) = parse_schema(
        "node T implements B, A { own: I32 } interface A { a: I32 @index b: I64 } interface B { b: I64 @unique }"
    ).nodes
    assert [p.name for p in declared.properties] == ["own", "b", "a"]
    assert declared.constraints == (UniqueConstraint(("b",)), IndexConstraint(("a",)))


def test_own_properties_keep_their_own_annotations() -> None:
    """A property the node declares itself takes nothing from the interface."""
    (declared,) = parse_schema("interface A { a: I32? @index } node T implements A, A { a: I32? }").nodes
    assert declared.properties[0].annotations == ()
    assert declared.constraints == ()


def test_positions_point_at_names_and_at_signs() -> None:
    """Lines and columns count from 1."""
    declared = parse_declarations("\nnode T @x {\n  p: I32 @y\n  @index(p)\n}").nodes[0]
    assert declared.position == Position(2, 6)
    assert declared.annotations[0].position == Position(2, 8)
    assert declared.properties[0].position == Position(3, 3)
    assert declared.properties[0].annotations[0].position == Position(3, 10)
    assert declared.constraints[0].position == Position(4, 3)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("node person {}", 1, 6),
        ("node A {", 1, 9),
        ("node A {\n", 2, 1),
        ("no", 1, 1),
        ("/* never closed", 1, 1),
        ('node A @x("never closed', 1, 11),
        ("node A { p: I32 @foo(trueish) }", 1, 26),
        ("node A { @index(falsely) }", 1, 22),
        ("node A @key(p) { p: I32 }", 1, 8),
        ("node A implements B @x {}", 1, 21),
        ("interface A { p: I32 @key(p) }", 1, 22),
        ("edge E: A -> B @x @card(0..1)", 1, 26),
        ("node A { p: [[I32]] }", 1, 14),
        ("node A { p: [enum(a)] }", 1, 14),
        ("node A { p: [Vector(2)] }", 1, 14),
        ("node A { @range(p, -5) }", 1, 22),
        ("node A { @index() }", 1, 17),
        ("node A { p: I33 }", 1, 13),
        ("\x00", 1, 1),
        ("\ufeffnode A {}", 1, 1),
        ("node A { p: enum() }", 1, 18),
    ],
)
def test_syntax_errors_say_where(text: str, line: int, column: int) -> None:
    """Ill-formed text is refused at the place where it stops making sense."""
    assert refused(text) == ("syntax", line, column)


@pytest.mark.parametrize(
    ("text", "rule", "line", "column"),
    [
        ('node A @x("\\q") {}', "string-escape", 1, 11),
        ("node A { p: enum(a, b,\n a) }", "enum-duplicate", 2, 2),
        ("node A { p: Vector(0) }", "vector-dimension", 1, 20),
        ("node A { p: Vector(2147483648) }", "vector-dimension", 1, 20),
        (f"node A {{ p: Vector({'9' * 9000}) }}", "vector-dimension", 1, 20),
        ("node A { p: [Blob] }", "list-blob", 1, 14),
        ("edge E: A -> A @card(4294967296..)", "cardinality-size", 1, 22),
        ("edge E: A -> A @card(2..1)", "cardinality-order", 1, 16),
        ("node A { p: I32 @index(5) }", "constraint-arguments", 1, 17),
        ("node A { p: I32 @range(p) }", "constraint-arguments", 1, 17),
        ("node A { p: I32 @range(p, 5) }", "constraint-arguments", 1, 17),
        ("node A { p: String @check(p, p) }", "constraint-arguments", 1, 20),
        (f"node A {{ p: I32 @range(p, {'9' * 9000}..) }}", "range-bound-size", 1, 27),
        ("node A {}\n\ud800", "encoding", 2, 1),
    ],
)
def test_literal_errors_name_their_rule(text: str, rule: str, line: int, column: int) -> None:
    """Well-formed text with an impossible literal is refused with the rule's name."""
    assert refused(text) == (rule, line, column)


def test_syntax_errors_say_what_was_expected() -> None:
    """The message lists what could have stood there in words."""
    with pytest.raises(SchemaError, match=r"unexpected '\)'; expected one of: .*a lower-case name.*a string"):
        parse_schema("node A { @index() }")
    with pytest.raises(SchemaError, match="ends too early"):
        parse_schema("node A {")


def test_large_and_hostile_texts_stay_linear() -> None:
    """Thousands of comment marks, escapes or properties neither hang nor overflow."""
    many = "".join(f"p{i}: I32 /* c */ // d\n" for i in range(2000))
    assert len(parse_schema(f"node A {{ {many} }}").nodes[0].properties) == 2000
    for tail in ("// a " * 20000, "/* a " * 20000, "/* a */" * 20000 + "key", '@x("' + '\\"' * 50000, "[" * 50000):
        assert refused(f"node A {{ p: I32 @{tail}")[0] == "syntax"


def test_the_grammar_loads_from_a_zipped_package(tmp_path: Path) -> None:
    """Executors may import the package from a zip: the grammar comes along."""
    package = Path(sys.modules[parse_schema.__module__].__file__ or "").parent
    archive = tmp_path / "zipped.zip"
    with zipfile.ZipFile(archive, "w") as bundle:
        bundle.writestr("omnigraph_spark/__init__.py", "")
        bundle.write(package.parent / "errors.py", "omnigraph_spark/errors.py")
        for file in (*package.glob("*.py"), package / "grammar.lark"):
            bundle.write(file, f"omnigraph_spark/schema/{file.name}")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from omnigraph_spark.schema import parse\n"
        "assert '.zip' in parse.__file__\n"
        "assert parse.parse_schema('node A {}').nodes[0].name == 'A'\n"
    )
    subprocess.run([sys.executable, "-c", code, str(archive)], check=True, cwd=tmp_path)
