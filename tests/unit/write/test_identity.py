"""Ids: fresh ones are valid and never repeat, keys have one canonical text, and a given id is kept or refused."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import textwrap
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ulid import ULID

from omnigraph_spark import SchemaError, ValidationError
from omnigraph_spark.schema.catalog import GraphType
from omnigraph_spark.schema.contract import check_contract
from omnigraph_spark.schema.declarations import Scalar
from omnigraph_spark.storage.seams import DEFAULT_SEAMS, Seams
from omnigraph_spark.write.identity import fresh_ids, identified, key_ids
from omnigraph_spark.write.transaction import arrow_batches


def type_of(pg: str, name: str = "T") -> GraphType:
    """Return a type of a schema text."""
    return check_contract(pg, None, None, other_branches=False).catalog.resolve(name)


def ids_of(rows: list[dict[str, Any]], graph_type: GraphType) -> list[str]:
    """Return the ids that rows get."""
    (batch,) = arrow_batches(rows)
    shaped, _ = identified(batch, graph_type, seams=DEFAULT_SEAMS)
    found: list[str] = shaped.column("id").to_pylist()
    return found


def test_fresh_ids_are_ulids_of_their_time() -> None:
    """A fresh id is a ULID: 26 letters, its time in front, and no two alike."""
    at = 1_700_000_000_123
    made = fresh_ids(1_000, seams=Seams(now_micros=lambda: at * 1_000)).to_pylist()
    assert len(set(made)) == 1_000
    for text in made:
        parsed = ULID.from_str(text)
        assert parsed.milliseconds == at
        assert str(parsed) == text
    assert fresh_ids(0, seams=DEFAULT_SEAMS).to_pylist() == []


def test_forked_processes_make_different_ids() -> None:
    """Workers that were forked from one process, and so share its memory, share no id."""
    script = """
        import os, sys
        from omnigraph_spark.storage.seams import Seams
        from omnigraph_spark.write.identity import fresh_ids
        seams = Seams(now_micros=lambda: 0)
        fresh_ids(1, seams=seams)
        children = []
        for _ in range(4):
            child = os.fork()
            if not child:
                os.write(1, ("\\n".join(fresh_ids(200, seams=seams).to_pylist()) + "\\n").encode())
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    made = done.stdout.split()
    assert len(made) == 800
    assert len(set(made)) == 800


@pytest.mark.parametrize(
    ("type_text", "value", "text"),
    [
        ("String", "it's", "it's"),
        ("String", "", ""),
        ("I32", -7, "-7"),
        ("I64", 2**62, str(2**62)),
        ("U64", 2**63, str(2**63)),
        ("Bool", True, "true"),
        ("Date", date(2024, 2, 29), "2024-02-29"),
        ("DateTime", datetime(2024, 2, 29, 12, 0, 0, 5_000, tzinfo=timezone.utc), "2024-02-29T12:00:00.005Z"),
        ("DateTime", datetime(1969, 12, 31, 23, 59, 59, tzinfo=timezone.utc), "1969-12-31T23:59:59.000Z"),
    ],
)
def test_a_key_has_one_text(type_text: str, value: object, text: str) -> None:
    """The id of a keyed row is the canonical text of its key."""
    assert ids_of([{"k": value}], type_of(f"node T {{ k: {type_text} @key }}")) == [text]


def test_the_same_number_in_any_type_is_the_same_id() -> None:
    """What type a number came in does not show in its id."""
    keyed = type_of("node T { k: I64 @key }")
    for kind in (pa.int8(), pa.uint16(), pa.int64(), pa.decimal128(20, 0)):
        batch = pa.record_batch({"k": pa.array([5]).cast(kind)})
        assert identified(batch, keyed, seams=DEFAULT_SEAMS)[0].column("id").to_pylist() == ["5"]


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=6), st.text(max_size=6)), max_size=20))
def test_composite_ids_are_equal_only_for_equal_tuples(pairs: list[tuple[str, str]]) -> None:
    """No value, whatever it holds, makes two tuples look alike."""
    columns = [pa.array([p[at] for p in pairs], pa.string()) for at in (0, 1)]
    made = key_ids(columns, scalars=[Scalar.STRING, Scalar.STRING]).to_pylist()
    for (one, a), (other, b) in itertools.combinations(zip(pairs, made, strict=True), 2):
        assert (one == other) == (a == b)


def test_composite_ids_are_json_arrays() -> None:
    """Anybody can read the key back from the id."""
    keyed = type_of("node T { a: String  b: I32  @key(a, b) }")
    (made,) = ids_of([{"a": 'say "hi" \\ there', "b": 3}], keyed)
    assert json.loads(made) == ['say "hi" \\ there', "3"]


def test_given_ids_are_kept() -> None:
    """Without a key the caller's ids stand; missing ones are made."""
    plain = type_of("node T { p: I32? }")
    assert ids_of([{"id": "mine", "p": 1}], plain) == ["mine"]
    kept, made = ids_of([{"id": "mine"}, {"id": None}], plain)
    assert kept == "mine"
    assert len(made) == 26
    batch = pa.record_batch({"p": [1, 2]})
    assert identified(batch, plain, seams=DEFAULT_SEAMS)[1], "all ids are fresh"
    some = pa.record_batch({"id": pa.array([None, "x"])})
    assert not identified(some, plain, seams=DEFAULT_SEAMS)[1]


def test_ends_by_either_name() -> None:
    """``from`` and ``to`` stand for the ends, unless they are properties."""
    pg = "node T { } edge E: T -> T edge F: T -> T { to: String? }"
    shaped, _ = identified(pa.record_batch({"from": ["a"], "to": ["b"]}), type_of(pg, "E"), seams=DEFAULT_SEAMS)
    assert set(shaped.schema.names) == {"id", "src", "dst"}
    rows = pa.record_batch({"from": ["a"], "dst": ["b"], "to": ["p"]})
    shaped, _ = identified(rows, type_of(pg, "F"), seams=DEFAULT_SEAMS)
    assert set(shaped.schema.names) == {"id", "src", "dst", "to"}
    with pytest.raises(SchemaError, match="twice"):
        identified(pa.record_batch({"to": ["a"], "dst": ["b"]}), type_of(pg, "E"), seams=DEFAULT_SEAMS)


def test_an_id_that_is_not_the_key_is_refused_with_its_row() -> None:
    """The row is counted from the start of the input."""
    keyed = type_of("node T { k: I32 @key }")
    assert ids_of([{"id": "7", "k": 7}, {"id": None, "k": 8}], keyed) == ["7", "8"]
    batch = pa.record_batch({"id": ["7", "9"], "k": [7, 8]})
    with pytest.raises(ValidationError, match="row 11"):
        identified(batch, keyed, seams=DEFAULT_SEAMS, first_row=10)
