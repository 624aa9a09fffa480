"""Reading many versions with one request each: manifests are copied to the local disk, and Lance reads the copies.

Left to itself Lance fetches a manifest when it opens that version, again when it is asked which files versions use, and
once more when that version has an index. Here every manifest is fetched at most once, however often it is asked for.
"""

from __future__ import annotations

import tempfile
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType

import lance
import pyarrow as pa

from omnigraph_spark.errors import StorageNotFoundError
from omnigraph_spark.storage.lance_errors import typed
from omnigraph_spark.storage.lance_files import version_of
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.locations import join, object_path
from omnigraph_spark.storage.objects import ObjectStore
from omnigraph_spark.storage.parallel import run_parallel

_VERSIONS, _INDICES = "_versions", "_indices"


@dataclass(slots=True)
class _Copies:
    """The manifests of one dataset (or branch of it) that there were at the first look."""

    folder: Path
    lock: threading.Lock = field(default_factory=threading.Lock)
    versions: frozenset[int] | None = None  # None until they were fetched


class CopyingIO(LanceIO):
    """Counted access to datasets as they are at the first look at each; later versions are not seen. Use as a context.

    A handle costs a HEAD beside the copy. The copies take as much local disk as the manifests do in the store.
    """

    def __init__(self, like: LanceIO, objects: ObjectStore) -> None:
        super().__init__(like.config, counter=like.counter, seams=like.seams)
        self._objects = objects
        self._folder = tempfile.TemporaryDirectory(prefix="omnigraph-")
        self._copies: dict[str, _Copies] = {}
        self._guard = threading.Lock()

    def __enter__(self) -> CopyingIO:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def open(self, uri: str, *, table: str, version: int | None = None) -> lance.LanceDataset:
        """Open a dataset at a version, or at the newest one of the first look."""
        copies = self._copied(uri)
        if not copies.versions or (version is not None and version not in copies.versions):
            return super().open(uri, table=table, version=version)  # which says why it is not there
        self.counter.count_open(table)
        with typed(uri):
            manifest = lance.dataset(str(copies.folder), version=version)._ds.serialized_manifest()
            dataset = lance.LanceDataset(
                uri, serialized_manifest=manifest, storage_options=self.options, session=self.session
            )
        return self.adopt(dataset)

    def files_by_version(self, uri: str) -> dict[str, set[int]]:
        """Return, for each file any version of this branch of a dataset refers to, the versions that do.

        Files are named as an object store names them (see ``object_path``); a branch refers to files of its parent too.
        """
        copies = self._copied(uri)
        with typed(uri):
            rows: pa.Table = lance.dataset(str(copies.folder)).tracked_files().read_all()
        here = object_path(str(copies.folder))
        found: dict[str, set[int]] = {}
        bases = rows["base_uri"].cast(pa.string()).to_pylist()
        for base, path, version in zip(bases, rows["path"].to_pylist(), rows["version"].to_pylist(), strict=True):
            place = object_path(base).rstrip("/")
            found.setdefault(f"{object_path(uri) if place == here else place}/{path}", set()).add(int(version))
        return found

    def _copied(self, uri: str) -> _Copies:
        with self._guard:
            folder = Path(self._folder.name).resolve() / str(len(self._copies))
            copies = self._copies.setdefault(uri, _Copies(folder))
        with copies.lock:
            if copies.versions is None:
                copies.versions = self._fetch(uri, copies.folder)
        return copies

    def _fetch(self, uri: str, folder: Path) -> frozenset[int]:
        (folder / _VERSIONS).mkdir(parents=True)
        listed = {name: version_of(name) for name in self._objects.list(join(uri, _VERSIONS))}
        versions = {name: version for name, version in listed.items() if version is not None}
        got = run_parallel([partial(self._copy, uri, folder, name) for name in versions], counter=self.counter)
        for item in self._objects.walk(join(uri, _INDICES)):
            # Lance lists the directory of each index that a manifest names; the names are all it wants to know.
            (folder / _INDICES / item.name).parent.mkdir(parents=True, exist_ok=True)
            (folder / _INDICES / item.name).touch()
        return frozenset(version for version, there in zip(versions.values(), got, strict=True) if there)

    def _copy(self, uri: str, folder: Path, name: str) -> bool:
        try:
            data = self._objects.read(join(uri, _VERSIONS, name)).data
        except StorageNotFoundError:
            return False  # somebody else's cleanup took it since the listing
        (folder / _VERSIONS / name).write_bytes(data)
        return True
