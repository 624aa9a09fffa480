"""Optimize: fewer fragments and whole indexes, the same rows, whatever runs beside it."""

from __future__ import annotations

import lance
import pytest

from omnigraph_spark import ConflictError, NotFoundError, OptimizeResult, RecoveryError
from omnigraph_spark.maintenance.optimize import OPTIMIZE_ACTOR, Optimizer
from omnigraph_spark.manifest.layout import SCHEMA_LOCK_BRANCH
from omnigraph_spark.storage.seams import Phase
from tests.all_types import graph_of_all_types
from tests.places import Place, people, unchanged
from tests.soundness import assert_sound
from tests.unit.maintenance.upkeep import (
    KNOWS,
    PERSON,
    authority,
    created,
    crowd,
    many_fragments,
    names,
    once,
    person,
    table,
)
from tests.writer_process import plan_of, stage_delete


def by_key(results: list[OptimizeResult]) -> dict[str, OptimizeResult]:
    """Return results by table."""
    return {result.table_key: result for result in results}


def test_a_thousand_fragments_become_one(local_root: Place) -> None:
    """One pass over a thousand small fragments leaves one, the same rows, one compaction commit, a sound graph."""
    graph = created(local_root)
    many_fragments(local_root, count=1000, rows=3)
    before, commits = graph.to_arrow("Person").sort_by("id"), len(graph.history())
    told: list[str] = []
    found = by_key(graph.optimize(progress=told.append))[PERSON]
    assert (found.fragments_removed, found.fragments_added, found.skipped) == (1000, 1, None)
    assert len(table(graph, PERSON).get_fragments()) == 1
    assert len(graph.history()) == commits + 2  # compaction, indexes
    assert graph.to_arrow("Person").sort_by("id") == before
    assert any("1000 fragments" in text for text in told)
    assert_sound(local_root)


def test_output_fragments_are_near_the_target(local_root: Place) -> None:
    """Fragments come out at the target size, not as one heap and not as crumbs."""
    graph = created(local_root)
    many_fragments(local_root, count=60, rows=5)
    Optimizer(authority(local_root), target_rows=100).run(["Person"])
    sizes = [f.count_rows() for f in table(graph, PERSON).get_fragments()]
    assert sum(sizes) == 300
    assert all(50 <= size <= 200 for size in sizes), sizes


def test_every_declared_index_is_built_and_extended(any_root: Place) -> None:
    """Ids, ends and declared columns get their kind of index; new rows are covered next time; lists get none."""
    graph = created(any_root)
    crowd(graph, commits=3)
    found = by_key(graph.optimize())
    assert found[PERSON].indexes_built == ("age_idx", "bio_idx", "id_idx", "kind_idx", "name_idx")
    assert [(p.column, "no vectors" in p.reason) for p in found[PERSON].pending_indexes] == [("face", True)]
    assert found[KNOWS].indexes_built == ("dst_idx", "id_idx", "since_idx", "src_idx")
    assert not any(r.indexes_built or r.fragments_removed for r in graph.optimize())  # nothing left to do
    graph.append("Person", [person("late", face=[1.0, 2.0, 3.0, 4.0])])
    graph.merge("Person", [person("p1", age=77)])
    assert "face_idx" in by_key(graph.optimize())[PERSON].indexes_built
    assert graph.to_arrow("Person", where="age = 77", columns=["id"])["id"].to_pylist() == ["p1"]
    assert names(graph, where="id = 'late'") == ["late"]
    assert names(graph, where="age = 2 AND kind = 'calm'") == ["p0", "p2", "q0", "q1", "q2"]
    graph.delete("Person", where="id = 'p1'")
    assert names(graph, where="age = 77") == []
    assert_sound(any_root)


