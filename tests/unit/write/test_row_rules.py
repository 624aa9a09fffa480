"""Rules of single rows agree with plain Python on every value; nulls are exempt from all of them."""

from __future__ import annotations

import math
import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph_spark import SchemaError, ValidationError
from omnigraph_spark.schema.catalog import GraphType
from omnigraph_spark.schema.contract import check_contract
from omnigraph_spark.write.row_rules import check_rows

quietly = settings(max_examples=150, derandomize=True, deadline=None)


def type_of(body: str) -> GraphType:
    """Return a node type with a body."""
    return check_contract(f"node T {{ {body} }}", None, None, other_branches=False).catalog.resolve("T")


def broken(graph_type: GraphType, column: pa.Array) -> list[int]:
    """Return the numbers of the rows whose ``p`` breaks a rule."""
    rows = pa.record_batch({"id": pa.array([f"r{n}" for n in range(len(column))], pa.string()), "p": column})
    try:
        check_rows(rows, graph_type)
    except ValidationError as e:
        return sorted(int((v.row_id or "")[1:]) for v in e.violations)
    return []


@quietly
@given(st.lists(st.one_of(st.none(), st.integers(-10, 20)), max_size=20))
def test_ranges_of_whole_numbers(values: list[int | None]) -> None:
    """Both bounds are inside."""
    ranged = type_of("p: I32? @range(p, 0..9)")
    wrong = [n for n, v in enumerate(values) if v is not None and not 0 <= v <= 9]
    assert broken(ranged, pa.array(values, pa.int32())) == wrong


@quietly
@given(st.lists(st.one_of(st.none(), st.floats(width=32)), max_size=20))
def test_half_open_ranges_of_floats(values: list[float | None]) -> None:
    """An absent bound bounds nothing, but what is not a number is in no range."""
    ranged = type_of("p: F64? @range(p, 0.5..)")
    wrong = [n for n, v in enumerate(values) if v is not None and (math.isnan(v) or v < 0.5)]
    assert broken(ranged, pa.array(values, pa.float64())) == wrong


@quietly
@given(st.lists(st.one_of(st.none(), st.sampled_from(["on", "off", "On", "", "of"])), max_size=20))
def test_enums(values: list[str | None]) -> None:
    """A value is one of the listed ones, letter by letter."""
    wrong = [n for n, v in enumerate(values) if v is not None and v not in ("on", "off")]
    assert broken(type_of("p: enum(on, off)?"), pa.array(values, pa.string())) == wrong


@quietly
@given(st.lists(st.one_of(st.none(), st.text("aB1 \n", max_size=4)), max_size=20))
def test_patterns_search_anywhere(values: list[str | None]) -> None:
    """A pattern is searched for, not anchored."""
    wrong = [n for n, v in enumerate(values) if v is not None and not re.search("a[0-9]", v)]
    assert broken(type_of('p: String? @check(p, "a[0-9]")'), pa.array(values, pa.string())) == wrong


def test_a_pattern_that_is_none() -> None:
    """A pattern that cannot be compiled is the schema's fault, and named."""
    with pytest.raises(SchemaError, match=r"T\.p"):
        broken(type_of('p: String? @check(p, "a(")'), pa.array(["a"]))


def test_every_rule_of_a_row_is_reported() -> None:
    """One value may break several rules."""
    twice = type_of('p: String? @check(p, "^a") @check(p, "b$")')
    with pytest.raises(ValidationError) as caught:
        check_rows(pa.record_batch({"id": ["x"], "p": ["cc"]}), twice)
    assert [v.rule for v in caught.value.violations] == ["check", "check"]
    assert caught.value.total == 2
