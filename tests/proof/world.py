"""The graph every proof runs on, the same graph as plain dicts (the oracle), and handles whose seams a test holds."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph_spark import Graph
from omnigraph_spark.errors import NotFoundError
from omnigraph_spark.read.snapshot import GraphReader, Moment
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.seams import Phase, Seams
from omnigraph_spark.write.settings import WindowSettings
from tests.rig.s3_server import S3Server

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique }
node Company { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company @card(0..1)
"""
TYPES = ("Person", "Company", "Knows", "WorksAt")

Row = Mapping[str, Any]
# type → id → row, without nulls: what a reader sees and nothing else
World = dict[str, dict[str, dict[str, Any]]]


def empty_world() -> World:
    """A graph nobody has written to."""
    return {name: {} for name in TYPES}


def node(name: str, **values: Any) -> dict[str, Any]:
    """One keyed node as it is written."""
    return {"name": name, **values}


def edge(src: str, dst: str, **values: Any) -> dict[str, Any]:
    """One edge as it is written; its id is ``src-dst``."""
    return {"id": f"{src}-{dst}", "src": src, "dst": dst, **values}


def with_rows(world: World, type_name: str, *rows: Row) -> World:
    """Return the world with rows inserted or replaced."""
    added = {r.get("id", r.get("name")): {"id": r.get("id", r.get("name")), **r} for r in rows}
    return {**world, type_name: {**world[type_name], **added}}


def without_person(world: World, name: str) -> World:
    """Return the world without a person and without the edges that hang on it."""
    left: World = {**world, "Person": {i: r for i, r in world["Person"].items() if i != name}}
    for edges in ("Knows", "WorksAt"):
        left[edges] = {i: r for i, r in world[edges].items() if name not in (r["src"], r["dst"])}
    return left


def read_world(uri: str, storage: Mapping[str, str] | None = None) -> World | None:
    """Return everything one graph version holds; None when there is no graph."""
    try:
        graph = Graph.open(uri, storage=storage, read_only=True).at()
    except NotFoundError:
        return None
    return world_of(graph)


def world_of(graph: Graph) -> World:
    """Return everything a pinned handle sees."""
    found: World = {}
    for name in TYPES:
        rows = graph.to_arrow(name).to_pylist()
        found[name] = {row["id"]: {k: v for k, v in row.items() if v is not None} for row in rows}
        assert len(found[name]) == len(rows), f"{name} holds an id twice"
    return found


# -- handles -----------------------------------------------------------------------------------------------------------


def seamed(seams: Seams) -> type[Graph]:
    """Return a Graph class whose every operation uses these seams."""

    class SeamedGraph(Graph):
        def _begin(self) -> GraphReader:
            return GraphReader.begin(self.uri, StorageConfig.resolve(self._storage), seams=seams)

    return SeamedGraph


def tomorrow() -> int:
    """The wall clock of all proofs, a day after the starting graphs were built, so that cleanup finds old versions."""
    return time.time_ns() // 1_000 + 86_400_000_000


@dataclass(frozen=True)
class Site:
    """Where a graph is, and how long its writers wait."""

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict)
    settings: WindowSettings = field(default_factory=lambda: WindowSettings(grace=0.05, timeout=30.0, patience=20.0))

    def handle(self, seams: Seams | None = None) -> Graph:
        """Return a handle that has not asked the store for anything yet."""
        kind = seamed(replace(seams or Seams(), now_micros=tomorrow))
        return kind(self.uri, moment=Moment(), storage=self.storage, settings=self.settings)

    def opened(self) -> Graph:
        """Open for writing, as a new process would."""
        waits = self.settings
        return seamed(Seams(now_micros=tomorrow)).open(
            self.uri,
            storage=self.storage,
            window_grace=waits.grace,
            window_timeout=waits.timeout,
            patience=waits.patience,
        )

    def world(self) -> World | None:
        """Return what a reader sees now."""
        return read_world(self.uri, self.storage)


