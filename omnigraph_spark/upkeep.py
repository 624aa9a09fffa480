"""The upkeep half of ``Graph``: optimize, cleanup, verify, repair and recover. Each is a few lines over its module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from omnigraph_spark.maintenance.cleanup import cleanup_graph
from omnigraph_spark.maintenance.cleanup_report import CleanupReport
from omnigraph_spark.maintenance.distribute import session_for
from omnigraph_spark.maintenance.optimize import Optimizer, OptimizeResult
from omnigraph_spark.maintenance.repair import RepairReport, repair_graph
from omnigraph_spark.maintenance.report import VerifyReport
from omnigraph_spark.maintenance.verify import verify_graph
from omnigraph_spark.read.snapshot import GraphReader
from omnigraph_spark.write.audit import RecoveryResult
from omnigraph_spark.write.publish import PublishAuthority

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GraphUpkeep:
    """What keeps a graph fast and sound; ``Graph`` supplies the place and the settings."""

    actor: str | None
    _spark: SparkSession | None

    @property
    def branch(self) -> str:
        """The branch this handle works on."""
        raise NotImplementedError

    def _begin(self) -> GraphReader:
        raise NotImplementedError

    def _authority(self) -> PublishAuthority:
        raise NotImplementedError

    def optimize(
        self,
        *,
        types: Sequence[str] | None = None,
        spark: SparkSession | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> list[OptimizeResult]:
        """Compact the tables of this branch and complete their indexes; no row changes and nothing is deleted.

        The work runs as Spark tasks when a session is given or active, else in this process. Writers may go on: a table
        they keep changing is reported as skipped.
        """
        session = session_for(spark if spark is not None else self._spark)
        return Optimizer(self._authority(), self.branch, self.actor, session, progress).run(types)

    def cleanup(
        self,
        *,
        older_than: timedelta | float | None = None,
        keep: int | None = None,
        dry_run: bool = True,
        progress: Callable[[str], None] | None = None,
    ) -> CleanupReport:
        """Report the versions and files that a policy lets go, on all branches; delete them with ``dry_run=False``.

        A graph version stays when it is newer than ``older_than`` (a timedelta, or seconds) or among the last ``keep``
        of its branch. Staged files no version uses go after a week. Writers and readers of what stays may go on.
        """
        return cleanup_graph(self._authority(), older_than=older_than, keep=keep, dry_run=dry_run, progress=progress)

    def verify(self, *, branches: bool = False, orphans: bool = False) -> VerifyReport:
        """Prove this branch, or every branch, sound at its newest version; a broken graph is reported, not raised.

        Reads the key and rule columns of every table; writes nothing and may run beside writers. ``orphans`` also lists
        the files that no version uses, as warnings.
        """
        return verify_graph(self._begin(), branch=self.branch, branches=branches, orphans=orphans)

    def repair(self, *, confirm: bool = False, force: bool = False) -> RepairReport:
        """Preview tables that were moved outside the graph; ``confirm`` publishes what is proven to be maintenance.

        ``force`` publishes the rest too, whatever it is.
        """
        return repair_graph(self._authority(), branch=self.branch, confirm=confirm, force=force)

    def recover(self) -> list[RecoveryResult]:
        """Finish or undo what interrupted writers left behind, on every branch."""
        return self._authority().recover(actor=self.actor)
