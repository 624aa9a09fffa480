"""Proof that a write was not published and cannot be any more: the licence to delete its staged files (INV-10).

Spark may call abort while the process that runs commit is still alive: an interrupted driver stops waiting for it, not
it. Both run on the driver's host, so a file lock there, named by the commit id, says who goes: a commit holds it while
it runs, an abort that gets it marks the write as given up, and a commit that comes later is refused. Then records are
looked at first and the manifest after them, in this order only: a record is removed after its commit is in the
manifest, so no record of the write and then no commit of it means that there never will be one.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from omnigraph_spark.errors import ConflictError
from omnigraph_spark.write.adopted import recoveries_by_others
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.txn import WriteTxn

_GIVEN_UP = "given up"


@contextlib.contextmanager
def commit_turn(commit_id: str) -> Iterator[None]:
    """Hold the right to publish a write; refused when its abort came first."""
    path = _turn_file(commit_id)
    with path.open("a+") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        turn.seek(0)
        if turn.read() == _GIVEN_UP:
            raise ConflictError(f"Commit {commit_id} was given up before it began to publish")
        yield
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def abort_turn(commit_id: str) -> Iterator[bool]:
    """Give a write up for ever; False when a process may still be publishing it."""
    with _turn_file(commit_id).open("a+") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        turn.truncate(0)
        turn.write(_GIVEN_UP)
        turn.flush()
        yield True


def proved_unpublished(authority: PublishAuthority, txn: WriteTxn) -> bool:
    """Return True only when no recovery record and no commit knows the write."""
    sidecars = authority.sidecars
    for operation_id in sidecars.operation_ids():
        record = sidecars.read(operation_id)
        if record is not None and txn.commit_id in str(record.document.get("plan", "")):
            return False
    state = authority.reader.manifest.open(branch=txn.branch).state
    # A recovery by OmniGraph may have published the record under a commit id of its own.
    return state.commit(txn.commit_id) is None and not recoveries_by_others(state, after=txn.graph_version)


def _turn_file(commit_id: str) -> Path:
    return Path(tempfile.gettempdir()) / f"omnigraph-{commit_id}.turn"
