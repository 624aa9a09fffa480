"""``verify``: prove a graph sound, or say exactly where it is not. It reads, never writes, and takes no window.

Order: contract, recovery records and manifest at once; then the manifest's own rows; then all node tables at once; then
all edge tables at once, against the ids of the nodes. Memory: see ``row_checks``; the ids of node tables (eight bytes a
row) are kept until the edges are done. A broken graph is reported, not raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from omnigraph_spark.errors import RecoveryError
from omnigraph_spark.maintenance.lineage_checks import lineage_checks, utc
from omnigraph_spark.maintenance.report import CheckRun, Examination, Reporting, VerifyReport
from omnigraph_spark.maintenance.table_checks import NO_IDS, TableCase, TableResult, check_table
from omnigraph_spark.maintenance.upkeep_checks import boundary_check, orphan_check
from omnigraph_spark.manifest.layout import MAIN, STAMP_KEY, layout_for
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.schema.catalog import Catalog, EdgeType, GraphType
from omnigraph_spark.storage.keyhash import U64
from omnigraph_spark.storage.lance_io import schema_metadata
from omnigraph_spark.storage.parallel import Together, run_parallel
from omnigraph_spark.write.sidecar import Sidecar, SidecarStore

# What makes two branches' checks of a table the same check.
_Key = tuple[object, ...]


@dataclass(slots=True)
class _Verification:
    reader: GraphReader
    catalog: Catalog | None = None
    records: frozenset[str] = frozenset()
    runs: list[CheckRun] = field(default_factory=list)
    versions: list[tuple[str, int]] = field(default_factory=list)
    known: dict[_Key, TableResult] = field(default_factory=dict)


def verify_graph(
    reader: GraphReader, *, branch: str = MAIN, branches: bool = False, orphans: bool = False
) -> VerifyReport:
    """Check a branch at its newest version, or all branches; ``orphans`` also lists files that no version uses.

    Raises:
        StorageUnreachableError: The store does not answer.
        StorageForbiddenError: The store refuses these credentials.
    """
    work = _Verification(reader)
    with Together() as group:
        contract = group.start(lambda: _contract(reader))
        records = group.start(lambda: _records(reader))
        names = group.start(lambda: _branch_names(reader, branch=branch, all_of_them=branches))
    work.catalog, agreed = contract.result()
    work.records, recovery = records.result()
    listed, listing = names.result()
    work.runs += [agreed, recovery, listing]
    for name in listed:
        _check_branch(work, name)
    if orphans:
        work.runs.append(orphan_check(reader))
    return VerifyReport(reader.root, tuple(work.versions), tuple(work.runs))


def _contract(reader: GraphReader) -> tuple[Catalog | None, CheckRun]:
    exam = Examination("schema-contract", branch="")
    exam.look(3)
    with Reporting(exam):
        return reader.contract().catalog, exam.done()
    return None, exam.done()


def _branch_names(reader: GraphReader, *, branch: str, all_of_them: bool) -> tuple[list[str], CheckRun]:
    exam = Examination("branches", branch="" if all_of_them else branch)
    names = [branch]
    with Reporting(exam):
        if all_of_them:
            names = [b.name for b in reader.manifest.branches()]
        exam.look(len(names))
    return names, exam.done()


def _records(reader: GraphReader) -> tuple[frozenset[str], CheckRun]:
    """Recovery records: each stands for a writer that is at work or has died."""
    exam = Examination("recovery-records", branch="", subject="__recovery")
    store = SidecarStore(reader.root, objects=reader.objects)
    names: list[str] = []
    with Reporting(exam):
        names = store.operation_ids()
        exam.look(len(names))
        for name, record in zip(names, run_parallel([partial(_record, store, n) for n in names]), strict=True):
            if isinstance(record, RecoveryError):
                exam.error(name, record.message)
            elif record is not None:
                exam.warn(name, _describe(record, now=reader.io.seams.now_micros()))
    return frozenset(names), exam.done()


def _record(store: SidecarStore, name: str) -> Sidecar | RecoveryError | None:
    try:
        return store.read(name)
    except RecoveryError as e:
        return e


def _describe(record: Sidecar, *, now: int) -> str:
    told = str(record.document.get("started_at", ""))
    age = (
        f"started {utc(int(told))}, {max(0, now - int(told)) // 1_000_000} s ago"
        if told.isdigit()
        else "of unknown age"
    )
    return (
        f"The recovery record {record.operation_id} on branch {record.branch!r} is open, {age};"
        " its writer is at work, or died: a takeover, a quiet open or recover() resolves it"
    )


def _check_branch(work: _Verification, branch: str) -> None:
    state = _open_manifest(work, branch)
    if state is None:
        return
    work.versions.append((branch, state.graph_version))
    work.runs += lineage_checks(state)
    work.runs.append(boundary_check(work.reader, state))
    if work.catalog is not None:
        work.runs.append(_types(state, work.catalog))
    cases = [TableCase(branch, e, _type_of(work.catalog, key), {}, work.records) for key, e in state.tables.items()]
    used: dict[_Key, TableResult] = {}
    nodes = _check_tables(work, [c for c in cases if not isinstance(c.graph_type, EdgeType)], used=used)
    ids = _ids_by_type(nodes, state)
    _check_tables(work, [_with_ends(c, ids) for c in cases if isinstance(c.graph_type, EdgeType)], used=used)
    work.known = used  # a branch shares tables with its neighbours; older ones would only hold memory


def _open_manifest(work: _Verification, branch: str) -> GraphState | None:
    opening = Examination("manifest", branch=branch)
    stamp = Examination("stamp", branch=branch)
    state: GraphState | None = None
    with Reporting(opening):
        dataset = work.reader.manifest.open_dataset(branch=branch)
        opening.look()
        with Reporting(stamp):
            stamp.look()
            layout = layout_for(schema_metadata(dataset).get(STAMP_KEY))
            with Reporting(opening):
                state = work.reader.manifest.fold(dataset, branch=branch, layout=layout).state
                opening.look(state.rows.num_rows)
    work.runs += [opening.done(), stamp.done()]
    return state


def _types(state: GraphState, catalog: Catalog) -> CheckRun:
    exam = Examination("types", branch=state.branch)
    keys = set(catalog.table_keys())
    exam.look(len(keys | set(state.tables)))
    for key in sorted(keys - set(state.tables)):
        exam.error(key, f"The schema has {key}, but the graph has no table for it")
    for key in sorted(set(state.tables) - keys):
        exam.error(key, f"The graph has a table {key}, which the schema does not know")
    return exam.done()


def _type_of(catalog: Catalog | None, table_key: str) -> GraphType | None:
    types = catalog.types if catalog is not None else ()
    return next((t for t in types if t.table_key == table_key), None)


def _with_ends(case: TableCase, ids: Mapping[str, U64]) -> TableCase:
    edge = case.graph_type
    ends = {edge.from_type, edge.to_type} if isinstance(edge, EdgeType) else set()
    return replace(case, ends={name: ids[name] for name in sorted(ends & ids.keys())})


def _check_tables(
    work: _Verification, cases: list[TableCase], *, used: dict[_Key, TableResult]
) -> dict[str, TableResult]:
    """Check tables at once; one that another branch pins to the same version is not read again."""
    wanted = {_key(case, work.known): case for case in cases}
    fresh = [(key, case) for key, case in wanted.items() if key not in work.known]
    results = run_parallel([partial(check_table, work.reader, case) for _, case in fresh])
    for (key, _), result in zip(fresh, results, strict=True):
        work.runs += result.runs
        work.known[key] = result
    used.update({key: work.known[key] for key in wanted})
    return {case.entry.table_key: work.known[key] for key, case in wanted.items()}


def _key(case: TableCase, known: Mapping[_Key, TableResult]) -> _Key:
    """Name what is checked; the check by the owning branch, which compares HEAD too, serves the others."""
    entry = case.entry
    ends = tuple((name, id(ids)) for name, ids in sorted(case.ends.items()))
    key = (entry.table_key, entry.path, entry.branch, entry.version, entry.row_count, ends)
    return (True, *key) if (True, *key) in known else (case.owned, *key)


def _ids_by_type(nodes: Mapping[str, TableResult], state: GraphState) -> dict[str, U64]:
    """Return the ids of every node type that could be read; a type without a table has none."""
    ends = {key.partition(":")[2]: r.ids for key, r in nodes.items() if r.ids is not None}
    for key in state.registered:
        if key.startswith("node:") and key not in state.tables:
            ends[key.partition(":")[2]] = NO_IDS
    return ends
