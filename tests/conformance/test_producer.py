"""oncelog's producers on both brokers: what librdkafka reads is what was sent, and results say where it is."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from confluent_kafka.admin import NewPartitions

from oncelog.client.partitioner import PartitionerError
from oncelog.errors import MessageTooLarge
from oncelog.producer.async_producer import AsyncProducer
from oncelog.producer.producer import Producer
from tests.conformance.test_quotas import limited, unique
from tests.support.confluent import create_topic, make_admin, read
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import await_leaders

TIMEOUT_S = 60.0
WALL_MS = 1_700_000_000_000

Topics = Callable[[], str]


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [b"%06d" % number + b"." * size for number in range(count)]


@pytest.mark.parametrize(
    "settings",
    [
        {"compression_type": "none"},
        {"compression_type": "gzip"},
        {"compression_type": "gzip", "compression_gzip_level": 1},
        {"compression_type": "gzip", "compression_gzip_level": 9},
        {"compression_type": "snappy"},
        {"compression_type": "lz4"},
        {"compression_type": "lz4", "compression_lz4_level": 17},
        {"compression_type": "zstd"},
        {"compression_type": "zstd", "compression_zstd_level": -7},
        {"compression_type": "zstd", "compression_zstd_level": 19},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_every_codec_and_level(broker: BrokerProcess, new_topic: Topics, settings: dict[str, Any]) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    sent = numbered(2_000, 50)
    with Producer(broker.bootstrap, linger_ms=20, **settings) as producer:
        futures = [producer.send(topic, value) for value in sent]
        producer.flush(TIMEOUT_S)
        assert [future.result(0).offset for future in futures] == list(range(2_000))
        rate = producer.metrics()["compression-rate-avg"]
    assert values(read(broker, topic, 2_000, check_crcs=True)) == sent
    assert (rate < 0.7) == (settings["compression_type"] != "none")


def test_every_field_of_a_record(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    headers = [("trace", b"1"), ("trace", b"2"), ("none", None), ("ü", b""), ("", b"\0")]
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, "grüße", key="k", headers=headers, timestamp_ms=WALL_MS)
        producer.send(topic, None, key=b"")
        producer.send(topic, bytearray(b"\0\xff"), timestamp_ms=0)
    full, tombstone, plain = read(broker, topic, 3)
    assert (full.key(), full.value(), full.headers()) == (b"k", "grüße".encode(), headers)
    assert full.timestamp() == (TIMESTAMP_CREATE_TIME, WALL_MS)
    assert (tombstone.key(), tombstone.value(), tombstone.headers()) == (b"", None, None)
    assert abs(tombstone.timestamp()[1] - time.time() * 1000) < 60_000
    assert (plain.key(), plain.value(), plain.timestamp()[1]) == (None, b"\0\xff", 0)


def test_results_carry_the_brokers_time_where_the_topic_says_so(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic, configs={"message.timestamp.type": "LogAppendTime"})
    with Producer(broker.bootstrap) as producer:
        results = [producer.send(topic, b"", timestamp_ms=WALL_MS).result(TIMEOUT_S) for _ in range(3)]
    stored = [message.timestamp() for message in read(broker, topic, 3)]
    assert stored == [(TIMESTAMP_LOG_APPEND_TIME, result.timestamp_ms) for result in results]
    assert all(result.timestamp_ms > WALL_MS for result in results)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(broker: BrokerProcess, new_topic: Topics, acks: str) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    sent = numbered(500)
    with Producer(broker.bootstrap, acks=acks) as producer:
        futures = [producer.send(topic, value) for value in sent]
    offsets = [future.result(0).offset for future in futures]
    assert offsets == ([-1] * 500 if acks == "0" else list(range(500)))
    assert values(read(broker, topic, 500)) == sent


@pytest.mark.parametrize(
    "settings", [{"batch_size": 0}, {"linger_ms": 0}, {"max_in_flight_requests_per_connection": 1}]
)
def test_order_is_kept_whatever_the_batches(broker: BrokerProcess, new_topic: Topics, settings: dict[str, Any]) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    sent = numbered(300)
    with Producer(broker.bootstrap, **settings) as producer:
        for value in sent:
            producer.send(topic, value)
        producer.flush(TIMEOUT_S)
        if settings == {"batch_size": 0}:
            assert producer.metrics()["records-per-request-avg"] == 1
    assert values(read(broker, topic, 300)) == sent


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_batches_that_are_too_large_for_the_topic_are_split(
    broker: BrokerProcess, new_topic: Topics, codec: str
) -> None:
    topic = new_topic()
    create_topic(broker, topic, configs={"max.message.bytes": "1500"})
    chance = random.Random(7)  # what compression cannot make small
    sent = [chance.randbytes(400) for _ in range(200)]
    told: list[int] = []
    with Producer(broker.bootstrap, linger_ms=50, compression_type=codec) as producer:
        for value in sent:
            producer.send(topic, value, on_delivery=lambda metadata, error: told.append(metadata.offset))
        too_large = producer.send(topic, chance.randbytes(5_000))
        last = producer.send(topic, b"last")
        producer.flush(TIMEOUT_S)
        assert last.result(0).offset == 200
        assert isinstance(too_large.exception(0), MessageTooLarge)
        assert told == list(range(200))
        assert producer.metrics()["batch-split-total"] > 0
    assert values(read(broker, topic, 200)) == sent


def test_records_up_to_max_request_size(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic, configs={"max.message.bytes": "3000000"})
    sent = [b"x" * size for size in (1_000_000, 2_000_000, 10, 2_900_000)]
    with Producer(broker.bootstrap, max_request_size=3_000_000) as producer:
        assert [producer.send(topic, value).result(TIMEOUT_S).offset for value in sent] == [0, 1, 2, 3]
    assert values(read(broker, topic, 4)) == sent


def test_a_topic_that_grows_and_one_that_is_made_by_its_first_record(broker: BrokerProcess, new_topic: Topics) -> None:
    topic, made = new_topic(), new_topic()
    create_topic(broker, topic)
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, b"").result(TIMEOUT_S)
        with pytest.raises(PartitionerError, match="which has 1"):
            producer.send(topic, b"", partition=3)
        admin = make_admin(broker)
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
        with RawClient(broker.address) as raw:
            await_leaders(raw, topic, 4)
        assert producer.send(topic, b"new", partition=3).result(TIMEOUT_S).offset == 0
        assert producer.partitions_for(topic) == 4
        assert producer.send(made, b"").result(TIMEOUT_S).offset == 0


def test_a_quota_is_obeyed_and_reported(broker: BrokerProcess, new_topic: Topics) -> None:
    topic, client_id = new_topic(), unique()
    create_topic(broker, topic)
    sent = numbered(350, 1_000)
    settings = {"client_id": client_id, "batch_size": 100_000, "linger_ms": 0}
    with limited(broker, client_id, producer_byte_rate=100_000), Producer(broker.bootstrap, **settings) as producer:
        for value in sent:
            producer.send(topic, value)
        producer.flush(TIMEOUT_S)
        metrics = producer.metrics()
    assert metrics["produce-throttle-time-max"] > 0
    assert metrics["produce-throttle-time-avg"] > 0
    assert values(read(broker, topic, len(sent))) == sent


def test_the_asynchronous_producer_does_the_same(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    sent = numbered(1_000, 50)

    async def body() -> list[int]:
        async with AsyncProducer(broker.bootstrap, compression_type="lz4") as producer:
            results = await asyncio.gather(*(producer.send(topic, value) for value in sent))
            return [result.offset for result in results]

    assert asyncio.run(body()) == list(range(1_000))
    assert values(read(broker, topic, 1_000)) == sent
