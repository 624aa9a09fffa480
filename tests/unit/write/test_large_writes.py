"""Beyond the sizes that fit one batch, one run of keys or one predicate, every verb decides the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph_spark import Graph, KeyConflictError, ValidationError
from omnigraph_spark.write import key_runs, probe, stage
from tests.social import edges, persons, social
from tests.soundness import assert_sound


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """A social graph with three persons and two friendships; whatever the test did, it must be sound in the end."""
    g = social(tmp_path)
    with g.transaction() as tx:
        tx.append("Person", persons("ada", "bob", "cyn", age=30))
        tx.append("Knows", edges(("ada", "bob"), ("bob", "cyn")))
    yield g
    assert_sound(g.uri)


@pytest.mark.parametrize("run_rows", [1_000, 1 << 20])
def test_large_writes_take_the_same_decisions(graph: Graph, monkeypatch: pytest.MonkeyPatch, run_rows: int) -> None:
    """Beyond the sizes that fit one batch, one run of keys or one predicate, appends and merges decide the same."""
    monkeypatch.setattr(key_runs, "RUN_ROWS", run_rows)
    count = 60_000
    names = [f"p{n:06}" for n in range(count)]
    graph.append("Person", pa.table({"name": names, "email": names}))
    assert graph.count("Person") == count + 3
    pairs = pa.table({"id": names[1:], "src": names[1:], "dst": names[:-1]})
    graph.append("Knows", pairs)
    mixed = [*names[::2], *(f"q{n:06}" for n in range(count // 2))]
    graph.merge("Person", pa.table({"name": mixed, "age": pa.array([7] * len(mixed), pa.int32())}))
    assert graph.count("Person") == count + count // 2 + 3
    assert graph.to_arrow("Person", columns=["id"], where="age = 7").num_rows == len(mixed)
    with pytest.raises(KeyConflictError) as caught:
        graph.append("Person", pa.table({"name": [*(f"z{n}" for n in range(60_000)), names[1], names[2]]}))
    assert sorted(v.row_id or "" for v in caught.value.violations) == names[1:3]
    with pytest.raises(KeyConflictError) as caught:
        graph.merge("Person", pa.table({"name": [*(f"z{n}" for n in range(60_000)), "z17"]}))
    assert [(v.rule, v.row_id) for v in caught.value.violations] == [("duplicate-id", "z17")]
    assert graph.count("Person") == count + count // 2 + 3


@pytest.mark.parametrize("count", [stage._SMALL_ROWS - 1, stage._SMALL_ROWS, stage._SMALL_ROWS + 1])
def test_the_border_between_small_and_large(graph: Graph, count: int) -> None:
    """The number of rows that are kept until the base has answered changes nothing but the order of requests."""
    names = [f"p{n}" for n in range(count)]
    graph.append("Person", pa.table({"name": names}))
    assert graph.count("Person") == count + 3
    with pytest.raises(KeyConflictError):
        graph.append("Person", pa.table({"name": [*(f"x{n}" for n in range(count - 1)), "p1"]}))


def test_large_updates_and_deletes(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of several batches are updated in place, and thousands of nodes take their edges along."""
    monkeypatch.setattr(key_runs, "RUN_ROWS", 500)
    count = 20_000
    names = [f"p{n:06}" for n in range(count)]
    with graph.transaction() as tx:
        tx.append("Person", pa.table({"name": names, "code": ["A" * (n % 7 + 1) for n in range(count)]}))
        tx.append("Knows", pa.table({"id": names[1:], "src": names[1:], "dst": names[:-1]}))
    graph.update("Person", set={"age": 9}, where="name >= 'p'")
    rows = graph.to_arrow("Person", where="age = 9").to_pylist()
    assert len(rows) == count
    assert all(row["id"] == row["name"] and len(row["code"]) == int(row["name"][1:]) % 7 + 1 for row in rows)
    with graph.transaction() as tx:
        assert tx.delete("Person", where="name >= 'p005000'") == 15_000
    assert graph.count("Person") == 5_003
    assert graph.count("Knows") == 4_999 + 2
    with graph.transaction() as tx:
        assert tx.delete_ids("Person", pa.table({"id": names[1_000:7_000]})) == 4_000
    assert graph.count("Knows") == 999 + 2


@pytest.mark.parametrize("indexed", [False, True])
def test_lookups_by_predicate_and_by_scan_agree(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, *, indexed: bool
) -> None:
    """Ids are looked up one by one or by reading the column; which of them changes nothing."""
    monkeypatch.setattr(probe, "FEW", 10)
    monkeypatch.setattr(probe, "_IN_ONE_FILTER", 7)
    if indexed:
        monkeypatch.setattr(probe, "indexed_columns", lambda _dataset: {"id", "src", "dst"})
    names = [f"p{n:03}" for n in range(100)]
    graph.append("Person", persons(*names))
    graph.append("Knows", edges(*itertools.pairwise(names)))
    graph.merge("Person", persons(*names[50:], *(f"q{n}" for n in range(50)), age=5))
    assert graph.count("Person") == 153
    assert graph.to_arrow("Person", where="age = 5").num_rows == 100
    with pytest.raises(KeyConflictError) as caught:
        graph.append("Person", persons(*names[:20], *(f"r{n}" for n in range(50))))
    assert [v.row_id for v in caught.value.violations] == names[:20]
    with pytest.raises(ValidationError) as missing:
        graph.append("Knows", edges(*((n, f"ghost{n}") for n in names)))
    assert missing.value.total == 100
    graph.delete("Person", where="name < 'p050' and name >= 'p'")
    assert graph.count("Knows") == 49 + 2


STRANGE = [
    "it's",
    'say "hi"',
    "back\\slash",
    "100%",
    "new\nline",
    "tab\t",
    "",
    " ",
    "ünï",
    "\U0001f600",
    "--",
    "x" * 5_000,
]


def test_strange_texts_are_ids_like_any_other(graph: Graph) -> None:
    """Quotes, escapes, emptiness and length do not confuse a lookup: append, merge, edges, delete and cascade."""
    graph.append("Person", persons(*STRANGE))
    graph.append("Knows", [{"id": f"k{n}", "src": text, "dst": "ada"} for n, text in enumerate(STRANGE)])
    graph.merge("Person", persons(*STRANGE, age=1))
    assert graph.count("Person") == 3 + len(STRANGE)
    for text in STRANGE:
        with pytest.raises(KeyConflictError):
            graph.append("Person", persons(text))
    with graph.transaction() as tx:
        assert tx.delete_ids("Person", [{"id": text} for text in STRANGE]) == len(STRANGE)
    assert graph.count("Knows") == 2
