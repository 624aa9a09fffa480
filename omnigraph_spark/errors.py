"""Every error the package raises, as one tree.

    OmnigraphError                 catch this for "anything from omnigraph_spark"
    ├── OptionError                an option or argument is unknown, contradictory or malformed
    ├── SchemaError                the .pg text, or a request against the schema, is invalid
    ├── FormatError                the files on storage are not a graph this version understands
    ├── NotFoundError              a graph, type, branch, version, commit or timestamp does not exist
    ├── AlreadyExistsError         the thing to create is already there
    ├── ValidationError            rows break a rule of the schema (``violations``)
    │   └── KeyConflictError       an id or unique value is already taken
    ├── ConflictError              a concurrent commit touched the same table
    │   └── ReadSetChangedError    a concurrent commit invalidated what this write was checked against
    ├── MergeConflictError         two branches disagree on rows (``conflicts``)
    ├── FencedError                a newer writer epoch took this writer's window over
    ├── WindowBusyError            patience ran out while waiting for the window
    ├── BackPressureError          a table or the version chain has grown too far without upkeep
    ├── OutcomeUnknownError        the commit may or may not have landed (``operation_id``)
    ├── RecoveryError              a recovery record cannot be resolved automatically
    ├── DriftError                 a table moved outside the protocol
    └── StorageError               the object store refused or failed
        ├── StorageNotFoundError   the object is not there
        ├── StorageForbiddenError  the credentials do not allow it
        ├── StorageUnreachableError  no answer: endpoint, network, timeout
        └── StorageConditionError  a conditional put found another object

Three questions are answered by attribute, never by text: ``retryable``, ``outcome``, ``hint``. Errors pickle, and
their text starts with ``[CODE]`` so that ``from_text`` can restore the class after Spark flattened it to a string.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import ClassVar


class Outcome(str, Enum):
    """What an error says about the write it ended."""

    NOT_COMMITTED = "not_committed"
    COMMITTED = "committed"
    UNKNOWN = "unknown"


_OUTCOME_TEXT = {
    Outcome.NOT_COMMITTED: "Nothing was committed.",
    Outcome.COMMITTED: "The write is committed.",
    Outcome.UNKNOWN: "Whether the write committed is unknown.",
}


class OmnigraphError(Exception):
    """Root of every error raised by this package."""

    code: ClassVar[str] = "OG-ERROR"
    default_retryable: ClassVar[bool] = False
    default_outcome: ClassVar[Outcome] = Outcome.NOT_COMMITTED
    default_hint: ClassVar[str] = "Read the message; the operation was refused before any change."

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        retryable: bool | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        self.retryable = self.default_retryable if retryable is None else retryable
        self.outcome = self.default_outcome if outcome is None else outcome

    def __str__(self) -> str:
        sentence = self.message if self.message.endswith((".", "!", "?")) else f"{self.message}."
        return f"[{self.code}] {sentence} {_OUTCOME_TEXT[self.outcome]} Next: {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Subclasses have richer constructors; rebuilding from the attributes survives any of them (Spark workers
        # hand errors to the driver by pickle).
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def _rebuild(cls: type[OmnigraphError], args: tuple[object, ...], state: dict[str, object]) -> OmnigraphError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class OptionError(OmnigraphError):
    """An option or argument is unknown, contradictory or malformed."""

    code = "OG-OPTION"
    default_hint = "Correct the option; docs/options.md lists them all."


class SchemaError(OmnigraphError):
    """The .pg text, or a request against the schema, is invalid."""

    code = "OG-SCHEMA"
    default_hint = "Correct the schema or the request and try again."

    def __init__(
        self,
        message: str,
        *,
        rule: str = "",
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
    ) -> None:
        where = f"line {line}, column {column}: " if line is not None else ""
        tail = f" (rule: {rule})" if rule else ""
        super().__init__(f"{where}{message}{tail}", hint=hint)
        self.rule = rule
        self.line = line
        self.column = column


class FormatError(OmnigraphError):
    """The files on storage are not a graph this version understands."""

    code = "OG-FORMAT"
    default_hint = "Check that the path is a graph of a supported format."


class NotFoundError(OmnigraphError):
    """A graph, type, branch, version, commit or timestamp does not exist."""

    code = "OG-NOT-FOUND"
    default_hint = "Check the name; the message lists what exists."


class AlreadyExistsError(OmnigraphError):
    """The thing to create is already there."""

    code = "OG-EXISTS"
    default_hint = "Open the existing one, or choose another name or path."


class Violation:
    """One broken rule: which type, property, row, rule and value."""

    __slots__ = ("message", "property", "row_id", "rule", "type_name", "value")

    def __init__(
        self,
        *,
        rule: str,
        type_name: str,
        message: str,
        property: str | None = None,
        row_id: str | None = None,
        value: str | None = None,
    ) -> None:
        self.rule = rule
        self.type_name = type_name
        self.property = property
        self.row_id = row_id
        self.value = value
        self.message = message

    def sort_key(self) -> tuple[str, str, str, str, str]:
        """Order violations the same way on every run."""
        return (
            self.type_name,
            self.rule,
            self.property or "",
            self.row_id or "",
            self.message,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Violation) and self.sort_key() == other.sort_key()

    def __hash__(self) -> int:
        return hash(self.sort_key())

    def __repr__(self) -> str:
        return f"Violation({self.message!r})"


class ValidationError(OmnigraphError):
    """Rows break a rule of the schema; all violations found are listed, sorted and capped."""

    code = "OG-VALIDATION"
    default_hint = "Correct the rows and write again."
    shown: ClassVar[int] = 20

    def __init__(
        self,
        message: str,
        *,
        violations: Sequence[Violation] = (),
        total: int | None = None,
        hint: str | None = None,
    ) -> None:
        kept = sorted(set(violations), key=Violation.sort_key)
        self.total = len(kept) if total is None else total
        self.violations = kept
        listed = "".join(f"\n  - {v.message}" for v in kept[: self.shown])
        more = self.total - min(len(kept), self.shown)
        tail = f"\n  ... and {more} more" if more > 0 else ""
        super().__init__(f"{message}{listed}{tail}", hint=hint)


class KeyConflictError(ValidationError):
    """An id or unique value is already taken."""

    code = "OG-KEY-CONFLICT"
    default_hint = "Use merge to replace existing rows, or remove the duplicates from the input."


class ConflictError(OmnigraphError):
    """A concurrent commit touched a table this write depends on."""

    code = "OG-CONFLICT"
    default_retryable = True
    default_hint = "Run the operation again; it will start from the current graph."

    def __init__(
        self,
        message: str,
        *,
        table_key: str | None = None,
        expected: int | None = None,
        actual: int | None = None,
        hint: str | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message, hint=hint, retryable=retryable)
        self.table_key = table_key
        self.expected = expected
        self.actual = actual


class ReadSetChangedError(ConflictError):
    """A concurrent commit invalidated what this write was validated against."""

    code = "OG-READ-SET"


class MergeConflictError(OmnigraphError):
    """Two branches disagree on rows."""

    code = "OG-MERGE-CONFLICT"
    default_hint = "Change one of the branches and merge again."

    def __init__(self, message: str, *, conflicts: Sequence[object] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.conflicts = list(conflicts)


class FencedError(OmnigraphError):
    """A newer writer epoch took this writer's window over and undid its effects."""

    code = "OG-FENCED"
    default_retryable = True
    default_hint = "Run the operation again."


