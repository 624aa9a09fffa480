"""What Lance says becomes one of our classes, whatever digits its file names hold."""

from __future__ import annotations

import pytest

from omnigraph_spark.errors import (
    OmnigraphError,
    StorageError,
    StorageForbiddenError,
    StorageNotFoundError,
    StorageUnreachableError,
)
from omnigraph_spark.storage.lance_errors import LanceConflictError, classify, typed

_AT = ", /home/runner/work/lance/lance/rust/lance-io/src/object_store.rs:1576:42"
_GET = "LanceError(IO): Generic S3 error: Error performing GET http://h:1/b?list-type=2&prefix=g%2F403 in 1ms"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"{_GET} - Server returned non-2xx status code: 403 Forbidden: <?xml", StorageForbiddenError),
        (f"{_GET}, after 5 retries, retry_timeout: 30s  - HTTP error: error sending request", StorageUnreachableError),
        (f"{_GET} - Server returned error status code: 503 Slow Down", StorageUnreachableError),
        (f"Dataset at path g/nodes/403 was not found: Not found: g/403/_versions{_AT}", StorageNotFoundError),
        (f"Not found: tmp/timed out/data/0403ab500404.lance{_AT}", StorageNotFoundError),
        ("LanceError(IO): No space left on device (os error 28)", StorageError),
        ("LanceError(IO): Permission denied (os error 13)", StorageForbiddenError),
        ("Too many concurrent writers. Attempted 0 retries.", LanceConflictError),
        ("Retryable commit conflict for version 3", LanceConflictError),
        ("Incompatible transaction: Restore", LanceConflictError),
        ("Something new", StorageError),
    ],
)  # fmt: skip
def test_texts_are_classified(text: str, kind: type[OmnigraphError]) -> None:
    """Not found, forbidden, unreachable, conflict and the rest are told apart by what happened, not by digits."""
    found = classify(ValueError(text), uri="s3://b/g")
    assert type(found) is kind
    assert "object_store.rs" not in str(found)


def test_a_lost_file_is_named() -> None:
    """When a file inside a dataset is gone, the error says which."""
    found = classify(OSError("Not found: data/g/nodes/x/data/01ab.lance"), uri="/data/g/nodes/x")
    assert found is not None
    assert found.message == "/data/g/nodes/x lacks data/01ab.lance"


def test_other_errors_pass() -> None:
    """Our own errors, interrupts and programming errors leave unchanged."""
    for error in (StorageError("x"), KeyboardInterrupt(), TypeError("x")):
        with pytest.raises(type(error)) as caught, typed("uri"):
            raise error
        assert caught.value is error


def test_a_conflict_says_whether_another_try_can_succeed() -> None:
    """Only an incompatible conflict is final."""
    flags = []
    for text in ("Incompatible transaction: x", "Retryable commit conflict: x"):
        found = classify(OSError(text), uri="u")
        assert isinstance(found, LanceConflictError)
        flags.append(found.incompatible)
    assert flags == [True, False]
