"""Plain objects (schema files, recovery sidecars) on a local directory or S3: the only module that touches them.

Every failure is typed: not found, forbidden, unreachable and lost condition are different errors. ``put_if_absent`` is
atomic across processes: a hard link locally, ``If-None-Match: *`` on S3. Conditional requests are never retried by the
client underneath, because a retry of one that landed would report its own object as somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.counters import OpCounter
from omnigraph_spark.storage.local_objects import LocalObjects
from omnigraph_spark.storage.locations import is_s3
from omnigraph_spark.storage.s3_objects import S3Objects
from omnigraph_spark.storage.seams import DEFAULT_SEAMS, Seams


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """Bytes of an object and the tag a conditional replace needs."""

    data: bytes
    tag: str


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object below some directory: its relative name, its size, and when it was written (microseconds)."""

    name: str
    size: int
    changed: int


class Backend(Protocol):
    """What a kind of storage must offer; one class per kind."""

    def read(self, uri: str) -> tuple[bytes, str]:
        """Return bytes and tag."""

    def write(self, uri: str, data: bytes) -> str:
        """Create or replace; return the tag."""

    def put_if_absent(self, uri: str, data: bytes) -> str:
        """Create or refuse; return the tag."""

    def replace(self, uri: str, data: bytes, *, tag: str) -> str:
        """Replace what carries the tag or refuse; return the new tag."""

    def list(self, uri: str) -> Mapping[str, int]:
        """Return names and sizes directly below a directory."""

    def walk(self, uri: str) -> Iterator[tuple[str, int, int]]:
        """Yield name, size and time of change of everything below a directory."""

    def delete(self, uri: str) -> None:
        """Remove; absent is fine."""


class ObjectStore:
    """Read, write and list small objects by full URI, counting each request."""

    def __init__(
        self, config: StorageConfig, *, counter: OpCounter | None = None, seams: Seams = DEFAULT_SEAMS
    ) -> None:
        self._config = config
        self._counter = counter if counter is not None else OpCounter()
        self._seams = seams

    def with_counter(self, counter: OpCounter) -> ObjectStore:
        """Return the same store charging another operation."""
        return ObjectStore(self._config, counter=counter, seams=self._seams)

    def read(self, uri: str) -> ObjectVersion:
        """Return an object's bytes and tag; raises StorageNotFoundError when absent."""
        data, tag = self._backend(uri, "get").read(uri)
        return ObjectVersion(data, tag)

    def write(self, uri: str, data: bytes) -> str:
        """Create or replace an object atomically; returns its tag."""
        backend = self._backend(uri, "put")
        self._seams.fault("put", uri)
        tag = backend.write(uri, data)
        self._seams.fault("put.done", uri)
        return tag

    def put_if_absent(self, uri: str, data: bytes) -> str:
        """Create an object, atomically across processes; raises StorageConditionError when one is there."""
        backend = self._backend(uri, "put")
        self._seams.fault("put", uri)
        tag = backend.put_if_absent(uri, data)
        self._seams.fault("put.done", uri)
        return tag

    def replace(self, uri: str, data: bytes, *, tag: str) -> str:
        """Replace an object only if it still carries ``tag``; raises StorageConditionError when it does not."""
        backend = self._backend(uri, "put")
        self._seams.fault("put", uri)
        new_tag = backend.replace(uri, data, tag=tag)
        self._seams.fault("put.done", uri)
        return new_tag

    def list(self, uri: str) -> list[str]:
        """Return the names directly below a directory, sorted; an absent directory is empty."""
        return sorted(self._backend(uri, "list").list(uri))

    def walk(self, uri: str) -> tuple[StoredObject, ...]:
        """Return everything below a directory, however deep, sorted by name."""
        found = self._backend(uri, "list").walk(uri)
        return tuple(sorted((StoredObject(*facts) for facts in found), key=lambda o: o.name))

    def delete(self, uri: str) -> None:
        """Delete an object; absent is fine."""
        backend = self._backend(uri, "delete")
        self._seams.fault("delete", uri)
        backend.delete(uri)
        self._seams.fault("delete.done", uri)

    def _backend(self, uri: str, verb: str) -> Backend:
        self._counter.count_object(verb, kind=_kind(uri))
        return S3Objects.shared(self._config) if is_s3(uri) else LocalObjects()


def _kind(uri: str) -> str:
    if "/__recovery" in uri:
        return "recovery"
    name = uri.rsplit("/", 1)[-1]
    return "schema" if name.startswith(("_schema.", "__schema_state.")) else "object"
