"""A stream of JSON values out of files, handles, text or lines, in bounded memory.

Values may be separated by any whitespace, so one value per line and pretty-printed input are the same thing here.
Only text that no value has been read from yet is held. A token without an exact value (NaN, an endless number, a
repeated key) is kept as such, so that the reader can name the property it stands in.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias, cast

from omnigraph_spark.errors import OptionError, StorageError, StorageForbiddenError, StorageNotFoundError
from omnigraph_spark.storage.locations import is_s3, normalize_root

Source: TypeAlias = str | os.PathLike[str] | IO[bytes] | IO[str] | Iterable[str | bytes | Mapping[str, object]]

_CHUNK = 1 << 20
_BLANK = re.compile(r"[ \t\n\r]*")
# An error this close to the end of what was read so far may only mean that a token is cut in two.
_LONGEST_TOKEN = 16
_BRACES_OR_LINES = re.compile(r"[{}\n]")


@dataclass(frozen=True, slots=True)
class Unusable:
    """A token that stands for no exact value, and why."""

    text: str
    reason: str


class RepeatedKey(dict[str, object]):
    """An object in which a key occurs more than once; one of its values is lost."""

    name: str = ""


class MalformedError(Exception):
    """The text from here on cannot be read as JSON values."""


class _BrokenTextError(Exception):
    """The input cannot be turned into text from here on."""


def open_texts(source: Source) -> Generator[str, None, None]:
    """Yield the text of a source in pieces; text has a brace or a newline in it, a path has neither.

    Raises:
        OptionError: The source is nothing that records can be read from.
        StorageError: The file cannot be read.
    """
    if isinstance(source, str) and _BRACES_OR_LINES.search(source):
        return (text for text in [source])
    if isinstance(source, str | os.PathLike):
        return _file_texts(os.fspath(source))
    if isinstance(source, Mapping | bytes | bytearray):
        hint = "Put it in a list, or give a path, text or an open file."
        raise OptionError(f"records cannot be read from a single {type(source).__name__}", hint=hint)
    if hasattr(source, "read"):
        return _handle_texts(cast("IO[bytes] | IO[str]", source))
    if isinstance(source, Iterable):
        return _line_texts(source)
    raise OptionError(f"records cannot be read from {type(source).__name__}", hint="Give a path, text or lines.")


def _file_texts(name: str) -> Generator[str, None, None]:
    path = normalize_root(name)
    if is_s3(path):
        raise OptionError(f"{path} is not a local file", hint="Open the object and pass the handle or its lines.")
    with contextlib.ExitStack() as stack:
        with _typed(path):
            handle = stack.enter_context(Path(path).open("rb"))
        yield from _handle_texts(handle, name=path)


@contextlib.contextmanager
def _typed(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StorageNotFoundError(f"{path} does not exist") from error
    except PermissionError as error:
        raise StorageForbiddenError(f"No permission for {path}") from error
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error


def _handle_texts(handle: IO[bytes] | IO[str], *, name: str = "the input") -> Generator[str, None, None]:
    # A byte order mark is not JSON, but editors leave it there and it says nothing.
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    while True:
        try:
            with _typed(name):
                piece = handle.read(_CHUNK)
        except UnicodeDecodeError as error:
            raise _BrokenTextError(f"the input is not {error.encoding} text") from error
        if isinstance(piece, str):
            if not piece:
                return
            yield piece
        elif isinstance(piece, bytes):
            yield from _decoded(piece, decoder)
            if not piece:
                return
        else:
            raise OptionError(f"reading {name} gave {type(piece).__name__}, neither text nor bytes")


def _decoded(piece: bytes, decoder: codecs.IncrementalDecoder) -> Iterator[str]:
    try:
        yield decoder.decode(piece, final=not piece)
    except UnicodeDecodeError as error:
        # What comes before the bad byte still holds records, and their faults count.
        yield bytes(error.object[: error.start]).decode("utf-8-sig")
        raise _BrokenTextError("the input is not UTF-8 text") from error


def _line_texts(lines: Iterable[object]) -> Generator[str, None, None]:
    for number, line in enumerate(lines, start=1):
        if isinstance(line, str):
            yield line
        elif isinstance(line, bytes):
            yield from _decoded(line, codecs.getincrementaldecoder("utf-8")())
        elif isinstance(line, Mapping):
            yield _written(line, number=number)
        else:
            hint = "Give lines of JSON text, or records as dicts."
            raise OptionError(f"item {number} of the input is {type(line).__name__}", hint=hint)
        # Two lines never make one token.
        yield "\n"


def _written(record: Mapping[str, object], *, number: int) -> str:
    """Return the JSON a record in memory stands for: what JSON cannot say is not guessed."""
    try:
        return json.dumps(dict(record), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _BrokenTextError(f"item {number} of the input cannot be written as JSON: {error}") from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    names = [name for name, _ in pairs]
    repeated = RepeatedKey(made)
    repeated.name = next(name for at, name in enumerate(names) if name in names[:at])
    return repeated


def _no_number(text: str) -> Unusable:
    return Unusable(text, "is not a JSON number")


def _integer(text: str) -> int | Unusable:
    try:
        return int(text)
    except ValueError:
        return Unusable(text, "has too many digits")


def _decoder(parse_int: Callable[[str], object] | None = None) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_number, parse_int=parse_int)


_DECODER = _decoder()
# Asked only about a value that the fast one gives up on: Python refuses to read very long integers.
_PATIENT_DECODER = _decoder(_integer)


def _decode(text: str, at: int) -> tuple[object, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _PATIENT_DECODER.raw_decode(text, at)


class JsonStream:
    """Iterates over ``(value, characters it took)``; memory is a chunk, or the longest value if that is more."""

    def __init__(self, texts: Iterator[str], *, chunk: int = _CHUNK) -> None:
        self._texts = texts
        self._chunk = chunk
        self._text = ""
        self._at = 0
        self._ended = False
        self._broken: str | None = None
        # Of the first character of the text in hand, counted from 1.
        self._line = 1
        self._column = 1

    def __iter__(self) -> Iterator[tuple[object, int]]:
        while self._skip_blank():
            start = self._at
            value, end = self._value()
            self._at = end
            yield value, end - start
        if self._broken:
            raise MalformedError(f"{self._place(self._at)}: {self._broken}")

    def _skip_blank(self) -> bool:
        while True:
            found = _BLANK.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return True
            if self._ended:
                return False
            self._fill()

    def _value(self) -> tuple[object, int]:
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._may_be_cut(error):
                    reason = self._broken if self._ended and self._broken else error.msg
                    raise MalformedError(f"{self._place(error.pos)}: {reason}") from error
            except RecursionError as error:
                raise MalformedError(f"{self._place(self._at)}: the value is nested too deeply") from error
            else:
                # Only a closing mark proves that a value ends where the text does.
                if end < len(self._text) or self._ended or self._text[end - 1] in '}]"':
                    return value, end
            self._fill()

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        if self._ended:
            return False
        near_the_end = error.pos >= len(self._text) - _LONGEST_TOKEN
        return near_the_end or error.msg.startswith("Unterminated string")

    def _fill(self) -> None:
        # At least doubling what is unread keeps a long value from being decoded once per chunk.
        unread = len(self._text) - self._at
        wanted = max(self._chunk, unread)
        pieces = [self._text[self._at :]]
        self._line, self._column = self._line_and_column(self._at)
        try:
            while wanted > 0:
                piece = next(self._texts, None)
                if piece is None:
                    self._ended = True
                    break
                pieces.append(piece)
                wanted -= len(piece)
        except _BrokenTextError as error:
            self._ended, self._broken = True, str(error)
        self._text = "".join(pieces)
        self._at = 0

    def _line_and_column(self, at: int) -> tuple[int, int]:
        lines = self._text.count("\n", 0, at)
        if not lines:
            return self._line, self._column + at
        return self._line + lines, at - self._text.rindex("\n", 0, at)

    def _place(self, at: int) -> str:
        line, column = self._line_and_column(at)
        return f"line {line}, column {column}"
