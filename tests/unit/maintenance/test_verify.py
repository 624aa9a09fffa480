"""`verify` says nothing about a sound graph, and about a damaged one exactly what is wrong."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

from omnigraph_spark import Finding, StorageForbiddenError, StorageUnreachableError
from tests.all_types import graph_of_all_types
from tests.places import Place, knows, people, unchanged
from tests.rig import builder_rows as rows
from tests.soundness import assert_sound
from tests.unit.maintenance.damage import (
    KNOWS,
    PERSON,
    commit_row,
    docs,
    merge,
    publish_dataset,
    social,
    spoke,
    table_dir,
    verify,
)
from tests.writer_process import append, authority_for


@pytest.fixture
def graph(local_graph: Place) -> Place:
    """A small sound graph on disk."""
    return social(local_graph)


def test_a_sound_graph_has_no_findings(any_graph: Place) -> None:
    """Rows, deletions, branches that share and fork tables: nothing to say, and every check has run."""
    builder = social(any_graph).builder
    builder.create_branch("review/x")
    builder.publish({PERSON: people("eve", "gil")}, branch="review/x")
    builder.delete_rows(PERSON, predicate="id = 'eve'", branch="review/x")
    builder.publish({PERSON: people("fay")})
    report = assert_sound(any_graph)
    assert report.findings == []
    assert report.total == 0
    assert [branch for branch, _ in report.versions] == ["main", "review/x"]
    seen = {(run.name, run.branch, run.table_key): run.examined for run in report.checks}
    assert seen["edge-ends", "main", KNOWS] == 2
    assert seen["files", "main", PERSON] == 3
    assert seen["files", "review/x", PERSON] == 4
    assert seen["rows-read", "review/x", PERSON] == 4
    assert any_graph.open(branch="review/x").verify().versions == (("review/x", 7),)


def test_a_sound_graph_of_every_rule_has_no_findings(local_root: Place) -> None:
    """Enums, ranges, patterns, uniqueness and cardinality hold: nothing to say."""
    report = assert_sound(docs(local_root))
    names = {run.name for run in report.checks}
    assert {"values", "unique", "cardinality", "key-is-id", "edge-ends", "required"} <= names


def test_a_column_of_every_type_is_sound(local_root: Place) -> None:
    """Every stored type is the one the schema means; blobs are not read."""
    report = assert_sound(graph_of_all_types(local_root))
    assert report.findings == []


def test_verify_reads_only(graph: Place) -> None:
    """Not one byte of the graph changes."""
    same = unchanged(graph.uri)
    assert graph.open(read_only=True).verify(branches=True).ok
    same()


def test_a_branch_may_lag_behind_the_owner_of_its_tables(graph: Place) -> None:
    """A table inherited from main is no drift when main moves on."""
    graph.builder.create_branch("old")
    graph.builder.publish({PERSON: people("eve")})
    assert_sound(graph)
    assert verify(graph, branch="old").findings == []


def test_a_missing_data_file_is_found_without_reading_data(graph: Place) -> None:
    """The file and the version that needs it are named, and only that."""
    (file,) = table_dir(graph, KNOWS).glob("data/*")
    file.unlink()
    report = verify(graph)
    assert spoke(report) == {("files", "error", KNOWS)}
    assert report.findings[0].subject == file.name


def test_a_missing_deletion_file_is_found(graph: Place) -> None:
    """Without it, deleted rows would come back."""
    (file,) = table_dir(graph, PERSON).glob("_deletions/*")
    file.unlink()
    assert spoke(verify(graph)) == {("files", "error", PERSON)}


def test_a_missing_file_of_the_parent_is_found_from_the_branch(graph: Place) -> None:
    """A forked table stands on files of the table it was forked from."""
    graph.builder.create_branch("b")
    graph.builder.publish({KNOWS: knows(("ann", "cy"))}, branch="b")
    (file,) = table_dir(graph, KNOWS).glob("data/*")
    file.unlink()
    assert [(f.check, f.branch, f.subject) for f in verify(graph, branch="b").findings] == [("files", "b", file.name)]


def test_a_damaged_data_file_is_found(graph: Place) -> None:
    """A file that is there but cut short is a finding, not an exception."""
    (file,) = table_dir(graph, KNOWS).glob("data/*")
    file.write_bytes(file.read_bytes()[:40])
    assert spoke(verify(graph)) == {("validate", "error", KNOWS), ("rows-read", "error", KNOWS)}


def test_a_deleted_table_version_is_found(graph: Place) -> None:
    """A pin that does not open is named; edges that end there are not accused."""
    pin = graph.builder.snapshot()[PERSON]
    Path(graph.uri, rows.manifest_file(pin.path, version=pin.version)).unlink()
    assert spoke(verify(graph)) == {("pin-opens", "error", PERSON)}


def test_a_removed_table_is_found(graph: Place) -> None:
    """The whole directory is gone."""
    graph.builder.remove_table_dir(KNOWS)
    assert spoke(verify(graph)) == {("pin-opens", "error", KNOWS)}


def test_a_wrong_row_count_is_found(graph: Place) -> None:
    """The manifest's count is what readers trust."""
    pin = graph.builder.snapshot()[PERSON]
    merge(graph, rows.table_version_row(dataclasses.replace(pin, row_count=7), metadata={}))
    (finding,) = verify(graph).findings
    assert (finding.check, finding.table_key) == ("row-count", PERSON)
    assert "counts 7 rows, the table has 3" in finding.message


