"""What must hold after a verb was cut off anywhere: the checks every crash cut ends with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph_spark.errors import AlreadyExistsError, Outcome
from tests.proof.registry import Kind, Verb
from tests.proof.world import Site, World
from tests.soundness import assert_sound


def judge(verb: Verb, site: Site, *, told: Outcome | None, clear: Callable[[], None]) -> str:
    """Recover as a new process would and check everything; returns ``before`` or ``after``.

    ``told`` is what the caller learned; None when it died before it was told anything. ``clear`` removes the site.
    """
    after = verb.expect(verb.start.world or {})
    if verb.kind is Kind.CREATION:
        return _judge_create(verb, site, told=told, clear=clear)
    site.opened().recover()
    world = site.world()
    if verb.kind is Kind.RECOVERY:
        assert world == after
    else:
        assert world in (verb.start.world, after)
    assert told is not Outcome.COMMITTED or world == after, "the caller was told that it committed, and it did not"
    if told is Outcome.NOT_COMMITTED and verb.kind is not Kind.RECOVERY:
        assert world == verb.start.world, "the caller was told that it did not commit, and it did"
    if verb.starts_sound:
        assert_sound(site.uri, site.storage)
    version = site.handle().version
    assert site.handle().recover() == []
    assert site.handle().version == version, "a second recovery changed the graph"
    _again(verb, site, world=world, after=after)
    assert_sound(site.uri, site.storage)
    return "after" if world == after else "before"


def _again(verb: Verb, site: Site, *, world: World | None, after: World) -> None:
    if world == after and verb.refused_again is not None:
        with pytest.raises(verb.refused_again):
            verb.run(site.handle())
    else:
        verb.run(site.handle())
    assert site.world() == after


def _judge_create(verb: Verb, site: Site, *, told: Outcome | None, clear: Callable[[], None]) -> str:
    """A cut create leaves a whole graph, nothing, or a claimed path that is refused with what to remove."""
    after = verb.expect({})
    world = site.world()
    assert world in (None, after)
    assert told is not Outcome.COMMITTED or world == after
    assert told is not Outcome.NOT_COMMITTED or world is None
    if world is None:
        refusal = _refusal(verb, site)
        if refusal is not None:
            assert "remove everything under" in refusal.hint
            clear()
            verb.run(site.handle())
        assert site.world() == after
    with pytest.raises(AlreadyExistsError):
        verb.run(site.handle())
    assert site.world() == after
    assert_sound(site.uri, site.storage)
    return "before" if world is None else "after"


def _refusal(verb: Verb, site: Site) -> AlreadyExistsError | None:
    try:
        verb.run(site.handle())
    except AlreadyExistsError as refusal:
        return refusal
    return None
