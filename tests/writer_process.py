"""A writer process for protocol tests: stages rows and publishes them, and can die or stop at a named point.

``python -m tests.writer_process ROOT '{"writes": [{"node:Person": ["a"]}], "die": "effect:enter"}'`` prints one line of
JSON: per write the commit, or the error's code and outcome. ``{"recover": true}`` recovers instead of writing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from omnigraph_spark.errors import OmnigraphError
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.schema.mapping import table_arrow_schema
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.lance_commit import stage_rows
from omnigraph_spark.storage.lance_io import ScanSpec
from omnigraph_spark.storage.seams import Phase, Seams
from omnigraph_spark.write.actions import Append, Delete, MatchedFragment, Overwrite, TableAction, Upsert
from omnigraph_spark.write.lineage import PublishedCommit
from omnigraph_spark.write.plan import PublishPlan, pins_of
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.rowids import RowIds
from omnigraph_spark.write.settings import WindowSettings
from omnigraph_spark.write.txn import WriteTxn

Hook = Callable[[Phase, str], None]

SCHEMA = """
node Person { name: String @key  age: I32? }
node Company { name: String @key }
node City { name: String @key }
"""


def authority_for(
    root: str,
    *,
    hook: Hook | None = None,
    grace: float = 2.0,
    timeout: float = 30.0,
    patience: float = 60.0,
    storage: Mapping[str, str] | None = None,
    seams: Seams | None = None,
) -> PublishAuthority:
    """Return a publish authority with test-sized waits."""
    if seams is None:
        seams = Seams() if hook is None else Seams(hook=hook)
    reader = GraphReader.begin(root, StorageConfig.resolve(storage), seams=seams)
    return PublishAuthority(reader, WindowSettings(grace=grace, timeout=timeout, patience=patience))


def person_rows(ids: Iterable[str], *, schema: pa.Schema, age: int | None = None) -> pa.Table:
    """Return rows whose id and name are the given text, with an age where there is one; other columns are null."""
    listed = list(ids)
    text = pa.array(listed, pa.string())
    columns = []
    for f in schema:
        if f.name in ("id", "name", "src", "dst"):
            columns.append(text)
        elif f.name == "age":
            columns.append(pa.array([age] * len(listed), f.type))
        else:
            columns.append(pa.nulls(len(listed), f.type))
    return pa.Table.from_arrays(columns, schema=schema)


def plan_of(
    authority: PublishAuthority,
    txn: WriteTxn,
    actions: Iterable[TableAction],
    *,
    strict: Iterable[str] = (),
    actor: str | None = None,
) -> PublishPlan:
    """Return the plan of staged actions on a captured base."""
    staged = tuple(actions)
    return PublishPlan(
        operation_id="",
        commit_id=txn.commit_id,
        branch=txn.branch,
        base_version=txn.graph_version,
        started_at=authority.reader.io.seams.now_micros(),
        pins=pins_of(txn, staged),
        actions=staged,
        strict=frozenset(strict),
        actor=actor,
    )


def stage_plan(
    authority: PublishAuthority, rows: Mapping[str, list[str]], *, actor: str | None = None, branch: str = "main"
) -> PublishPlan:
    """Capture a base, stage one append per table, and return the plan."""
    txn = authority.open_txn(branch=branch, actor=actor)
    return plan_of(authority, txn, [stage_append(authority, txn, k, v) for k, v in sorted(rows.items())], actor=actor)


def stage_append(authority: PublishAuthority, txn: WriteTxn, key: str, ids: list[str]) -> Append:
    """Stage new rows."""
    return Append(key, _stage(authority, txn, key, ids), len(ids))


def stage_overwrite(authority: PublishAuthority, txn: WriteTxn, key: str, ids: list[str]) -> Overwrite:
    """Stage rows that replace all others."""
    return Overwrite(key, _stage(authority, txn, key, ids), len(ids))


def stage_upsert(
    authority: PublishAuthority, txn: WriteTxn, key: str, *, known: list[str], new: list[str], age: int
) -> Upsert:
    """Stage replacements of known rows and new rows."""
    rows = _locate(authority, txn, key, known)
    matched = _stage(authority, txn, key, known, age=age) if known else ()
    inserted = _stage(authority, txn, key, new, age=age) if new else ()
    return Upsert(key, tuple(MatchedFragment(f, rows) for f in matched), inserted, len(known) + len(new))


def stage_delete(authority: PublishAuthority, txn: WriteTxn, key: str, ids: list[str]) -> Delete:
    """Name rows to remove."""
    return Delete(key, _locate(authority, txn, key, ids))


def _open(authority: PublishAuthority, txn: WriteTxn, key: str) -> lance.LanceDataset:
    return authority.reader.io.open(txn.uri(key), table=key, version=txn.entry(key).version)


def _stage(
    authority: PublishAuthority, txn: WriteTxn, key: str, ids: list[str], *, age: int | None = None
) -> tuple[str, ...]:
    schema = table_arrow_schema(txn.catalog.by_key(key))
    batches = iter(person_rows(ids, schema=schema, age=age).to_batches())
    return tuple(stage_rows(authority.reader.io, _open(authority, txn, key), batches, schema=schema))


def _locate(authority: PublishAuthority, txn: WriteTxn, key: str, ids: list[str]) -> RowIds:
    dataset = _open(authority, txn, key)
    found = authority.reader.io.read(dataset, ScanSpec(columns=("id",), row_ids=True, row_addresses=True))
    at = {i: n for n, i in enumerate(found["id"].to_pylist())}
    chosen = found.take([at[i] for i in ids])
    return RowIds(chosen["_rowid"].to_numpy(), chosen["_rowaddr"].to_numpy(), int(dataset.version))


def append(root: str, rows: Mapping[str, list[str]], **waits: Any) -> PublishedCommit:
    """Stage and publish in this process."""
    authority = authority_for(root, **waits)
    return authority.publish(stage_plan(authority, rows, actor="writer"))


def start(root: str, order: Mapping[str, object], *, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a writer process."""
    command = [sys.executable, "-m", "tests.writer_process", root, json.dumps(order)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1], env={**os.environ, **(env or {})}
    )


def _hook(order: Mapping[str, Any]) -> Hook:
    stops = [order["stop"]] if "stop" in order else []

    def hook(phase: Phase, point: str) -> None:
        here = f"{phase.value}:{point}"
        if "die" in order and here.startswith(order["die"]):
            os.kill(os.getpid(), signal.SIGKILL)
        if here in stops:
            stops.remove(here)  # once: the attempt after the pause runs through
            os.kill(os.getpid(), signal.SIGSTOP)

    return hook


def main() -> None:
    """Run one order and print what came of it."""
    root, order = sys.argv[1], json.loads(sys.argv[2])
    answers: list[dict[str, object]] = []
    waits = {"grace": order.get("grace", 2.0), "patience": order.get("patience", 100.0)}
    if order.get("recover"):
        results = authority_for(root, hook=_hook(order), **waits).recover()
        answers = [{"kind": r.kind, "operation_id": r.operation_id} for r in results]
    for rows in order.get("writes", ()):
        try:
            commit = append(root, rows, hook=_hook(order), **waits)
            answers.append({"commit": commit.row.commit_id, "attempts": commit.attempts})
        except OmnigraphError as e:
            answers.append({"code": e.code, "outcome": e.outcome.value, "text": str(e)})
    sys.stdout.write(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
