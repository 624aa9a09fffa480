"""What the proxy saw, and the questions tests ask of it: how many, of what, how many one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, unquote

Kind = Literal["GET", "HEAD", "LIST", "PUT", "DELETE", "POST", "COPY"]
TableClass = Literal["manifest", "recovery", "schema", "audit", "data", "other"]

DURABLE_METHODS = frozenset({"PUT", "POST", "DELETE"})
DURABLE_KINDS: tuple[Kind, ...] = ("PUT", "POST", "DELETE", "COPY")

_SCHEMA_FILES = frozenset({"_schema.pg", "_schema.ir.json", "__schema_state.json"})
_LISTING_PARAMETERS = frozenset({"list-type", "prefix", "delimiter", "marker", "max-keys", "uploads", "versions"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Times are the proxy's monotonic clock; `finished` is 0.0 while it is under way.

    `status` is what the client was told (0: nothing); `upstream_status` is what the server said to the
    proxy (0: it was never asked).
    """

    seq: int
    method: str
    kind: Kind
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
    def durable(self) -> bool:
        """Whether the request may change what is stored."""
        return self.method in DURABLE_METHODS

    @property
    def target(self) -> str:
        """The key, or for a listing its prefix."""
        return self.key or prefix_of(self.query)

    @property
    def table_class(self) -> TableClass:
        """The part of a graph the request is about."""
        return table_class(self.target)


def prefix_of(query: str) -> str:
    """Return the decoded `prefix` parameter of a listing, or an empty string."""
    return parse_qs(query).get("prefix", [""])[0]


def table_class(key: str) -> TableClass:
    """Return the part of a graph an object key or listing prefix belongs to."""
    segments = key.strip("/").split("/")
    if "__manifest" in segments:
        return "manifest"
    if "__recovery" in segments:
        return "recovery"
    if segments[-1].removesuffix(".staging") in _SCHEMA_FILES:
        return "schema"
    if "_graph_commit_recoveries.lance" in segments:
        return "audit"
    if "nodes" in segments or "edges" in segments:
        return "data"
    return "other"


def split_target(target: str) -> tuple[str, str, str]:
    """Return bucket, decoded key and raw query of a path-style request target."""
    path, _, query = target.partition("?")
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    return bucket, key, query


def kind_of(method: str, *, key: str, query: str, copies: bool) -> Kind:
    """Return the kind of a request: what S3 bills and what our cost contract counts."""
    if method == "PUT":
        return "COPY" if copies else "PUT"
    if method == "POST":
        return "POST"
    if method == "DELETE":
        return "DELETE"
    if method == "HEAD":
        return "HEAD"
    if key:
        return "GET"
    names = {part.partition("=")[0] for part in query.split("&")} - {"", "x-id"}
    return "LIST" if not names or names & _LISTING_PARAMETERS else "GET"


def count_by_kind(requests: Iterable[Request]) -> Counter[Kind]:
    """Count requests by kind."""
    return Counter(request.kind for request in requests)


def count_by_class(requests: Iterable[Request]) -> Counter[tuple[Kind, TableClass]]:
    """Count requests by kind and part of the graph."""
    return Counter((request.kind, request.table_class) for request in requests)


def serial_hops(requests: Iterable[Request]) -> int:
    """Return the greatest number of finished requests of which each starts after the one before it ends.

    This is interval scheduling: taking the earliest end first is optimal.
    """
    hops, free_at = 0, float("-inf")
    for request in sorted((r for r in requests if r.finished), key=lambda r: r.finished):
        if request.started >= free_at:
            hops, free_at = hops + 1, request.finished
    return hops


def max_overlap(requests: Iterable[Request]) -> int:
    """Return the greatest number of finished requests under way at one moment."""
    done = [r for r in requests if r.finished]
    # At equal times an end sorts before a start: touching intervals do not overlap.
    edges = sorted([(r.started, 1) for r in done] + [(r.finished, -1) for r in done])
    peak = level = 0
    for _, step in edges:
        level += step
        peak = max(peak, level)
    return peak