def test_a_doubled_row_id_is_found(graph: Place) -> None:
    """Lance's own check runs: two live rows with one row id are corrupt."""
    dataset = graph.builder.open_table(KNOWS)
    fragment = dataset.get_fragments()[0].metadata
    staged = write_fragments(dataset.to_table(), dataset, mode="append", data_storage_version="2.2")
    twin = dataclasses.replace(staged[0], row_id_meta=fragment.row_id_meta)
    operation = lance.LanceOperation.Update(
        removed_fragment_ids=[], updated_fragments=[], new_fragments=[twin], fields_modified=[]
    )
    publish_dataset(graph, KNOWS, lance.LanceDataset.commit(dataset, operation, read_version=dataset.version))
    assert ("validate", "error", KNOWS) in spoke(verify(graph))


def test_a_table_that_moved_unpublished_is_drift(graph: Place) -> None:
    """Every version beyond the pin is named with what it did."""
    uri = str(table_dir(graph, PERSON))
    lance.write_dataset(graph.builder.open_table(PERSON).to_table(), uri, mode="append")
    lance.dataset(uri).delete("id = 'cy'")
    (finding,) = verify(graph).findings
    assert (finding.check, finding.severity, finding.table_key) == ("drift", "error", PERSON)
    assert "version 5, the graph at 3; not published: 4 (Append), 5 (Delete)" in finding.message


def test_what_a_killed_writer_left_is_named_and_not_condemned(local_root: Place) -> None:
    """Drift with a recovery record, the record, and the open window are warnings; after recovery nothing is left."""
    social(local_root.built())
    append(local_root.uri, {PERSON: ["eve"]}, grace=0.2)
    assert_sound(local_root)
    order = '{"writes": [{"node:Person": ["gus"], "node:Company": ["x"]}], "die": "effect:after:node:Person"}'
    command = [sys.executable, "-m", "tests.writer_process", local_root.uri, order]
    dead = subprocess.run(command, cwd=Path(__file__).parents[3], timeout=60, check=False)
    assert dead.returncode == -signal.SIGKILL
    report = verify(local_root)
    assert report.ok
    names = {f.check for f in report.findings}
    assert {"drift", "epoch", "recovery-records"} == names
    assert {f.severity for f in report.findings} == {"warning"}
    authority_for(local_root.uri, grace=0.2).recover(branch="main")
    assert_sound(local_root)


def test_a_forked_lineage_is_found(graph: Place) -> None:
    """Two commits with one parent on one branch are two histories."""
    builder = graph.builder
    genesis = next(r for r in builder.manifest_rows() if r["object_type"] == "graph_commit" and r["table_version"] == 1)
    merge(graph, commit_row(rows.new_id(), 2, parent_commit_id=genesis["object_id"]))
    (finding,) = verify(graph).findings
    assert (finding.check, finding.subject) == ("lineage-linear", genesis["object_id"])


