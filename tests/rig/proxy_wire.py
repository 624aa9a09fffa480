"""Just enough HTTP/1.1 to relay S3 traffic: heads, body framing, and answers of our own."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

LIMIT = 1 << 18
CHUNKED = -1
UNTIL_CLOSE = -2
_END = b"\r\n\r\n"
_ERROR_CODES = {500: "InternalError", 502: "BadGateway", 503: "SlowDown"}


@dataclass(slots=True)
class Head:
    """A request or response head; header names are lower case."""

    raw: bytes
    words: list[str]
    headers: dict[bytes, bytes]

    @property
    def closes(self) -> bool:
        """Whether the sender ends the connection after this message."""
        return b"close" in self.headers.get(b"connection", b"").lower() or "HTTP/1.0" in self.words


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """Read one head; None when the peer closed between messages."""
    try:
        raw = await reader.readuntil(_END)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    lines = raw[:-4].split(b"\r\n")
    headers: dict[bytes, bytes] = {}
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    return Head(raw, lines[0].decode("latin-1").split(" ", 2), headers)


def request_framing(head: Head) -> int:
    """Return the length of a request's body, or CHUNKED."""
    if b"chunked" in head.headers.get(b"transfer-encoding", b"").lower():
        return CHUNKED
    return int(head.headers.get(b"content-length", b"0"))


def response_framing(head: Head, *, method: str, status: int) -> int:
    """Return the length of a response's body, CHUNKED, or UNTIL_CLOSE."""
    if method == "HEAD" or status in (204, 304) or status < 200:
        return 0
    if b"chunked" in head.headers.get(b"transfer-encoding", b"").lower():
        return CHUNKED
    length = head.headers.get(b"content-length")
    return UNTIL_CLOSE if length is None else int(length)


def without_expect(head: Head) -> bytes:
    """Return the raw head without its Expect header: the proxy itself says 100 Continue."""
    lines = head.raw.split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.lower().startswith(b"expect:"))


async def body_parts(reader: asyncio.StreamReader, framing: int) -> AsyncIterator[tuple[bytes, int]]:
    """Yield a body as (raw bytes, payload bytes among them); chunk framing is kept in the raw bytes.

    Raises:
        asyncio.IncompleteReadError: the peer closed in the middle.
    """
    if framing == CHUNKED:
        async for part in _chunks(reader):
            yield part
        return
    left = framing
    while left:
        data = await reader.read(LIMIT if left == UNTIL_CLOSE else min(left, LIMIT))
        if not data and left != UNTIL_CLOSE:
            raise asyncio.IncompleteReadError(b"", left)
        if not data:
            return
        left = left if left == UNTIL_CLOSE else left - len(data)
        yield data, len(data)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, int]]:
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";", 1)[0], 16)
        if size == 0:
            yield line + await _trailer(reader), 0
            return
        yield line, 0
        left = size
        while left:
            data = await reader.read(min(left, LIMIT))
            if not data:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(data)
            yield data, len(data)
        yield await reader.readexactly(2), 0


async def _trailer(reader: asyncio.StreamReader) -> bytes:
    lines = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        lines += line
        if line == b"\r\n":
            return lines


def error_answer(status: int, *, method: str) -> bytes:
    """Return a whole S3 error response made up by the proxy."""
    code = _ERROR_CODES.get(status, "InternalError")
    xml = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>made up by the rig</Message></Error>'
    body = b"" if method == "HEAD" else xml.encode()
    head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def reset(writer: asyncio.StreamWriter) -> None:
    """Close abruptly: the peer gets a TCP reset, not an orderly end."""
    sock = writer.get_extra_info("socket")
    if sock is not None and not writer.transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
