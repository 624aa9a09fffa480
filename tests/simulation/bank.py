"""The bank the simulation runs: transfers that conserve the sum, receipts that explain every balance, owners and edges.

``Ledger`` remembers what each caller was told; at the end the graph must agree with it: what was told committed is
there, what was told not committed is not, and what nobody was told about is one or the other.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from omnigraph_spark import Graph
from omnigraph_spark.errors import OmnigraphError, Outcome

SCHEMA = """
node Account { name: String @key  balance: I64 }
node Receipt { name: String @key  payer: String  payee: String  amount: I64 }
node Owner { name: String @key  note: I64? }
edge Holds: Owner -> Account
"""
ACCOUNTS = ("a0", "a1", "a2")
OWNERS = ("o0", "o1", "o2", "o3")
DEPOSIT = 100
Rows = dict[str, dict[str, Any]]


def found_bank(uri: str) -> None:
    """Create the starting graph."""
    graph = Graph.create(uri, schema=SCHEMA)
    with graph.transaction() as tx:
        tx.append("Account", [{"name": a, "balance": DEPOSIT} for a in ACCOUNTS])
        tx.append("Owner", [{"name": o, "note": 0} for o in OWNERS])
        tx.append("Holds", [_holds(o, ACCOUNTS[0]) for o in OWNERS])


def _holds(owner: str, account: str) -> dict[str, str]:
    return {"id": f"{owner}-{account}", "src": owner, "dst": account}


@dataclass
class Ledger:
    """What callers were told, by the id that proves it: ``None`` while nobody knows."""

    added: dict[str, bool | None] = field(default_factory=dict)  # receipts and owners, each id used once
    removals: list[tuple[str, dict[str, bool | None]]] = field(default_factory=list)  # owners; several may try
    ends: Counter[str] = field(default_factory=Counter)

    def check(self, rows: dict[str, Rows]) -> None:
        """Compare with the final graph."""
        present = {*rows["Receipt"], *rows["Owner"]}
        for name, told in self.added.items():
            if told is True:
                assert name in present, f"{name} was told committed and is lost"
            if told is False:
                assert name not in present, f"{name} was told not committed and is there"
        for name in OWNERS:
            told_of = {told[name] for owner, told in self.removals if owner == name}
            assert True not in told_of or name not in present, f"{name} was told removed and is there"
            assert name in present or told_of & {True, None}, f"{name} is gone and nobody removed it"
        assert present <= {*self.added, *OWNERS}, f"rows nobody wrote: {present - {*self.added, *OWNERS}}"


def read_bank(graph: Graph) -> dict[str, Rows]:
    """Return everything a pinned handle sees."""
    found: dict[str, Rows] = {}
    for name in ("Account", "Receipt", "Owner", "Holds"):
        rows = graph.to_arrow(name).to_pylist()
        found[name] = {row["id"]: row for row in rows}
        assert len(found[name]) == len(rows), f"{name} holds an id twice"
    return found


def audit(rows: dict[str, Rows]) -> None:
    """The laws of every graph version: the sum is conserved, receipts explain balances, edges have both ends."""
    balances = {name: row["balance"] for name, row in rows["Account"].items()}
    assert sum(balances.values()) == DEPOSIT * len(ACCOUNTS), f"the sum is not conserved: {balances}"
    told = dict.fromkeys(ACCOUNTS, DEPOSIT)
    for receipt in rows["Receipt"].values():
        told[receipt["payer"]] -= receipt["amount"]
        told[receipt["payee"]] += receipt["amount"]
    assert balances == told, f"receipts say {told}, accounts {balances}"
    for edge in rows["Holds"].values():
        assert edge["src"] in rows["Owner"], f"{edge['id']} dangles"
        assert edge["dst"] in rows["Account"], f"{edge['id']} dangles"


class Teller:
    """The verbs of the bank; each notes what it was told."""

    def __init__(self, graph: Graph, ledger: Ledger, rng: random.Random, name: str) -> None:
        self._graph, self._ledger, self._rng, self._name = graph, ledger, rng, name
        self._count = 0

    def run(self, verb: str) -> None:
        """Run one verb by name."""
        getattr(self, verb)()

    def _fresh(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"

    def _told(self, book: dict[str, bool | None], name: str, verb: Any) -> None:
        book[name] = None
        try:
            verb()
            book[name] = True
            self._ledger.ends["committed"] += 1
        except OmnigraphError as e:
            book[name] = {Outcome.COMMITTED: True, Outcome.NOT_COMMITTED: False, Outcome.UNKNOWN: None}[e.outcome]
            self._ledger.ends[e.code] += 1

    def transfer(self) -> None:
        """Move money between two accounts, with a receipt, in one transaction."""
        payer, payee = self._rng.sample(ACCOUNTS, 2)
        amount, receipt = self._rng.randint(1, 9), f"r-{self._fresh()}"

        def verb() -> None:
            with self._graph.transaction() as tx:
                base = self._graph.at(version=tx._open().txn.graph_version)
                balance = {row["id"]: row["balance"] for row in base.to_arrow("Account").to_pylist()}
                tx.update("Account", set={"balance": balance[payer] - amount}, where=f"name = '{payer}'")
                tx.update("Account", set={"balance": balance[payee] + amount}, where=f"name = '{payee}'")
                row = {"name": receipt, "payer": payer, "payee": payee, "amount": amount}
                tx.append("Receipt", [row])

        self._told(self._ledger.added, receipt, verb)

    def enrol(self) -> None:
        """Add an owner and its edge in one transaction."""
        owner, account = f"n-{self._fresh()}", self._rng.choice(ACCOUNTS)

        def verb() -> None:
            with self._graph.transaction() as tx:
                tx.append("Owner", [{"name": owner}])
                tx.append("Holds", [_holds(owner, account)])

        self._told(self._ledger.added, owner, verb)

    def load(self) -> None:
        """Load an owner and its edge as JSONL."""
        owner, account = f"l-{self._fresh()}", self._rng.choice(ACCOUNTS)
        edge = {"edge": "Holds", "from": owner, "to": account, "data": {"id": f"{owner}-{account}"}}
        lines = [json.dumps({"type": "Owner", "data": {"name": owner, "note": 1}}), json.dumps(edge)]
        self._told(self._ledger.added, owner, lambda: self._graph.load(lines, mode="merge"))

    def link(self) -> None:
        """Give an owner, who may be leaving at this moment, another account."""
        owner, account = self._rng.choice(OWNERS), self._rng.choice(ACCOUNTS[1:])
        self._told({}, owner, lambda: self._graph.merge("Holds", [_holds(owner, account)]))

    def leave(self) -> None:
        """Remove an owner with the edges that hang on it."""
        owner = self._rng.choice(OWNERS)
        told: dict[str, bool | None] = {}
        self._ledger.removals.append((owner, told))
        self._told(told, owner, lambda: self._graph.delete("Owner", where=f"name = '{owner}'"))

    def tidy(self) -> None:
        """Compact and index."""
        self._told({}, "tidy", lambda: self._graph.optimize(types=["Account", "Owner"]))

    def clean(self) -> None:
        """Delete old versions."""
        self._told({}, "clean", lambda: self._graph.cleanup(keep=4, dry_run=False))

    def recover(self) -> None:
        """Resolve what dead writers left."""
        self._told({}, "recover", self._graph.recover)