def test_index_kinds_and_names_are_lances(local_root: Place) -> None:
    """Enums and numbers get BTREE, text an inverted index, vectors IVF_FLAT with one partition; names are defaults."""
    graph = created(local_root)
    graph.append("Person", [person(f"v{n}", face=[float(n)] * 4) for n in range(5)])
    graph.optimize()
    found = {i.name: i.index_type for i in table(graph, PERSON).describe_indices()}
    assert found == {
        "id_idx": "BTree",
        "age_idx": "BTree",
        "kind_idx": "BTree",
        "bio_idx": "Inverted",
        "name_idx": "Inverted",
        "face_idx": "IVF_FLAT",
    }
    dataset = table(graph, PERSON)
    near = dataset.to_table(columns=["id"], nearest={"column": "face", "q": [3.1] * 4, "k": 1})
    assert near["id"].to_pylist() == ["v3"]
    assert dataset.to_table(full_text_query="tea").num_rows == 5
    assert "ScalarIndexQuery" in dataset.scanner(filter="id = 'v1'").explain_plan()


def test_replaced_rows_are_not_found_by_their_old_values(local_root: Place) -> None:
    """Whatever kind of index, and however it was extended or compacted: a lookup finds rows as they are now."""
    graph = created(local_root)
    graph.append("Person", [person(f"p{n}", age=n, bio=f"word{n}", face=[float(n)] * 4) for n in range(40)])
    graph.optimize()

    def look() -> None:
        dataset = table(graph, PERSON)
        texts = {w: dataset.to_table(columns=["id", "_score"], full_text_query=w)["id"].to_pylist() for w in words}
        assert texts == {"word1": [], "word2": ["p2"], "changed": ["p1"], "fresh": fresh}
        near = dataset.to_table(columns=["id", "_distance"], nearest={"column": "face", "q": [1.0] * 4, "k": 2})
        assert sorted(near["id"].to_pylist()) == ["p0", "p2"]
        assert names(graph, where="age = 1") == []
        assert names(graph, where="age = 99") == ["p1"]

    words, fresh = ("word1", "word2", "changed", "fresh"), []
    graph.merge("Person", [person("p1", age=99, bio="changed", face=[500.0] * 4)])
    look()
    graph.optimize()
    look()
    graph.append("Person", [person("new", bio="fresh")])
    fresh.append("new")
    graph.optimize()
    parts = {i.name: len(i.segments) for i in table(graph, PERSON).describe_indices()}
    assert parts["bio_idx"] == 2  # new rows alone become another part
    look()
    graph.delete("Person", where="age >= 5 AND age < 25")
    assert by_key(graph.optimize())[PERSON].fragments_removed
    look()
    assert_sound(local_root)


def test_fragments_of_two_index_parts_are_compacted_in_one_commit(local_root: Place) -> None:
    """Deletions in both fragments, each covered by another part of the text index: both are rewritten, lookups hold."""
    graph = created(local_root)
    for half in "ab":
        graph.append("Person", [person(f"{half}{n}", age=n) for n in range(10)])
        graph.optimize(types=["Person"])
    graph.delete("Person", where="age < 5")
    found = by_key(graph.optimize())[PERSON]
    assert (found.fragments_removed, found.fragments_added) == (2, 2)
    assert table(graph, PERSON).to_table(columns=["id", "_score"], full_text_query="b7")["id"].to_pylist() == ["b7"]
    assert names(graph, where="age = 7") == ["a7", "b7"]
    assert len(names(graph)) == 10
    assert_sound(local_root)


def test_two_optimizers_at_once(local_root: Place) -> None:
    """One finishes while the other has its files written: the other plans anew and finds nothing left to do."""
    graph = created(local_root)
    crowd(graph, commits=4)
    for point in (f"stage:compacted:{PERSON}", f"stage:indexed:{PERSON}"):
        crowd(graph, commits=2, first=len(names(graph)))
        before = names(graph)
        other = once(lambda: graph.optimize(), at=point)
        found = by_key(Optimizer(authority(local_root, hook=other)).run(["Person"]))[PERSON]
        assert found.skipped is None
        assert names(graph) == before
        assert_sound(local_root)


