"""The window itself: giving it up in time, being interrupted, losing a claim's answer, running out of patience."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lance.optimize import Compaction

from omnigraph_spark.errors import ConflictError, StorageUnreachableError, WindowBusyError
from omnigraph_spark.manifest.boundary import boundary_uri
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.storage.seams import Phase, Seams
from omnigraph_spark.write import window
from omnigraph_spark.write.plan import PublishPlan
from tests.places import Place
from tests.soundness import assert_sound
from tests.writer_process import append, authority_for, stage_plan

PERSON, COMPANY = "node:Person", "node:Company"


def once(at: str, act: Callable[[], None]) -> Callable[[Phase, str], None]:
    """Return a hook that acts the first time a point is passed."""
    todo = [act]

    def hook(phase: Phase, point: str) -> None:
        if f"{phase.value}:{point}" == at and todo:
            todo.pop()()

    return hook


def raising(error: BaseException) -> Callable[[], None]:
    """Return a function that raises."""

    def act() -> None:
        raise error

    return act


def assert_free(place: Place) -> None:
    """Assert that nobody is in the window and no record is left: a writer without patience gets in."""
    authority = authority_for(place.uri, grace=600.0, patience=1.0)
    assert authority.sidecars.operation_ids() == []
    authority.publish(stage_plan(authority, {PERSON: ["probe"]}))


def people_of(place: Place) -> list[str]:
    """Return the ids of all people."""
    return sorted(place.open(read_only=True).to_arrow("Person")["id"].to_pylist())


def test_an_overdue_owner_gives_its_window_up(local_graph: Place) -> None:
    """Past the timeout before its first effect an owner releases, and commits through a second attempt."""
    skipped = [0.0]

    def skip() -> None:
        skipped[0] += 31.0

    clock = Seams().monotonic
    seams = Seams(hook=once("effect:enter", skip), monotonic=lambda: clock() + skipped[0])
    authority = authority_for(local_graph.uri, seams=seams, timeout=30.0)
    commit = authority.publish(stage_plan(authority, {PERSON: ["a"]}))
    assert commit.attempts == 2
    assert commit.row.extra["epoch"] == 2
    assert people_of(local_graph) == ["a"]
    assert_sound(local_graph)


def test_a_lost_answer_to_the_claim_is_recognised(local_graph: Place) -> None:
    """The claim landed and its answer did not come: the fold shows our operation id, so we are in."""
    lost = [True]

    def fault(operation: str, target: str) -> None:
        if operation == "swap.done" and target.endswith("__manifest") and lost:
            lost.clear()
            raise StorageUnreachableError("no answer")

    authority = authority_for(local_graph.uri, seams=Seams(fault=fault), grace=600.0, patience=5.0)
    commit = authority.publish(stage_plan(authority, {PERSON: ["a"]}))
    assert (commit.attempts, commit.row.extra["epoch"]) == (1, 1)
    assert_free(local_graph)
    assert_sound(local_graph)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TypeError("a bug")], ids=["interrupt", "bug"])
@pytest.mark.parametrize("point", ["arm:armed", "recheck", "arm:claimed", "effect:enter"])
def test_a_failure_before_effects_leaves_nothing(local_graph: Place, point: str, error: BaseException) -> None:
    """Neither a record nor a taken window is left, whatever ended the writer."""

    def recheck(_plan: PublishPlan, _state: GraphState) -> None:
        if point == "recheck":
            raise error

    authority = authority_for(local_graph.uri, hook=once(point, raising(error)))
    with pytest.raises(type(error)):
        authority.publish(stage_plan(authority, {PERSON: ["a"]}), recheck=recheck)
    assert_free(local_graph)
    assert people_of(local_graph) == ["probe"]
    assert_sound(local_graph)


def test_a_bug_between_table_commits_is_rolled_back(local_graph: Place) -> None:
    """An unexpected error after one of two table commits undoes it, leaves the window, and is raised as it is."""
    authority = authority_for(local_graph.uri, hook=once(f"effect:before:{PERSON}", raising(TypeError("a bug"))))
    with pytest.raises(TypeError, match="a bug"):
        authority.publish(stage_plan(authority, {PERSON: ["a"], COMPANY: ["a"]}))
    assert local_graph.open(read_only=True).to_arrow("Company").num_rows == 0
    assert_free(local_graph)
    assert_sound(local_graph)


def test_an_interrupt_between_table_commits_is_left_to_recovery(local_graph: Place) -> None:
    """Ctrl-C among effects ends at once; the record stays, and the next writer undoes all or finishes all."""
    authority = authority_for(local_graph.uri, hook=once(f"effect:before:{PERSON}", raising(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        authority.publish(stage_plan(authority, {PERSON: ["a"], COMPANY: ["a"]}))
    assert len(authority.sidecars.operation_ids()) == 1
    append(local_graph.uri, {PERSON: ["next"]}, grace=0.2)
    assert people_of(local_graph) == ["next"]
    assert local_graph.open(read_only=True).to_arrow("Company").num_rows == 0
    assert_sound(local_graph)


def test_patience_ends_with_a_typed_error(local_graph: Place) -> None:
    """A writer that may not wait longer says so, has committed nothing and leaves no record."""
    waiter = authority_for(local_graph.uri, grace=600.0, patience=0.3)
    plan = stage_plan(waiter, {PERSON: ["b"]})
    seen: list[WindowBusyError] = []

    def try_now() -> None:
        with pytest.raises(WindowBusyError) as caught:
            waiter.publish(plan)
        seen.append(caught.value)

    owner = authority_for(local_graph.uri, hook=once("effect:enter", try_now))
    owner.publish(stage_plan(owner, {PERSON: ["a"]}))
    assert [(e.retryable, e.outcome.value) for e in seen] == [(True, "not_committed")]
    assert people_of(local_graph) == ["a"]
    assert_sound(local_graph)


def test_the_recheck_sees_every_fold_the_plan_would_land_on(local_graph: Place) -> None:
    """A commit between the fold and the claim makes the claim lose and the check run again on the newer fold."""
    versions: list[int] = []

    def recheck(_plan: PublishPlan, state: GraphState) -> None:
        versions.append(state.graph_version)
        if len(versions) == 1:
            append(local_graph.uri, {COMPANY: ["between"]})
        if len(versions) == 2:
            raise ConflictError("no longer valid")

    authority = authority_for(local_graph.uri)
    with pytest.raises(ConflictError, match="no longer valid"):
        authority.publish(stage_plan(authority, {PERSON: ["a"]}), recheck=recheck)
    assert len(versions) == 2
    assert versions[0] < versions[1]
    assert_free(local_graph)
    assert_sound(local_graph)


def test_a_commit_behind_a_compaction_carries_its_own_version(
    local_graph: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions that slip in before the publish do not send time travel to the graph before the commit."""
    monkeypatch.setattr(window, "SMALL_ROWS", 0)
    monkeypatch.setattr(window, "MOST_FRAGMENTS", 100)
    for n in range(3):
        append(local_graph.uri, {PERSON: [f"p{n}"]})

    def compact_old_fragments() -> None:
        manifest = local_graph.builder.manifest()
        hot = max(f.fragment_id for f in manifest.get_fragments())
        tasks = Compaction.plan(manifest, {"excluded_fragment_ids": [hot]}).tasks
        Compaction.commit(manifest, [task.execute(manifest) for task in tasks])

    authority = authority_for(local_graph.uri, hook=once("publish:enter", compact_old_fragments))
    commit = authority.publish(stage_plan(authority, {PERSON: ["late"]}))
    graph = local_graph.open(read_only=True)
    assert graph.head is not None
    assert graph.head.graph_version == commit.row.graph_version
    assert "late" in graph.to_arrow("Person", commit=commit.row.commit_id)["id"].to_pylist()
    before = graph.to_arrow("Person", version=commit.row.graph_version - 1)["id"].to_pylist()
    assert "late" not in before
    assert_sound(local_graph)


