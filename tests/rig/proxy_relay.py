"""The data side of the proxy: one task per client connection, each with its own upstream connection."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.rig import proxy_wire as wire
from tests.rig.proxy_log import DURABLE_METHODS, kind_of, prefix_of, split_target
from tests.rig.proxy_rules import Rules, Verdict

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LOST = (ConnectionError, asyncio.IncompleteReadError)


@dataclass(slots=True)
class Entry:
    """A request as it is being relayed; the fields of `Request`, still changing."""

    seq: int
    method: str
    kind: str
    bucket: str
    key: str
    query: str
    status: int
    upstream_status: int
    started: float
    finished: float
    bytes_in: int
    bytes_out: int
    conditional: bool

    @property
    def target(self) -> str:
        """What a rule's text is looked for in."""
        return f"{self.bucket}/{self.key or prefix_of(self.query)}"


class Relay:
    """Relays every client connection to one upstream, as the rules say, and logs each request."""

    def __init__(self, upstream: str, *, rules: Rules) -> None:
        url = urlsplit(upstream)
        self._host = url.hostname or ""
        self._secure = url.scheme == "https"
        self._port = url.port or (443 if self._secure else 80)
        self._rules = rules
        self.log: list[Entry] = []
        self.durable = 0
        self.busy = 0

    def reset(self) -> None:
        """Forget what was logged and counted; rules stay."""
        self.log = []
        self.durable = 0
        self._rules.cap.peak = self._rules.cap.active

    async def connect(self) -> Stream:
        """Open an upstream connection."""
        return await asyncio.open_connection(
            self._host, self._port, limit=wire.LIMIT, ssl=True if self._secure else None
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client connection until either side ends it."""
        link = Link(self, rules=self._rules, client=(reader, writer))
        try:
            while await link.relay_one():
                pass
        except _LOST:
            wire.reset(writer)
        finally:
            link.close()

    def open_entry(self, head: wire.Head) -> Entry:
        """Log the arrival of a request."""
        method, target = head.words[0], head.words[1]
        bucket, key, query = split_target(target)
        copies = b"x-amz-copy-source" in head.headers
        conditional = any(name.startswith((b"if-", b"x-amz-copy-source-if-")) for name in head.headers)
        kind = kind_of(method, key=key, query=query, copies=copies)
        seq, now = len(self.log) + 1, time.monotonic()
        entry = Entry(seq, method, kind, bucket, key, query, 0, 0, now, 0.0, 0, 0, conditional)
        self.log.append(entry)
        self.durable += method in DURABLE_METHODS
        self.busy += 1
        return entry

    def close_entry(self, entry: Entry) -> None:
        """Log the end of a request: before its last byte is sent, so a client with its answer finds it."""
        if not entry.finished:
            entry.finished = time.monotonic()
            self.busy -= 1
            self._rules.signal.poke()


class Link:
    """One client connection and the upstream connection that belongs to it."""

    def __init__(self, relay: Relay, *, rules: Rules, client: Stream) -> None:
        self._relay = relay
        self._rules = rules
        self._reader, self._writer = client
        self._up: Stream | None = None

    def close(self) -> None:
        """Close both sides."""
        self._writer.close()
        self._drop_upstream()

    async def relay_one(self) -> bool:
        """Relay one request; False when the connection is over."""
        head = await wire.read_head(self._reader)
        if head is None:
            return False
        if head.words[0] not in _METHODS:
            self._writer.write(wire.error_answer(501, method=head.words[0]))
            return False
        entry = self._relay.open_entry(head)
        verdict = self._rules.judge(kind=entry.kind, target=entry.target)
        healed = self._rules.healed
        keep = False
        try:
            if verdict.forward or verdict.answer:
                keep = await self._carry(head, entry=entry, verdict=verdict)
        finally:
            self._relay.close_entry(entry)
            if verdict.fires:
                self._rules.seal()
        if not verdict.answer:
            await self._be_silent(verdict, healed=healed)
        return keep and verdict.answer

    async def _carry(self, head: wire.Head, *, entry: Entry, verdict: Verdict) -> bool:
        """Take the request through holds, cap and latency; True when the connection can go on."""
        await self._rules.hold(kind=entry.kind, target=entry.target)
        await self._rules.cap.enter()
        try:
            await self._rules.delay()
            if not verdict.forward:
                return await self._refuse(head, entry=entry, status=verdict.status)
            up = await self._forward(head, entry=entry)
            return await self._respond(head, up=up, entry=entry, verdict=verdict)
        finally:
            self._rules.cap.leave()

    async def _refuse(self, head: wire.Head, *, entry: Entry, status: int) -> bool:
        """Answer by ourselves; the body is read and thrown away."""
        self._invite_body(head)
        async for _, payload in wire.body_parts(self._reader, wire.request_framing(head)):
            entry.bytes_in += payload
        self._finish(entry, status=status, data=wire.error_answer(status, method=entry.method))
        return not head.closes

    async def _forward(self, head: wire.Head, *, entry: Entry) -> asyncio.StreamReader:
        answers, up = await self._upstream()
        raw = self._invite_body(head)
        framing = wire.request_framing(head)
        if 0 <= framing <= wire.LIMIT:
            body = await self._reader.readexactly(framing) if framing else b""
            entry.bytes_in = framing
            up.write(raw + body)
            return answers
        up.write(raw)
        async for data, payload in wire.body_parts(self._reader, framing):
            entry.bytes_in += payload
            up.write(data)
            await up.drain()
        return answers

    async def _respond(self, head: wire.Head, *, up: asyncio.StreamReader, entry: Entry, verdict: Verdict) -> bool:
        answer, status = await _final_head(up)
        entry.upstream_status = status
        framing = wire.response_framing(answer, method=entry.method, status=status)
        ends = answer.closes or framing == wire.UNTIL_CLOSE
        if verdict.status or not verdict.answer:
            async for _ in wire.body_parts(up, framing):
                pass
            if verdict.status:
                made_up = wire.error_answer(verdict.status, method=entry.method)
                self._finish(entry, status=verdict.status, data=made_up)
        elif 0 <= framing <= wire.LIMIT:
            body = await up.readexactly(framing) if framing else b""
            entry.bytes_out = framing
            self._finish(entry, status=status, data=answer.raw + body)
        else:
            await self._stream(answer, up=up, framing=framing, entry=entry)
        if ends:
            self._drop_upstream()
        return not (ends or head.closes)

    async def _stream(self, answer: wire.Head, *, up: asyncio.StreamReader, framing: int, entry: Entry) -> None:
        """Relay a large body one part behind, so that the log is complete before the last part."""
        behind = answer.raw
        async for data, payload in wire.body_parts(up, framing):
            self._writer.write(behind)
            await self._writer.drain()
            entry.bytes_out += payload
            behind = data
        self._finish(entry, status=entry.upstream_status, data=behind)
        await self._writer.drain()

    async def _be_silent(self, verdict: Verdict, *, healed: asyncio.Event) -> None:
        """Never answer: cut the connection, or leave it open until the client or `heal` ends it."""
        if verdict.mode == "hang":
            ends = [asyncio.ensure_future(healed.wait()), asyncio.ensure_future(_until_eof(self._reader))]
            _, pending = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
        wire.reset(self._writer)

    def _invite_body(self, head: wire.Head) -> bytes:
        """Say 100 Continue if the client waits for it; return the head to forward."""
        if b"expect" not in head.headers:
            return head.raw
        self._writer.write(_CONTINUE)
        return wire.without_expect(head)

    def _finish(self, entry: Entry, *, status: int, data: bytes) -> None:
        entry.status = status
        self._relay.close_entry(entry)
        self._writer.write(data)

    async def _upstream(self) -> Stream:
        if self._up is not None and (self._up[0].at_eof() or self._up[1].is_closing()):
            self._drop_upstream()
        if self._up is None:
            self._up = await self._relay.connect()
        return self._up

    def _drop_upstream(self) -> None:
        if self._up is not None:
            self._up[1].close()
            self._up = None


async def _final_head(up: asyncio.StreamReader) -> tuple[wire.Head, int]:
    """Read the response head that counts, skipping interim ones."""
    while True:
        answer = await wire.read_head(up)
        if answer is None:
            raise ConnectionResetError("the upstream closed without an answer")
        status = int(answer.words[1])
        if status >= 200:
            return answer, status


async def _until_eof(reader: asyncio.StreamReader) -> None:
    with suppress(*_LOST):
        while await reader.read(wire.LIMIT):
            pass
