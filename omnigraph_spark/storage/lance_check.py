"""What a dataset version says about itself, for proofs of soundness: the files it stands on and Lance's own check."""

from __future__ import annotations

from dataclasses import dataclass

import lance

from omnigraph_spark.storage.lance_errors import typed
from omnigraph_spark.storage.locations import is_s3, join


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file some version needs: its directory and its name there."""

    folder: str
    name: str


def referenced_files(dataset: lance.LanceDataset, *, uri: str) -> list[FileRef]:
    """List the data and deletion files of a version from its manifest; a branch may stand on its parent's files."""
    with typed(uri):
        bases = {number: _root(base.path, uri) for number, base in dataset.base_paths().items() if base.is_dataset_root}
        fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    found: list[FileRef] = []
    for meta in fragments:
        for file in meta.files:
            found.append(FileRef(join(_base(bases, file.base_id, uri), "data"), str(file.path)))
        deletion = meta.deletion_file
        if deletion is not None:
            folder, _, name = str(deletion.path(meta.id)).rpartition("/")
            found.append(FileRef(join(_base(bases, deletion.base_id, uri), folder or "_deletions"), name))
    return found


def _base(bases: dict[int, str], number: int | None, uri: str) -> str:
    return uri if number is None else bases.get(number, uri)


def _root(path: str, uri: str) -> str:
    """Spell a base path as our own locations are: Lance may leave scheme and bucket out."""
    if not is_s3(uri) or is_s3(path):
        return path
    bucket = uri.removeprefix("s3://").split("/", 1)[0]
    return f"s3://{bucket}/{path.lstrip('/')}"


def validate(dataset: lance.LanceDataset) -> None:
    """Run Lance's own check of a version: row ids, deletion files, file footers; raises StorageError."""
    with typed(dataset.uri):
        dataset.validate()  # type: ignore[no-untyped-call]
