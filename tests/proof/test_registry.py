"""The registry is complete and true: every public writing method has an entry, each verb does what its oracle says."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from omnigraph_spark import Graph
from omnigraph_spark.write.transaction import Transaction
from tests.proof.registry import VERBS, Verb
from tests.proof.world import LocalTemplates
from tests.soundness import assert_sound

# Public names that write nothing; a new name belongs here or in the registry.
READING = {
    "Graph": {
        "open", "branch", "version", "head", "schema", "at", "tables", "count", "history", "branches", "verify",
        "to_arrow", "nodes", "edges", "recoveries",
    },
    "Transaction": {"commit_info", "repeated", "catalog", "stage_rows"},
}  # fmt: skip


@pytest.mark.parametrize("cls", [Graph, Transaction])
def test_every_writing_method_has_an_entry(cls: type) -> None:
    """A public method is known to read only, or a registered verb runs it."""
    registered = {method for verb in VERBS for method in verb.methods}
    for name, _ in inspect.getmembers(cls):
        if not name.startswith("_") and name not in READING[cls.__name__]:
            assert f"{cls.__name__}.{name}" in registered, f"{cls.__name__}.{name} has no entry in the registry"


def test_entries_name_real_methods() -> None:
    """An entry cannot outlive the method it is about."""
    classes = {"Graph": Graph, "Transaction": Transaction}
    for verb in VERBS:
        for method in verb.methods:
            owner, _, name = method.partition(".")
            assert callable(getattr(classes[owner], name)), method


@pytest.mark.parametrize("verb", VERBS, ids=str)
def test_a_verb_does_what_its_oracle_says(verb: Verb, tmp_path: Path) -> None:
    """Undisturbed, a verb turns its starting graph into what the oracle expects, and a repeat ends as stated."""
    site = LocalTemplates(tmp_path).restore(verb.start.name, verb.start.build)
    assert site.world() == verb.start.world
    expected = verb.expect(verb.start.world or {})
    verb.run(site.handle())
    assert site.world() == expected
    if verb.refused_again is not None:
        with pytest.raises(verb.refused_again):
            verb.run(site.handle())
    else:
        verb.run(site.handle())
    assert site.world() == expected
    assert_sound(site.uri)
