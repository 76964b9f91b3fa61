"""`send_table` on both brokers: what librdkafka reads is what the table says, one row a record, once and in order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, TopicPartition

import oncelog
from oncelog.faults import FaultProxy, Rule
from tests.support.confluent import create_topic, make_consumer, poll
from tests.support.process import BrokerProcess

TIMEOUT_S = 120
HASTY = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50}
PARTITIONS = 4
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def read_all(broker: BrokerProcess, topic: str, count: int, partitions: int = PARTITIONS) -> dict[int, list[Message]]:
    """The topic as librdkafka reads it, CRCs checked; fails if there are more than `count` messages."""
    consumer = make_consumer(broker, check_crcs=True, fetch_wait_max_ms=10)
    try:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        found = defaultdict(list)
        for message in poll(consumer, count, TIMEOUT_S):
            found[message.partition()].append(message)
        for index in range(partitions):
            partition = TopicPartition(topic, index)
            assert consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S) == (0, len(found[index]))
        return found
    finally:
        consumer.close()


def numbered(count: int) -> pa.Table:
    return pa.table(
        {"key": [b"key-%d" % (n % 97) for n in range(count)], "value": [b"%08d" % n * 12 for n in range(count)]}
    )


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.value()[:8]) for message in messages]


def require_all_once_in_order(found: dict[int, list[Message]], count: int) -> None:
    assert sorted(number for messages in found.values() for number in numbers(messages)) == list(range(count))
    for messages in found.values():
        assert numbers(messages) == sorted(numbers(messages))


def require_metadata_matches(metadata: oncelog.TableMetadata, found: dict[int, list[Message]]) -> None:
    assert {each.partition: (each.row_count, each.ranges) for each in metadata.partitions} == {
        index: (len(messages), ((0, len(messages) - 1),)) for index, messages in found.items() if messages
    }


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    create_topic(broker, name, partitions=PARTITIONS)
    return name


def test_every_field_arrives(broker: BrokerProcess, topic: str) -> None:
    table = pa.table(
        {
            "order": ["a", None, "c", ""],
            "body": pa.array([b"\x00\xff", b"", None, "ä".encode()], pa.large_binary()),
            "headers": pa.array([[("h", b"1"), ("h", None)], None, [], [("", b"")]], pa.map_(pa.string(), pa.binary())),
            "when": pa.array([1_700_000_000_123, 1_700_000_000_456, 5, 7], pa.timestamp("ms", "UTC")),
            "where": pa.array([3, 0, 3, 1], pa.int8()),
        }
    )
    with oncelog.Producer(broker.bootstrap) as producer:
        future = producer.send_table(topic, table, key="order", value="body", timestamp="when", partition="where")
        metadata = future.result(TIMEOUT_S)
    found = read_all(broker, topic, 4)
    require_metadata_matches(metadata, found)
    read = {
        index: [(each.key(), each.value(), each.headers(), each.timestamp()[1]) for each in messages]
        for index, messages in found.items()
        if messages
    }
    assert read == {
        0: [(None, b"", None, 1_700_000_000_456)],
        1: [(b"", "ä".encode(), [("", b"")], 7)],
        3: [(b"a", b"\x00\xff", [("h", b"1"), ("h", None)], 1_700_000_000_123), (b"c", None, None, 5)],
    }


@pytest.mark.parametrize("codec", CODECS)
def test_large_tables_arrive_once_and_in_order_with_every_codec(broker: BrokerProcess, topic: str, codec: str) -> None:
    count = 30_000
    with oncelog.Producer(broker.bootstrap, compression_type=codec, buffer_memory=2_000_000) as producer:
        metadata = producer.send_table(topic, numbered(count)).result(TIMEOUT_S)
    found = read_all(broker, topic, count)
    require_all_once_in_order(found, count)
    require_metadata_matches(metadata, found)


def test_tables_and_records_share_partitions_and_batches(broker: BrokerProcess, topic: str) -> None:
    with oncelog.Producer(broker.bootstrap, linger_ms=50) as producer:
        first = producer.send(topic, value="first", partition=0)
        table = producer.send_table(topic, pa.table({"value": ["second", "third"]}), partition=0)
        last = producer.send(topic, value="last", partition=0)
        offsets = [first.result(TIMEOUT_S).offset, *table.result(TIMEOUT_S).partitions[0].ranges[0]]
        assert [*offsets, last.result(TIMEOUT_S).offset] == [0, 1, 2, 3]
    assert [message.value() for message in read_all(broker, topic, 4)[0]] == [b"first", b"second", b"third", b"last"]


def test_keys_go_where_single_records_go(broker: BrokerProcess, topic: str) -> None:
    keys = [f"key-{number}" for number in range(300)]
    with oncelog.Producer(broker.bootstrap) as producer:
        producer.send_table(topic, pa.table({"key": keys, "value": ["of the table"] * 300}))
        for key in keys:
            producer.send(topic, value="single", key=key)
    places = defaultdict(set)
    for index, messages in read_all(broker, topic, 600).items():
        for message in messages:
            places[message.key()].add(index)
    assert len(places) == 300
    assert all(len(place) == 1 for place in places.values())


def test_lost_answers_and_cut_connections_neither_lose_nor_double_a_row(broker: BrokerProcess, topic: str) -> None:
    count = 20_000
    rules = [
        Rule.drop_response("Produce", probability=0.1, cut_after_ms=50),
        Rule.cut("Produce", probability=0.1),
        Rule.duplicate_request("Produce", probability=0.1),
    ]
    with (
        FaultProxy(broker.bootstrap, rules, seed=4) as proxy,
        oncelog.Producer(proxy.bootstrap_servers, batch_size=8_192, **HASTY) as producer,
    ):
        futures = [producer.send_table(topic, numbered(count).slice(start, 1_000)) for start in range(0, count, 1_000)]
        stored = sum(future.result(TIMEOUT_S).row_count for future in futures)
        faults = proxy.report()
    assert faults.responses["Produce"].dropped > 0, faults
    assert faults.requests["Produce"].cut > 0, faults
    assert stored == count
    require_all_once_in_order(read_all(broker, topic, count), count)


class TestAsync:
    def test_a_table_larger_than_memory_while_the_loop_goes_on(self, broker: BrokerProcess, topic: str) -> None:
        count = 30_000
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def main() -> oncelog.TableMetadata:
            background = asyncio.create_task(others())
            async with oncelog.AsyncProducer(broker.bootstrap, buffer_memory=2_000_000) as producer:
                metadata = await producer.send_table(topic, numbered(count))
            background.cancel()
            return metadata

        metadata = asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
        found = read_all(broker, topic, count)
        require_all_once_in_order(found, count)
        require_metadata_matches(metadata, found)
        assert turns > 3

    def test_close_sends_what_was_asked_for(self, broker: BrokerProcess, topic: str) -> None:
        count = 20_000
        told: list[Any] = []

        async def main() -> None:
            async with oncelog.AsyncProducer(broker.bootstrap, buffer_memory=2_000_000) as producer:
                for start in range(0, count, 5_000):
                    table = numbered(count).slice(start, 5_000)
                    producer.send_table(
                        topic, table, on_delivery=lambda metadata, error: told.append(error or metadata)
                    )

        asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
        assert [metadata.row_count for metadata in told] == [5_000] * 4
        found = read_all(broker, topic, count)
        assert sorted(number for messages in found.values() for number in numbers(messages)) == list(range(count))
