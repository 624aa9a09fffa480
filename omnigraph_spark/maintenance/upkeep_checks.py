"""Checks of what cleanup leaves: the boundary can be read and so can everything above it; and files nobody uses."""

from __future__ import annotations

from datetime import timedelta

from omnigraph_spark.maintenance.boundary import Retention
from omnigraph_spark.maintenance.cleanup import Survey
from omnigraph_spark.maintenance.report import CheckRun, Examination, Reporting
from omnigraph_spark.manifest.boundary import read_boundary
from omnigraph_spark.manifest.layout import branch_uri
from omnigraph_spark.manifest.state import GraphState
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.storage.lance_copies import CopyingIO
from omnigraph_spark.storage.locations import join

_FOR_EVER = timedelta(days=36_500)


def boundary_check(reader: GraphReader, state: GraphState) -> CheckRun:
    """The oldest graph version that cleanup left opens, with every table it reads; a branch never cleaned has none."""
    exam = Examination("boundary", branch=state.branch)
    with Reporting(exam):
        version = read_boundary(reader.objects, reader.root, branch=state.branch)
        if version > state.graph_version:
            exam.error(
                f"version {version}", f"The boundary is version {version}, the branch ends at {state.graph_version}"
            )
        elif version:
            exam.look()
            oldest = reader.manifest.open(branch=state.branch, version=version, layout=state.layout).state
            for entry in oldest.tables.values():
                exam.look()
                with Reporting(exam, subject=f"{entry.table_key} version {entry.version}"):
                    uri = branch_uri(join(reader.root, entry.path), entry.branch)
                    reader.io.open(uri, table=entry.table_key, version=entry.version)
    return exam.done()


def orphan_check(reader: GraphReader) -> CheckRun:
    """Files that no version uses: staged by a writer at work, or left by one that died. Never an error."""
    exam = Examination("orphans", branch="")
    with Reporting(exam):
        survey = Survey(reader, Retention(older_than=_FOR_EVER), floor=_FOR_EVER)
        with CopyingIO(reader.io, reader.objects) as io:
            survey.run(io)
        exam.look(len(survey.rows))
        for row in survey.rows:
            if row.orphan:
                exam.warn(row.path, f"{row.path} ({row.bytes} bytes): {row.why}")
    return exam.done()
