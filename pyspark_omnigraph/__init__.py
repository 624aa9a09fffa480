"""Lets Spark find ``format("omnigraph")`` by itself: it imports every top-level ``pyspark_*`` package.

A failing import here would break the lookup of every other format, so anything missing leaves the source unregistered.
"""

try:
    from omnigraph_spark.source import OmnigraphDataSource as DefaultSource

    __all__ = ["DefaultSource"]
except ImportError:  # an incomplete installation must not take other formats down with it
    __all__ = []
