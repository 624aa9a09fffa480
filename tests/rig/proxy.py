"""A counting proxy in front of an S3 server, in its own process, with faults on request.

Client settings: use `proxy.endpoint` wherever the server's endpoint would go. Several proxies may
front one server. Every method is safe to call from any thread.
"""

from __future__ import annotations

import atexit
import json
import select
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.rig import proxy_log
from tests.rig.ports import LOOPBACK
from tests.rig.proxy_log import DURABLE_KINDS, Kind, Request, TableClass
from tests.rig.proxy_rules import Mode

_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 20.0
_CONTROL_SECONDS = 30.0


class CountingProxy:
    """Counts, delays, caps, holds and loses requests to one upstream endpoint.

    Example:
        with CountingProxy(server.endpoint) as proxy:
            client = server.client(endpoint=proxy.endpoint)
            client.list_buckets()
            assert proxy.counts() == {"LIST": 1}
    """

    def __init__(self, upstream_endpoint: str) -> None:
        self.upstream = upstream_endpoint
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rig.proxy_main", upstream_endpoint],
            cwd=_ROOT,
            stdin=subprocess.PIPE,  # its end is the child's signal to end, however we end
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._process.pid
        atexit.register(self.stop)
        try:
            ports = self._read_ports()
        except BaseException:
            self.stop()
            raise
        self.endpoint = f"http://{LOOPBACK}:{ports['data']}"
        self._control = (LOOPBACK, ports["control"])

    def reset(self) -> None:
        """Forget the log and the counters; latency, cap and rules stay."""
        self._call("reset")

    def requests(self) -> list[Request]:
        """Return every request since the last reset, in order of arrival."""
        return [Request(*row) for row in self._call("requests")]

    def counts(self) -> Counter[Kind]:
        """Return the number of requests by kind."""
        return proxy_log.count_by_kind(self.requests())

    def summary(self) -> Counter[tuple[Kind, TableClass]]:
        """Return the number of requests by kind and part of the graph."""
        return proxy_log.count_by_class(self.requests())

    def serial_hops(self) -> int:
        """Return the length of the longest chain of requests that ran one after another."""
        return proxy_log.serial_hops(self.requests())

    def durable_count(self) -> int:
        """Return the number of PUT, POST and DELETE requests since the last reset."""
        return int(self._state("durable"))

    def peak_in_flight(self) -> int:
        """Return the greatest number of requests past the cap at one moment since the last reset."""
        return int(self._state("peak"))

    def held(self) -> int:
        """Return the number of requests held by a pause now."""
        return int(self._state("held"))

    def set_latency(self, seconds: float, *, jitter: float = 0.0) -> None:
        """Delay every request before it is forwarded, by up to `jitter` seconds more."""
        self._call("latency", seconds=seconds, jitter=jitter)

    def set_cap(self, limit: int | None) -> None:
        """Let at most `limit` requests be in flight; the others queue. None: no cap."""
        self._call("cap", limit=limit)

    def set_fault(
        self,
        action: str,
        *,
        k: int = 1,
        stored: bool = False,
        mode: Mode = "hang",
        status: int = 500,
        times: int = 1,
        kinds: Iterable[Kind] = DURABLE_KINDS,
        key: str = "",
    ) -> None:
        """Put a fault in force: `stop`, `drop` or `fail`; the methods below say what each does.

        The k-th request is counted from now, among those of these kinds with `key` in `bucket/key`.
        Faults add up until `heal`; the first one set decides when two meet.
        """
        values = {"k": k, "stored": stored, "mode": mode, "status": status, "times": times}
        self._call("fault", action=action, kinds=list(kinds), key=key, **values)

    def stop_after(self, k: int, *, stored: bool, mode: Mode = "hang", key: str = "") -> None:
        """Die at the k-th durable request: stored or not, it and every later request get no answer.

        `hang` leaves connections open until `heal`, `reset` cuts them at once.
        """
        self.set_fault("stop", k=k, stored=stored, mode=mode, key=key)

    def drop_ack(self, k: int = 1, *, key: str = "") -> None:
        """Store the k-th durable request but cut the connection instead of answering it."""
        self.set_fault("drop", k=k, stored=True, mode="reset", key=key)

    def fail(self, k: int = 1, *, status: int = 500, stored: bool = False, times: int = 1, key: str = "") -> None:
        """Answer the k-th durable request (and `times` - 1 more) with an error, stored or not."""
        self.set_fault("fail", k=k, status=status, stored=stored, times=times, key=key)

    def pause(self, *, kinds: Iterable[Kind] = (), key: str = "", count: int | None = None) -> None:
        """Hold matching requests, the next `count` or all, until `release`; no kinds means all kinds."""
        self._call("pause", kinds=list(kinds), key=key, count=count)

    def release(self, count: int | None = None) -> None:
        """Let the oldest `count` held requests go; without a count, all of them, and stop holding."""
        self._call("release", count=count)

    def wait_held(self, n: int = 1, *, timeout: float = 10.0) -> bool:
        """Wait until `n` requests are held; False when time is up."""
        return bool(self._call("wait", what="held", n=n, timeout=timeout))

    def wait_fired(self, n: int = 1, *, timeout: float = 10.0) -> bool:
        """Wait until faults have taken `n` requests to their end (stored, if they say so)."""
        return bool(self._call("wait", what="fired", n=n, timeout=timeout))

    def wait_idle(self, *, timeout: float = 10.0) -> bool:
        """Wait until no request is under way, for instance after a client was killed."""
        return bool(self._call("wait", what="idle", n=0, timeout=timeout))

    def heal(self) -> None:
        """Remove all faults and pauses, let held requests go, cut the connections left hanging."""
        self._call("heal")

    def stop(self) -> None:
        """End the proxy's process; open connections are cut."""
        atexit.unregister(self.stop)
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def __enter__(self) -> CountingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _read_ports(self) -> dict[str, int]:
        out = self._process.stdout
        if out is None or not select.select([out], [], [], _START_SECONDS)[0]:
            raise RuntimeError("the proxy did not start in time")
        line = out.readline()
        if not line:
            raise RuntimeError(f"the proxy ended at once with status {self._process.wait()}")
        ports: dict[str, int] = json.loads(line)
        return ports

    def _state(self, name: str) -> int:
        return int(self._call("state")[name])

    def _call(self, command: str, **arguments: Any) -> Any:
        line = json.dumps({"command": command, **arguments}).encode() + b"\n"
        patience = _CONTROL_SECONDS + float(arguments.get("timeout", 0.0))
        with socket.create_connection(self._control, timeout=patience) as sock:
            sock.sendall(line)
            parts = []
            while data := sock.recv(1 << 16):
                parts.append(data)
        if not parts:
            raise RuntimeError(f"the proxy refused {command}: see its output above")
        return json.loads(b"".join(parts))
