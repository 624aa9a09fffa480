"""Any text at all: a schema or a SchemaError, nothing else."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph_spark.errors import SchemaError
from omnigraph_spark.schema.compile import compile_schema
from omnigraph_spark.schema.declarations import Schema
from omnigraph_spark.schema.ir import ir_bytes, ir_text
from omnigraph_spark.schema.ir_reader import parse_ir
from omnigraph_spark.schema.parse import parse_schema

WORDS = [
    *(
        "node",
        "edge",
        "interface",
        "implements",
        "enum",
        "Vector",
        "String",
        "I32",
        "F64?",
        "[Date]",
        "Blob",
        "DateTime",
    ),
    *("A", "B", "Person", "p", "q", "id", "src", "true", "falsely", "_x"),
    *("{", "}", "(", ")", "[", "]", ":", "->", "..", ",", "=", "?", "@", "-", "//", "/*", "*/", "\n", '"', "\\", "\\n"),
    *(
        "@key",
        "@unique",
        "@index(p)",
        "@range(p, 0..1)",
        '@check(p, "x")',
        "@card(0..1)",
        "@embed(p)",
        '@description("d")',
    ),
    *("0", "1.5", "-2", "9" * 5000, "\x00", "\ud800", "é", "😀"),
    *("node A {", "p: I32", "edge E: A -> A", "interface I { p: I32 }"),
]
BUDGET = settings(
    max_examples=300, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def parsed(text: str) -> Schema | SchemaError:
    """Parse, returning the error where there is one."""
    try:
        return parse_schema(text)
    except SchemaError as error:
        return error


def survives(text: str) -> None:
    """Parse; an error has its rule and place, and whatever parses also compiles and reads back unchanged."""
    result = parsed(text)
    if isinstance(result, SchemaError):
        assert result.rule
        assert (result.line or 0) >= 1
        assert (result.column or 0) >= 1
    else:
        ir = compile_schema(result)
        assert ir_bytes(parse_ir(ir_text(ir))) == ir_bytes(ir)


@BUDGET
@given(st.text())
def test_any_text_is_a_schema_or_a_schema_error(text: str) -> None:
    """Arbitrary characters never crash the parser."""
    survives(text)


@BUDGET
@given(st.lists(st.sampled_from(WORDS), max_size=40), st.sampled_from(["", " "]))
def test_any_run_of_tokens_is_a_schema_or_a_schema_error(words: list[str], gap: str) -> None:
    """Token soup never crashes the parser, with and without blanks."""
    survives(gap.join(words))


@BUDGET
@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_any_node_body_is_a_schema_or_a_schema_error(words: list[str]) -> None:
    """Token soup in a place where much of it is legal never crashes the parser or the rules."""
    survives(f"node A {{ p: I32 {' '.join(words)} }}")