@pytest.mark.parametrize("text", ["{", '{"branch": null, "version": 999, "manifestSize": 1}'], ids=["damaged", "ahead"])
def test_the_cleanup_boundary_is_asked_and_the_fold_decides(local_graph: Place, text: str) -> None:
    """INV-12: a commit the boundary speaks against is looked for in the newest fold; there, it is committed."""
    append(local_graph.uri, {PERSON: ["a"]})
    uri = boundary_uri(local_graph.uri, branch="main")
    authority = authority_for(local_graph.uri)
    authority.reader.objects.write(uri, text.encode())
    commit = authority.publish(stage_plan(authority, {PERSON: ["b"]}))
    # The lock of a schema change at capture, and the boundary after the swap.
    assert authority.reader.io.counter.objects["object.get"] == 2
    assert commit.row.commit_id in {c.id for c in local_graph.open(read_only=True).history()}
    assert people_of(local_graph) == ["a", "b"]
    authority.reader.objects.delete(uri)
    assert_sound(local_graph)


@pytest.mark.parametrize("rows", [4096, 0], ids=["small", "large"])
def test_the_manifest_stays_compact_and_time_travels(
    local_graph: Place, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Publishing compacts the manifest in the same swap: fragments stay bounded and every version still reads."""
    monkeypatch.setattr(window, "SMALL_ROWS", rows)
    seen = {append(local_graph.uri, {PERSON: [f"p{n}"]}).row.graph_version: n + 1 for n in range(12)}
    fragments = len(local_graph.builder.manifest().get_fragments())
    assert fragments <= (1 if rows else window.MOST_FRAGMENTS + 1)
    graph = local_graph.open(read_only=True)
    for version, count in seen.items():
        assert graph.to_arrow("Person", version=version).num_rows == count
    assert_sound(local_graph)
