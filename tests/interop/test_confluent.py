"""confluent-kafka (librdkafka) at a volume that fills batches, with its idempotent producer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from confluent_kafka.admin import NewTopic

from tests.support.batches import CODECS
from tests.support.confluent import TIMEOUT_S, create_topic, make_admin, make_producer, read, send
from tests.support.process import BrokerProcess

Topics = Callable[[], str]


@pytest.mark.parametrize("codec", CODECS)
def test_a_busy_idempotent_producer(broker: BrokerProcess, new_topic: Topics, codec: str) -> None:
    """Several partitions, full pipelines: every record once, in order, at the offset that its producer was told."""
    topic, count, partitions = new_topic(), 20_000, 3
    create_topic(broker, topic, partitions=partitions)
    producer = make_producer(broker, enable_idempotence=True, compression_type=codec, linger_ms=2)
    delivered = send(
        producer,
        topic,
        ({"key": b"%d" % n, "value": b"value %d" % n, "partition": n % partitions} for n in range(count)),
    )
    told = {(message.partition(), message.offset()): message.value() for message in delivered}
    assert len(told) == count
    for partition in range(partitions):
        expected = list(range(partition, count, partitions))
        messages = read(broker, topic, len(expected), partition=partition)
        assert [int(message.key()) for message in messages] == expected
        assert all(told[(partition, message.offset())] == message.value() for message in messages)


def test_topics_through_the_admin_client(broker: BrokerProcess, new_topic: Topics) -> None:
    topics = [new_topic() for _ in range(3)]
    admin = make_admin(broker)
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in topics]).values():
        future.result(TIMEOUT_S)
    listed = admin.list_topics(timeout=TIMEOUT_S)
    assert {name: len(listed.topics[name].partitions) for name in topics} == dict.fromkeys(topics, 2)
    for future in admin.delete_topics(topics).values():
        future.result(TIMEOUT_S)


def test_what_is_read_is_what_was_sent(broker: BrokerProcess, new_topic: Topics) -> None:
    topic = new_topic()
    send(
        make_producer(broker),
        topic,
        [{"key": "k", "value": "v", "headers": {"trace": b"1"}, "timestamp": 1_600_000_000_000}],
    )
    (message,) = read(broker, topic, 1)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v", [("trace", b"1")])
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 1_600_000_000_000)
    assert message.leader_epoch() == 0
