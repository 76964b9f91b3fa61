"""Timestamps: whose clock they come from, and the offsets found through them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, TopicPartition

from tests.support.batches import CODECS, Record, make_batch, read_batches, read_records
from tests.support.confluent import create_topic, make_consumer, make_producer, read, send
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import EARLIEST, LATEST, MAX_TIMESTAMP, fetch, list_offset, produce

Topics = Callable[[], str]

BASE_MS = 1_600_000_000_000
CLOCK_TOLERANCE_MS = 10_000


def now_ms() -> int:
    return int(time.time() * 1000)


def test_create_time_is_the_producers(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    times = [BASE_MS, BASE_MS + 5, BASE_MS - 1_000, BASE_MS + 5]
    send(make_producer(broker), topic, ({"value": b"v", "timestamp": each} for each in times))
    assert [message.timestamp() for message in read(broker, topic, 4)] == [
        (TIMESTAMP_CREATE_TIME, each) for each in times
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_append_time_is_the_brokers(broker: BrokerProcess, new_topic: Topics, codec: str) -> None:
    topic = new_topic()
    create_topic(broker, topic, configs={"message.timestamp.type": "LogAppendTime"})
    producer = make_producer(broker, compression_type=codec, linger_ms=20)
    before_ms = now_ms() - CLOCK_TOLERANCE_MS
    delivered = send(producer, topic, ({"value": b"same " * 50, "timestamp": BASE_MS} for _ in range(3)))
    for message in (*delivered, *read(broker, topic, 3)):
        kind, timestamp_ms = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert before_ms <= timestamp_ms <= now_ms() + CLOCK_TOLERANCE_MS
    with RawClient(broker.address) as client:
        assert all(batch.crc_is_right for batch in read_batches(fetch(client, topic)["records"]))


def test_a_timestamp_out_of_range_is_refused(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    with pytest.raises(KafkaException) as refused:
        send(make_producer(broker), topic, [{"value": b"v", "timestamp": now_ms() + 2 * 3_600_000}])
    assert refused.value.args[0].code() == KafkaError.INVALID_TIMESTAMP


def test_changing_the_type_applies_to_later_batches(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    before_ms = now_ms() - CLOCK_TOLERANCE_MS
    with RawClient(broker.address) as client:
        produce(client, topic, make_batch(base_timestamp=BASE_MS))
        change = {"name": "message.timestamp.type", "config_operation": 0, "value": "LogAppendTime"}
        resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
        answer = client.request("incremental_alter_configs", 1, {"resources": [resource]})
        assert answer["responses"][0]["error_code"] == 0
        deadline = time.monotonic() + 60
        while (appended := produce(client, topic, make_batch(base_timestamp=BASE_MS)))["log_append_time"] is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first, last = (read_records(fetch(client, topic, at)["records"])[0] for at in (0, appended["base_offset"]))
    assert first.timestamp_ms == BASE_MS
    assert last.timestamp_ms == appended["log_append_time"]
    assert before_ms <= last.timestamp_ms <= now_ms() + CLOCK_TOLERANCE_MS


@pytest.fixture
def timed_topic(broker: BrokerProcess, new_topic: Topics) -> str:
    """Batches whose times are 1000s, out of order inside and between: offsets 0..8."""
    topic = new_topic()
    create_topic(broker, topic)
    with RawClient(broker.address) as client:
        for deltas in ((0, 10, 5), (100, 90, 80), (40, 300, 200)):
            records = [Record(timestamp_delta=delta) for delta in deltas]
            assert produce(client, topic, make_batch(records, base_timestamp=BASE_MS))["error_code"] == 0
    return topic


def test_offsets_for_times(broker: BrokerProcess, timed_topic: str) -> None:
    """The first record, in log order, whose time is at least the one asked for."""
    with RawClient(broker.address) as client:
        found = {
            delta: (answer["offset"], answer["timestamp"])
            for delta in (-1, 0, 1, 6, 11, 90, 91, 101, 250, 300, 301)
            for answer in [list_offset(client, timed_topic, BASE_MS + delta)]
        }
    assert found == {
        -1: (0, BASE_MS),
        0: (0, BASE_MS),
        1: (1, BASE_MS + 10),
        6: (1, BASE_MS + 10),
        11: (3, BASE_MS + 100),
        90: (3, BASE_MS + 100),
        91: (3, BASE_MS + 100),
        101: (7, BASE_MS + 300),
        250: (7, BASE_MS + 300),
        300: (7, BASE_MS + 300),
        301: (-1, -1),
    }


def test_special_timestamps(broker: BrokerProcess, timed_topic: str) -> None:
    with RawClient(broker.address) as client:
        found = {which: list_offset(client, timed_topic, which) for which in (EARLIEST, LATEST, MAX_TIMESTAMP)}
    assert {which: (each["offset"], each["timestamp"], each["leader_epoch"]) for which, each in found.items()} == {
        EARLIEST: (0, -1, 0),
        LATEST: (9, -1, 0),
        MAX_TIMESTAMP: (7, BASE_MS + 300, 0),
    }


def test_offsets_of_an_empty_partition(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(broker, topic)
    with RawClient(broker.address) as client:
        found = [list_offset(client, topic, which) for which in (EARLIEST, LATEST, MAX_TIMESTAMP, 0, BASE_MS)]
    assert [(each["error_code"], each["offset"], each["timestamp"]) for each in found] == [
        (0, 0, -1),
        (0, 0, -1),
        (0, -1, -1),
        (0, -1, -1),
        (0, -1, -1),
    ]


def test_offsets_for_times_and_watermarks_through_a_client(broker: BrokerProcess, timed_topic: str) -> None:
    consumer = make_consumer(broker)
    try:
        (found,) = consumer.offsets_for_times([TopicPartition(timed_topic, 0, BASE_MS + 101)], timeout=60)
        assert found.offset == 7
        assert consumer.get_watermark_offsets(TopicPartition(timed_topic, 0), timeout=60) == (0, 9)
    finally:
        consumer.close()
