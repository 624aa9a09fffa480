"""Did an OmniGraph process finish our plan itself?

OmniGraph 0.8 rolls any complete record forward, ours included, under a commit id of its own. The proof is in the
tables: when what the graph publishes contains this plan's effect in every planned table, it is committed (INV-06).
"""

from __future__ import annotations

from omnigraph_spark.manifest.rows import CommitRow
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.storage.lance_commit import transactions_between
from omnigraph_spark.storage.lance_io import LanceIO
from omnigraph_spark.write.effect import TableHead
from omnigraph_spark.write.lineage import RECOVERY_ACTOR, RECOVERY_OF
from omnigraph_spark.write.plan import PublishPlan, TablePin


def adopted_commit(io: LanceIO, root: str, plan: PublishPlan, state: GraphState) -> CommitRow | None:
    """Return the commit under which somebody else published this plan's effects, or None."""
    since = recoveries_by_others(state, after=plan.base_version)
    if not since or not plan.pins or not all(_contains(io, root, plan, pin, state) for pin in plan.pins):
        return None
    return since[0]


def recoveries_by_others(state: GraphState, *, after: int) -> list[CommitRow]:
    """Return the recoveries OmniGraph made since a graph version; usually there is none."""
    # Our own recoveries name the record; only a recovery that does not can be OmniGraph's.
    found = [c for c in state.commits() if c.actor == RECOVERY_ACTOR and RECOVERY_OF not in c.extra]
    return [c for c in found if c.graph_version > after]


def _contains(io: LanceIO, root: str, plan: PublishPlan, pin: TablePin, state: GraphState) -> bool:
    entry = state.tables.get(pin.table_key)
    if entry is None or entry.branch != pin.branch or entry.version <= pin.version:
        return False
    dataset = io.open(pin.uri(root), table=pin.table_key, version=entry.version)
    versions = tuple(transactions_between(dataset, after=pin.version, upto=entry.version))
    return TableHead(pin, dataset, versions).effect_of(plan.operation_id) is not None
