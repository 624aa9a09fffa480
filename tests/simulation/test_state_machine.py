"""Random operations against a plain in-memory oracle: what the rules allow commits, what they forbid changes nothing.

The oracle is dicts and loops and shares no code with the package. Every run ends with a graph that verifies.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from omnigraph_spark import Graph, OmnigraphError, ValidationError
from omnigraph_spark.errors import Outcome
from omnigraph_spark.write.transaction import Transaction
from tests.soundness import assert_sound

SCHEMA = """
node Person { name: String @key  age: I32? @range(age, 0..99)  email: String? @unique }
node Firm { name: String @key }
edge Knows: Person -> Person { weight: I32?  @unique(src, dst) }
edge WorksAt: Person -> Firm @card(0..1)
edge Owns: Person -> Firm @card(1..2)
"""
ENDS = {"Knows": ("Person", "Person"), "WorksAt": ("Person", "Firm"), "Owns": ("Person", "Firm")}
BOUNDS = {"WorksAt": (0, 1), "Owns": (1, 2)}
Row = dict[str, Any]
Tables = dict[str, dict[str, Row]]

names = st.sampled_from(["a", "b", "c", "d", "e", "it's"])
firms = st.sampled_from(["x", "y", "z"])
ages = st.one_of(st.none(), st.integers(0, 99), st.integers(-1, 100))
emails = st.one_of(st.none(), st.sampled_from(["m1", "m2", "m3"]))
person = st.fixed_dictionaries({"name": names, "age": ages, "email": emails})
firm = st.fixed_dictionaries({"name": firms})
edge_ids = st.sampled_from([f"k{n}" for n in range(6)])
weights = st.one_of(st.none(), st.just(1))
knows = st.fixed_dictionaries({"id": edge_ids, "src": names, "dst": names, "weight": weights})
link = st.fixed_dictionaries({"id": edge_ids, "src": names, "dst": firms})
ROWS: dict[str, st.SearchStrategy[Any]] = {
    "Person": person,
    "Firm": firm,
    "Knows": knows,
    "WorksAt": link,
    "Owns": link,
}


def some(type_name: str) -> st.SearchStrategy[list[Row]]:
    """Return lists of rows of a type."""
    return st.lists(ROWS[type_name], max_size=4)


operation = st.sampled_from(sorted(ROWS)).flatmap(
    lambda t: st.tuples(st.sampled_from(["append", "merge", "overwrite"]), st.just(t), some(t))
)


class Refused(Exception):
    """The oracle's word for anything the rules forbid."""


class Oracle:
    """The graph as dicts."""

    def __init__(self) -> None:
        self.tables: Tables = {name: {} for name in ROWS}

    def copy(self) -> Oracle:
        """Return the same graph, to try something on."""
        other = Oracle()
        other.tables = deepcopy(self.tables)
        return other

    def write(self, verb: str, type_name: str, rows: list[Row]) -> None:
        """Apply one operation, checking what is checked per operation."""
        table = self.tables[type_name]
        keyed = [(row.get("id", row.get("name")), row) for row in rows]
        if len({key for key, _ in keyed}) < len(keyed):
            raise Refused("an id twice")
        if verb == "append" and any(key in table for key, _ in keyed):
            raise Refused("an id exists")
        if any(row.get("age") is not None and not 0 <= row["age"] <= 99 for row in rows):
            raise Refused("age")
        if verb == "overwrite":
            table.clear()
        table.update({str(key): {"id": key, **row} for key, row in keyed})
        self._unique("Person", ("email",))
        self._unique("Knows", ("src", "dst"))

    def _unique(self, type_name: str, columns: tuple[str, ...]) -> None:
        values = [tuple(row[c] for c in columns) for row in self.tables[type_name].values()]
        held = Counter(v for v in values if None not in v)
        if any(count > 1 for count in held.values()):
            raise Refused("unique")

    def delete(self, type_name: str, chosen: Callable[[Row], bool]) -> int:
        """Remove rows, and the edges of removed nodes."""
        table = self.tables[type_name]
        gone = {key for key, row in table.items() if chosen(row)}
        for key in gone:
            del table[key]
        for edge, (at_src, at_dst) in ENDS.items():
            kept = {
                k: e
                for k, e in self.tables[edge].items()
                if not ((at_src == type_name and e["src"] in gone) or (at_dst == type_name and e["dst"] in gone))
            }
            self.tables[edge] = kept
        return len(gone)

    def check(self, before: Oracle) -> None:
        """Check what is checked when a transaction is whole."""
        for edge, ends in ENDS.items():
            for row in self.tables[edge].values():
                if row["src"] not in self.tables[ends[0]] or row["dst"] not in self.tables[ends[1]]:
                    raise Refused("an edge without an end")
        for edge, (low, high) in BOUNDS.items():
            now = Counter(row["src"] for row in self.tables[edge].values())
            old = Counter(row["src"] for row in before.tables[edge].values())
            if any(count > high or count < low for count in now.values()):
                raise Refused("cardinality")
            if low and any(source not in now and source in self.tables[ENDS[edge][0]] for source in old):
                raise Refused("cardinality")


