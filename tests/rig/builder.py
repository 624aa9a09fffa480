"""Builds graphs of format v4 with Lance alone, to test the package against.

It never imports the package. It has no concurrency control beyond the manifest's own: use it from
one process at a time, or on purpose from two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import lance
import pyarrow as pa

from tests.rig import builder_rows as rows
from tests.rig.builder_rows import Lineage, Pin, Row
from tests.rig.builder_schemas import EXAMPLE_A, GraphSchema
from tests.rig.builder_store import open_store

MANIFEST = "__manifest"
SCHEMA_FILES = ("_schema.pg", "_schema.ir.json", "__schema_state.json")


class GraphBuilder:
    """A graph under one root.

    Example:
        builder = GraphBuilder("/tmp/g").create()
        builder.publish({"node:Person": pa.table({"id": ["ann"], "name": ["ann"]})}, actor="act-1")
    """

    def __init__(
        self,
        root_uri: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        schema: GraphSchema = EXAMPLE_A,
    ) -> None:
        self.schema = schema
        self.store = open_store(root_uri, storage_options=storage_options)
        self.root = self.store.root
        self._options = dict(storage_options) if storage_options else None

    def create(self) -> GraphBuilder:
        """Create the graph in the order of OmniGraph 0.8; the manifest ends at version 3.

        Raises:
            FileExistsError: a schema file is there already.
        """
        if any(self.store.exists(name) for name in SCHEMA_FILES):
            raise FileExistsError(f"{self.root} already holds a graph")
        self.store.create(SCHEMA_FILES[0], text=self.schema.pg_text)
        self.store.write(SCHEMA_FILES[1], text=self.schema.ir_text)
        self.store.write(SCHEMA_FILES[2], text=self.schema.state_text)
        first: list[Row] = []
        for spec in self.schema.tables:
            path = rows.table_path(spec.table_key)
            self._new_dataset(path, data=spec.schema.empty_table())
            pin = Pin(spec.table_key, path, 1, None, 0)
            first += [rows.table_row(spec.table_key), self._version_row(pin)]
        first += rows.lineage_rows(Lineage(rows.new_id(), 1, rows.now_micros()))
        manifest = self._new_dataset(MANIFEST, data=rows.to_table(first))
        manifest.update_config(rows.CONFIG)
        self.stamp(rows.STAMP)
        return self

    def publish(self, changes: Mapping[str, pa.Table], *, actor: str | None = None, branch: str | None = None) -> str:
        """Append rows to tables, one Lance commit each, and publish them as one graph commit.

        Columns left out are null. Returns the commit id.
        """
        snapshot = self.snapshot(branch=branch)
        pins = []
        for key, data in changes.items():
            pin = self._own(snapshot[key], branch=branch)
            uri = self.uri(rows.tree_path(pin.path, branch=pin.branch))
            data = self._conform(data, table_key=key)
            written = lance.write_dataset(data, uri, mode="append", storage_options=self._options)
            pins.append(self._moved(pin, dataset=written))
        return self.publish_rows([self._version_row(pin) for pin in pins], actor=actor, branch=branch)

    def delete_rows(
        self, table_key: str, *, predicate: str, actor: str | None = None, branch: str | None = None
    ) -> str | None:
        """Delete rows by predicate and publish; None, and no commit, when none matched."""
        current = self.snapshot(branch=branch)[table_key]
        if not self.open_pin(current).count_rows(filter=predicate):
            return None
        pin = self._own(current, branch=branch)
        dataset = self._open(rows.tree_path(pin.path, branch=pin.branch))
        dataset.delete(predicate)
        row = self._version_row(self._moved(pin, dataset=dataset))
        return self.publish_rows([row], actor=actor, branch=branch)

    def tombstone(self, table_key: str, *, actor: str | None = None, branch: str | None = None) -> str:
        """Drop a table from the graph; its directory stays. Returns the commit id."""
        version = self.snapshot(branch=branch)[table_key].version + 1
        return self.publish_rows([rows.tombstone_row(table_key, version=version)], actor=actor, branch=branch)

    def publish_rows(
        self,
        changes: list[Row],
        *,
        actor: str | None = None,
        branch: str | None = None,
        merged_parent: str | None = None,
    ) -> str:
        """Publish ready-made rows with the two lineage rows, in one merge-insert; returns the commit id."""
        manifest = self.manifest(branch=branch)
        lineage = Lineage(
            rows.new_id(),
            manifest.version + 1,
            rows.now_micros(),
            branch=branch,
            parent=rows.head_commit(_all_rows(manifest)),
            merged_parent=merged_parent,
            actor=actor,
        )
        _merge(manifest, [*changes, *rows.lineage_rows(lineage)])
        return lineage.commit_id

    def create_branch(self, name: str, *, source: str | None = None) -> None:
        """Create a graph branch from the head of another, or of main; no row is written."""
        version = self.manifest(branch=source).version
        self._open(MANIFEST).create_branch(name, (source, version), storage_options=self._options)

    def add_raw_manifest_row(
        self, *, object_id: str, object_type: str, branch: str | None = None, **columns: Any
    ) -> None:
        """Merge one row of any kind into the manifest, without a graph commit."""
        row = rows.manifest_row(object_id, object_type=object_type, **columns)
        _merge(self.manifest(branch=branch), [row])

    def stamp(self, value: int | str | None) -> None:
        """Write the format stamp on main, whatever it says; None removes it."""
        text = None if value is None else str(value)
        self._open(MANIFEST).update_schema_metadata({rows.STAMP_KEY: text})

    def compact_manifest(self, *, branch: str | None = None) -> None:
        """Compact the manifest's fragments into one; no graph commit."""
        self.manifest(branch=branch).optimize.compact_files()

    def remove_table_dir(self, table_key: str) -> None:
        """Remove a table's directory behind the graph's back."""
        self.store.remove_tree(rows.table_path(table_key))

    def write_sidecar(self, sidecar: Mapping[str, Any]) -> str:
        """Write a recovery sidecar under its `operation_id`; returns its name relative to the root."""
        name = f"__recovery/{sidecar['operation_id']}.json"
        self.store.write(name, text=json.dumps(sidecar, ensure_ascii=False, indent=2))
        return name

    def manifest(self, *, branch: str | None = None) -> lance.LanceDataset:
        """Open the manifest at the head of a branch."""
        return self._open(rows.tree_path(MANIFEST, branch=branch))

    def manifest_rows(self, *, branch: str | None = None) -> list[Row]:
        """Return every row of the manifest, in no order."""
        return _all_rows(self.manifest(branch=branch))

    def snapshot(self, *, branch: str | None = None) -> dict[str, Pin]:
        """Return the tables a branch sees, by table key."""
        return rows.fold(self.manifest_rows(branch=branch))

    def head(self, *, branch: str | None = None) -> str | None:
        """Return the commit id of a branch's head."""
        return rows.head_commit(self.manifest_rows(branch=branch))

    def open_table(self, table_key: str, *, branch: str | None = None) -> lance.LanceDataset:
        """Open a table as a branch sees it."""
        return self.open_pin(self.snapshot(branch=branch)[table_key])

    def open_pin(self, pin: Pin) -> lance.LanceDataset:
        """Open a table at exactly a pin."""
        return self._open(rows.tree_path(pin.path, branch=pin.branch), version=pin.version)

    def uri(self, path: str) -> str:
        """Return the URI of something under the root."""
        return f"{self.root}/{path}"

    def _own(self, pin: Pin, *, branch: str | None) -> Pin:
        """Fork a table onto the branch at its first write there; the version stays the same."""
        if pin.branch == branch:
            return pin
        if branch is None:
            raise ValueError(f"main sees {pin.table_key} on branch {pin.branch!r}")
        self._open(pin.path).create_branch(branch, (pin.branch, pin.version), storage_options=self._options)
        return Pin(pin.table_key, pin.path, pin.version, branch, pin.row_count)

    def _moved(self, pin: Pin, *, dataset: lance.LanceDataset) -> Pin:
        return Pin(pin.table_key, pin.path, dataset.version, pin.branch, dataset.count_rows())

    def _version_row(self, pin: Pin) -> Row:
        file = rows.manifest_file(rows.tree_path(pin.path, branch=pin.branch), version=pin.version)
        facts = self.store.facts(file)
        metadata = {
            "manifest_path": self.store.object_path(file),
            "manifest_size": facts.size,
            "e_tag": facts.e_tag,
            "naming_scheme": "V2",
        }
        return rows.table_version_row(pin, metadata=metadata)

    def _conform(self, data: pa.Table, *, table_key: str) -> pa.Table:
        schema = self.schema.table(table_key).schema
        unknown = set(data.column_names) - set(schema.names)
        if unknown:
            raise ValueError(f"{table_key} has no columns {sorted(unknown)}")
        columns = [
            data[field.name].cast(field.type)
            if field.name in data.column_names
            else pa.nulls(data.num_rows, field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema)

    def _open(self, path: str, *, version: int | None = None) -> lance.LanceDataset:
        return lance.dataset(self.uri(path), version=version, storage_options=self._options)

    def _new_dataset(self, path: str, *, data: pa.Table) -> lance.LanceDataset:
        return lance.write_dataset(
            data,
            self.uri(path),
            mode="create",
            data_storage_version="2.2",
            enable_stable_row_ids=True,
            allow_external_blob_outside_bases=path != MANIFEST,
            storage_options=self._options,
        )


def _all_rows(manifest: lance.LanceDataset) -> list[Row]:
    found: list[Row] = manifest.to_table().to_pylist()
    return found


def _merge(manifest: lance.LanceDataset, changes: list[Row]) -> None:
    """The one way to write the manifest: key filter on, no index, no retry past our checks."""
    merge = manifest.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
    merge.conflict_retries(0).use_index(False).execute(rows.to_table(changes))
