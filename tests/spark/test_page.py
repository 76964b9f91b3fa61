"""The first screen of the page on Spark, and Spark's lines of the README, as a reader would run them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import oncelog
from tests.support.patience import eventually
from tests.test_pages import DOCS, blocks_of, first_screen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


LIMIT_S = 200.0


@pytest.fixture
def shop() -> Iterator[oncelog.Broker]:
    """With a hundred orders."""
    with oncelog.Broker() as broker:
        with oncelog.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("orders", partitions=4)
            admin.create_topic("paid", partitions=4)
        with oncelog.Producer(broker.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("orders", key=str(number), value=f"order {number}")
        yield broker


def here(example: str, broker: oncelog.Broker, folder: Path) -> str:
    example = example.replace("127.0.0.1:9092", broker.bootstrap_servers)
    return example.replace('"checkpoint")', f'"{folder}/checkpoint")')


def committed_in(broker: oncelog.Broker, topic: str) -> list[str]:
    found: list[str] = []
    with oncelog.Consumer(broker.bootstrap_servers, isolation_level="read_committed") as consumer:
        consumer.assign([(topic, index) for index in range(4)])
        consumer.seek_to_beginning()

        def is_read() -> bool:
            found.extend(record.value.decode() for record in consumer.poll(0.5))
            ends = consumer.end_offsets(*consumer.assignment())
            return all(consumer.position(partition) >= end for partition, end in ends.items())

        eventually(is_read, "everything is read")
    return sorted(found)


def test_the_first_screen_runs(
    spark: SparkSession, patient_starts: list[StreamingQuery], shop: oncelog.Broker, tmp_path: Path
) -> None:
    example, *_ = blocks_of((DOCS / "spark.md").read_text(), "python")
    assert "transactional.id.prefix" in example
    for _ in range(2):  # the second time there is nothing left to do
        exec(compile(here(example, shop, tmp_path), "docs/spark.md", "exec"), {})
    assert committed_in(shop, "paid") == sorted(f"order {number} is paid" for number in range(100))


def test_the_readmes_lines_run(
    spark: SparkSession, patient_starts: list[StreamingQuery], shop: oncelog.Broker, tmp_path: Path
) -> None:
    (example,) = [block for block in blocks_of(first_screen(), "python") if "oncelog.spark" in block]
    exec(compile(here(example, shop, tmp_path), "README.md", "exec"), {"spark": spark})
    (query,) = patient_starts

    def all_are_paid() -> bool:
        failure = query.exception()
        if failure is not None:
            raise failure
        return len(committed_in(shop, "paid")) == 100

    try:
        eventually(all_are_paid, "every order is paid", LIMIT_S)
    finally:
        query.stop()
    assert committed_in(shop, "paid") == sorted(f"order {number}" for number in range(100))
