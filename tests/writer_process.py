"""A writer process for protocol tests: stages rows and publishes them, and can die or stop at a named point.

``python -m tests.writer_process ROOT '{"writes": [{"node:Person": ["a"]}], "die": "effect:enter"}'`` prints one line of
JSON: per write the commit, or the error's code and outcome.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from omnigraph_spark.errors import OmnigraphError
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.schema.mapping import table_arrow_schema
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.lance_commit import stage_rows
from omnigraph_spark.storage.seams import Phase, Seams
from omnigraph_spark.write.actions import Append
from omnigraph_spark.write.lineage import PublishedCommit
from omnigraph_spark.write.plan import PublishPlan, pins_of
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.settings import WindowSettings
from omnigraph_spark.write.txn import WriteTxn

Hook = Callable[[Phase, str], None]


def authority_for(
    root: str, *, hook: Hook | None = None, grace: float = 2.0, patience: float = 60.0
) -> PublishAuthority:
    """Return a publish authority with test-sized waits."""
    seams = Seams() if hook is None else Seams(hook=hook)
    reader = GraphReader.begin(root, StorageConfig.resolve(), seams=seams)
    return PublishAuthority(reader, WindowSettings(grace=grace, timeout=30.0, patience=patience))


def person_rows(ids: list[str], *, schema: pa.Schema) -> pa.Table:
    """Return rows whose id and name are the given text; other columns are null."""
    text = pa.array(ids, pa.string())
    columns = [text if f.name in ("id", "name", "src", "dst") else pa.nulls(len(ids), f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def stage_plan(authority: PublishAuthority, rows: Mapping[str, list[str]], *, actor: str | None = None) -> PublishPlan:
    """Capture a base, stage one append per table, and return the plan."""
    txn = authority.open_txn(branch="main", actor=actor)
    actions = tuple(_staged(authority, txn, key, ids) for key, ids in sorted(rows.items()))
    seams = authority.reader.io.seams
    return PublishPlan(
        operation_id="",
        commit_id=txn.commit_id,
        branch=txn.branch,
        base_version=txn.graph_version,
        started_at=seams.now_micros(),
        pins=pins_of(txn, actions),
        actions=actions,
        actor=actor,
    )


def _staged(authority: PublishAuthority, txn: WriteTxn, key: str, ids: list[str]) -> Append:
    schema = table_arrow_schema(txn.catalog.by_key(key))
    dataset = authority.reader.io.open(txn.uri(key), table=key, version=txn.entry(key).version)
    batches = iter(person_rows(ids, schema=schema).to_batches())
    fragments = stage_rows(authority.reader.io, dataset, batches, schema=schema)
    return Append(key, tuple(fragments), len(ids))


def append(root: str, rows: Mapping[str, list[str]], *, hook: Hook | None = None, **waits: float) -> PublishedCommit:
    """Stage and publish in this process."""
    authority = authority_for(root, hook=hook, **waits)
    return authority.publish(stage_plan(authority, rows, actor="writer"))


def _hook(order: Mapping[str, Any]) -> Hook:
    stops = [order["stop"]] if "stop" in order else []

    def hook(phase: Phase, point: str) -> None:
        here = f"{phase.value}:{point}"
        if here == order.get("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        if here in stops:
            stops.remove(here)  # once: the attempt after the pause runs through
            os.kill(os.getpid(), signal.SIGSTOP)

    return hook


def main() -> None:
    """Run one order and print what came of it."""
    root, order = sys.argv[1], json.loads(sys.argv[2])
    answers = []
    for rows in order["writes"]:
        try:
            commit = append(root, rows, hook=_hook(order), grace=order.get("grace", 2.0))
            answers.append({"commit": commit.row.commit_id})
        except OmnigraphError as e:
            answers.append({"code": e.code, "outcome": e.outcome.value, "text": str(e)})
    sys.stdout.write(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