def test_a_second_beginning_is_found(graph: Place) -> None:
    """Only one commit has no parent."""
    merge(graph, commit_row(rows.new_id(), 2))
    assert spoke(verify(graph)) == {("lineage-linear", "error", "")}


def test_a_parent_that_is_not_there_is_found(graph: Place) -> None:
    """A chain with a missing link is named at the link."""
    merge(graph, commit_row(rows.new_id(), 2, parent_commit_id="01GONE"))
    (finding,) = verify(graph).findings
    assert (finding.check, "01GONE" in finding.message) == ("lineage-parents", True)


def test_a_cycle_is_found(graph: Place) -> None:
    """A commit that is its own ancestor also breaks the order of versions and the end of the chain."""
    first, *_, last = sorted(
        (r for r in graph.builder.manifest_rows() if r["object_type"] == "graph_commit"),
        key=lambda r: r["table_version"],
    )
    merge(graph, commit_row(first["object_id"], 1, parent_commit_id=last["object_id"]))
    assert {c for c, _, _ in spoke(verify(graph))} == {"lineage-acyclic", "lineage-versions", "lineage-head"}


def test_a_version_from_the_future_is_found(graph: Place) -> None:
    """A commit cannot have made a manifest version that does not exist."""
    builder = graph.builder
    commit = commit_row(rows.new_id(), 99, parent_commit_id=builder.head())
    head = rows.manifest_row("graph_head:main", object_type="graph_head")
    merge(graph, commit, {**head, "metadata": f'{{"head_commit_id":"{commit["object_id"]}"}}'})
    assert spoke(verify(graph)) == {("lineage-versions", "error", "")}


def test_a_head_row_that_names_another_commit_is_found(graph: Place) -> None:
    """The contention row and the newest commit agree."""
    metadata = '{"head_commit_id":"01OTHER"}'
    graph.builder.add_raw_manifest_row(object_id="graph_head:main", object_type="graph_head", metadata=metadata)
    assert spoke(verify(graph)) == {("lineage-head", "error", "")}


def test_a_doubled_object_id_is_found(graph: Place) -> None:
    """What the compare-and-swap exists to prevent, made by a plain append."""
    row = next(r for r in graph.builder.manifest_rows() if r["object_id"] == PERSON)
    lance.write_dataset(rows.to_table([row]), f"{graph.uri}/__manifest", mode="append")
    (finding,) = verify(graph).findings
    assert (finding.check, finding.subject) == ("object-ids", PERSON)


def test_a_commit_whose_table_versions_were_not_published_is_found(graph: Place) -> None:
    """A commit's list of tables is a promise about rows of the same publish."""
    builder = graph.builder
    head = next(r for r in builder.manifest_rows() if r["object_id"] == builder.head())
    merge(graph, {**head, "metadata": head["metadata"][:-1] + f',"tables":{{"{PERSON}":3,"{KNOWS}":9}}}}'})
    (finding,) = verify(graph).findings
    assert finding.check == "commit-tables"
    assert f"{KNOWS} version 9" in finding.message


def test_a_damaged_commit_row_is_found(graph: Place) -> None:
    """A commit that does not decode is reported, and the rest of the graph is still checked."""
    merge(graph, rows.manifest_row("01BAD", object_type="graph_commit", table_version=2, metadata="{"))
    report = verify(graph)
    assert spoke(report) == {("commit-rows", "error", "")}
    assert any(run.name == "edge-ends" and run.examined == 2 for run in report.checks)


