"""The expected verdict of every ordered pair of operations, in one table; ``docs/conflicts.md`` is made from it.

``python -m tests.proof.verdicts docs/conflicts.md`` writes the page (`make docs-conflicts`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.proof.pairs import COMMITS, OPERATIONS, Operation
from tests.proof.registry import Kind

EXISTS, CONFLICT, READ_SET, LANCE = "OG-EXISTS", "OG-CONFLICT", "OG-READ-SET", "OG-LANCE-CONFLICT"
RECOVERY = "OG-RECOVERY"

# Who changes rows of Person, for the strict verbs on it.
_PERSON = ("append", "append once", "merge", "update", "delete", "delete ids", "transaction", "load", "recover forward")
# first → what it ends in when second committed after first was prepared; everything not listed commits.
_REFUSED: dict[str, dict[str, tuple[str, ...]]] = {
    "create": {EXISTS: tuple(o.name for o in OPERATIONS)},
    "append": {READ_SET: ("append",)},
    "append edge": {READ_SET: ("append edge", "delete ids")},
    "merge": {READ_SET: ("merge",)},
    "overwrite": {CONFLICT: ("overwrite", "transaction", "recover forward")},
    "update": {CONFLICT: _PERSON},
    "delete": {CONFLICT: (*_PERSON, "append edge")},
    "delete ids": {CONFLICT: (*_PERSON, "append edge")},
    "transaction": {READ_SET: ("transaction", "recover forward")},
    "load": {READ_SET: ("load",)},
    "optimize": {RECOVERY: ("recover forward", "recover back")},
    "cleanup": {RECOVERY: ("recover forward", "recover back")},
    "outside compaction": {
        LANCE: (
            *("merge", "update", "delete", "delete ids", "recover back"),
            *("optimize", "outside compaction", "outside index"),
        )
    },
    "outside index": {LANCE: ("recover back", "optimize", "outside compaction", "outside index")},
}
# A writer that meets a dead one's window takes it over and recovers first, so it may be the one that is too late;
# maintenance does not touch a graph with open records.
_SECOND_REFUSED: dict[str, dict[str, tuple[str, ...]]] = {
    "recover forward": {
        CONFLICT: ("overwrite", "update", "delete", "delete ids"),
        READ_SET: ("transaction",),
        RECOVERY: ("optimize", "cleanup", "repair"),
    },
    "recover back": {RECOVERY: ("optimize", "cleanup", "repair")},
}


def expected(first: Operation, second: Operation) -> tuple[str, str]:
    """Return what becomes of both: of the one prepared first, and of the one that commits between."""
    of_first = _lookup(_REFUSED, first.name, second.name)
    of_second = EXISTS if second.name == "create" else _lookup(_SECOND_REFUSED, first.name, second.name)
    return of_first, of_second


def _lookup(table: dict[str, dict[str, tuple[str, ...]]], first: str, second: str) -> str:
    codes = [code for code, names in table.get(first, {}).items() if second in names]
    return codes[0] if codes else COMMITS


_WHAT = {
    "append": "a new person with a unique email",
    "append edge": "an edge between two persons",
    "append once": "a new person, with an application id and version",
    "merge": "one known person and one new one",
    "overwrite": "all companies",
    "update": "the age of one person",
    "delete": "one person, by predicate, with the edges that hang on it",
    "delete ids": "another person, by id, with the edges that hang on it",
    "transaction": "a new person, a new company and the edge between them",
    "load": "JSONL: a new person and an edge to a known one",
    "recover forward": "recovery after a writer died with all tables written",
    "recover back": "recovery after a writer died with some tables written",
    "optimize": "compaction and indexes of the persons",
    "cleanup": "all versions but the newest, with the files only they used",
    "repair": "after an outside compaction of the edges nobody published",
    "outside compaction": "compaction of the persons by a plain Lance client",
    "outside index": "an index on the persons by a plain Lance client",
    "create": "a graph on the same path",
}
_HEAD = """# Conflicts

What happens when one operation is prepared, another one commits, and then the first one commits. Every pair below is
committed for real by `tests/proof/test_conflicts.py`, which then checks every row and runs `verify()`; this page is
made from the same table (`make docs-conflicts`).

The rule behind it:

| class | operations | when somebody committed since the base |
|---|---|---|
| additive | append, merge, load, a transaction of these | goes on; `OG-READ-SET` when it relied on what changed |
| strict | update, delete, overwrite | `OG-CONFLICT` when a table it changes got other rows |
| maintenance | optimize, cleanup, repair | goes on or plans anew; waits for recovery of dead writers' records |
| recovery | recover | goes on: whoever comes later finds it done |
| outside | compaction or index by a plain Lance client | Lance decides; a writer never fails because of it |

An additive write relies on: the ids and unique values it adds are free, the rows it replaces are there, the nodes its
edges need exist, the edges it counted are still those. Compaction, indexes and rolled back writes change no rows.
Both errors say `not_committed` and `retryable`: run the write again on the new state.
"""


def page() -> str:
    """Return docs/conflicts.md."""
    out = [_HEAD, "## The operations\n", "| # | operation | class | here |", "|---|---|---|---|"]
    for number, operation in enumerate(OPERATIONS, 1):
        kind = operation.verb.kind.value if operation.verb is not None else "outside"
        what = _WHAT.get(operation.name, "")
        out.append(f"| {number} | {operation.name} | {kind} | {what} |")
    out += ["", "## All pairs\n", "Row: prepared first. Column: commits in between. Empty: both commit.\n"]
    out.append("| | " + " | ".join(str(n) for n, _ in enumerate(OPERATIONS, 1)) + " |")
    out.append("|---|" + "---|" * len(OPERATIONS))
    for number, first in enumerate(OPERATIONS, 1):
        cells = [_cell(*expected(first, second)) for second in OPERATIONS]
        out.append(f"| {number} {first.name} | " + " | ".join(cells) + " |")
    out += ["", "| cell | meaning |", "|---|---|"]
    out += [f"| {short} | {meaning} |" for short, meaning in _LEGEND]
    refused = sum(expected(a, b)[0] != COMMITS for a in OPERATIONS for b in OPERATIONS)
    out += ["", f"{len(OPERATIONS) ** 2} pairs; the first operation is refused in {refused}.", ""]
    return "\n".join(out)


_SHORT = {COMMITS: "", EXISTS: "E", CONFLICT: "C", READ_SET: "R", LANCE: "L", RECOVERY: "O"}
_LEGEND = (
    ("C", "the first is refused with `OG-CONFLICT`"),
    ("R", "the first is refused with `OG-READ-SET`"),
    ("E", "a graph is there already: `OG-EXISTS`"),
    ("L", "Lance refuses the outside client; the graph is not affected"),
    ("O", "records of dead writers are open: `OG-RECOVERY`; maintenance comes after recovery"),
    ("(x)", "the second is refused: a dead writer's commit is finished before its own, and may be in its way"),
)


def _cell(first: str, second: str) -> str:
    return _SHORT[first] if second in (COMMITS, EXISTS) else f"({_SHORT[second]})"


def unlisted() -> list[str]:
    """Return operations without a line of description."""
    return [o.name for o in OPERATIONS if o.name not in _WHAT and (o.verb is None or o.verb.kind is not Kind.CREATION)]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
