"""Every option once: name, aliases, kind, default, where it applies, one doc line.

Parsing, error texts and ``docs/options.md`` are generated from ``OPTIONS``. Keys ignore case, ``_``, ``-`` and ``.``;
an unknown key is an error that names the nearest known one. ``storage.*`` passes through to the object store.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from enum import Flag, auto
from typing import TypeVar

from omnigraph_spark.errors import OptionError


class Scope(Flag):
    """Where an option may be given."""

    READ = auto()
    WRITE = auto()
    ANY = READ | WRITE


@dataclass(frozen=True, slots=True)
class Option:
    """One option and how its text becomes a value."""

    name: str
    kind: str
    scope: Scope
    doc: str
    aliases: tuple[str, ...] = ()
    default: object = None
    choices: tuple[str, ...] = ()


_READ, _WRITE, _ANY = Scope.READ, Scope.WRITE, Scope.ANY

OPTIONS: tuple[Option, ...] = (
    Option("path", "text", _ANY, "Graph root: a directory, `file://` or `s3://` URI.", ("uri",)),
    Option("node", "text", _ANY, "Node type to read or write.", ("labels",)),
    Option("edge", "text", _ANY, "Edge type to read or write.", ("relationship",)),
    Option("type", "text", _ANY, "Node or edge type, when the name is only one of them."),
    Option("branch", "text", _ANY, "Branch to read or write.", default="main"),
    Option("versionAsOf", "int", _READ, "Graph version to read.", ("version",)),
    Option("timestampAsOf", "time", _READ, "Read the newest commit at or before this time.", ("timestamp",)),
    Option("commit", "text", _READ, "Commit id (ULID) to read."),
    Option("columns", "list", _READ, "Columns to read, comma-separated; only these are fetched."),
    Option(
        "filter",
        "text",
        _READ,
        "SQL predicate evaluated by Lance before rows leave storage.",
        ("filters", "where"),
    ),
    Option("limit", "int", _READ, "At most this many rows."),
    Option("batchSize", "int", _READ, "Rows per Arrow batch.", default=8192),
    Option("splitSize", "bytes", _READ, "Target bytes of one read partition.", default=64 << 20),
    Option("partitions", "int", _READ, "Target number of read partitions; overrides splitSize."),
    Option(
        "metadataColumns",
        "list",
        _READ,
        "Extra columns: `_rowid`, `_rowaddr`, `_row_created_at_version`, `_row_last_updated_at_version`.",
    ),
    Option(
        "table",
        "text",
        _READ,
        "Metadata table to read instead of a type.",
        choices=("commits", "branches", "tables", "files", "recoveries"),
    ),
    Option(
        "writeMode",
        "text",
        _WRITE,
        "What to do with rows; default is what `.mode(...)` says. `delete` takes ids.",
        choices=("append", "merge", "overwrite", "delete"),
    ),
    Option("typeColumn", "text", _WRITE, "Column that names each row's type: one DataFrame, many tables, one commit."),
    Option(
        "cascade", "flag", _WRITE, "Whether a delete of nodes removes their edges too, or is refused.", default=True
    ),
    Option("actor", "text", _WRITE, "Who writes; kept in the commit."),
    Option("commitMessage", "text", _WRITE, "Why; kept in the commit.", ("message",)),
    Option("userMetadata", "text", _WRITE, "Free text kept in the commit."),
    Option("txnAppId", "text", _WRITE, "With txnVersion: a repeat of this application's write does nothing."),
    Option("txnVersion", "int", _WRITE, "Rising number of an application's write."),
    Option("expectedVersion", "int", _WRITE, "Refuse to commit unless the graph is still at this version."),
    Option("windowGrace", "seconds", _WRITE, "How long a silent window owner is waited for before it is taken over."),
    Option("windowTimeout", "seconds", _WRITE, "How long this writer holds the window before its first effect."),
    Option("patience", "seconds", _WRITE, "How long this writer waits for its turn."),
    Option("warnFragments", "int", _WRITE, "Warn when a written table has more fragments; 0 never (1000)."),
    Option("refuseFragments", "int", _WRITE, "Refuse to write a table with more fragments; 0 never (10000)."),
    Option("warnVersions", "int", _WRITE, "Warn when the branch has more versions; 0 never (10000)."),
    Option("refuseVersions", "int", _WRITE, "Refuse to write when the branch has more versions; 0 never (0)."),
)


def fold_key(key: str) -> str:
    """Return the form under which spellings of one option are equal."""
    return re.sub(r"[_\-.]", "", key).lower()


_BY_KEY: dict[str, Option] = {
    fold_key(spelling): option for option in OPTIONS for spelling in (option.name, *option.aliases)
}


def option_name(key: str) -> str | None:
    """Return the name of the option a key spells, if there is one."""
    option = _BY_KEY.get(fold_key(key))
    return option.name if option is not None else None


_STORAGE = re.compile(r"^storage[._-](.+)$", re.IGNORECASE)

_SIZES = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
}


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _integer(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text.strip()):
        raise OptionError(f"Option {name} must be a whole number, not {text!r}")
    return int(text)


def _bytes(name: str, text: str) -> int:
    found = re.fullmatch(r"(\d{1,15})\s*([a-zA-Z]*)", text.strip())
    if found is None or found.group(2).lower() not in _SIZES:
        raise OptionError(f"Option {name} must be a size such as 64MB, not {text!r}")
    size = int(found.group(1)) * _SIZES[found.group(2).lower()]
    if size < 1:
        raise OptionError(f"Option {name} must be at least one byte")
    return size


def _flag(name: str, text: str) -> bool:
    folded = text.strip().lower()
    if folded not in {"true", "false"}:
        raise OptionError(f"Option {name} must be true or false, not {text!r}")
    return folded == "true"


def _seconds(name: str, text: str) -> float:
    if not re.fullmatch(r"\d{1,9}(\.\d+)?", text.strip()) or not float(text):
        raise OptionError(f"Option {name} must be a positive number of seconds, not {text!r}")
    return float(text)


def _items(name: str, text: str) -> tuple[str, ...]:
    items = tuple(part.strip() for part in text.split(","))
    if any(not item for item in items):
        raise OptionError(f"Option {name} has an empty entry in {text!r}")
    return items


def parse_time(name: str, text: str) -> int:
    """Return microseconds since the epoch; a time without a zone is UTC, a bare number is milliseconds."""
    stripped = text.strip()
    if re.fullmatch(r"\d{10,16}", stripped):
        return int(stripped) * 1_000
    try:
        moment = datetime.fromisoformat(stripped.replace("Z", "+00:00"))
    except ValueError as e:
        raise OptionError(f"Option {name} must be an ISO 8601 time, not {text!r}") from e
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return (moment - _EPOCH) // timedelta(microseconds=1)


_PARSERS: dict[str, Callable[[str, str], object]] = {
    "text": lambda _name, text: text,
    "int": _integer,
    "bytes": _bytes,
    "list": _items,
    "time": parse_time,
    "flag": _flag,
    "seconds": _seconds,
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """Parsed options of one read or write."""

    values: Mapping[str, object] = field(default_factory=dict)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def get(self, name: str, kind: type[T]) -> T | None:
        """Return a value, its default, or None."""
        value = self.values.get(name, _BY_KEY[fold_key(name)].default)
        if value is None:
            return None
        if not isinstance(value, kind):
            raise TypeError(f"option {name} is {type(value).__name__}")
        return value

    def require(self, name: str, kind: type[T]) -> T:
        """Return a value that must be there."""
        value = self.get(name, kind)
        if value is None:
            raise OptionError(f"Option {name} is required")
        return value

    def given(self, name: str) -> bool:
        """Say whether the caller set the option."""
        return name in self.values


def parse_options(raw: Mapping[str, str], *, scope: Scope) -> Options:
    """Parse raw options for a read or a write; unknown, repeated and misplaced ones are errors."""
    values: dict[str, object] = {}
    storage: dict[str, str] = {}
    for key, text in raw.items():
        prefixed = _STORAGE.match(key)
        if prefixed:
            storage[prefixed.group(1)] = str(text)
            continue
        option = _known(key)
        if not option.scope & scope:
            raise OptionError(f"Option {option.name} does not apply to a {_scope_name(scope)}")
        if option.name in values:
            raise OptionError(f"Option {option.name} is given twice (as {key!r} and another spelling)")
        value = _PARSERS[option.kind](option.name, str(text))
        if option.choices and value not in option.choices:
            raise OptionError(f"Option {option.name} must be one of {', '.join(option.choices)}, not {text!r}")
        values[option.name] = value
    return Options(values, storage)


def _known(key: str) -> Option:
    option = _BY_KEY.get(fold_key(key))
    if option is not None:
        return option
    near = difflib.get_close_matches(fold_key(key), list(_BY_KEY), n=1, cutoff=0.5)
    maybe = f"; did you mean {_BY_KEY[near[0]].name!r}?" if near else ""
    raise OptionError(f"Unknown option {key!r}{maybe}")


def _scope_name(scope: Scope) -> str:
    return "read" if scope is Scope.READ else "write"


def options_markdown(options: Iterable[Option] = OPTIONS) -> str:
    """Render ``docs/options.md`` from the table."""
    lines = [
        "# Options",
        "",
        "Generated from `omnigraph_spark/options.py` by `make docs`; do not edit by hand.",
        "",
        "Keys ignore case, `_`, `-` and `.`. An unknown option is an error. `storage.*` options go to the object store",
        "(`storage.endpoint`, `storage.access_key_id`, `storage.secret_access_key`, `storage.session_token`,",
        "`storage.region`, `storage.allow_http`, `storage.path_style`; anything else passes through) and are never",
        "printed.",
        "",
        "| option | aliases | applies to | kind | default | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for o in options:
        where = {Scope.READ: "read", Scope.WRITE: "write"}.get(o.scope, "read, write")
        kind = " / ".join(f"`{c}`" for c in o.choices) or o.kind
        default = "" if o.default is None else f"`{o.default}`"
        aliases = ", ".join(f"`{a}`" for a in o.aliases)
        lines.append(f"| `{o.name}` | {aliases} | {where} | {kind} | {default} | {o.doc} |")
    return "\n".join(lines) + "\n"
