"""The cleanup boundary: graph versions below it may be gone, so a commit that landed at or below it does not count.

On main it is a Lance tag of ``__manifest`` (so Lance's own cleanup keeps the version it names); a branch keeps the same
document in its own directory, because a Lance tag would stand in the way of deleting the branch. It only ever rises,
by compare-and-swap, and it rises before anything is deleted (INV-12).
"""

from __future__ import annotations

import json
from datetime import datetime, timezone

from omnigraph_spark.errors import FormatError, StorageConditionError, StorageError, StorageNotFoundError
from omnigraph_spark.manifest.layout import MAIN, MANIFEST_DIR, branch_uri
from omnigraph_spark.storage.locations import join
from omnigraph_spark.storage.objects import ObjectStore

BOUNDARY_TAG = "omnigraph-boundary"
_MOST_TRIES = 10


def boundary_uri(root: str, *, branch: str) -> str:
    """Return where a branch's boundary is kept."""
    base = join(root, MANIFEST_DIR)
    if branch == MAIN:
        return join(base, "_refs", "tags", f"{BOUNDARY_TAG}.json")
    return join(branch_uri(base, branch), f"_{BOUNDARY_TAG}.json")


def read_boundary(objects: ObjectStore, root: str, *, branch: str) -> int:
    """Return a branch's boundary, 0 when nothing was ever cleaned up: one request."""
    try:
        return _version(objects.read(boundary_uri(root, branch=branch)).data, root=root)
    except StorageNotFoundError:
        return 0


def raise_boundary(objects: ObjectStore, root: str, *, branch: str, version: int, size: int, now: int) -> int:
    """Raise a branch's boundary to a version that stays, and return where it is; it never falls."""
    uri = boundary_uri(root, branch=branch)
    for _ in range(_MOST_TRIES):
        try:
            found = objects.read(uri)
        except StorageNotFoundError:
            found = None
        current = _version(found.data, root=root) if found is not None else 0
        if current >= version:
            return current
        document = _document(branch, version=version, size=size, now=now)
        try:
            if found is None:
                objects.put_if_absent(uri, document)
            else:
                objects.replace(uri, document, tag=found.tag)
        except StorageConditionError:
            continue  # another cleanup was faster: look where it left the boundary
        return version
    raise StorageError(f"The boundary {uri} kept changing", retryable=True)


def _document(branch: str, *, version: int, size: int, now: int) -> bytes:
    moment = datetime.fromtimestamp(now / 1_000_000, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    # The shape of a Lance tag.
    value: dict[str, object] = {
        "branch": None if branch == MAIN else branch,
        "version": version,
        "createdAt": moment,
        "updatedAt": moment,
        "manifestSize": size,
        "metadata": {},
    }
    return json.dumps(value, indent=2).encode()


def _version(data: bytes, *, root: str) -> int:
    try:
        return int(json.loads(data)["version"])
    except (ValueError, KeyError, TypeError) as e:
        raise FormatError(f"The cleanup boundary of {root} is malformed") from e
