"""Creating a graph: who owns the path, then the tables, then the manifest that makes it a graph.

States and what a crash leaves at each: 1 nothing → 2 ``_schema.pg`` put-if-absent: the claim; exactly one creator wins,
all others are refused → 3 the two JSON files and one empty dataset per type (no order among them) → 4 ``__manifest``
with every row and the stamp in one create: the commit point. A crash after 2 or 3 leaves a claimed path without a
manifest: nothing opens it, and the next create refuses it with what to remove. Nothing is deleted automatically:
another creator may still be alive.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from omnigraph_spark.errors import (
    AlreadyExistsError,
    NotFoundError,
    OutcomeUnknownError,
    StorageConditionError,
    StorageError,
    StorageUnreachableError,
)
from omnigraph_spark.manifest.layout import MAIN, MANIFEST_DIR, STAMP_KEY, V4, Layout, manifest_file_path
from omnigraph_spark.manifest.rows import (
    CommitRow,
    ManifestRow,
    commit_rows,
    rows_to_arrow,
    table_row,
    version_row,
)
from omnigraph_spark.manifest.store import MANIFEST
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.schema.catalog import Catalog
from omnigraph_spark.schema.contract import CONTRACT_FILES, ContractFiles, check_contract, render_contract
from omnigraph_spark.schema.mapping import table_arrow_schema
from omnigraph_spark.storage.lance_io import create_dataset
from omnigraph_spark.storage.locations import join, object_path
from omnigraph_spark.storage.parallel import run_parallel
from omnigraph_spark.storage.seams import DEFAULT_SEAMS, Seams


def create_graph(
    reader: GraphReader, schema_text: str, *, actor: str | None = None, seams: Seams = DEFAULT_SEAMS
) -> None:
    """Create a graph with empty tables; refuses a path that holds one, or the remains of an unfinished create."""
    files = render_contract(schema_text)
    catalog = check_contract(*files.texts(), other_branches=False).catalog
    _refuse_occupied(reader)
    _claim(reader, files)
    _, ir, state = CONTRACT_FILES
    for name, text in ((ir, files.ir), (state, files.state)):
        reader.objects.write(join(reader.root, name), text.encode())
    _create_tables(reader, catalog, layout=V4)
    _create_manifest(reader, catalog, layout=V4, actor=actor, seams=seams)


def _refuse_occupied(reader: GraphReader) -> None:
    try:
        reader.manifest.open_dataset(branch=MAIN)
    except NotFoundError:
        present = [n for n in reader.objects.list(reader.root) if n in CONTRACT_FILES]
        if present:
            raise _unfinished(reader.root, present) from None
    else:
        raise AlreadyExistsError(
            f"{reader.root} already holds a graph", hint="Open it with Graph.open, or choose another path."
        )


def _unfinished(root: str, present: list[str]) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"{root} is claimed by another create that has not finished: it has {', '.join(present)} but no {MANIFEST_DIR}",
        hint=f"If no process is creating it now, remove everything under {root} and create it again.",
    )


def _claim(reader: GraphReader, files: ContractFiles) -> None:
    claim = CONTRACT_FILES[0]
    try:
        reader.objects.put_if_absent(join(reader.root, claim), files.pg.encode())
    except StorageConditionError:
        raise _unfinished(reader.root, [claim]) from None


def _create_tables(reader: GraphReader, catalog: Catalog, *, layout: Layout) -> None:
    def create(table_key: str) -> None:
        schema = table_arrow_schema(catalog.by_key(table_key))
        uri = join(reader.root, layout.table_path(table_key))
        try:
            create_dataset(reader.io, schema.empty_table(), uri, table=table_key)
        except StorageError as e:
            if "already exists" in e.message:
                raise AlreadyExistsError(
                    f"{uri} already holds a dataset, though {reader.root} is not a graph",
                    hint=f"Remove everything under {reader.root}, or choose another path.",
                ) from e
            raise

    run_parallel([partial(create, key) for key in catalog.table_keys()], counter=reader.io.counter)


def _create_manifest(reader: GraphReader, catalog: Catalog, *, layout: Layout, actor: str | None, seams: Seams) -> None:
    rows: list[ManifestRow] = []
    for key in catalog.table_keys():
        path = object_path(join(reader.root, layout.table_path(key)))
        rows.append(table_row(layout, key))
        rows.append(version_row(layout, key, version=1, rows=0, branch=None, manifest_path=manifest_file_path(path, 1)))
    genesis = CommitRow(
        commit_id=seams.new_id(), branch=MAIN, graph_version=1, created_at=seams.now_micros(), actor=actor
    )
    table = rows_to_arrow(layout, [*rows, *commit_rows(genesis)])
    stamped: pa.Table = table.replace_schema_metadata({STAMP_KEY: str(layout.stamp)})
    try:
        create_dataset(reader.io, stamped, reader.manifest.uri, table=MANIFEST)
    except StorageError as error:
        if not _landed(reader, genesis.commit_id, error):
            raise


def _landed(reader: GraphReader, commit_id: str, error: StorageError) -> bool:
    """Say whether the commit point was reached although its answer did not come; never guessed (INV-09)."""
    unknown = OutcomeUnknownError(
        f"The graph at {reader.root} may or may not have been created: {error.message}",
        hint="Try Graph.open: it opens the graph, or says that there is none.",
        operation_id=commit_id,
    )
    try:
        return reader.manifest.open(branch=MAIN).state.commit(commit_id) is not None
    except NotFoundError:
        if isinstance(error, StorageUnreachableError):
            raise unknown from error  # the request may still be on its way
        return False
    except StorageError as e:
        raise unknown from e
