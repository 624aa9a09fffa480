"""Write a graph from Spark: append nodes, merge edges, put two DataFrames into one commit, and look at the history.

Everything happens in a temporary directory that is removed at the end.
"""

from __future__ import annotations

import tempfile

from pyspark.sql import DataFrame, SparkSession

import omnigraph_spark as og

SCHEMA = """
node Person {
    name: String @key
    age: I32?
}
edge Knows: Person -> Person { since: Date? }
"""


def write(spark: SparkSession, root: str) -> None:
    graph = og.Graph.create(root, schema=SCHEMA, actor="demo")

    people = spark.createDataFrame([("Ada", 36), ("Grace", 45), ("Alan", 41)], "name string, age int")
    people.write.format("omnigraph").option("node", "Person").mode("append").save(root)

    # An edge with an id of its own can be merged again: the row is replaced, its identity stays.
    for since in ("1950-01-01", "1951-01-01"):
        knows = spark.sql(f"select 'ada-grace' as id, 'Ada' as src, 'Grace' as dst, date'{since}' as since")
        save_edges(knows, root)

    # Two DataFrames, one commit: the edges may name nodes of the same transaction.
    newcomer = spark.createDataFrame([("Edsger", 40)], "name string, age int")
    meets = spark.createDataFrame([("Edsger", "Ada")], "from string, to string")
    with og.Graph.open(root, spark=spark).transaction(actor="demo", message="Edsger arrives") as tx:
        tx.append("Knows", meets)
        tx.append("Person", newcomer)
    if tx.commit_info is not None:
        print(f"one commit moved {', '.join(tx.commit_info.tables)}")

    # What breaks the graph is refused as a whole, and says so.
    try:
        og.Graph.open(root, spark=spark).append("Knows", spark.sql("select 'Ada' as src, 'Nobody' as dst"))
    except og.ValidationError as error:
        print(f"refused: {error.message.splitlines()[-1].strip()}")

    spark.read.format("omnigraph").option("edge", "Knows").load(root).show()
    print("history, newest first:")
    for commit in graph.history():
        tables = ", ".join(f"{key} v{version}" for key, version in commit.tables.items())
        print(f"  {commit.graph_version:3}  {commit.id}  {commit.actor or '-':6} {commit.message or '-':15} {tables}")
    print(f"sound: {graph.verify().ok}")


def save_edges(knows: DataFrame, root: str) -> None:
    writer = knows.write.format("omnigraph").option("edge", "Knows").option("writeMode", "merge")
    writer.option("commitMessage", "who knows whom").mode("append").save(root)


def main() -> None:
    builder = SparkSession.builder.master("local[2]").appName("omnigraph demo").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="omnigraph-demo-") as folder:
        write(spark, f"{folder}/graph")
    spark.stop()


if __name__ == "__main__":
    main()
