"""The conflict matrix: every ordered pair of operations, committed for real, judged by verdict, rows and soundness."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.pairs import OPERATIONS, Operation, run_pair, start_of
from tests.proof.verdicts import expected, page, unlisted
from tests.proof.world import LocalTemplates

PAGE = Path(__file__).parents[2] / "docs" / "conflicts.md"


@pytest.mark.parametrize("first", OPERATIONS, ids=str)
def test_every_pair_ends_as_the_table_says(first: Operation, tmp_path: Path) -> None:
    """X is prepared, Y commits, X commits: the verdict is the expected one, the rows are those of a serial order."""
    templates = LocalTemplates(tmp_path)
    wrong: list[str] = []
    for second in OPERATIONS:
        start = start_of(first, second)
        verdicts = run_pair(first, second, templates.restore(start.name, start.build))
        if verdicts != expected(first, second):
            wrong.append(f"{first} over {second}: {verdicts}, expected {expected(first, second)}")
    assert not wrong


def test_the_page_is_current() -> None:
    """``docs/conflicts.md`` is what the table says now (`make docs-conflicts`), and describes every operation."""
    assert unlisted() == []
    assert PAGE.read_text(encoding="utf-8") == page()
