"""Key hashes in sorted runs: lookups and repeats agree with plain Python, whatever the size of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph_spark.storage.keyhash import U64
from omnigraph_spark.write import key_runs
from omnigraph_spark.write.evidence import contained
from omnigraph_spark.write.key_runs import KeyRuns, Scratch, Sieve, repeated

few = st.lists(st.integers(0, 12), max_size=40)
parts = st.lists(few, max_size=5)
quietly = settings(
    max_examples=100,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of seven keys, so that a few rows make several, most of them in files."""
    monkeypatch.setattr(key_runs, "RUN_ROWS", 7)


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    """A local directory."""
    with Scratch() as folder:
        yield folder


def u64(values: list[int]) -> U64:
    """Return an array of hashes; spread, because ranges of values are cut evenly."""
    return np.array([v * (1 << 60) + v for v in values], dtype=np.uint64)


def filled(scratch: Scratch, given_parts: list[list[int]], **options: bool) -> KeyRuns:
    """Return runs over some parts."""
    keys = KeyRuns(scratch, **options)
    for part in given_parts:
        keys.add(u64(part))
    keys.close()
    return keys


@quietly
@given(parts, few)
def test_find_returns_every_row_with_an_equal_key(scratch: Scratch, rows: list[list[int]], asked: list[int]) -> None:
    """With positions, a lookup returns each pair of a question and a row, and no other."""
    keys = filled(scratch, rows, positions=True)
    flat = [value for part in rows for value in part]
    question, at = keys.find(u64(asked))
    found = Counter(zip(question.tolist(), at.tolist(), strict=True))
    assert found == Counter((q, p) for q, wanted in enumerate(asked) for p, value in enumerate(flat) if value == wanted)
    assert len(keys) == len(flat)


@quietly
@given(parts, few)
def test_slots_count_over_all_runs(scratch: Scratch, rows: list[list[int]], asked: list[int]) -> None:
    """Without positions, a lookup returns slots, and the key in a slot is the one asked for."""
    keys = filled(scratch, rows)
    slots = np.concatenate([np.empty(0, dtype=np.uint64), *keys.runs])
    question, at = keys.find(u64(asked))
    assert (slots[at] == u64(asked)[question]).all()
    flat = Counter(value for part in rows for value in part)
    assert len(at) == sum(flat[wanted] for wanted in asked)


@quietly
@given(parts)
def test_repeated_agrees_with_counting(scratch: Scratch, rows: list[list[int]]) -> None:
    """A key is repeated when it occurs twice, in one run or in two."""
    keys = filled(scratch, rows)
    flat = Counter(value for part in rows for value in part)
    assert repeated(keys.runs).tolist() == sorted(u64([v for v, n in flat.items() if n > 1]).tolist())


@quietly
@given(parts, few)
def test_distinct_runs_hold_each_key(scratch: Scratch, rows: list[list[int]], asked: list[int]) -> None:
    """Distinct runs forget repeats and nothing else; runs are sorted."""
    keys = filled(scratch, rows, distinct=True)
    flat = {value for part in rows for value in part}
    assert set(np.concatenate([u64([]), *keys.runs]).tolist()) == set(u64(sorted(flat)).tolist())
    assert all((run[1:] > run[:-1]).all() for run in keys.runs)
    assert contained(u64(asked), keys.runs).tolist() == [wanted in flat for wanted in asked]


@pytest.mark.parametrize("count", [10, 100_000])
def test_the_sieve_keeps_every_key_and_stops_most_others(count: int) -> None:
    """No key of ours is ever ruled out; of the others, few get through once there are enough keys to sieve."""
    numbers = np.random.default_rng(7).integers(0, np.iinfo(np.uint64).max, 2 * count, dtype=np.uint64, endpoint=True)
    ours, others = np.sort(numbers[:count]), numbers[count:]
    sieve = Sieve([ours[: count // 3], ours[count // 3 :]])
    assert sieve.likely(ours).tolist() == list(range(count))
    passed = len(sieve.likely(others))
    assert passed < count / 100 if count > 1000 else passed == count


def test_memory_holds_one_run(scratch: Scratch) -> None:
    """All runs but the first are in files, which are gone with the scratch directory."""
    keys = filled(scratch, [list(range(7)), list(range(7)), list(range(3))], positions=True)
    assert [isinstance(run, np.memmap) for run in keys.runs] == [False, True, True]
    folder = scratch.path().parent
    assert len(list(folder.iterdir())) == 4
    scratch.close()
    assert not folder.exists()


def test_blank_arrays_are_filled(scratch: Scratch) -> None:
    """Small or large, a blank array starts with the fill and can be written."""
    for count in (0, 7, 8):
        array = scratch.blank(count, fill=np.uint64(9))
        assert array.tolist() == [9] * count
        array[:] = 1
        assert array.sum() == count
