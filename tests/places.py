"""A built graph together with what it takes to open it: the same tests run on a directory and on S3."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph_spark import Graph
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.config import StorageConfig
from tests.rig.builder import GraphBuilder
from tests.rig.builder_schemas import EXAMPLE_A, GraphSchema


@dataclass(frozen=True)
class Place:
    """A graph root and its storage options (empty on disk)."""

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict)
    schema: GraphSchema = EXAMPLE_A

    @property
    def builder(self) -> GraphBuilder:
        """A builder on this graph."""
        return GraphBuilder(self.uri, dict(self.storage) or None, schema=self.schema)

    def built(self) -> Place:
        """Create the graph as OmniGraph 0.8 does."""
        self.builder.create()
        return self

    def under(self, name: str, *, schema: GraphSchema | None = None) -> Place:
        """Return another root beside this one."""
        return replace(self, uri=f"{self.uri}-{name}", schema=schema or self.schema)

    def open(self, **arguments: Any) -> Graph:
        """Open the graph through the package."""
        return Graph.open(self.uri, storage=dict(self.storage), **arguments)

    def reader(self) -> GraphReader:
        """Start an operation on the graph through the package."""
        return GraphReader.begin(self.uri, StorageConfig.resolve(self.storage))

    def options(self) -> dict[str, str]:
        """Return the storage options as Spark takes them."""
        return {f"storage.{key}": value for key, value in self.storage.items()}


def people(*names: str, age: int | None = None) -> pa.Table:
    """Return Person rows, one per name."""
    ages = pa.array([age] * len(names), pa.int32())
    return pa.table({"id": list(names), "name": list(names), "age": ages})


def knows(*pairs: tuple[str, str]) -> pa.Table:
    """Return Knows rows, one per pair."""
    return pa.table(
        {"id": [f"{a}-{b}" for a, b in pairs], "src": [a for a, _ in pairs], "dst": [b for _, b in pairs]},
        schema=pa.schema([("id", pa.string()), ("src", pa.string()), ("dst", pa.string())]),
    )


def fingerprint(root: str | Path) -> dict[str, str]:
    """Return every file below a directory with the hash of its bytes."""
    base = Path(root)
    files = sorted(p for p in base.rglob("*") if p.is_file())
    return {str(p.relative_to(base)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def unchanged(root: str | Path) -> Callable[[], None]:
    """Remember what a directory holds; call the result to assert that it still holds just that."""
    before = fingerprint(root)

    def check() -> None:
        assert fingerprint(root) == before

    return check
