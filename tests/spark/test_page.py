"""The pages on Spark, and Spark's lines of the README, as a reader would run them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import oncelog
from tests.pages.blocks import CODE, Block, Reader
from tests.pages.blocks import blocks_of as page_blocks
from tests.support.patience import eventually
from tests.support.ports import unused_port
from tests.test_pages import DOCS, blocks_of, first_screen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


LIMIT_S = 200.0
SPARK_PAGES = {"spark.md", "spark-source.md", "spark-tables.md", "spark-watching.md", "spark-tools.md"}


@pytest.fixture(scope="module")
def pages_broker() -> Iterator[oncelog.Broker]:
    with oncelog.Broker() as started:
        yield started


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


def committed_in(servers: str, topic: str) -> list[str]:
    found: list[str] = []
    with oncelog.Consumer(servers, isolation_level="read_committed") as consumer:
        consumer.assign([(topic, index) for index in range(4)])
        consumer.seek_to_beginning()

        def is_read() -> bool:
            found.extend(record.value.decode() for record in consumer.poll(0.5))
            ends = consumer.end_offsets(*consumer.assignment())
            return all(consumer.position(partition) >= end for partition, end in ends.items())

        eventually(is_read, "everything is read")
    return sorted(found)


@pytest.mark.parametrize("page", ["spark.md", "spark-source.md", "spark-tables.md", "spark-watching.md"])
def test_every_block_runs_as_printed_and_a_second_time(
    page: str,
    spark: SparkSession,
    patient_starts: list[StreamingQuery],
    pages_broker: oncelog.Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in code_of(DOCS / page) if not block.not_run]
    starts_a_broker = any("ready 127.0.0.1:9092" in block.text for block in blocks)
    servers = f"127.0.0.1:{unused_port()}" if starts_a_broker else pages_broker.bootstrap_servers
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", servers)
    here = {"127.0.0.1:9092": servers, "127.0.0.1:9464": "127.0.0.1:0"}
    here |= {f'"{name}/': f'"{tmp_path}/{name}/' for name in ("checkpoints", "lake")}  # Spark has a folder of its own
    here |= {"sqlite:///": f"sqlite:///{tmp_path}/"}
    with Reader(tmp_path, here) as reader:
        for block in blocks:
            reader.run(page, block)
        for block in blocks:
            if "ready 127.0.0.1:9092" not in block.text:
                reader.run(page, block)
        assert len(patient_starts) >= 2
        assert [query.exception() for query in patient_starts] == [None] * len(patient_starts)
        if page == "spark.md":
            expected = sorted(f"order {number} is paid" for number in range(100))
            assert committed_in(servers, "spark-paid") == sorted(2 * expected)
        elif page == "spark-tables.md":
            with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
                counts = [
                    database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                    for table in ("orders", "living_orders", "squares")
                ]
            assert counts == [20, 19, 1000]


def test_the_pages_share_no_topic() -> None:
    """Else what one shows would not be what the reader of another sees."""
    owners: dict[str, str] = {}
    for page in SPARK_PAGES:
        blocks = "".join(block.text for block in code_of(DOCS / page))
        topics = set(re.findall(r'(?:"subscribe", |"topic", |\.send\()"([\w-]+)"', blocks))
        assert topics or page == "spark-tools.md"
        for topic in topics:
            assert owners.setdefault(topic, page) == page, topic


def code_of(page: Path) -> list[Block]:
    return [block for block in page_blocks(page) if block.language in CODE]


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
        return len(committed_in(shop.bootstrap_servers, "paid")) == 100

    try:
        eventually(all_are_paid, "every order is paid", LIMIT_S)
    finally:
        query.stop()
    assert committed_in(shop.bootstrap_servers, "paid") == sorted(f"order {number}" for number in range(100))
