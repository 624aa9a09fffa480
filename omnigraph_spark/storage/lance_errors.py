"""Lance raises ValueError, OSError and panics for everything; here its text becomes the typed error tree.

``lance.dataset`` answers "not found", "forbidden" and "connection refused" with one class, so the text is all there is
(never read a bare ValueError as "absent"). Panics are BaseExceptions, which ``except Exception`` does not catch.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from omnigraph_spark.errors import (
    OmnigraphError,
    StorageConditionError,
    StorageError,
    StorageForbiddenError,
    StorageNotFoundError,
    StorageUnreachableError,
)
from omnigraph_spark.storage.locations import object_path

_RETRYABLE = ("Too many concurrent writers", "Retryable commit conflict", "Commit conflict for version")
_INCOMPATIBLE = ("Incompatible transaction",)
# Paths are cut out of the text first and status codes need their context: file names are random digits.
_FORBIDDEN = re.compile(
    r"40[13] (Forbidden|Unauthorized)|status( code)?: 40[13]|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|"
    r"ExpiredToken|[Pp]ermission ?[Dd]enied|os error 13\b|Unauthenticated|no credentials|CredentialsNotLoaded"
)
_UNREACHABLE = re.compile(
    r"error sending request|[Cc]onnection (refused|reset|closed)|dns error|timed out|timeout|"
    r"status( code)?: 5\d\d|retry_timeout"
)
_MISSING = re.compile(
    r"was not found|[Nn]ot found:|NoSuchKey|NoSuchBucket|location .* not found|404 Not Found|os error 2\b"
)
_PATH = re.compile(r"(\w+://|/)?[\w%.=+@~-]*/[\w%.=+@~/?&-]*")
_SPACE = re.compile(r"No space left|os error 28|disk quota", re.IGNORECASE)


class LanceConflictError(StorageConditionError):
    """A Lance commit lost against another one."""

    code = "OG-LANCE-CONFLICT"

    def __init__(self, message: str, *, incompatible: bool = False) -> None:
        super().__init__(message)
        self.incompatible = incompatible


def classify(error: BaseException, *, uri: str) -> OmnigraphError | None:
    """Return the typed form of an error Lance or pyarrow raised, or None when it is not one of theirs."""
    if isinstance(error, OmnigraphError):
        return None
    name = type(error).__name__
    full = _first_line(str(error))
    text = _PATH.sub(" ", full)
    if name == "PanicException":
        return StorageError(f"Lance stopped unexpectedly on {uri}: {_shorten(full)}", hint="Report this with the text.")
    if not isinstance(error, (ValueError, OSError, RuntimeError, KeyError)):
        return None
    if any(text.startswith(p) or p in text for p in _RETRYABLE):
        return LanceConflictError(f"A concurrent commit won on {uri}: {_shorten(full)}")
    if any(p in text for p in _INCOMPATIBLE):
        return LanceConflictError(
            f"A concurrent commit excludes this one on {uri}: {_shorten(full)}", incompatible=True
        )
    if _FORBIDDEN.search(text):
        return StorageForbiddenError(f"No permission for {uri}")
    if _SPACE.search(text):
        return StorageError(f"No space left while writing {uri}", hint="Free some space and run the operation again.")
    if _UNREACHABLE.search(text):
        return StorageUnreachableError(f"The store did not answer for {uri}: {_shorten(full)}")
    if _MISSING.search(text):
        return StorageNotFoundError(_missing(uri, full))
    return StorageError(f"{uri}: {_shorten(full)}")


@contextlib.contextmanager
def typed(uri: str) -> Iterator[None]:
    """Run Lance calls; everything they raise leaves as a typed error."""
    try:
        yield
    except BaseException as e:
        found = classify(e, uri=uri)
        if found is None:
            raise
        raise found from e


def _missing(uri: str, text: str) -> str:
    """Name the dataset, or the file inside it when that is what is gone."""
    below = text.replace(object_path(uri), "")
    inside = re.search(r"\b(data|_deletions|_indices)/[\w/-]+\.\w+", below)
    return f"{uri} lacks {inside.group(0)}" if inside else f"{uri} does not exist"


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0]


def _shorten(text: str) -> str:
    # Lance appends Rust source positions; users cannot act on them.
    return re.sub(r", /[^,]*\.rs:\d+:\d+", "", text)[:400]
