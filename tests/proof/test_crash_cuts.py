"""A writer on a directory dies before and after each of its durable requests: all of them, for every verb.

The death is a BaseException raised at the storage seam, and everything the dead writer tries afterwards is refused, so
what is on disk is what a killed process would have left. ``test_crash_cuts_s3.py`` and ``faults/`` kill for real.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph_spark.errors import Outcome
from tests.proof.judge import judge
from tests.proof.registry import VERBS, Kind, Verb
from tests.proof.world import Killed, LocalTemplates, Mortal, one_thread


@pytest.fixture(autouse=True)
def _ordered() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.parametrize("verb", VERBS, ids=str)
def test_every_cut_leaves_before_or_after(verb: Verb, tmp_path: Path) -> None:
    """Killed at any durable request, recovered by another: exactly before or after, sound, and it can run again."""
    templates = LocalTemplates(tmp_path)
    whole = Mortal()
    verb.run(templates.restore(verb.start.name, verb.start.build).handle(whole.seams()))
    seen: list[str] = []
    for cut in range(1, len(whole.faults) + 1):
        site = templates.restore(verb.start.name, verb.start.build)
        mortal = Mortal(at_fault=cut)
        told: Outcome | None = None
        try:
            verb.run(site.handle(mortal.seams()))
            told = Outcome.COMMITTED
        except Killed:
            pass
        assert mortal.dead
        print(f"cut {cut} of {len(whole.faults)}: {mortal.faults[-1]}")  # shown when the next line fails
        seen.append(judge(verb, site, told=told, clear=templates.clear))
    if verb.kind is not Kind.RECOVERY and verb.expect(verb.start.world or {}) != verb.start.world:
        # The cuts reach both sides of the commit point, and there is only one.
        assert seen[0] == "before"
        assert seen[-1] == "after"
        assert seen == sorted(seen, reverse=True)
    print(f"{verb.name}: {len(seen)} cuts on disk")