def test_an_index_in_many_parts_is_built_anew(local_root: Place) -> None:
    """Each pass adds a part for the new rows; past four parts the index becomes one again."""
    graph = created(local_root)
    for n in range(7):
        graph.append("Person", [person(f"n{n}-{k}") for k in range(2)])
        graph.optimize(types=["Person"])
        parts = {i.name: len(i.segments) for i in table(graph, PERSON).describe_indices()}
        assert max(parts.values()) <= 4, parts
        assert names(graph, where=f"id = 'n{n}-1'") == [f"n{n}-1"]
    assert len(names(graph)) == 14
    assert_sound(local_root)


def test_a_reader_sees_one_version_throughout(local_root: Place) -> None:
    """A view taken before optimize reads the same rows during it and after it (INV-14)."""
    graph = created(local_root)
    crowd(graph, commits=4)
    view, seen = graph.at(version=graph.version), []

    def look(_phase: Phase, _point: str) -> None:
        seen.append((names(view), names(graph), view.version))

    Optimizer(authority(local_root, hook=look)).run(["Person"])
    assert len(seen) > 8
    assert len({str(look) for look in seen}) == 1


def test_a_strict_delete_planned_before_optimize_succeeds_after_it(local_root: Place) -> None:
    """Maintenance never fails a logical write (INV-17): row ids survive compaction, so the delete finds its rows."""
    graph = created(local_root)
    crowd(graph, commits=4)
    writer = authority(local_root)
    txn = writer.open_txn(branch="main")
    ids = graph.to_arrow("Knows", columns=["id"])["id"].to_pylist()
    plan = plan_of(writer, txn, [stage_delete(writer, txn, KNOWS, ids[:2])], strict=[KNOWS])
    assert by_key(graph.optimize())[KNOWS].fragments_removed == 4
    writer.publish(plan)
    assert graph.to_arrow("Knows", columns=["id"])["id"].to_pylist() == ids[2:]
    assert_sound(local_root)


def test_an_append_beside_it_is_kept(local_root: Place) -> None:
    """A commit that did not touch the compacted fragments is no conflict: its fragment stays beside the new one."""
    graph = created(local_root)
    crowd(graph, commits=4)
    beside = once(lambda: graph.append("Person", [person("beside")]), at=f"stage:compacted:{PERSON}")
    found = by_key(Optimizer(authority(local_root, hook=beside)).run(["Person"]))[PERSON]
    assert (found.fragments_removed, found.fragments_added, found.skipped) == (4, 1, None)
    assert "beside" in names(graph)
    assert len(names(graph)) == 9
    assert_sound(local_root)


def test_a_real_overlap_is_planned_anew(local_root: Place) -> None:
    """A writer that replaced a row under the compaction makes it start over; nothing of the write is lost."""
    graph = created(local_root)
    crowd(graph, commits=4)
    overlap = once(lambda: graph.merge("Person", [person("p1", age=99)]), at=f"stage:compacted:{PERSON}")
    found = by_key(Optimizer(authority(local_root, hook=overlap)).run(["Person"]))[PERSON]
    assert found.skipped is None
    assert found.fragments_removed == 5
    assert names(graph, where="age = 99") == ["p1"]
    assert_sound(local_root)
    # The files of the plan that lost are gone, not left for cleanup.
    assert [f.message for f in graph.verify(orphans=True).findings if "/data/" in f.message] == []


def test_a_table_that_never_rests_is_reported_as_skipped(local_root: Place) -> None:
    """After five plans that writers overtook, optimize says so and leaves the table as it is."""
    graph = created(local_root)
    crowd(graph, commits=3)
    ages = iter(range(100, 200))

    def disturb(phase: Phase, point: str) -> None:
        if (phase, point) == (Phase.STAGE, f"compacted:{PERSON}"):
            graph.merge("Person", [person("p1", age=next(ages))])

    found = by_key(Optimizer(authority(local_root, hook=disturb)).run(["Person"]))[PERSON]
    assert found.skipped is not None
    assert found.skipped.startswith("busy")
    assert next(ages) == 105
    assert_sound(local_root)


