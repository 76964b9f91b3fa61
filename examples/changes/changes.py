"""Changes of customers, in any order, some of them broken: the latest state as a table, the rest as dead letters.

changes ── decode ─┬─ good ──► table customers: one row for each, the highest version that ever came
                   └─ bad  ──► topic changes-dead: the record as it came, and what is wrong with it

oncelog broker &
python examples/changes/changes.py --with-sample-data --checkpoint /tmp/changes --database sqlite:////tmp/changes.db
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import suppress

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import oncelog
from oncelog.errors import TopicAlreadyExists
from oncelog.spark import register
from oncelog.spark.tools import dead_letter_split, decode_json

OPERATIONS = ("create", "update", "delete")
CHANGE = "customer_id long not null, version long not null, operation string not null, name string, email string"


def split(spark: SparkSession, servers: str, topic: str) -> tuple[DataFrame, DataFrame]:
    """Changes as columns, and the records that are none."""
    records = (
        spark.readStream.format("oncelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    decoded = decode_json(records, CHANGE, on_error="keep")
    is_unknown = ~F.col("data.operation").isin(*OPERATIONS)
    unknown = F.when(is_unknown, F.lit(f"the operation is none of {', '.join(OPERATIONS)}"))
    good, bad = dead_letter_split(decoded.withColumn("error", F.coalesce("error", unknown)))
    return good.where("data IS NOT NULL").select("data.*"), bad


def run(spark: SparkSession, arguments: argparse.Namespace) -> None:
    """Both queries up to what is there now. Each reads the topic by itself and can be stopped by itself."""
    register(spark)
    servers, prefix = arguments.bootstrap_server, arguments.prefix
    changes, dead = split(spark, servers, f"{prefix}changes")
    # A deleted customer stays as a row with a version: forgotten, an older change that comes late would bring it back.
    state = changes.selectExpr("customer_id", "version", "operation = 'delete' AS deleted", "name", "email")
    queries = [
        state.writeStream.format("oncelog.table")
        .option("url", arguments.database)
        .option("table", "customers")
        .option("sink.name", f"{prefix}customers")
        .option("key", "customer_id")
        .option("version", "version")  # a lower one never replaces a higher one, whatever comes first
        .option("create", "true")
        .option("checkpointLocation", os.path.join(arguments.checkpoint, "customers"))
        .trigger(availableNow=True)
        .start(),
        dead.writeStream.format("oncelog")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", f"{prefix}changes-dead")
        .option("transactional.id.prefix", f"{prefix}changes-dead")
        .option("includeHeaders", "true")
        .option("checkpointLocation", os.path.join(arguments.checkpoint, "dead"))
        .trigger(availableNow=True)
        .start(),
    ]
    for query in queries:
        query.awaitTermination()


def sample() -> list[tuple[str, bytes | None]]:
    """Records with their keys: versions out of order, some sent twice, some broken."""
    records: list[tuple[str, bytes | None]] = []
    for step in range(600):
        who, version = step % 40, (step * 7) % 600 // 40 + 1  # every customer has versions 1 to 15, out of order
        operation = "delete" if version == 15 and who % 4 == 0 else "create" if version == 1 else "update"
        change = {"customer_id": who, "version": version, "operation": operation, "name": f"customer {who}"}
        if operation != "delete":
            change["email"] = f"{who}-{version}@example.org"
        records += [(str(who), json.dumps(change).encode())] * (2 if step % 10 == 0 else 1)
    broken = [b"", b"{not json", b'{"customer_id": "one", "version": 1, "operation": "update"}', b'{"customer_id": 3}']
    unknown = b'{"customer_id": 4, "version": 99, "operation": "merge"}'
    return [*records[:100], *((str(number), value) for number, value in enumerate([*broken, unknown])), *records[100:]]


def send_sample(servers: str, prefix: str) -> None:
    with oncelog.Admin(servers) as admin:
        for topic in ("changes", "changes-dead"):
            with suppress(TopicAlreadyExists):
                admin.create_topic(prefix + topic, partitions=3)
    with oncelog.Producer(servers) as producer:
        for key, value in sample():
            producer.send(f"{prefix}changes", key=key, value=value)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--bootstrap-server", default="127.0.0.1:9092", help="HOST:PORT[,...] of the brokers")
    parser.add_argument("--checkpoint", required=True, help="a folder that stays: what was done already")
    parser.add_argument("--database", required=True, help="sqlite:///PATH or postgresql://user@host/database")
    parser.add_argument("--master", default="local[*]", help="where Spark runs")
    parser.add_argument("--prefix", default="example-", help="in front of all names of topics and sinks")
    parser.add_argument("--with-sample-data", action="store_true", help="make the topics, and send records to them")
    return parser.parse_args(words)


def main() -> None:
    arguments = parse()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if arguments.with_sample_data:
        send_sample(arguments.bootstrap_server, arguments.prefix)
    builder = SparkSession.builder.master(arguments.master).appName("changes")
    spark = builder.config("spark.sql.shuffle.partitions", 4).getOrCreate()  # a checkpoint keeps the number it began with
    run(spark, arguments)
    spark.stop()


if __name__ == "__main__":
    main()
