"""Reading records for tests: a small catalog, and short ways to all rows or all violations."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from omnigraph_spark.errors import ValidationError, Violation
from omnigraph_spark.schema.catalog import Catalog
from omnigraph_spark.schema.contract import check_contract
from omnigraph_spark.write.json_stream import Source
from omnigraph_spark.write.jsonl import TypedRows, read_records


def catalog_of(text: str) -> Catalog:
    """The catalog of a schema text."""
    return check_contract(text, None, None, other_branches=False).catalog


CATALOG = catalog_of("""
node Person { name: String @key  age: I32? }
node Plain { note: String? }
node Day { day: Date @key }
edge Knows: Person -> Person { since: Date? }
""")


def read(source: Source, *, catalog: Catalog = CATALOG, batch_rows: int = 65_536) -> list[TypedRows]:
    """All batches of a source."""
    return list(read_records(source, catalog=catalog, batch_rows=batch_rows))


def only(*records: object, catalog: Catalog = CATALOG) -> pa.RecordBatch:
    """The one batch of some records."""
    (batch,) = read("\n".join(json.dumps(record) for record in records) + "\n", catalog=catalog)
    return batch.rows


def refused(source: Source, *, catalog: Catalog = CATALOG) -> list[Violation]:
    """The violations of a source."""
    with pytest.raises(ValidationError) as caught:
        read(source, catalog=catalog)
    str(caught.value).encode("utf-8")
    return caught.value.violations


def refused_one(source: Source, *, catalog: Catalog = CATALOG) -> Violation:
    """The only violation of a source."""
    (violation,) = refused(source, catalog=catalog)
    return violation
