"""Create a graph in a local directory, look at it, and read it with Spark.

Run it with `make demo`. Nothing is needed but this repository: no server, no account, no Docker.
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

from pyspark.sql import SparkSession

import omnigraph_spark as og

SCHEMA = """
node Person {
    name: String @key
    age: I32?
}
node Company { name: String @key }

edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company
"""


def main() -> None:
    root = Path("demo-graph").absolute()
    shutil.rmtree(root, ignore_errors=True)

    graph = og.Graph.create(str(root), schema=SCHEMA, actor="demo")
    print(f"created {graph.uri}: graph version {graph.version}, commit {graph.head.id if graph.head else None}")
    for table in graph.tables():
        print(f"  {table.key:15} version {table.version}  {table.rows} rows  {table.path}")

    # Starting Spark forks, and Lance warns of forks; this one becomes java at once.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    builder = SparkSession.builder.master("local[2]").appName("omnigraph demo")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    people = spark.read.format("omnigraph").option("node", "Person").load(str(root))
    people.printSchema()
    print(f"Person has {people.count()} rows")
    spark.read.format("omnigraph").option("table", "commits").load(str(root)).show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
