"""The Spark driver of the demo, a process of its own that may be killed: orders go from topic to topic to table.

    orders -> shipments       format("oncelog") to format("oncelog"), with transactions
    shipments -> a table      format("oncelog") to format("oncelog.table")

When its standard input ends, which also happens when the demo is killed, the queries finish what is there and the
process ends. A query that fails ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from oncelog.spark import register

DATABASE = "shipments.db"
TABLE = "shipments"
ORDER_ID = "split(CAST(value AS STRING), ' ')[0]"
MASTER = "local[2,4]"
"""Two tasks at a time, each tried up to four times: local masters by default never try again."""
EVERY = "500 milliseconds"
MAX_ORDERS_PER_BATCH = 20_000
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""It lives for a minute: soon is better than fast."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "2",
    # Little is computed: code made for it would take longer to compile than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.log.level": "WARN",
    # Nothing is kept for a web page that nobody opens.
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
}


def open_session(folder: Path) -> SparkSession:
    """Whatever Spark writes goes into the folder."""
    places = {
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Djava.io.tmpdir={folder}",
    }
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(MASTER).appName("oncelog demo")
    session = builder.config(map={**SETTINGS, **places}).getOrCreate()
    register(session)
    return session


class Pipeline:
    def __init__(self, spark: SparkSession, servers: str, source: str, target: str, folder: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._source = source
        self._target = target
        self._folder = folder

    def start(self) -> list[StreamingQuery]:
        return [self._to_topic(), self._to_table()]

    def _to_topic(self) -> StreamingQuery:
        shipped = self._read(self._source).selectExpr("partition", f"concat({ORDER_ID}, ' shipped') AS value")
        writer = shipped.writeStream.format("oncelog").option("kafka.bootstrap.servers", self._servers)
        writer = writer.option("topic", self._target).option("transactional.id.prefix", "shipping")
        return self._start(writer, "to-topic")

    def _to_table(self) -> StreamingQuery:
        rows = self._read(self._target).selectExpr(
            f"{ORDER_ID} AS order_id", "topic", "partition AS kafka_partition", "offset AS kafka_offset"
        )
        writer = rows.writeStream.format("oncelog.table").option("url", f"sqlite:///{self._folder / DATABASE}")
        writer = writer.option("table", TABLE).option("create", "true").option("sink.name", "shipments")
        return self._start(writer, "to-table")

    def _start(self, writer: DataStreamWriter, name: str) -> StreamingQuery:
        writer = writer.trigger(processingTime=EVERY).option("checkpointLocation", str(self._folder / name))
        return writer.start()

    def _read(self, topic: str) -> DataFrame:
        reader = self._spark.readStream.format("oncelog").option("kafka.bootstrap.servers", self._servers)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        return reader.option("maxOffsetsPerTrigger", MAX_ORDERS_PER_BATCH).load()


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap_servers")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("folder", type=Path)
    parser.add_argument("started", type=Path, help="a file to make when the queries run")
    args = parser.parse_args(words)
    spark = open_session(args.folder)
    queries = Pipeline(spark, args.bootstrap_servers, args.source, args.target, args.folder).start()
    args.started.touch()
    ending = threading.Thread(target=_stop_when_input_ends, args=(queries,), daemon=True)
    ending.start()
    try:
        spark.streams.awaitAnyTermination()
        ending.join()
    except StreamingQueryException as error:
        print(error, file=sys.stderr)
        return 1
    spark.stop()
    return 0


def _stop_when_input_ends(queries: list[StreamingQuery]) -> None:
    sys.stdin.read()
    for query in queries:
        query.processAllAvailable()
    for query in queries:
        query.stop()


if __name__ == "__main__":
    sys.exit(main())
