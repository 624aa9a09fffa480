"""The Spark session our API uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph_spark.errors import OptionError
from omnigraph_spark.read.connect import pin_loads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register ``format("omnigraph")`` on a session, where auto-discovery cannot see the package.

    On a Spark Connect session it also makes every later ``load`` of the format in this process name the graph version
    it sees, so that a DataFrame keeps it for good (INV-14).
    """
    # Imported here so that the package works, Spark apart, where pyspark is not installed.
    from omnigraph_spark.source import OmnigraphDataSource

    spark.dataSource.register(OmnigraphDataSource)
    if is_remote(spark):
        pin_loads()


def require_session(spark: SparkSession | None) -> SparkSession:
    """Return the given session or the active one, with our format known to it."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as e:
        raise OptionError(
            "This call needs Spark, which is not installed",
            hint="pip install 'omnigraph-spark[spark]', or use to_arrow() without Spark.",
        ) from e
    session = spark if spark is not None else SparkSession.getActiveSession()
    if session is None:
        raise OptionError("There is no active Spark session", hint="Create one, or pass spark= to Graph.open.")
    register(session)
    return session


def is_remote(spark: SparkSession) -> bool:
    """Say whether a session is a Spark Connect client."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