class LocalTemplates:
    """Starting graphs on disk, each built once; a graph holds its own path, so copies go back to the same one."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.site = Site(str(base / "graph"))

    def restore(self, name: str, build: Callable[[Site], None]) -> Site:
        """Put the starting graph of this name at the site."""
        kept = self._base / f"template-{name}"
        at = Path(self.site.uri)
        shutil.rmtree(at, ignore_errors=True)
        if not kept.exists():
            build(self.site)
            if at.exists():
                shutil.copytree(at, kept)
            else:
                kept.mkdir()
        elif any(kept.iterdir()):
            shutil.copytree(kept, at)
        return self.site

    def clear(self) -> None:
        """Remove everything at the site."""
        shutil.rmtree(self.site.uri, ignore_errors=True)


class S3Templates:
    """Starting graphs on S3, each built once and copied inside the store."""

    def __init__(self, server: S3Server) -> None:
        self._client = server.client()
        self._work, self._kept = server.new_bucket(), server.new_bucket()
        self._built: set[str] = set()
        self.site = Site(f"s3://{self._work}/pre/graph", server.storage_options())

    def restore(self, name: str, build: Callable[[Site], None]) -> Site:
        """Put the starting graph of this name at the site."""
        self.clear()
        if name not in self._built:
            build(self.site)
            self._copy(self._work, self._kept, "", f"{name}/")
            self._built.add(name)
        else:
            self._copy(self._kept, self._work, f"{name}/", "")
        return self.site

    def clear(self) -> None:
        """Remove everything at the site."""
        while keys := self._keys(self._work, ""):
            listed = [{"Key": key} for key in keys[:1000]]
            self._client.delete_objects(Bucket=self._work, Delete={"Objects": listed, "Quiet": True})

    def _keys(self, bucket: str, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def _copy(self, source: str, target: str, before: str, after: str) -> None:
        def copy(key: str) -> None:
            origin = {"Bucket": source, "Key": key}
            self._client.copy_object(Bucket=target, Key=after + key.removeprefix(before), CopySource=origin)

        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(copy, self._keys(source, before)))


# -- death -------------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone: no handler of the code under test may stop this, and nothing it does later lands."""


class Mortal:
    """Seams that end at a chosen durable request or hook; everything after the end raises, as a dead process is silent.

    The n-th call of ``fault`` counts from 1; odd ones come before a durable request, even ones right after it.
    """

    def __init__(self, *, at_fault: int | None = None, at_hook: str | None = None) -> None:
        self._at_fault, self._at_hook = at_fault, at_hook
        self._lock = threading.Lock()
        self.faults: list[str] = []
        self.dead = False

    def seams(self) -> Seams:
        """Return the seams of the mortal."""
        return Seams(fault=self._fault, hook=self._hook)

    def _fault(self, operation: str, target: str) -> None:
        with self._lock:
            self.check()
            self.faults.append(f"{operation} {target.rsplit('/', 1)[-1]}")
            self.dead = len(self.faults) == self._at_fault
            self.check()

    def _hook(self, phase: Phase, point: str) -> None:
        self.check()
        self.dead = self._at_hook is not None and f"{phase.value}:{point}".startswith(self._at_hook)
        self.check()

    def check(self) -> None:
        """Raise when dead."""
        if self.dead:
            raise Killed


class InlineExecutor:
    """Runs jobs where they are started, so that one thread is one process and its steps have one order."""

    def __init__(self, max_workers: int = 1) -> None:
        self.max_workers = max_workers

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Run the job now; a death goes straight through."""
        future: Future[Any] = Future()
        try:
            future.set_result(job())
        except Exception as e:  # noqa: BLE001 - handed to whoever asks for the result, as executors do
            future.set_exception(e)
        return future

    def shutdown(self, *, wait: bool = True) -> None:
        """Nothing is ever left running."""


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Make every group of parallel requests run in order in its own thread, for schedules that must be repeatable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("omnigraph_spark.storage.parallel.ThreadPoolExecutor", InlineExecutor)
        yield
