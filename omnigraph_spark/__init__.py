"""Read and write OmniGraph graphs from Spark: many tables, one commit, no server."""

from omnigraph_spark.errors import (
    AlreadyExistsError,
    BackPressureError,
    ConflictError,
    DriftError,
    FencedError,
    FormatError,
    KeyConflictError,
    MergeConflictError,
    NotFoundError,
    OmnigraphError,
    OptionError,
    Outcome,
    OutcomeUnknownError,
    ReadSetChangedError,
    RecoveryError,
    SchemaError,
    StorageConditionError,
    StorageError,
    StorageForbiddenError,
    StorageNotFoundError,
    StorageUnreachableError,
    ValidationError,
    Violation,
    WindowBusyError,
)
from omnigraph_spark.graph import Graph
from omnigraph_spark.maintenance.cleanup_report import CleanupReport
from omnigraph_spark.maintenance.optimize import OptimizeResult
from omnigraph_spark.maintenance.repair import RepairReport
from omnigraph_spark.maintenance.report import Finding, VerifyReport
from omnigraph_spark.session import register
from omnigraph_spark.storage.allocator import spare_imports as _spare_imports
from omnigraph_spark.values import Branch, Commit, TableInfo
from omnigraph_spark.write.audit import RecoveryResult
from omnigraph_spark.write.load import LoadResult
from omnigraph_spark.write.settings import UpkeepLimits
from omnigraph_spark.write.transaction import Transaction

__all__ = [
    "AlreadyExistsError",
    "BackPressureError",
    "Branch",
    "CleanupReport",
    "Commit",
    "ConflictError",
    "DriftError",
    "FencedError",
    "Finding",
    "FormatError",
    "Graph",
    "KeyConflictError",
    "LoadResult",
    "MergeConflictError",
    "NotFoundError",
    "OmnigraphError",
    "OptimizeResult",
    "OptionError",
    "Outcome",
    "OutcomeUnknownError",
    "ReadSetChangedError",
    "RecoveryError",
    "RecoveryResult",
    "RepairReport",
    "SchemaError",
    "StorageConditionError",
    "StorageError",
    "StorageForbiddenError",
    "StorageNotFoundError",
    "StorageUnreachableError",
    "TableInfo",
    "Transaction",
    "UpkeepLimits",
    "ValidationError",
    "VerifyReport",
    "Violation",
    "WindowBusyError",
    "register",
]

_spare_imports()
