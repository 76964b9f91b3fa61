"""confluent-kafka (librdkafka) as the tests use it: short calls that send, read and administer."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support import requests
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient

TIMEOUT_S = 60.0


def make_producer(broker: BrokerProcess, **config: Any) -> Producer:
    """Keyword names are Kafka's keys with underscores for dots."""
    return Producer({"bootstrap.servers": broker.bootstrap, **_dotted(config)})


def make_consumer(broker: BrokerProcess, **config: Any) -> Consumer:
    defaults = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "assigned-by-hand",
        "enable.auto.commit": False,
        "enable.partition.eof": False,
    }
    return Consumer({**defaults, **_dotted(config)})


def make_admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def _dotted(config: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "."): value for key, value in config.items()}


def create_topic(
    broker: BrokerProcess, name: str, *, partitions: int = 1, configs: dict[str, str] | None = None
) -> None:
    """Created by a raw request, which also waits until every partition serves."""
    with RawClient(broker.address) as client:
        requests.create_topic(client, name, partitions=partitions, configs=configs)


def send(producer: Producer, topic: str, messages: Iterable[dict[str, Any]]) -> list[Message]:
    """Send all, wait for all; the delivered messages in the order sent, or the first error."""
    delivered: list[Message] = []
    errors: list[KafkaException] = []

    def on_delivery(error: Any, message: Message) -> None:
        if error is not None:
            errors.append(KafkaException(error))
        delivered.append(message)

    count = 0
    for message in messages:
        producer.produce(topic, on_delivery=on_delivery, **message)
        producer.poll(0)
        count += 1
    assert producer.flush(TIMEOUT_S) == 0
    if errors:
        raise errors[0]
    assert len(delivered) == count
    return delivered


def read(
    broker: BrokerProcess,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    offset: int = OFFSET_BEGINNING,
    **config: Any,
) -> list[Message]:
    """Exactly `count` messages of one partition, from `offset` on."""
    consumer = make_consumer(broker, **config)
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        return poll(consumer, count)
    finally:
        consumer.close()


def poll(consumer: Consumer, count: int, timeout_s: float = TIMEOUT_S) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(messages), timeout=0.2):
            if message.error() is not None:
                raise KafkaException(message.error())
            messages.append(message)
    assert len(messages) == count, f"{len(messages)} of {count} messages within {timeout_s} s"
    return messages