class GraphMachine(RuleBasedStateMachine):
    """Runs each operation on the graph and on the oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="omnigraph-machine-"))
        self.oracle = Oracle()
        self.commits = 0

    @initialize(people=st.lists(person, min_size=2, max_size=4, unique_by=lambda r: r["name"]))
    def create(self, people: list[Row]) -> None:
        """Create a graph with some people, who are valid."""
        self.graph = Graph.create(str(self.folder / "graph"), schema=SCHEMA)
        rows = [{"name": row["name"], "age": 1, "email": None} for row in people]
        with self.graph.transaction() as tx:
            tx.append("Person", rows)
            tx.append("Firm", [{"name": "x"}, {"name": "y"}])
        self.oracle.write("append", "Person", rows)
        self.oracle.write("append", "Firm", [{"name": "x"}, {"name": "y"}])
        self.commits = len(self.graph.history())

    def both(self, on_graph: Callable[[Transaction], None], on_oracle: Callable[[Oracle], None]) -> None:
        """Run one transaction on both sides; they must agree on whether it is allowed."""
        after = self.oracle.copy()
        try:
            on_oracle(after)
            after.check(self.oracle)
            allowed = True
        except Refused:
            allowed = False
        version, error = self.graph.version, None
        try:
            with self.graph.transaction() as tx:
                on_graph(tx)
        except OmnigraphError as e:
            error = e
        if error is not None:
            assert not allowed, f"refused: {error}"
            assert isinstance(error, ValidationError)
            assert error.outcome is Outcome.NOT_COMMITTED
            assert self.graph.version == version
        else:
            assert allowed, "the oracle refuses this"
            self.oracle = after
            self.commits += tx.commit_info is not None

    @rule(steps=st.lists(operation, min_size=1, max_size=3))
    def write(self, steps: list[tuple[str, str, list[Row]]]) -> None:
        """One or several operations in one transaction."""

        def on_graph(tx: Transaction) -> None:
            for verb, type_name, rows in steps:
                getattr(tx, verb)(type_name, rows)

        def on_oracle(oracle: Oracle) -> None:
            for verb, type_name, rows in steps:
                oracle.write(verb, type_name, rows)

        self.both(on_graph, on_oracle)

    @rule(name=names, age=ages, email=emails, rows=some("Person"))
    def update(self, name: str, age: int | None, email: str | None, rows: list[Row]) -> None:
        """A merge and an update that sees it."""
        quoted = name.replace("'", "''")

        def on_graph(tx: Transaction) -> None:
            tx.merge("Person", rows)
            tx.update("Person", set={"age": age, "email": email}, where=f"name <= '{quoted}'")

        def on_oracle(oracle: Oracle) -> None:
            oracle.write("merge", "Person", rows)
            chosen = [dict(r) for r in oracle.tables["Person"].values() if r["name"] <= name]
            oracle.write("merge", "Person", [r | {"age": age, "email": email} for r in chosen])

        self.both(on_graph, on_oracle)

    @precondition(lambda self: any(self.oracle.tables["Person"]))
    @rule(type_name=st.sampled_from(["Person", "Firm"]), name=st.one_of(names, firms))
    def delete_nodes(self, type_name: str, name: str) -> None:
        """A node goes with its edges."""
        quoted = name.replace("'", "''")
        self.both(
            lambda tx: _expect(tx.delete(type_name, where=f"name = '{quoted}'"), self.oracle, type_name, name),
            lambda oracle: _ignore(oracle.delete(type_name, lambda row: bool(row["name"] == name))),
        )

    @rule(type_name=st.sampled_from(sorted(ENDS)), source=names)
    def delete_edges(self, type_name: str, source: str) -> None:
        """The edges of one source go."""
        quoted = source.replace("'", "''")
        self.both(
            lambda tx: _ignore(tx.delete(type_name, where=f"src = '{quoted}'")),
            lambda oracle: _ignore(oracle.delete(type_name, lambda row: bool(row["src"] == source))),
        )

    @rule(first=names, second=names)
    def delete_ids(self, first: str, second: str) -> None:
        """Several ids at once, known or not."""
        self.both(
            lambda tx: _ignore(tx.delete_ids("Person", [{"id": first}, {"id": second}])),
            lambda oracle: _ignore(oracle.delete("Person", lambda row: row["name"] in (first, second))),
        )

    @invariant()
    def same(self) -> None:
        """Both sides hold the same rows, and every commit is in the history."""
        if not hasattr(self, "graph"):
            return
        for type_name, table in self.oracle.tables.items():
            found = {row["id"]: row for row in self.graph.to_arrow(type_name).to_pylist()}
            assert found == table, type_name
        assert len(self.graph.history()) == self.commits

    def teardown(self) -> None:
        """The graph verifies."""
        if hasattr(self, "graph"):
            assert_sound(self.graph.uri)
        shutil.rmtree(self.folder)


def _ignore(_: object) -> None:
    return None


def _expect(count: int, oracle: Oracle, type_name: str, name: str) -> None:
    assert count == (1 if name in oracle.tables[type_name] else 0)


TestGraphMachine = GraphMachine.TestCase
TestGraphMachine.settings = settings(
    max_examples=15,
    stateful_step_count=12,
    derandomize=True,
    deadline=None,
    print_blob=False,
    database=None,
    phases=[Phase.generate],  # shrinking a run of real commits takes many minutes; the steps are printed as they were
    suppress_health_check=list(HealthCheck),
)
