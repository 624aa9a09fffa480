"""Reading fragments that are staged but not committed: by file, because no version contains them yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
from lance.file import LanceFileReader

from omnigraph_spark.storage.lance_errors import typed
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.storage.locations import join

_BATCH_ROWS = 65_536


def staged_batches(
    io: LanceIO, uri: str, fragments: Sequence[str], *, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Stream columns of staged fragments of the dataset at ``uri``, in their order."""
    for fragment in fragments:
        for file in json.loads(fragment)["files"]:
            path = join(uri, "data", str(file["path"]))
            with typed(path):
                reader = LanceFileReader(path, storage_options=io.options, columns=list(columns))
                yield from reader.read_all(batch_size=_BATCH_ROWS).to_batches()


def staged_paths(uri: str, fragments: Sequence[str]) -> list[str]:
    """Return the full locations of the data files of staged fragments."""
    return [join(uri, "data", str(file["path"])) for f in fragments for file in json.loads(f)["files"]]


def detached_path(uri: str, version: int) -> str:
    """Return where a detached version is kept; Lance's own cleanup never removes one."""
    return join(uri, "_versions", f"d{version}.manifest")
