"""More partitions than descriptors: all are written, all are there after a kill, and the broker starts on them."""

from __future__ import annotations

import os
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import OncelogBroker

DESCRIPTORS = 400
PARTITIONS = 2_000
TOPIC = "many"
TIMEOUT_S = 120.0


def write_to_all(broker: OncelogBroker) -> list[KafkaError]:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, b"%d" % partition, partition=partition, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    return failed


def read_all(broker: OncelogBroker) -> dict[int, bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, bytes] = {}
    while len(found) < PARTITIONS:
        messages = consumer.consume(500, TIMEOUT_S)
        assert messages, f"nothing more comes after {len(found)} records"
        found |= {message.partition(): message.value() for message in messages if message.error() is None}
    consumer.close()
    return found


def test_more_partitions_than_descriptors(tmp_path: Path) -> None:
    broker = OncelogBroker(tmp_path, max_descriptors=DESCRIPTORS)
    try:
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT_S)
        assert write_to_all(broker) == []
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) < DESCRIPTORS * 3 // 4, "clients must find some too"
        broker.kill()
        broker.start()
        assert read_all(broker) == {partition: b"%d" % partition for partition in range(PARTITIONS)}
    finally:
        broker.kill()
