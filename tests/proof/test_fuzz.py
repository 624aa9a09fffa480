"""Any input at all to the readers of options, recovery records and manifest rows: a value or a typed error, in time.

The ``.pg`` parser and the JSONL loader have their own, ``test_parse_fuzz.py`` and ``test_jsonl_fuzz.py``.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph_spark.errors import OmnigraphError, OptionError, RecoveryError
from omnigraph_spark.manifest import rows as kinds
from omnigraph_spark.manifest.layout import V4
from omnigraph_spark.manifest.state import fold
from omnigraph_spark.options import OPTIONS, Scope, parse_options
from omnigraph_spark.storage.config import StorageConfig
from omnigraph_spark.storage.objects import ObjectStore
from omnigraph_spark.write.foreign import parse
from omnigraph_spark.write.plan import PublishPlan, TablePin, from_sidecar, to_sidecar
from omnigraph_spark.write.sidecar import BadRecord, SidecarStore

BUDGET = settings(
    max_examples=250, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)

# -- options -----------------------------------------------------------------------------------------------------------

KEYS = st.one_of(
    st.sampled_from([o.name for o in OPTIONS]),
    st.sampled_from([o.name.upper() for o in OPTIONS]),
    st.sampled_from(["storage.endpoint", "storage_", "STORAGE-x", "", "nodes", "path"]),
    st.text(max_size=12),
)
TEXTS = st.one_of(
    st.text(max_size=30),
    st.integers().map(str),
    st.floats().map(str),
    st.datetimes().map(str),
    st.sampled_from(
        ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "٣", "1e400", "64MB", "9" * 400, "true", "a,,b", "²"]
    ),
)


@BUDGET
@given(st.dictionaries(KEYS, TEXTS, max_size=5), st.sampled_from([Scope.READ, Scope.WRITE]))
def test_options_parse_or_are_refused(raw: dict[str, str], scope: Scope) -> None:
    """Options are parsed into values of their kinds, or refused with OptionError."""
    try:
        found = parse_options(raw, scope=scope)
    except OptionError:
        return
    assert set(found.values) <= {o.name for o in OPTIONS}


# -- recovery records --------------------------------------------------------------------------------------------------

ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
GOOD = json.loads(
    to_sidecar(
        PublishPlan(
            operation_id=ID,
            commit_id=ID,
            branch="main",
            base_version=3,
            started_at=1,
            pins=(TablePin("node:Person", "nodes/x", None, 2, 5),),
            actions=(),
        ),
        root="/g",
    )
)
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["table_key", "kind", "version", "pins", "x"]), inner, max_size=3),
    ),
    max_leaves=6,
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A record with parts replaced by anything, or bytes that are none."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=60))
    document = json.loads(json.dumps(GOOD))
    for _ in range(draw(st.integers(1, 3))):
        target = document["plan"] if draw(st.booleans()) and isinstance(document.get("plan"), dict) else document
        key = draw(st.sampled_from(sorted(target)))
        if draw(st.booleans()):
            target[key] = draw(JUNK)
        else:
            del target[key]
        if not target or "plan" not in document:
            break
    return json.dumps(document).encode()


def _examined(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "__recovery"
        folder.mkdir()
        (folder / f"{ID}.json").write_bytes(data)
        store = SidecarStore(root, objects=ObjectStore(StorageConfig()))
        found = store.examine(ID)
    if found is None or isinstance(found, BadRecord):
        return
    try:
        plan = from_sidecar(found.document) if found.is_ours else parse(found)
    except RecoveryError:
        return
    assert plan is not None


@BUDGET
@given(records())
def test_records_are_read_or_refused(data: bytes) -> None:
    """A record is read, or reported as bad; whatever it holds, nobody gets an untyped error."""
    _examined(data)


@pytest.mark.parametrize("data", [b"[" * 200_000, b'{"a":' * 100_000, b"1" * 10_000, b"\xff\xfe", b""], ids=range(5))
def test_hostile_records_are_refused(data: bytes) -> None:
    """Deep nesting, huge numbers and bytes that are no text do not get past the reader."""
    _examined(data)


# -- the manifest ------------------------------------------------------------------------------------------------------

KINDS = ["table", "table_version", "table_tombstone", "graph_commit", "graph_head", "writer_epoch", "stream_txn", "?"]
METADATA = st.one_of(
    st.none(),
    st.text(max_size=12),
    JUNK.map(json.dumps),
    st.sampled_from(['{"manifest_path":"x"}', '{"operation_id":"o","in_window":true,"claimed_at":1}', "[" * 5_000]),
)


@st.composite
def manifests(draw: st.DrawFn) -> pa.Table:
    """Rows of any kind with any content, in the columns of a manifest."""
    schema: pa.Schema = V4.arrow_schema()
    count = draw(st.integers(0, 5))
    columns: list[pa.Array] = []
    for column in schema:
        if column.name == "object_type":
            values: list[Any] = [draw(st.sampled_from(KINDS)) for _ in range(count)]
        elif column.name == "metadata":
            values = [draw(METADATA) for _ in range(count)]
        elif pa.types.is_string(column.type):
            some = st.sampled_from(["", "main", "node:Person", "writer_epoch:main", "graph_head:main", "a:b:c"])
            values = [draw(st.one_of(some, st.text(max_size=8))) for _ in range(count)]
        elif pa.types.is_unsigned_integer(column.type):
            values = [draw(st.one_of(st.none(), st.integers(0, 2**63))) for _ in range(count)]
        else:
            columns.append(pa.nulls(count, column.type))
            continue
        columns.append(pa.array(values, column.type))
    return pa.Table.from_arrays(columns, names=schema.names)


@BUDGET
@given(manifests())
def test_manifests_fold_or_are_refused(table: pa.Table) -> None:
    """Any rows fold into a state whose parts can be asked for, or are refused with a typed error."""
    try:
        state = fold(table, layout=V4, branch="main", graph_version=1)
        state.commits()
        state.commit("x")
        state.token("x")
        state.recovered("x")
    except OmnigraphError:
        return
    assert set(state.tables) <= set(state.registered)


@BUDGET
@given(METADATA)
def test_metadata_is_an_object_or_refused(text: str | None) -> None:
    """The JSON of a row is an object, or the row is refused."""
    try:
        assert isinstance(kinds.load_json(text, object_id="x"), dict)
    except OmnigraphError:
        return
