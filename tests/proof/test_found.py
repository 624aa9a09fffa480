"""What the proofs have found, each as a test of its own: a seed or an order may change its meaning with the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_spark.storage.seams import Phase, Seams
from tests.proof.laws import assert_epochs_rise
from tests.proof.registry import BASE, WHOLE, verb
from tests.proof.world import LocalTemplates
from tests.soundness import assert_sound


def test_a_fenced_recoverer_does_not_release_its_successors_window(tmp_path: Path) -> None:
    """INV-08: taken over while it recovers, an owner leaves without touching the epoch; its successor keeps it."""
    site = LocalTemplates(tmp_path).restore(WHOLE.name, WHOLE.build)
    order: list[str] = []

    def successor(phase: Phase, point: str) -> None:
        if (phase, point) == (Phase.ARM, "claimed"):
            order.append("taken over")

    def hook(phase: Phase, point: str) -> None:
        # The recoverer holds the window and stops here until somebody else has taken it over and gone on to commit.
        if phase is Phase.RECOVER and point.startswith("begin:") and not order:
            order.append("recovers")
            verb("append").run(site.handle(Seams(hook=successor)))

    site.handle(Seams(hook=hook)).recover()
    assert order == ["recovers", "taken over"]
    assert site.world() == verb("append").expect(verb("recover forward").expect(WHOLE.world or {}))
    assert_epochs_rise(site)
    assert_sound(site.uri)


def test_a_fenced_owner_leaves_the_window_of_a_living_successor_alone(tmp_path: Path) -> None:
    """The same while the successor is still inside: the fenced one wakes, leaves, and the successor commits at once."""
    site = LocalTemplates(tmp_path).restore(WHOLE.name, WHOLE.build)
    inside: list[str] = []
    attempts: list[str] = []

    class Stop(Exception):
        """Brings the sleeping recoverer back while its successor is in the window."""

    def successor(phase: Phase, point: str) -> None:
        if (phase, point) == (Phase.ARM, "enter"):
            attempts.append(point)
        if (phase, point) == (Phase.ARM, "claimed") and not inside:
            inside.append(point)
            raise Stop

    def hook(phase: Phase, point: str) -> None:
        if phase is Phase.RECOVER and point.startswith("begin:") and not inside:
            with pytest.raises(Stop):
                verb("append").run(site.handle(Seams(hook=successor)))

    site.handle(Seams(hook=hook)).recover()
    assert inside
    assert_epochs_rise(site)
    verb("append once").run(site.handle())
    site.opened().recover()
    assert_epochs_rise(site)
    assert_sound(site.uri)


def test_two_optimizers_build_one_index(tmp_path: Path) -> None:
    """An index that another optimizer has built meanwhile is not built a second time over the same rows."""
    site = LocalTemplates(tmp_path).restore(BASE.name, BASE.build)
    beside: list[bool] = []

    def hook(phase: Phase, point: str) -> None:
        if phase is Phase.STAGE and point.startswith("indexed:") and not beside:
            beside.append(True)
            verb("optimize").run(site.handle())

    verb("optimize").run(site.handle(Seams(hook=hook)))
    assert beside
    assert site.world() == BASE.world
    assert_sound(site.uri)
