"""Repair: drift is shown, maintenance is published when confirmed, foreign rows only when forced."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph_spark import DriftError, Graph, OptionError, RecoveryError, StorageUnreachableError
from omnigraph_spark.maintenance.repair import FORCE_ACTOR, REPAIR_ACTOR, repair_graph
from omnigraph_spark.storage.lance_commit import append_operation, commit_operation
from omnigraph_spark.storage.seams import Seams
from tests.places import Place, unchanged
from tests.soundness import assert_sound
from tests.unit.maintenance.upkeep import KNOWS, PERSON, authority, created, crowd, names, person, table
from tests.writer_process import plan_of, stage_append


@pytest.fixture
def graph(local_root: Place) -> Graph:
    """A graph of six people and three edges."""
    made = created(local_root)
    crowd(made, commits=3)
    return made


def found(graph: Graph, **arguments: bool) -> dict[str, tuple[str, str]]:
    """Return classification and action by table."""
    return {row.table_key: (row.classification, row.action) for row in graph.repair(**arguments).rows}


def remove_row(graph: Graph) -> None:
    """Delete a person behind the graph's back."""
    table(graph, PERSON).delete("id = 'p1'")


def test_a_graph_without_drift_needs_nothing(graph: Graph) -> None:
    """Preview and confirm say so, and commit nothing."""
    before = graph.version
    assert set(found(graph).values()) == {("no_drift", "no_op")}
    report = graph.repair(confirm=True)
    assert report.graph_version is None
    assert graph.history(1)[0].graph_version <= before


def test_preview_reads_only(graph: Graph) -> None:
    """It names tables, versions and operations, and changes no byte."""
    table(graph, PERSON).optimize.compact_files()
    remove_row(graph)
    same = unchanged(graph.uri)
    report = graph.repair()
    same()
    (row,) = report.drifted
    assert (row.table_key, row.classification, row.action) == (PERSON, "suspicious", "preview")
    assert [text.split()[1] for text in row.operations] == ["ReserveFragments", "Rewrite", "Delete"]
    assert row.head == row.published + 3
    assert "suspicious" in repr(report)
    assert report.to_arrow().num_rows == 2


def test_maintenance_is_published_when_confirmed(graph: Graph) -> None:
    """Compactions and indexes made outside: one commit for all tables, by the repair actor, the same rows."""
    before = names(graph)
    table(graph, PERSON).optimize.compact_files()
    table(graph, KNOWS).create_scalar_index("src", "BTREE")
    assert found(graph, confirm=True) == {
        KNOWS: ("verified_maintenance", "healed"),
        PERSON: ("verified_maintenance", "healed"),
    }
    assert graph.head is not None
    assert graph.head.actor == REPAIR_ACTOR
    assert set(graph.head.tables) == {PERSON, KNOWS}
    assert names(graph) == before
    assert set(found(graph).values()) == {("no_drift", "no_op")}
    assert_sound(graph.uri)


def test_foreign_rows_are_refused_unless_forced(graph: Graph) -> None:
    """A delete outside the graph stays unpublished under confirm, beside healed tables; force publishes it."""
    remove_row(graph)
    table(graph, KNOWS).optimize.compact_files()
    with pytest.raises(OptionError, match="force needs confirm"):
        graph.repair(force=True)
    assert found(graph, confirm=True) == {KNOWS: ("verified_maintenance", "healed"), PERSON: ("suspicious", "refused")}
    assert "p1" in names(graph)
    with pytest.raises(DriftError):
        graph.append("Person", [person("blocked")])
    assert found(graph, confirm=True, force=True)[PERSON] == ("suspicious", "forced")
    assert "p1" not in names(graph)
    assert graph.head is not None
    assert graph.head.actor == FORCE_ACTOR
    graph.append("Person", [person("after")])
    assert "after" in names(graph)


def test_what_cannot_be_read_cannot_be_verified(graph: Graph) -> None:
    """Drift whose log is gone is refused, whatever it was."""
    table(graph, PERSON).optimize.compact_files()
    dataset = table(graph, PERSON)
    gone = (1 << 64) - 1 - (int(dataset.version) - 1)
    Path(f"{dataset.uri}/_versions/{gone:020d}.manifest").unlink()
    assert found(graph, confirm=True)[PERSON] == ("unverifiable", "refused")
    (row,) = graph.repair().drifted
    assert row.problem


def test_a_fenced_writers_residue_is_undone_not_published(local_root: Place, graph: Graph) -> None:
    """Versions that name an older epoch are a dead writer's: repair takes them back, even when forced."""
    writer = authority(local_root)
    txn = writer.open_txn(branch="main")
    staged = stage_append(writer, txn, PERSON, ["zombie"])
    dataset = writer.reader.io.open(txn.uri(PERSON), table=PERSON)
    properties = {"operation_id": "01DEAD", "epoch": "1"}
    commit_operation(writer.reader.io, dataset, append_operation(staged.fragments), table=PERSON, properties=properties)
    assert found(graph)[PERSON] == ("residue", "preview")
    assert found(graph, confirm=True, force=True)[PERSON] == ("residue", "undone")
    assert "zombie" not in names(graph)
    assert table(graph, PERSON).count_rows() == 6
    assert_sound(graph.uri)


def test_open_records_stop_it(local_root: Place, graph: Graph) -> None:
    """While a record is open recovery comes first; the record is named."""
    writer = authority(local_root)
    writer.sidecars.put(plan_of(writer, writer.open_txn(branch="main"), []).attempt("01OPEN"))
    with pytest.raises(RecoveryError, match="01OPEN"):
        repair_graph(authority(local_root), branch="main", confirm=True)


def test_a_lost_answer_is_not_guessed(local_root: Place, graph: Graph) -> None:
    """The swap landed and its answer was lost: repair looks again and reports what happened, once."""
    table(graph, PERSON).optimize.compact_files()
    lost = ["swap.done"]
    calls: list[str] = []

    def fault(operation: str, target: str) -> None:
        calls.append(operation)
        if operation == "swap.done" and lost and calls.count("swap.done") == 2:
            lost.clear()
            raise StorageUnreachableError("the answer was lost")

    commits = len(graph.history())
    doing = authority(local_root, seams=Seams(fault=fault))
    report = repair_graph(doing, branch="main", confirm=True)
    assert not lost
    assert [row.action for row in report.drifted] == ["healed"]
    assert report.graph_version is not None
    assert len(graph.history()) == commits + 1
    assert set(found(graph, confirm=True).values()) == {("no_drift", "no_op")}
    assert_sound(graph.uri)


def test_the_report_is_a_table(graph: Graph) -> None:
    """Columns are typed even when nothing drifted."""
    schema = graph.repair().to_arrow().schema
    assert schema.field("operations").type == pa.list_(pa.string())
    assert schema.field("head").type == pa.int64()
