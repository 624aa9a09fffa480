"""The demo on an object store: make a bucket, create a graph in it, read it with Spark.

`docker/compose.yml` sets where: OMNIGRAPH_DEMO_ROOT and the usual AWS_* variables. Run twice, it opens what is there.
"""

from __future__ import annotations

import os
import warnings

import boto3
from botocore.config import Config
from pyspark.sql import SparkSession

import omnigraph_spark as og

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: Date? }
"""


def make_bucket(name: str) -> None:
    # The store starts beside us: standard retries wait for it, some 30 seconds at most.
    config = Config(retries={"mode": "standard", "total_max_attempts": 8}, s3={"addressing_style": "path"})
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], config=config)
    if name not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=name)
    client.close()


def main() -> None:
    root = os.environ["OMNIGRAPH_DEMO_ROOT"]
    make_bucket(root.removeprefix("s3://").split("/")[0])
    try:
        graph = og.Graph.create(root, schema=SCHEMA, actor="demo")
        print(f"created {graph.uri}, graph version {graph.version}")
    except og.AlreadyExistsError:
        graph = og.Graph.open(root)
        print(f"found {graph.uri}, graph version {graph.version}")
    # Starting Spark forks, and Lance warns of forks; this one becomes java at once.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    builder = SparkSession.builder.master("local[2]").appName("omnigraph demo")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    people = spark.read.format("omnigraph").option("node", "Person").load(root)
    people.printSchema()
    print(f"Person has {people.count()} rows")
    spark.read.format("omnigraph").option("table", "tables").load(root).show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
