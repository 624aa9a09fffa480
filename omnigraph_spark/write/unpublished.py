"""Proof that a write was not published and cannot be any more: the licence to delete its staged files (INV-10).

Spark may call abort while the process that runs commit is still alive: an interrupted driver stops waiting for it, not
it. All of them run on the driver's host, so a file there stands for the right to publish: made when the write begins,
locked while a commit runs, and removed by whoever ends the write. A commit that finds it gone is refused, an abort that
finds it gone or locked keeps every file. Then records are looked at first and the manifest after them, in this order
only: a record goes after its commit is in the manifest, so neither of them means that there never will be a commit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from omnigraph_spark.errors import ConflictError, StorageError
from omnigraph_spark.write.adopted import recoveries_by_others
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.txn import WriteTxn


def open_turn(commit_id: str) -> Path:
    """Make the right to publish a write; it ends with the first commit that succeeds, or with the first abort."""
    path = Path(tempfile.gettempdir()) / f"omnigraph-{commit_id}.turn"
    try:
        path.touch(exist_ok=False)
    except OSError as e:
        raise StorageError(
            f"The driver cannot make its lock file {path}: {e}", hint="Give it a temporary directory it can write to."
        ) from e
    return path


@contextlib.contextmanager
def commit_turn(path: Path, *, commit_id: str) -> Iterator[None]:
    """Hold the right to publish a write; refused when an abort, or another commit, has ended it."""
    with _locked(path, fcntl.LOCK_EX) as turn:
        if turn is None:
            raise ConflictError(f"Commit {commit_id} was given up before it began to publish")
        yield
        path.unlink()


@contextlib.contextmanager
def abort_turn(path: Path) -> Iterator[bool]:
    """Give a write up for ever; False when it has ended already or a process may still be publishing it."""
    with _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB) as turn:
        if turn is not None:
            path.unlink()
        yield turn is not None


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Iterator[TextIO | None]:
    """Lock the file of a turn; None when it is gone, also when it went while this process waited for the lock."""
    try:
        turn = path.open("r+")
    except FileNotFoundError:
        yield None
        return
    with turn:
        try:
            fcntl.flock(turn, how)
        except BlockingIOError:
            yield None
            return
        yield turn if os.fstat(turn.fileno()).st_nlink else None


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