@pytest.mark.parametrize(
    ("metadata", "severity"),
    [
        ('{"operation_id":"01OP","in_window":true,"claimed_at":1782900012345678}', "warning"),
        ('{"operation_id":"01OP","in_window":"yes","claimed_at":1}', "error"),
        ('{"in_window":false,"claimed_at":1}', "error"),
    ],
)
def test_the_epoch_row_is_judged(graph: Place, metadata: str, severity: str) -> None:
    """An open window may be a living writer; a row that does not decode is damage."""
    graph.builder.add_raw_manifest_row(
        object_id="writer_epoch:main", object_type="writer_epoch", table_version=3, metadata=metadata
    )
    report = verify(graph)
    assert spoke(report) == {("epoch", severity, "")}
    assert report.ok == (severity == "warning")


def test_a_leftover_recovery_record_is_a_warning(any_graph: Place) -> None:
    """Name, branch and age are told; the graph is still sound, though not at rest."""
    record = {"schema_version": 2, "operation_id": "01OP", "started_at": "1782900012345678", "branch": "x"}
    any_graph.builder.write_sidecar(record)
    report = verify(any_graph)
    (finding,) = report.findings
    assert report.ok
    assert (finding.check, finding.severity, finding.subject) == ("recovery-records", "warning", "01OP")
    assert "branch 'x'" in finding.message
    assert "started 2026-07-01" in finding.message
    with pytest.raises(AssertionError, match="1 recovery records are left"):
        assert_sound(any_graph)


def test_a_damaged_recovery_record_is_an_error(graph: Place) -> None:
    """Nobody can resolve what nobody can read."""
    graph.builder.store.write("__recovery/01BAD.json", text="{")
    assert spoke(verify(graph)) == {("recovery-records", "error", "")}


def test_a_wrong_stamp_is_found(graph: Place) -> None:
    """A graph of another generation is reported, not raised."""
    graph.builder.stamp(9)
    assert spoke(verify(graph)) == {("stamp", "error", "")}


def test_a_path_without_a_graph_is_reported(local_root: Place) -> None:
    """Nothing there is two findings: no contract, no manifest."""
    assert {c for c, _, _ in spoke(verify(local_root))} == {"schema-contract", "manifest"}


def test_a_contract_that_disagrees_is_found(graph: Place) -> None:
    """The handle was opened before; tables are still checked as far as they go without a schema."""
    handle = graph.open()
    graph.builder.store.write("_schema.pg", text="node Other { name: String @key }")
    report = handle.verify()
    assert spoke(report) == {("schema-contract", "error", "")}
    assert any(run.name == "validate" and run.table_key == PERSON for run in report.checks)


def test_a_type_without_a_table_is_found(graph: Place) -> None:
    """Every type of the schema has a table, and edges of a type that is gone dangle."""
    graph.builder.tombstone(PERSON)
    assert spoke(verify(graph)) == {("types", "error", ""), ("edge-ends", "error", KNOWS)}


def test_findings_are_capped_and_counted(graph: Place) -> None:
    """Twenty are listed per check, all are counted, and every way to show them says so."""
    names = [f"<p{n:03d}>" for n in range(100)]
    graph.builder.publish({PERSON: people(*names, *names)})
    report = verify(graph)
    run = next(r for r in report.checks if r.name == "unique-id" and r.table_key == PERSON)
    assert (run.findings, len(report.findings), report.total) == (100, 20, 100)
    assert report.findings == sorted(report.findings, key=Finding.order)
    assert "NOT sound" in repr(report)
    assert "... and 80 more" in repr(report)
    assert "&lt;p" in report._repr_html_()
    assert "<p0" not in report._repr_html_()
    table = report.to_arrow()
    assert table.num_rows == len(report.checks) - 1 + 20
    assert pa.compute.sum(pa.compute.equal(table["severity"], "error")).as_py() == 20


def test_only_an_unusable_store_raises(s3_graph: Place) -> None:
    """Wrong credentials and no answer are not facts about the graph."""
    wrong = {**s3_graph.storage, "aws_secret_access_key": "wrong"}
    with pytest.raises(StorageForbiddenError):
        verify(dataclasses.replace(s3_graph, storage=wrong))
    away = {**s3_graph.storage, "aws_endpoint": "http://127.0.0.1:1", "client_max_retries": "0"}
    with pytest.raises(StorageUnreachableError):
        verify(dataclasses.replace(s3_graph, storage=away))
