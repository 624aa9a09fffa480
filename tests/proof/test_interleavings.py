"""Two writers, a writer and a recoverer, a writer and maintenance, stepped through their phases in every order.

`make test` runs a fixed choice of orders of each pair; `make interleavings` (OMNIGRAPH_INTERLEAVINGS=all) runs all 3432
of the first pair and more of the others.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.interleave import Duel, all_schedules, fight, gates, some_schedules
from tests.proof.registry import BASE
from tests.proof.world import LocalTemplates, one_thread

EVERYTHING = os.environ.get("OMNIGRAPH_INTERLEAVINGS") == "all"
FEW, MANY = 12, 200
DUELS = [
    Duel("append edge", "delete ids"),
    Duel("append edge", "delete ids", takeover=True),
    Duel("transaction", "delete", takeover=True),
    Duel("merge", "merge"),
    Duel("merge", "update", takeover=True),
    Duel("overwrite", "transaction"),
    Duel("append", "recover forward", takeover=True),
    Duel("transaction", "recover back", takeover=True),
    Duel("delete", "recover back", takeover=True),
    Duel("merge", "optimize", takeover=True),
    Duel("delete", "cleanup", takeover=True),
    Duel("append", "cleanup"),
]


@pytest.fixture(autouse=True)
def _ordered() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("duel", DUELS, ids=str)
def test_every_order_is_a_serial_one(duel: Duel, tmp_path: Path) -> None:
    """In whatever order two operations take their steps, the result is that of one after the other, and sound."""
    templates = LocalTemplates(tmp_path)
    first, second = duel.verbs
    start = first.start if first.start is not BASE else second.start
    a, b = (gates(duel, v, templates.restore(start.name, start.build)) for v in duel.verbs)
    chosen = some_schedules(a, b, count=MANY if EVERYTHING else FEW)
    if EVERYTHING and duel == DUELS[0]:
        chosen = all_schedules(a, b)
        assert len(chosen) == 3432  # seven phases each
    seen: Counter[tuple[str, str]] = Counter()
    for schedule in chosen:
        print(schedule)  # the last one printed is the one that failed
        seen[fight(duel, schedule, templates.restore(start.name, start.build))] += 1
    print(f"{duel}: {sum(seen.values())} orders, {dict(seen)}")
