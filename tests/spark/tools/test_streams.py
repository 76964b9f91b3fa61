"""The tools that keep state: streams in micro-batches, restarted, and batches of the same rows."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from oncelog.spark.tools import BadArgument, deduplicate, latest_version, reject_out_of_order
from oncelog.spark.tools.ordering import PROVIDER, ROCKSDB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIMIT_S = 120
SCHEMA = "id string, version long, at timestamp, topic string, partition int, offset long"


class Feed:
    """A stream of files: each `add` is a micro-batch, each `run` a query from the same checkpoint to the end."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._numbers = itertools.count()
        (folder / "in").mkdir()

    def add(self, *rows: tuple[str | None, int | None, str]) -> None:
        number = next(self._numbers)
        text = "\n".join(
            json.dumps({"id": id_, "version": version, "at": f"2026-01-01T{at}:00Z", "topic": "t", "partition": 0,
                        "offset": number * 100 + place})
            for place, (id_, version, at) in enumerate(rows)
        )  # fmt: skip
        # One file for each micro-batch, in the order of their times of change.
        path = self._folder / "in" / f"{number:04}.json"
        path.write_text(text)
        stamp = 1_700_000_000 + number
        os.utime(path, (stamp, stamp))

    def run(self, tool: Callable[[DataFrame], DataFrame]) -> list[list[Any]]:
        """What came out, micro-batch by micro-batch."""
        stream = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self._folder / "in"))
        batches: list[list[Any]] = []
        query = (
            tool(stream)
            .writeStream.foreachBatch(lambda rows, _: batches.append(rows.collect()))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(LIMIT_S)
        finally:
            query.stop()
        return [batch for batch in batches if batch]

    def table(self) -> DataFrame:
        return self._spark.read.schema(SCHEMA).json(str(self._folder / "in"))


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Iterator[Feed]:
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ROCKSDB)
    yield Feed(spark, tmp_path)
    assert before is not None
    spark.conf.set(PROVIDER, before)


def ids(batches: list[list[Any]]) -> list[list[str]]:
    return [sorted(str(row.id) for row in batch) for batch in batches]


def versions(batches: list[list[Any]]) -> list[list[tuple[str, int]]]:
    return [sorted((row.id, row.version) for row in batch) for batch in batches]


def test_one_row_for_each_id_through_a_restart(feed: Feed) -> None:
    def tool(rows: DataFrame) -> DataFrame:
        return deduplicate(rows, "id", "at", within="1 hour", null_ids="keep")

    feed.add(("a", 1, "10:00"), ("a", 2, "10:05"), (None, 3, "10:00"), (None, 4, "10:00"))
    feed.add(("a", 5, "10:30"), ("b", 6, "10:40"), (None, 7, "10:40"))
    first = feed.run(tool)
    assert ids(first) == [["None", "None", "a"], ["None", "b"]]
    assert first[0][0].asDict().keys() == set(SCHEMA.replace(",", "").split()[::2])  # no helper is left behind

    feed.add(("b", 8, "10:50"), ("a", 9, "10:20"), ("c", 10, "12:30"))  # known ids, after a restart
    feed.add(("c", 11, "12:30"))
    feed.add(("d", 12, "11:00"), ("a", 13, "12:31"))  # d is too late to be judged; a's window has passed
    assert ids(feed.run(tool)) == [["c"], ["a"]]

    whole = deduplicate(feed.table(), "id", "at", null_ids="drop")
    assert sorted((row.id, row.version) for row in whole.collect()) == [("a", 1), ("b", 6), ("c", 10), ("d", 12)]
    with pytest.raises(PySparkException, match="a row has no message id"):
        deduplicate(feed.table(), "id", "at").collect()
    assert deduplicate(feed.table(), ["id", "version"], "at", null_ids="keep").count() == 13


def test_only_news_pass_through_a_restart_and_as_in_a_batch(feed: Feed) -> None:
    def tool(rows: DataFrame) -> DataFrame:
        return reject_out_of_order(rows, "id", "version", flag="stale")

    feed.add(("a", 1, "10:00"), ("a", 3, "10:00"), ("a", 2, "10:00"), ("b", 1, "10:00"), (None, 9, "10:00"))
    feed.add(("a", 3, "10:01"), ("a", 4, "10:01"), ("b", None, "10:01"))
    rows = [row for batch in feed.run(tool) for row in batch]
    feed.add(("a", 4, "10:02"), ("b", 1, "10:02"), ("a", 7, "10:02"), ("a", 6, "10:02"), ("b", 2, "10:02"))
    rows += [row for batch in feed.run(tool) for row in batch]
    news = {row.offset for row in rows if not row.stale}
    assert news == {0, 1, 3, 101, 202, 204}
    assert sorted(row.offset for row in rows) == sorted(row.offset for row in feed.table().collect())

    assert {row.offset for row in tool(feed.table()).where("not stale").collect()} == news
    plain = reject_out_of_order(feed.table(), ["id", "partition"], "version", order=["topic", "offset"])
    assert {row.offset for row in plain.collect()} == news
    assert plain.columns == feed.table().columns


def test_the_latest_of_each_key_and_keys_that_are_forgotten(feed: Feed) -> None:
    def tool(rows: DataFrame) -> DataFrame:
        return latest_version(rows, "id", "version", event_time="at", forget_after="1 hour")

    feed.add(("a", 1, "10:00"), ("a", 3, "10:00"), ("a", 2, "10:00"), ("b", 5, "10:00"))
    feed.add(("a", 2, "10:10"), ("b", 6, "10:10"))
    assert versions(feed.run(tool)) == [[("a", 3), ("b", 5)], [("b", 6)]]
    feed.add(("a", 3, "10:20"), ("a", 4, "10:20"), ("c", 1, "12:00"))
    feed.add(("c", 2, "12:00"))
    feed.add(("a", 9, "10:30"), ("a", 4, "12:01"))  # the first is too late to be judged, the second is no news
    feed.add(("a", 4, "12:02"))  # a had no news for more than an hour, and was forgotten
    assert versions(feed.run(tool)) == [[("a", 4), ("c", 1)], [("c", 2)], [("a", 4)]]

    whole = latest_version(feed.table(), "id", "version")
    assert sorted((row.id, row.version) for row in whole.collect()) == [("a", 9), ("b", 6), ("c", 2)]
    by_time = latest_version(feed.table(), "topic", "at")
    assert [row.id for row in by_time.collect()] == ["a"]


def test_arguments_are_checked_before_spark_sees_them(spark: SparkSession, feed: Feed) -> None:
    rows = feed.table()
    with pytest.raises(BadArgument, match="did you mean 'version'"):
        latest_version(rows, "id", "verson")
    with pytest.raises(BadArgument, match="version 'id' is string; it must be a whole number"):
        reject_out_of_order(rows, "id", "id")
    with pytest.raises(BadArgument, match="event_time and forget_after belong together"):
        latest_version(rows, "id", "version", event_time="at")
    with pytest.raises(BadArgument, match="there is no column 'topic'"):
        deduplicate(rows.drop("topic"), "id", "at", null_ids="keep")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(BadArgument, match="has a watermark of 60000 ms already"):
        deduplicate(stream.withWatermark("timestamp", "1 minute"), "value", "timestamp")
    spark.conf.unset(PROVIDER)
    with pytest.raises(BadArgument, match="needs the RocksDB state store"):
        latest_version(stream, "value", "timestamp", order="timestamp")
