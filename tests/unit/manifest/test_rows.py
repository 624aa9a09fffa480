"""The codec against rows that were written from the format's description by other code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph_spark.errors import FormatError
from omnigraph_spark.manifest import rows
from omnigraph_spark.manifest.layout import V4, branch_ref_uri, branch_uri, layout_for, manifest_file_path
from omnigraph_spark.manifest.rows import CommitRow, EpochRow, ManifestRow, TokenRow
from tests.rig import builder_rows as spec
from tests.rig.builder_rows import Lineage, Pin

COMMIT = "01JZ0Q3V6C8W3M5T9K2B7XHDNE"


def _encoded(*found: ManifestRow) -> list[dict[str, Any]]:
    table = rows.rows_to_arrow(V4, found)
    assert table.schema.equals(spec.MANIFEST_SCHEMA, check_metadata=True)
    listed: list[dict[str, Any]] = table.to_pylist()
    return listed


@pytest.mark.parametrize("key", ["node:Person", "edge:Knows", "node:Ünïcode"])
def test_a_table_is_registered_as_the_format_says(key: str) -> None:
    """A registration row: id, directory hash and key."""
    assert _encoded(rows.table_row(V4, key)) == [spec.table_row(key)]


@pytest.mark.parametrize("branch", [None, "review/x"])
def test_a_version_is_published_as_the_format_says(branch: str | None) -> None:
    """A version row: twenty digits, four metadata keys with nulls spelled out, branch and row count."""
    path = manifest_file_path("data/g/nodes/40d76f1f51639ec0", 7)
    ours = rows.version_row(V4, "node:Person", version=7, rows=3, branch=branch, manifest_path=path)
    metadata = {"manifest_path": path, "manifest_size": None, "e_tag": None, "naming_scheme": "V2"}
    pin = Pin("node:Person", "nodes/40d76f1f51639ec0", 7, branch, 3)
    assert _encoded(ours) == [spec.table_version_row(pin, metadata=metadata)]
    assert path.endswith("/_versions/18446744073709551608.manifest")


@pytest.mark.parametrize(
    "lineage",
    [
        Lineage(COMMIT, 1, 1782900000000000),
        Lineage(COMMIT, 5, 1782900001234567, parent="01A", actor="act-älice"),
        Lineage(COMMIT, 9, 1, branch="review/x", parent="01A", merged_parent="01B", actor="m"),
    ],
)
def test_a_commit_is_two_rows(lineage: Lineage) -> None:
    """Commit and head rows: key order as documented, absent keys left out, main stored as null."""
    commit = CommitRow(
        commit_id=lineage.commit_id,
        branch=lineage.branch or "main",
        graph_version=lineage.manifest_version,
        created_at=lineage.created_at,
        parent=lineage.parent,
        merged_parent=lineage.merged_parent,
        actor=lineage.actor,
    )
    encoded = rows.commit_rows(commit)
    assert _encoded(*encoded) == spec.lineage_rows(lineage)
    assert rows.decode_commit(encoded[0]) == commit


def test_extra_facts_of_a_commit_survive() -> None:
    """Keys we add come back, and do not disturb the documented ones."""
    commit = CommitRow(COMMIT, "main", 4, 5, extra={"message": "Grüße", "stats": {"rows": 1}})
    row = rows.commit_rows(commit)[0]
    assert rows.decode_commit(row) == commit
    assert (row.metadata or "").startswith('{"created_at":5,"message":"Grüße"')


def test_our_own_rows_round_trip() -> None:
    """The window row and the idempotency row come back as they went in, also for names with colons."""
    epoch = EpochRow("a/b", number=3, operation_id="01X", in_window=True, claimed_at=9, actor="etl")
    assert rows.decode_epoch(rows.epoch_row(epoch)) == epoch
    token = TokenRow("main", app_id="job:nightly", txn_version=12, commit_id=COMMIT)
    assert rows.decode_token(rows.token_row(token), branch="main") == token
    assert rows.epoch_row(epoch).table_key == rows.token_row(token).table_key == ""


@pytest.mark.parametrize("text", [None, "", "{", "[]", "1", '{"created_at":"soon"}', '{"parent_commit_id":"x"}'])
def test_a_damaged_commit_is_a_format_error(text: str | None) -> None:
    """A commit without readable metadata or time is refused, and named."""
    row = ManifestRow(COMMIT, rows.GRAPH_COMMIT, metadata=text, table_version=3)
    with pytest.raises(FormatError, match=COMMIT):
        rows.decode_commit(row)


@pytest.mark.parametrize(
    ("stamp", "says", "hint"),
    [
        (None, "stamp 1", "Export"),
        ("3", "stamp 3", "Export"),
        ("many", "stamp 1", "Export"),
        ("6", "stamp 6, newer", "Upgrade"),
    ],
)
def test_another_stamp_is_refused_with_what_to_do(stamp: str | None, says: str, hint: str) -> None:
    """Lower and higher stamps are FormatErrors that name the stamp and the next step."""
    with pytest.raises(FormatError, match=says) as caught:
        layout_for(stamp)
    assert hint in caught.value.hint


def test_ids_and_paths_are_those_of_the_format() -> None:
    """Object ids, tombstones, branch directories and branch refs as documented."""
    assert layout_for("4") is V4
    assert V4.tombstone_id("edge:Knows", 8) == spec.tombstone_row("edge:Knows", version=8)["object_id"]
    assert V4.table_path("node:Company") == "nodes/7cb4e55c59663b1c"
    assert branch_uri("/g/__manifest", "review/x") == "/g/__manifest/tree/review/x"
    assert branch_uri("/g/__manifest", None) == branch_uri("/g/__manifest", "main") == "/g/__manifest"
    assert branch_ref_uri("/g/__manifest", "review/x") == "/g/__manifest/_refs/branches/review%2Fx.json"
    assert json.loads(rows.head_row("main", head="01A", parent=None).metadata or "") == {"head_commit_id": "01A"}
