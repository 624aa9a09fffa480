"""Free loopback ports below the kernel's ephemeral range, with their gRPC twins at +10000 also free."""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
TWIN_OFFSET = 10_000
_FIRST, _LAST = 20_000, 31_999
_ATTEMPTS = 500


def listen(*, backlog: int = 512) -> socket.socket:
    """Return a listening loopback socket on a free port below 32000; the port is held from here on."""
    for port in _candidates():
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((LOOPBACK, port))
            sock.listen(backlog)
            return sock
        except OSError:
            sock.close()
    raise RuntimeError(f"no free port in {_FIRST}..{_LAST}")


def free_ports(count: int) -> list[int]:
    """Return `count` distinct ports that are free now, each with port + 10000 free as well."""
    found: list[int] = []
    for port in _candidates():
        if port not in found and _is_free(port) and _is_free(port + TWIN_OFFSET):
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"fewer than {count} free ports in {_FIRST}..{_LAST}")


def _candidates() -> list[int]:
    # SystemRandom: parallel test processes must not walk the same sequence, even after a seed or a fork.
    return random.SystemRandom().sample(range(_FIRST, _LAST + 1), _ATTEMPTS)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
