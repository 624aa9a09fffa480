"""Runs one server and ends it when the test process ends, however it ends.

The test process holds the write end of our stdin. Death of any kind closes it; then the server is
killed and its directory removed. Started as a script: `guard.py <directory> <command...>`.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_CHILD_POLL_SECONDS = 0.25


def main(argv: Sequence[str]) -> int:
    """Start the command, print its pid, wait for stdin to close, kill it and remove the directory."""
    directory, command = Path(argv[0]), list(argv[1:])
    with (directory / "server.log").open("wb") as log:
        child = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent,  # this process has one thread, so this is safe here
        )
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    while child.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], _CHILD_POLL_SECONDS)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            child.kill()
            child.wait()
            shutil.rmtree(directory, ignore_errors=True)
            return 0
    return 1  # the server ended by itself; the log stays for the test process to read


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