class WindowBusyError(OmnigraphError):
    """Patience ran out while other writers held the window."""

    code = "OG-WINDOW-BUSY"
    default_retryable = True
    default_hint = "Run the operation again later, or raise the patience setting."


class BackPressureError(OmnigraphError):
    """A table or the version chain has grown past the refusal threshold without upkeep."""

    code = "OG-BACK-PRESSURE"
    default_retryable = True
    default_hint = "Run optimize() (fragments) or cleanup() (versions), then write again; or raise the threshold."


class OutcomeUnknownError(OmnigraphError):
    """The commit may or may not have landed; it is never replayed blindly."""

    code = "OG-OUTCOME-UNKNOWN"
    default_outcome = Outcome.UNKNOWN
    default_hint = "Look for the operation id in the history (or run recover()) before writing the same rows again."

    def __init__(self, message: str, *, operation_id: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.operation_id = operation_id


class RecoveryError(OmnigraphError):
    """A recovery record cannot be resolved automatically; it is kept and reads keep working."""

    code = "OG-RECOVERY"
    default_hint = "Inspect the file named in the message; reads are not affected."


class DriftError(OmnigraphError):
    """A table moved outside the protocol and no recovery record explains it."""

    code = "OG-DRIFT"
    default_hint = "Run repair() to preview what happened to the table."


class StorageError(OmnigraphError):
    """The object store refused or failed."""

    code = "OG-STORAGE"
    default_hint = "Check the storage settings and try again."


class StorageNotFoundError(StorageError):
    """The object is not there."""

    code = "OG-STORAGE-NOT-FOUND"
    default_hint = "Check the path."


class StorageForbiddenError(StorageError):
    """The credentials do not allow the request."""

    code = "OG-STORAGE-FORBIDDEN"
    default_hint = "Check the credentials and the permissions on the path."


class StorageUnreachableError(StorageError):
    """The store did not answer: endpoint, network or timeout."""

    code = "OG-STORAGE-UNREACHABLE"
    default_retryable = True
    default_hint = "Check the endpoint and the network, then try again."


class StorageConditionError(StorageError):
    """A conditional put found another object in the way."""

    code = "OG-STORAGE-CONDITION"
    default_retryable = True
    default_hint = "Read the object again and decide anew."


def error_classes() -> Iterator[type[OmnigraphError]]:
    """Yield every class of the tree, root first."""
    pending: list[type[OmnigraphError]] = [OmnigraphError]
    while pending:
        cls = pending.pop(0)
        yield cls
        pending.extend(cls.__subclasses__())


_CODE = re.compile(r"\[(OG-[A-Z-]+)\] (.*)", re.DOTALL)


def from_text(text: str) -> OmnigraphError | None:
    """Restore a typed error from text that Spark flattened, or None when the text holds none of ours."""
    # A traceback prints causes first and the error itself last, so the last code is the one that was raised.
    at_last = text.rfind("[OG-")
    found = _CODE.search(text, at_last) if at_last >= 0 else None
    if found is None:
        return None
    classes = {cls.code: cls for cls in error_classes()}
    cls = classes.get(found.group(1))
    if cls is None:
        return None
    body = found.group(2)
    outcome = cls.default_outcome
    hint = cls.default_hint
    for candidate, sentence in _OUTCOME_TEXT.items():
        at = body.find(f" {sentence} Next: ")
        if at >= 0:
            hint = body[at + len(f" {sentence} Next: ") :].split("\n", 1)[0].strip()
            body, outcome = body[:at], candidate
            break
    error = cls.__new__(cls, body)
    error.args = (body,)
    OmnigraphError.__init__(error, body, hint=hint, outcome=outcome)
    for name in ("violations", "conflicts"):
        if name in cls.__init__.__code__.co_varnames:
            setattr(error, name, [])
    for name in ("table_key", "expected", "actual", "operation_id", "line", "column"):
        if name in cls.__init__.__code__.co_varnames:
            setattr(error, name, None)
    return error


@contextlib.contextmanager
def typed_errors() -> Iterator[None]:
    """Re-raise our own errors that Spark turned into text as what they were."""
    try:
        yield
    except Exception as e:
        found = None if isinstance(e, OmnigraphError) else from_text(str(e))
        if found is None:
            raise
        raise found from e
