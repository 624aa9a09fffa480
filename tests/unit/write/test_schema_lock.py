"""A schema change by OmniGraph holds a lock; a write meanwhile is refused before it stages anything."""

from __future__ import annotations

import pytest

from omnigraph_spark import ConflictError
from omnigraph_spark.errors import Outcome
from tests.places import Place
from tests.soundness import assert_sound


def test_a_write_during_a_schema_change_is_refused(any_graph: Place) -> None:
    """While the lock branch exists no write is captured; when it is gone, the same write commits."""
    manifest = any_graph.builder.manifest()
    manifest.create_branch("__schema_apply_lock__", manifest.version)
    graph = any_graph.open()
    version = graph.version
    with pytest.raises(ConflictError, match="schema") as refused:
        graph.append("Person", [{"name": "ada"}])
    assert refused.value.retryable
    assert refused.value.outcome is Outcome.NOT_COMMITTED
    assert graph.version == version
    any_graph.builder.manifest().branches.delete("__schema_apply_lock__")
    graph.append("Person", [{"name": "ada"}])
    assert graph.count("Person") == 1
    assert_sound(any_graph)
