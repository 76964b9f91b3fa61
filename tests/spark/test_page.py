"""The first screen of the page on Spark, as a reader would run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import oncelog
from tests.support.patience import eventually
from tests.test_pages import DOCS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_first_screen_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = (DOCS / "spark.md").read_text().partition("```python\n")[2].partition("```\n")[0]
    assert "transactional.id.prefix" in example
    with oncelog.Broker() as broker:
        with oncelog.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("orders", partitions=4)
            admin.create_topic("paid", partitions=4)
        with oncelog.Producer(broker.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("orders", key=str(number), value=f"order {number}")
        here = example.replace("127.0.0.1:9092", broker.bootstrap_servers)
        here = here.replace('"checkpoint")', f'"{tmp_path}/checkpoint")')
        for _ in range(2):  # the second time there is nothing left to do
            exec(compile(here, "docs/spark.md", "exec"), {})
        with oncelog.Consumer(broker.bootstrap_servers, isolation_level="read_committed") as consumer:
            consumer.assign([("paid", index) for index in range(4)])
            consumer.seek_to_beginning()
            found: list[str] = []

            def is_read() -> bool:
                found.extend(record.value.decode() for record in consumer.poll(0.5))
                ends = consumer.end_offsets(*consumer.assignment())
                return all(consumer.position(partition) >= end for partition, end in ends.items())

            eventually(is_read, "everything is read")
    assert sorted(found) == sorted(f"order {number} is paid" for number in range(100))
