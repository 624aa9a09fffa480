"""Opening the manifest: branches, versions, stamps, on disk and on S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_spark.errors import FormatError, NotFoundError, OptionError
from tests.places import Place, people

KEY = "node:Person"


def test_branches_are_listed_with_their_parents(any_graph: Place) -> None:
    """Main comes first; nested branches and names with a slash name their parent and where they left it."""
    builder = any_graph.builder
    builder.create_branch("review/2026-04")
    builder.publish({KEY: people("ann")}, branch="review/2026-04")
    builder.create_branch("deep", source="review/2026-04")
    builder.create_branch("__schema_apply_lock__")
    found = [(b.name, b.parent, b.parent_version) for b in any_graph.reader().manifest.branches()]
    assert found == [("main", None, None), ("deep", "review/2026-04", 4), ("review/2026-04", "main", 3)]


def test_a_branch_sees_its_own_commits_and_the_inherited_ones(any_graph: Place) -> None:
    """A publish on a branch moves that branch alone; what it did not touch still lives on main."""
    builder = any_graph.builder
    builder.publish({KEY: people("ann")})
    builder.create_branch("review/x")
    builder.publish({KEY: people("bob")}, branch="review/x")
    builder.publish({KEY: people("cy", "dee")})
    store = any_graph.reader().manifest
    main, branch = store.open().state, store.open(branch="review/x").state
    assert (main.tables[KEY].row_count, main.tables[KEY].branch) == (3, None)
    assert (branch.tables[KEY].row_count, branch.tables[KEY].branch) == (2, "review/x")
    assert branch.tables["node:Company"].branch is None
    assert [c.branch for c in branch.commits()] == ["main", "main", "review/x"]
    assert branch.head is not None
    assert branch.head.commit_id == builder.head(branch="review/x")


def test_versions_below_the_fork_are_read_from_the_parent(any_graph: Place) -> None:
    """Time travel on a nested branch reaches through its ancestors, each version at its owner."""
    builder = any_graph.builder
    builder.publish({KEY: people("ann")})  # 4 on main
    builder.create_branch("one")
    builder.publish({KEY: people("bob")}, branch="one")  # 5 on one
    builder.create_branch("two", source="one")
    builder.publish({KEY: people("cy")}, branch="two")  # 6 on two
    builder.publish({KEY: people("x", "y", "z", "w")})  # 5 on main: not an ancestor of two
    store = any_graph.reader().manifest
    seen = {v: store.open(branch="two", version=v).state.tables[KEY].row_count for v in (3, 4, 5, 6)}
    assert seen == {3: 0, 4: 1, 5: 2, 6: 3}


def test_an_unknown_branch_names_the_nearest(any_graph: Place) -> None:
    """A branch without a ref does not exist, even when its name is near one or climbs out of the graph."""
    any_graph.builder.create_branch("review/x")
    store = any_graph.reader().manifest
    with pytest.raises(NotFoundError, match=r"did you mean 'review/x'.*Existing branches: main, review/x"):
        store.open(branch="review/y")
    for name in ("../../x", "a//b?c#d", "review"):
        with pytest.raises(NotFoundError, match="does not exist"):
            store.open(branch=name)


def test_a_directory_without_its_ref_is_no_branch(local_graph: Place) -> None:
    """What a deleted branch left behind is not a branch."""
    local_graph.builder.create_branch("gone")
    Path(local_graph.uri, "__manifest/_refs/branches/gone.json").unlink()
    with pytest.raises(NotFoundError, match="'gone' does not exist"):
        local_graph.reader().manifest.open(branch="gone")


def test_a_damaged_ref_is_a_format_error(local_graph: Place) -> None:
    """A ref that is not JSON names its file."""
    local_graph.builder.create_branch("odd")
    Path(local_graph.uri, "__manifest/_refs/branches/odd.json").write_text("[")
    with pytest.raises(FormatError, match=r"odd\.json"):
        local_graph.reader().manifest.open(branch="odd")


@pytest.mark.parametrize("name", ["", "  ", "__schema_apply_lock__"])
def test_a_name_that_cannot_be_a_branch_is_refused(local_graph: Place, name: str) -> None:
    """Empty and reserved names are OptionErrors."""
    with pytest.raises(OptionError, match=r"branch|Branch"):
        local_graph.open(branch=name)


def test_the_oldest_version_has_no_stamp_and_opens(any_graph: Place) -> None:
    """OmniGraph stamps a graph two versions after it makes it; time travel uses the stamp of the latest."""
    genesis = any_graph.open().at(version=1)
    assert (genesis.version, [t.rows for t in genesis.tables()]) == (1, [0, 0, 0, 0])
    assert genesis.head is not None
    assert genesis.head.parent is None


def test_a_manifest_without_its_columns_is_a_format_error(local_graph: Place) -> None:
    """A stamped dataset that is no manifest is refused with what it lacks."""
    local_graph.builder.manifest().drop_columns(["row_count"])
    with pytest.raises(FormatError, match="row_count"):
        local_graph.open()


@pytest.mark.parametrize("version", [0, 99])
def test_a_version_that_is_not_there_says_what_is(any_graph: Place, version: int) -> None:
    """An unknown graph version is NotFoundError with the latest or the reason."""
    with pytest.raises(NotFoundError, match=f"no graph version {version}: (its latest is 3|it was never made)"):
        any_graph.open().at(version=version)
