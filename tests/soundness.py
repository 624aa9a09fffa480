"""The proof every test of writes ends with: the graph verifies, and nobody left a recovery record."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph_spark import VerifyReport
from omnigraph_spark.maintenance.verify import verify_graph
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.config import StorageConfig
from tests.places import Place


def assert_sound(place_or_uri: Place | str, storage: Mapping[str, str] | None = None) -> VerifyReport:
    """Assert that every branch of a graph verifies and that ``__recovery/`` is empty; returns the evidence."""
    if isinstance(place_or_uri, Place):
        uri, storage = place_or_uri.uri, place_or_uri.storage
    else:
        uri = place_or_uri
    report = verify_graph(GraphReader.begin(uri, StorageConfig.resolve(storage)), branches=True)
    assert report.ok, f"\n{report!r}"
    records = next(run for run in report.checks if run.name == "recovery-records")
    assert records.examined == 0, f"{records.examined} recovery records are left\n{report!r}"
    return report
