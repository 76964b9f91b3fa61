"""Offsets that librdkafka commits in transactions: the group moves with a commit, and only then."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.confluent import TIMEOUT_S, create_topic, make_consumer, make_producer
from tests.support.groups import await_coordinator
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.transactions import await_transactions, offset_of

pytestmark = pytest.mark.on_both_brokers

BEGINNING = 1
"""What the group had committed without a transaction."""


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    create_topic(broker, name)
    return name


@pytest.fixture
def group(broker: BrokerProcess, topic: str) -> str:
    name = f"group-of-{topic}"
    with RawClient(broker.address) as raw:
        await_coordinator(raw, name)
        await_transactions(raw)
    return name


def committed(consumer: Consumer, topic: str) -> int:
    (place,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    offset: int = place.offset
    return offset


def send_offset(producer: Producer, consumer: Consumer, topic: str, offset: int) -> None:
    place = TopicPartition(topic, 0, offset)
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), TIMEOUT_S)


def test_a_group_moves_with_the_commit_of_a_transaction(broker: BrokerProcess, topic: str, group: str) -> None:
    consumer = make_consumer(broker, group_id=group, isolation_level="read_committed")
    producer = make_producer(broker, transactional_id=f"writes-{topic}")
    consumer.commit(offsets=[TopicPartition(topic, 0, BEGINNING)], asynchronous=False)
    producer.init_transactions(TIMEOUT_S)
    with RawClient(broker.address) as raw:
        producer.begin_transaction()
        producer.produce(topic, b"with an offset")
        send_offset(producer, consumer, topic, 5)
        assert offset_of(raw, group, topic) == BEGINNING
        assert offset_of(raw, group, topic, require_stable=True) == "unstable_offset_commit"
        producer.abort_transaction(TIMEOUT_S)
        eventually(lambda: offset_of(raw, group, topic, require_stable=True) == BEGINNING, "the abort")

        producer.begin_transaction()
        send_offset(producer, consumer, topic, 6)
        send_offset(producer, consumer, topic, 7)
        producer.commit_transaction(TIMEOUT_S)
        eventually(lambda: offset_of(raw, group, topic, require_stable=True) == 7, "the commit")
    assert committed(consumer, topic) == 7
    consumer.close()


def test_a_reader_of_committed_records_is_told_when_the_transaction_has_ended(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    """librdkafka asks for stable offsets, and asks again until they are."""
    consumer = make_consumer(broker, group_id=group, isolation_level="read_committed")
    producer = make_producer(broker, transactional_id=f"writes-{topic}")
    producer.init_transactions(TIMEOUT_S)
    for offset in range(1, 4):
        producer.begin_transaction()
        send_offset(producer, consumer, topic, offset)
        producer.commit_transaction(TIMEOUT_S)
        assert committed(consumer, topic) == offset
    consumer.close()
