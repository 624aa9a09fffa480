"""Sources whose commit fails on purpose, in the process where Spark runs it; everything else is the real writer.

Registered by value, so that workers need not find the tests.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.source import OmnigraphDataSource
from omnigraph_spark.storage.seams import Phase, Seams
from omnigraph_spark.write.draft import Draft
from omnigraph_spark.write.publish import PublishAuthority
from omnigraph_spark.write.spark_writer import GraphWriter


class FaultyWriter(GraphWriter):
    """A writer whose commit raises, exits or is killed at a named point."""

    fault: str = ""
    committing: bool = False

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit with the fault.

        ``raise`` and ``exit`` come before or after; ``kill:phase:point`` within, alone or with the whole driver
        (``kill driver:``); ``hand over:file`` leaves the commit to whoever reads the file.
        """
        self.committing = True
        verb, _, rest = self.fault.partition(":")
        if verb == "raise before":
            raise RuntimeError("the commit failed before it began")
        if verb == "hand over":
            real = GraphWriter.__new__(GraphWriter)
            real.__dict__.update({k: v for k, v in self.__dict__.items() if k not in ("fault", "committing")})
            Path(rest).write_bytes(pickle.dumps((real, list(messages))))
            raise RuntimeError("the commit is left to another process")
        if verb == "exit before":
            os._exit(3)
        super().commit(messages)
        if verb == "exit after":
            os._exit(3)
        raise RuntimeError("the answer of the commit was lost")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort, unless the write belongs to another process by now."""
        if not self.fault.startswith("hand over:"):
            super().abort(messages)

    def _draft(self) -> Draft:
        verb, _, point = self.fault.partition(":")

        def hook(phase: Phase, name: str) -> None:
            if self.committing and verb.startswith("kill") and f"{phase.value}:{name}" == point:
                for pid in (*(_driver() if verb == "kill driver" else ()), os.getpid()):
                    os.kill(pid, signal.SIGKILL)

        reader = GraphReader.begin(self.txn.root, self.txn.config, seams=Seams(hook=hook))
        return Draft(PublishAuthority(reader, self.settings), self.txn, self.intent)


def _driver() -> tuple[int, int]:
    """Return the application and its Java process, which started the daemon that started this worker."""

    def parent_of(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    java = parent_of(os.getppid())
    return parent_of(java), java


class FaultySource(OmnigraphDataSource):
    """``format("omnigraph_faulty")``: the fault travels as the commit message."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "omnigraph_faulty"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the real writer with a faulty commit."""
        real = super().writer(schema, overwrite)
        assert isinstance(real, GraphWriter)
        faulty = FaultyWriter.__new__(FaultyWriter)
        faulty.__dict__.update(real.__dict__)
        faulty.fault = real.intent.message or ""
        return faulty


def register_faulty(spark: SparkSession) -> None:
    """Make the format known to a session."""
    from pyspark import cloudpickle

    import tests.spark.faulty_source as module

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    spark.dataSource.register(FaultySource)


def save_faulty(frame: DataFrame, uri: str, *, fault: str, **options: str) -> None:
    """Save with a commit that fails."""
    writer = frame.write.format("omnigraph_faulty").option("commitMessage", fault).options(**options)
    writer.mode("append").save(uri)
