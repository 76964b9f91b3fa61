"""The source as Spark runs it, beside Spark's own: the same options give the same rows, batches and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import oncelog
from oncelog.spark import register
from oncelog.types import TopicPartition
from tests.spark.source.support import Transactions, send
from tests.spark.support.starting import started
from tests.support.process import BrokerProcess
from tests.support.sizes import on_both_brokers_at_full_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S = 120
FIRST_MS = 1_700_000_000_000
FORMATS = ("kafka", "oncelog")
COLUMNS = ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value"]
COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    """Three partitions: plain records of many kinds, transactions that end in aborted ones, and few records."""
    name = new_topic()
    with oncelog.Admin(broker.bootstrap) as admin:
        admin.create_topic(name, partitions=3)
    with oncelog.Producer(broker.bootstrap) as producer:
        for number in range(200):
            producer.send(
                name,
                value=None if number % 7 == 0 else f"value-{number}",
                key=None if number % 3 == 0 else f"key-{number}",
                headers=[("n", str(number).encode()), ("", None)] if number % 5 == 0 else [],
                partition=0,
                timestamp_ms=FIRST_MS + number,
            )
    with Transactions(broker, name) as transactions:
        for number in range(4):
            transactions.write([f"{number}-{place}" for place in range(20)], commit=number % 2 == 0, partition=1)
    send(broker, name, "xyz", partition=2, timestamp_ms=FIRST_MS + 150)
    return name


def batch_queries(topic: str) -> dict[str, dict[str, str]]:
    """Each partition is named where Spark wants all of them named."""

    def offsets(*numbers: int) -> str:
        return json.dumps({topic: {str(place): number for place, number in enumerate(numbers)}})

    moments = {str(place): FIRST_MS + 100 + place for place in range(3)}
    return {
        "all, with headers": {"subscribe": topic, "includeHeaders": "true"},
        "from offsets to offsets": {
            "subscribe": topic,
            "startingOffsets": offsets(17, 10, -2),
            "endingOffsets": offsets(150, 70, -1),
        },
        "from a moment to a moment": {
            "subscribePattern": f"{topic[:-1]}.",
            "startingTimestamp": str(FIRST_MS + 50),
            "endingTimestamp": str(FIRST_MS + 160),
        },
        "by moments, split": {
            "subscribe": topic,
            "startingOffsetsByTimestamp": json.dumps({topic: moments}),
            "startingOffsetsByTimestampStrategy": "latest",
            "minPartitions": "7",
        },
        "one partition": {"assign": json.dumps({topic: [1]})},
    }


def rows_of(frame: DataFrame) -> list[Any]:
    return sorted(map(repr, frame.collect()))


def read(spark: SparkSession, kind: str, broker: BrokerProcess, options: Mapping[str, str]) -> DataFrame:
    everything = {"kafka.bootstrap.servers": broker.bootstrap, **COMMITTED, **options}
    return spark.read.format(kind).options(**everything).load()


def test_batch_queries_give_the_same_rows(spark: SparkSession, broker: BrokerProcess, topic: str) -> None:
    from pyspark.sql import functions as f

    register(spark)
    found = {}
    for kind in FORMATS:
        frames = [
            read(spark, kind, broker, {"includeHeaders": "true", **options}).withColumn("query", f.lit(name))
            for name, options in batch_queries(topic).items()
        ]
        found[kind] = rows_of(reduce(lambda one, other: one.union(other), frames))
    assert found["oncelog"] == found["kafka"]
    assert len(found["oncelog"]) > 400


def test_pushed_filters_change_no_row(spark: SparkSession, broker: BrokerProcess, topic: str) -> None:
    register(spark)
    where = (
        f"partition IN (0, 2) AND offset > 1 AND offset < 120 AND timestamp >= timestamp_millis({FIRST_MS + 40})"
        " AND key IS NOT NULL"
    )
    setting = "spark.sql.python.filterPushdown.enabled"
    found = {}
    before = spark.conf.get(setting)
    try:
        for pushed in ("false", "true"):
            spark.conf.set(setting, pushed)
            found[pushed] = rows_of(read(spark, "oncelog", broker, {"subscribe": topic}).where(where))
    finally:
        spark.conf.set(setting, before)
    expected = rows_of(read(spark, "kafka", broker, {"subscribe": topic}).where(where))
    assert found == {"false": expected, "true": expected}
    assert len(expected) > 40


class Stream:
    """The same query, again and again with one checkpoint: AvailableNow into a list."""

    def __init__(self, spark: SparkSession, kind: str, broker: BrokerProcess, folder: Path, topic: str) -> None:
        self._spark, self.kind, self._broker, self._topic = spark, kind, broker, topic
        self._checkpoint = folder / kind
        self._rows: list[str] = []

    def run(self, **options: str) -> None:
        everything = {
            "kafka.bootstrap.servers": self._broker.bootstrap,
            "subscribe": self._topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "150",
            **COMMITTED,
            **options,
        }
        stream = self._spark.readStream.format(self.kind).options(**everything).load()
        writer = (
            stream.select(*COLUMNS)
            .writeStream.foreachBatch(lambda frame, _: self._rows.extend(rows_of(frame)))
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
        )
        query = started(writer.start)
        try:
            assert query.awaitTermination(PATIENCE_S), "the query did not end"
        finally:
            query.stop()

    def rows(self) -> list[Any]:
        return sorted(self._rows)

    def offsets(self) -> list[dict[str, Any]]:
        """The offsets of every batch, as the checkpoint has them."""
        files = sorted((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[-1]) for path in files]


@on_both_brokers_at_full_size
def test_streams_have_the_same_rows_batches_and_checkpoints(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    register(spark)
    theirs, ours = (Stream(spark, kind, broker, tmp_path, topic) for kind in FORMATS)
    for stream in (theirs, ours):
        stream.run()
    assert ours.offsets() == theirs.offsets()
    assert len(ours.offsets()) == 2
    assert ours.rows() == theirs.rows()

    with oncelog.Admin(broker.bootstrap) as admin:
        admin.create_partitions(topic, 4)
        send(broker, topic, "new", partition=3)
        send(broker, topic, map(str, range(20)), partition=2)
        for stream in (theirs, ours):
            stream.run()
        assert ours.offsets() == theirs.offsets()
        assert ours.rows() == theirs.rows()

        send(broker, topic, "moved", partition=3)
        theirs.kind = "oncelog"  # a job moves over with its checkpoint
        before = len(theirs.rows())
        theirs.run()
        assert len(theirs.rows()) - before == len("moved")

        send(broker, topic, map(str, range(20)), partition=2)
        admin.delete_records({TopicPartition(topic, 2): 30})
        with pytest.raises(Exception, match=rf"offsets 23 to 30 of partition {topic}-2 were removed"):
            ours.run()
        before = len(ours.rows())
        ours.run(failOnDataLoss="false")
        assert len(ours.rows()) - before == 43 - 30 + len("moved")


def test_a_mistake_is_told_at_the_start(spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    register(spark)
    with pytest.raises(Exception, match="did you mean 'startingOffsets'"):
        Stream(spark, "oncelog", broker, tmp_path, topic).run(startingOffset="earliest")
    with pytest.raises(Exception, match="there is no never-there to read"):
        read(spark, "oncelog", broker, {"subscribe": "never-there"}).count()
