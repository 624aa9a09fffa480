"""Back-pressure: a warning at one threshold, a typed refusal at another, and no request for either."""

from __future__ import annotations

import logging

import pytest

from omnigraph_spark import BackPressureError, Graph, OptionError, Outcome, UpkeepLimits
from tests.places import Place, unchanged
from tests.unit.maintenance.upkeep import created, crowd, names, person

NONE = UpkeepLimits(None, None, None, None)


def limited(place: Place, **limits: int | None) -> Graph:
    """Open a graph with thresholds of its own."""
    return Graph.open(place.uri, limits=UpkeepLimits(**{**dict.fromkeys(UpkeepLimits.__slots__), **limits}))


def test_many_fragments_warn_then_refuse(local_root: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Past the warning the write goes on with advice; past the refusal it does not, and says what to do."""
    crowd(created(local_root), commits=4)
    with caplog.at_level(logging.WARNING):
        limited(local_root, warn_fragments=3).append("Person", [person("warned")])
    assert "node:Person has 4 fragments" in caplog.text
    assert "Run optimize()" in caplog.text
    with pytest.raises(BackPressureError, match="node:Person has 5 fragments, more than the 4") as refused:
        limited(local_root, refuse_fragments=4).append("Person", [person("refused")])
    assert refused.value.retryable
    assert refused.value.outcome is Outcome.NOT_COMMITTED
    assert "optimize()" in refused.value.hint
    graph = limited(local_root, refuse_fragments=4)
    assert "refused" not in names(graph)
    assert graph.optimize()[0].fragments_removed == 5  # maintenance is never held back
    graph.append("Person", [person("again")])
    assert "again" in names(graph)


def test_many_versions_warn_then_refuse(local_root: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The branch's versions count from the cleanup boundary."""
    graph = created(local_root)
    crowd(graph, commits=3)
    with caplog.at_level(logging.WARNING):
        limited(local_root, warn_versions=4).append("Person", [person("warned")])
    assert "graph versions" in caplog.text
    assert "Run cleanup()" in caplog.text
    same = unchanged(local_root.uri)
    with pytest.raises(BackPressureError, match="graph versions, more than the 4"):
        limited(local_root, refuse_versions=4).append("Person", [person("refused")])
    same()


def test_limits_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each threshold is an argument, an option and a variable; 0 is no limit; nonsense is refused."""
    assert UpkeepLimits.resolve() == UpkeepLimits(1_000, 10_000, 10_000, None)
    monkeypatch.setenv("OMNIGRAPH_REFUSE_FRAGMENTS", "0")
    monkeypatch.setenv("OMNIGRAPH_WARN_VERSIONS", "7")
    assert UpkeepLimits.resolve(warn_fragments=5) == UpkeepLimits(5, None, 7, None)
    monkeypatch.setenv("OMNIGRAPH_WARN_VERSIONS", "many")
    with pytest.raises(OptionError, match="OMNIGRAPH_WARN_VERSIONS"):
        UpkeepLimits.resolve()