def test_drift_and_blobs_are_skipped_with_the_reason(local_root: Place) -> None:
    """A table somebody moved outside the graph, or one with blobs, is left alone; the others are optimized."""
    graph = created(local_root)
    crowd(graph, commits=3)
    table(graph, PERSON).delete("id = 'p1'")
    found = by_key(graph.optimize())
    assert "drift" in str(found[PERSON].skipped)
    assert "repair()" in str(found[PERSON].skipped)
    assert found[KNOWS].fragments_removed == 3
    blobs = graph_of_all_types(local_root.under("blobs"))
    (thing, *_) = blobs.open().optimize()
    assert "blob" in str(thing.skipped)


def test_a_branch_optimizes_the_tables_it_owns(local_graph: Place) -> None:
    """On a branch, inherited tables are skipped and its own are compacted; main does not move."""
    builder = local_graph.builder
    builder.publish({PERSON: people("ann")})
    builder.create_branch("review/x")
    for name in ("bob", "cy"):
        builder.publish({PERSON: people(name)}, branch="review/x")
    main = local_graph.open().version
    branch = local_graph.open(branch="review/x")
    found = by_key(branch.optimize())
    assert found[PERSON].fragments_removed == 3
    assert "'main'" in str(found[KNOWS].skipped)
    assert names(branch) == ["ann", "bob", "cy"]
    assert local_graph.open().version == main
    assert_sound(local_graph)


def test_the_manifest_is_compacted_too(any_graph: Place) -> None:
    """A manifest that OmniGraph left in many fragments becomes one; the graph reads as before and takes writes."""
    for n in range(6):
        any_graph.builder.publish({PERSON: people(f"p{n}")})
    graph = any_graph.open()
    before = len(any_graph.builder.manifest().get_fragments())
    found = by_key(graph.optimize())["__manifest"]
    # The commits of the tables fold a small manifest into one fragment themselves; either way one is left.
    assert before > 1
    assert found.skipped is None
    assert len(any_graph.builder.manifest().get_fragments()) == 1
    graph.append("Person", people("after"))
    assert len(names(graph)) == 7
    assert_sound(any_graph)


def test_commits_say_who_and_what(local_root: Place) -> None:
    """Each commit of optimize names its actor and its table."""
    graph = created(local_root)
    crowd(graph, commits=2)
    graph.optimize(types=["Knows"])
    (last, before) = graph.history(2)
    assert {last.actor, before.actor} == {OPTIMIZE_ACTOR}
    assert last.message == before.message == f"optimize {KNOWS}"


def test_refusals_come_before_any_change(local_root: Place) -> None:
    """A missing type names the nearest one; an open record and a schema change stop it; no byte changes."""
    graph = created(local_root)
    crowd(graph, commits=2)
    same = unchanged(local_root.uri)
    with pytest.raises(NotFoundError, match="did you mean 'Person'"):
        graph.optimize(types=["Persn"])
    same()
    manifest = lance.dataset(f"{local_root.uri}/__manifest")
    manifest.create_branch(SCHEMA_LOCK_BRANCH)
    with pytest.raises(ConflictError, match="schema change"):
        graph.optimize()
    manifest.branches.delete(SCHEMA_LOCK_BRANCH)
    writer = authority(local_root)
    txn = writer.open_txn(branch="main")
    plan = plan_of(writer, txn, []).attempt("01RECORD")
    writer.sidecars.put(plan)
    with pytest.raises(RecoveryError, match="01RECORD"):
        Optimizer(authority(local_root)).run()
