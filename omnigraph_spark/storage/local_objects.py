"""Objects on a local directory: temp file and rename to write, hard link to create, a lock file to replace."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from omnigraph_spark.errors import (
    StorageConditionError,
    StorageError,
    StorageForbiddenError,
    StorageNotFoundError,
)

_TEMP_SUFFIX = ".writing"


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def _typed(path: str) -> Iterator[None]:
    """Turn operating-system errors into the typed tree."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as e:
        raise StorageNotFoundError(f"{path} does not exist") from e
    except PermissionError as e:
        raise StorageForbiddenError(f"No permission for {path}") from e
    except FileExistsError as e:
        raise StorageConditionError(f"{path} exists already") from e
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                f"No space left while writing {path}", hint="Free some space and run the operation again."
            ) from e
        raise StorageError(f"{path}: {e.strerror or e}") from e


@contextlib.contextmanager
def _staged(path: Path, data: bytes) -> Iterator[str]:
    """Write data durably to a temporary file beside its destination; removed afterwards if still there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_TEMP_SUFFIX)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        yield name
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class LocalObjects:
    """The local backend; stateless."""

    def read(self, uri: str) -> tuple[bytes, str]:
        """Return bytes and content tag."""
        with _typed(uri):
            data = Path(uri).read_bytes()
        return data, _tag(data)

    def write(self, uri: str, data: bytes) -> str:
        """Replace atomically by rename."""
        path = Path(uri)
        with _typed(uri), _staged(path, data) as staged:
            Path(staged).replace(path)
            _sync_directory(path.parent)
        return _tag(data)

    def put_if_absent(self, uri: str, data: bytes) -> str:
        """Publish the finished file under its name by a hard link, which fails if the name is taken."""
        path = Path(uri)
        with _typed(uri), _staged(path, data) as staged:
            os.link(staged, path)
            _sync_directory(path.parent)
        return _tag(data)

    def replace(self, uri: str, data: bytes, *, tag: str) -> str:
        """Compare and replace under an advisory lock that every process of ours takes."""
        path = Path(uri)
        with _typed(uri), self._locked(path):
            if _tag(path.read_bytes()) != tag:
                raise StorageConditionError(f"{uri} was changed by somebody else")
            with _staged(path, data) as staged:
                Path(staged).replace(path)
                _sync_directory(path.parent)
        return _tag(data)

    def list(self, uri: str) -> Mapping[str, int]:
        """List finished files directly below a directory with their sizes."""
        try:
            with _typed(uri), os.scandir(uri) as entries:
                return {
                    e.name: e.stat().st_size
                    for e in entries
                    if e.is_file() and not e.name.endswith((_TEMP_SUFFIX, ".lock"))
                }
        except StorageNotFoundError:
            return {}

    def walk(self, uri: str) -> Iterator[tuple[str, int, int]]:
        """Yield every finished file below a directory: relative name, size, time of change in microseconds."""
        base = Path(uri)
        with _typed(uri):
            for folder, _, names in os.walk(base):
                for name in names:
                    path = Path(folder) / name
                    # A file may go while we look: a writer retires its record, a cleanup runs beside this one.
                    with contextlib.suppress(FileNotFoundError):
                        facts = path.stat()
                        yield path.relative_to(base).as_posix(), facts.st_size, facts.st_mtime_ns // 1_000

    def delete(self, uri: str) -> None:
        """Remove a file; absent is fine."""
        with _typed(uri), contextlib.suppress(FileNotFoundError):
            Path(uri).unlink()

    @staticmethod
    @contextlib.contextmanager
    def _locked(path: Path) -> Iterator[None]:
        lock = path.parent / f".{path.name}.lock"
        with lock.open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
