"""Rows and texts that are seen twice: in memory or in a file, they come back the same, and texts are found exactly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph_spark.storage.keyhash import U64, hash_text
from omnigraph_spark.write import key_runs, matching, spill
from omnigraph_spark.write.key_runs import Scratch
from omnigraph_spark.write.matching import last_of_each, matched_fragments, winning
from omnigraph_spark.write.rowids import RowIds
from omnigraph_spark.write.spill import RowSpill, TextIndex
from tests.social import by_id, edges, ids, persons, social
from tests.soundness import assert_sound

texts = st.lists(st.sampled_from(["a", "b", "c", "", "longer than eight", "longer than nine"]), max_size=25)
quietly = settings(
    max_examples=80,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("n", pa.int64())])


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    """A local directory."""
    with Scratch() as folder:
        yield folder


@pytest.fixture(params=["memory", "file"])
def bounded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Plenty of memory, or next to none."""
    if request.param == "file":
        monkeypatch.setattr(spill, "_MEMORY_BYTES", 64)
        monkeypatch.setattr(spill, "_CHUNK_ROWS", 4)
        monkeypatch.setattr(key_runs, "RUN_ROWS", 5)
    return str(request.param)


def colliding(column: pa.Array) -> U64:
    """Hash almost everything to the same value."""
    hashes: U64 = hash_text(column) % np.uint64(2)
    return hashes


def rows(start: int, count: int) -> pa.RecordBatch:
    """Return some rows."""
    values = list(range(start, start + count))
    return pa.RecordBatch.from_arrays([pa.array([f"r{n}" for n in values]), pa.array(values)], schema=SCHEMA)


def test_rows_come_back_in_order(scratch: Scratch, bounded: str) -> None:
    """Whatever the sizes of the batches, the rows are the same, any number of times."""
    kept = RowSpill(SCHEMA, scratch)
    sizes = [1, 0, 3, 9, 2, 40, 1]
    for at, size in enumerate(sizes):
        kept.add(rows(sum(sizes[:at]), size))
    kept.close()
    assert kept.rows == sum(sizes)
    for _ in range(2):
        table = pa.Table.from_batches(kept.batches(), schema=SCHEMA)
        assert table["n"].to_pylist() == list(range(sum(sizes)))
    assert (scratch.path().parent / "1").exists() == (bounded == "file")


def test_an_empty_spill(scratch: Scratch) -> None:
    """Nothing in, nothing out."""
    kept = RowSpill(SCHEMA, scratch)
    kept.close()
    assert list(kept.batches()) == []


@pytest.mark.parametrize("hashing", ["good", "colliding"])
@quietly
@given(given_texts=texts, asked=texts)
def test_texts_are_found_exactly(
    scratch: Scratch,
    monkeypatch: pytest.MonkeyPatch,
    bounded: str,
    hashing: str,
    given_texts: list[str],
    asked: list[str],
) -> None:
    """A lookup pairs equal texts and no others, even where their hashes are equal."""
    assert bounded
    if hashing == "colliding":
        monkeypatch.setattr(spill, "hash_text", colliding)
    index = TextIndex(scratch)
    for start in range(0, len(given_texts), 6):
        index.add(pa.array(given_texts[start : start + 6], pa.string()))
    index.close()
    question, at = index.find(pa.array(asked, pa.string()))
    pairs = sorted(zip(question.tolist(), at.tolist(), strict=True))
    assert pairs == [(q, p) for q, wanted in enumerate(asked) for p, text in enumerate(given_texts) if text == wanted]
    assert index.take(np.arange(len(given_texts))).to_pylist() == given_texts


@pytest.mark.parametrize("hashing", ["good", "colliding"])
@quietly
@given(given_texts=texts)
def test_the_last_of_each(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch, bounded: str, hashing: str, given_texts: list[str]
) -> None:
    """Of rows with the same text just the last is kept."""
    assert bounded
    if hashing == "colliding":
        monkeypatch.setattr(spill, "hash_text", colliding)
    index = TextIndex(scratch)
    for start in range(0, len(given_texts), 6):
        index.add(pa.array(given_texts[start : start + 6], pa.string()))
    index.close()
    keep = last_of_each(index)
    last = {text: at for at, text in enumerate(given_texts)}
    assert keep.tolist() == [last[text] == at for at, text in enumerate(given_texts)]
    batches = [
        pa.record_batch({"id": pa.array(given_texts[n : n + 4], pa.string())}) for n in range(0, len(given_texts), 4)
    ]
    won = [text for batch in winning(batches, keep) for text in batch.column("id").to_pylist()]
    assert sorted(won) == sorted(set(given_texts))


def test_shares_of_fragments() -> None:
    """Row ids, in row order, are cut by the sizes of the staged fragments."""
    ids = np.arange(10, 15, dtype=np.uint64)
    found = matched_fragments(['{"physical_rows": 2}', '{"physical_rows": 3}'], RowIds(ids, ids + np.uint64(100), 7))
    assert [m.rows.ids.tolist() for m in found] == [[10, 11], [12, 13, 14]]
    assert [m.rows.addresses.tolist() for m in found] == [[110, 111], [112, 113, 114]]
    assert {m.rows.at_version for m in found} == {7}


def test_matching_with_colliding_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose ids share a hash are still told apart: merges replace, deletes remove, just the right ones."""
    graph = social(tmp_path)
    graph.append("Person", persons(*"abcdef", age=1))
    for module in (spill, matching):
        monkeypatch.setattr(module, "hash_text", colliding)
    graph.merge("Person", persons("b", "x", age=2))
    with graph.transaction() as tx:
        tx.append("Knows", edges(("a", "b"), ("c", "d")))
    with graph.transaction() as tx:
        assert tx.delete_ids("Person", [{"id": "d"}, {"id": "nobody"}]) == 1
    assert {n: r["age"] for n, r in by_id(graph, "Person").items()} == {"a": 1, "b": 2, "c": 1, "e": 1, "f": 1, "x": 2}
    assert ids(graph, "Knows") == ["a-b"]
    monkeypatch.undo()
    assert_sound(graph.uri)
