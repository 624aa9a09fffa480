from __future__ import annotations

import pytest

from tests.rig.proxy_log import Request, kind_of, max_overlap, serial_hops, split_target, table_class


def seen(started: float, finished: float) -> Request:
    """A request with only its times of interest."""
    return Request(1, "GET", "GET", "b", "k", "", 200, 200, started, finished, 0, 0, False)


def test_serial_hops_is_the_longest_chain() -> None:
    """Overlapping requests are one hop; touching ones are two; the longest chain wins over a long request."""
    assert serial_hops([]) == 0
    assert serial_hops([seen(0, 1), seen(1, 2), seen(2, 3)]) == 3
    assert serial_hops([seen(0, 2), seen(1, 3)]) == 1
    assert serial_hops([seen(0, 10), seen(1, 2), seen(3, 4), seen(5, 6)]) == 3


def test_unfinished_requests_are_no_hop() -> None:
    """A request that never ended has no place in a chain."""
    assert serial_hops([seen(1, 2), seen(3, 0.0)]) == 1


def test_max_overlap_counts_what_ran_together() -> None:
    """Touching requests do not overlap; nested and crossing ones do."""
    assert max_overlap([seen(0, 1), seen(1, 2)]) == 1
    assert max_overlap([seen(0, 5), seen(1, 2), seen(1.5, 6)]) == 3


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("g/__manifest/_versions/1.manifest", "manifest"),
        ("g/__manifest", "manifest"),
        ("g/__recovery/01J.json", "recovery"),
        ("g/__recovery", "recovery"),
        ("g/_schema.pg", "schema"),
        ("g/_schema.ir.json.staging", "schema"),
        ("__schema_state.json", "schema"),
        ("g/_graph_commit_recoveries.lance/data/x", "audit"),
        ("g/nodes/40d76f1f51639ec0/data/x.lance", "data"),
        ("g/edges/602a25a3bd0b455b/_versions/", "data"),
        ("g/notes.txt", "other"),
        ("", "other"),
    ],
)
def test_table_class_comes_from_the_key(key: str, expected: str) -> None:
    """Every key of a graph belongs to one part of it."""
    assert table_class(key) == expected


@pytest.mark.parametrize(
    ("method", "target", "copies", "expected"),
    [
        ("GET", "/b/k", False, "GET"),
        ("GET", "/b?list-type=2&prefix=x%2F", False, "LIST"),
        ("GET", "/", False, "LIST"),
        ("GET", "/b?location", False, "GET"),
        ("HEAD", "/b/k", False, "HEAD"),
        ("PUT", "/b/k", False, "PUT"),
        ("PUT", "/b/k", True, "COPY"),
        ("POST", "/b?delete", False, "POST"),
        ("DELETE", "/b/k", False, "DELETE"),
    ],
)
def test_kind_comes_from_method_and_query(method: str, target: str, copies: bool, expected: str) -> None:
    """A listing is told from a read, and a copy from a write."""
    _, key, query = split_target(target)
    assert kind_of(method, key=key, query=query, copies=copies) == expected
