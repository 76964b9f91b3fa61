"""Orders, payments and customers: joined into a topic, and counted by window into a table, exactly once.

    orders ───┐
              ├─ joined within an hour, with customers ──► topic paid-orders ──► windows ──► table turnover
    payments ─┘

    oncelog broker &
    python examples/orders/orders.py --with-sample-data --checkpoint /tmp/orders --database sqlite:////tmp/orders.db

Run it again, or kill it anywhere and run it again: every paid order is in the topic once, and counted once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import oncelog
from oncelog.errors import TopicAlreadyExists
from oncelog.spark import register
from oncelog.spark.tools import decode_json, deduplicate, encode_json, latest_version

ORDER = (
    "order_id long not null, customer_id long not null, amount decimal(10,2) not null, ordered_at timestamp not null"
)
PAYMENT = "order_id long not null, paid_at timestamp not null"
CUSTOMER = "customer_id long not null, version long not null, country string not null"
PAID = f"{ORDER}, paid_at timestamp not null, country string not null"


def read(spark: SparkSession, servers: str, topic: str, schema: str, *, as_stream: bool = True) -> DataFrame:
    """A topic of JSON as columns. `offset` says in which order records of a key came."""
    reader = spark.readStream if as_stream else spark.read
    records = (
        reader.format("oncelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    return decode_json(records, schema).select("data.*", "offset")


def paid_orders(spark: SparkSession, servers: str, prefix: str) -> DataFrame:
    """Orders that were paid within an hour, each once, with the country that the customer lives in now."""
    orders = deduplicate(read(spark, servers, f"{prefix}orders", ORDER), "order_id", "ordered_at", within="2 hours")
    payments = deduplicate(read(spark, servers, f"{prefix}payments", PAYMENT), "order_id", "paid_at", within="2 hours")
    payments = payments.select(F.col("order_id").alias("paid_order"), "paid_at")
    # The bound in time is what lets Spark forget orders that can no longer be paid.
    in_time = "order_id = paid_order AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR"
    customers = read(spark, servers, f"{prefix}customers", CUSTOMER, as_stream=False)
    homes = latest_version(customers, "customer_id", "version").select("customer_id", F.col("country").alias("home"))
    joined = orders.join(payments, F.expr(in_time)).join(homes, "customer_id", "left")
    known = joined.withColumn("country", F.coalesce("home", F.lit("unknown")))
    record = encode_json(known, ["order_id", "customer_id", "amount", "ordered_at", "paid_at", "country"])
    return record.select(F.col("order_id").cast("string").alias("key"), "value")


def turnover(paid: DataFrame) -> DataFrame:
    """What each country paid in each ten minutes. A window is written when no row of it can come any more."""
    by_window = paid.withWatermark("paid_at", "30 minutes").groupBy(F.window("paid_at", "10 minutes"), "country")
    totals = by_window.agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
    return totals.select(F.col("window.start").alias("starts_at"), "country", "orders", "amount")


def run(spark: SparkSession, arguments: argparse.Namespace) -> None:
    """Both queries up to what is there now, one after the other; as services they would run side by side."""
    register(spark)
    servers, prefix = arguments.bootstrap_server, arguments.prefix
    joining = (
        paid_orders(spark, servers, prefix)
        .writeStream.format("oncelog")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", f"{prefix}paid-orders")
        .option("transactional.id.prefix", f"{prefix}paid-orders")
        .option("checkpointLocation", os.path.join(arguments.checkpoint, "paid-orders"))
        .trigger(availableNow=True)
        .start()
    )
    joining.awaitTermination()
    counting = (
        turnover(read(spark, servers, f"{prefix}paid-orders", PAID))
        .writeStream.format("oncelog.table")
        .option("url", arguments.database)
        .option("table", "turnover")
        .option("sink.name", f"{prefix}turnover")
        .option("key", "starts_at,country")
        .option("create", "true")
        .option("checkpointLocation", os.path.join(arguments.checkpoint, "turnover"))
        .trigger(availableNow=True)
        .start()
    )
    counting.awaitTermination()


def sample() -> dict[str, list[tuple[int, dict[str, object]]]]:
    """Records by topic, each with its key: some orders sent twice, some never paid, some paid too late."""
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    orders, payments = [], []
    for number in range(200):
        at = noon + timedelta(seconds=30 * number)
        amount = number % 17 + 0.5
        order = {"order_id": number, "customer_id": number % 9, "amount": amount, "ordered_at": at.isoformat()}
        orders += [(number, order)] * (2 if number % 5 == 0 else 1)
        paid_after = timedelta(minutes=90 if number % 11 == 0 else number % 20)
        if number % 7:
            payments.append((number, {"order_id": number, "paid_at": (at + paid_after).isoformat()}))
    moves = [(7, 1, "NL"), (7, 3, "FR"), (7, 2, "DE")]  # version 3 is the latest, though it is not the last
    homes = [(number, 1, ("DE", "FR", "NL")[number % 3]) for number in range(7)]  # nobody knows customer 8
    customers = [(who, {"customer_id": who, "version": number, "country": home}) for who, number, home in homes + moves]
    return {"orders": orders, "payments": payments, "customers": customers}


def send_sample(servers: str, prefix: str) -> None:
    with oncelog.Admin(servers) as admin:
        for topic in ("orders", "payments", "customers", "paid-orders"):
            with suppress(TopicAlreadyExists):
                admin.create_topic(prefix + topic, partitions=2)
    with oncelog.Producer(servers) as producer:
        for topic, records in sample().items():
            for key, record in records:
                producer.send(prefix + topic, key=str(key), value=json.dumps(record))


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
    builder = SparkSession.builder.master(arguments.master).appName("orders")
    spark = builder.config("spark.sql.shuffle.partitions", 4).getOrCreate()  # a checkpoint keeps the number it began with
    run(spark, arguments)
    spark.stop()


if __name__ == "__main__":
    main()
