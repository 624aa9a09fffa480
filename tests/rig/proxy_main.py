"""The proxy's own process: a data port, a control port, and an end as soon as stdin closes.

Started by `CountingProxy` as `python -m tests.rig.proxy_main <upstream>`; prints both ports as one
JSON line. A control connection carries one JSON command line and gets one JSON answer.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

from tests.rig.ports import listen
from tests.rig.proxy_relay import Entry, Relay
from tests.rig.proxy_rules import Fault, Match, Rules
from tests.rig.proxy_wire import LIMIT

_NAMES = [field.name for field in fields(Entry)]


class Control:
    """Answers commands; each public method is one, called with the command's arguments."""

    def __init__(self, relay: Relay, *, rules: Rules) -> None:
        self._relay = relay
        self._rules = rules

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one control connection: one command, one answer."""
        command = json.loads(await reader.readline())
        method: Callable[..., Awaitable[Any]] = getattr(self, f"do_{command.pop('command')}")
        writer.write(json.dumps(await method(**command)).encode())
        writer.close()

    async def do_reset(self) -> None:
        """Forget the log and the counters."""
        self._relay.reset()

    async def do_requests(self) -> list[list[Any]]:
        """Return the log, oldest first, as rows in the order of the fields of `Request`."""
        return [[getattr(entry, name) for name in _NAMES] for entry in self._relay.log]

    async def do_state(self) -> dict[str, int]:
        """Return the counters."""
        rules = self._rules
        return {
            "durable": self._relay.durable,
            "busy": self._relay.busy,
            "held": rules.held,
            "fired": rules.fired,
            "peak": rules.cap.peak,
        }

    async def do_latency(self, seconds: float, jitter: float) -> None:
        """Set the delay before a request is forwarded."""
        self._rules.latency, self._rules.jitter = seconds, jitter

    async def do_cap(self, limit: int | None) -> None:
        """Set the cap on requests in flight."""
        self._rules.cap.set(limit)

    async def do_fault(self, kinds: list[str], key: str, **fault: Any) -> None:
        """Put a fault in force."""
        self._rules.add_fault(Fault(match=Match(tuple(kinds), key), **fault))

    async def do_pause(self, kinds: list[str], key: str, count: int | None) -> None:
        """Hold matching requests."""
        self._rules.add_pause(Match(tuple(kinds), key), count=count)

    async def do_release(self, count: int | None) -> None:
        """Let held requests go."""
        self._rules.release(count)

    async def do_heal(self) -> None:
        """Remove all faults and pauses."""
        self._rules.heal()

    async def do_wait(self, what: str, n: int, timeout: float) -> bool:
        """Wait for `n` held or fired, or for nothing to be under way."""
        conditions: dict[str, Callable[[], bool]] = {
            "held": lambda: self._rules.held >= n,
            "fired": lambda: self._rules.fired >= n,
            "idle": lambda: self._relay.busy <= n,
        }
        return await self._rules.signal.until(conditions[what], timeout=timeout)


async def _serve(upstream: str) -> None:
    rules = Rules()
    relay = Relay(upstream, rules=rules)
    control = Control(relay, rules=rules)
    data_port, control_port = listen(), listen()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _end_with_parent)
    ports = {"data": data_port.getsockname()[1], "control": control_port.getsockname()[1]}
    data_server = await asyncio.start_server(relay.serve, sock=data_port, limit=LIMIT)
    control_server = await asyncio.start_server(control.serve, sock=control_port, limit=LIMIT)
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await asyncio.gather(data_server.serve_forever(), control_server.serve_forever())


def _end_with_parent() -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        os._exit(0)


if __name__ == "__main__":
    gc.freeze()
    asyncio.run(_serve(sys.argv[1]))
