"""Consume, transform, produce: members of groups commit offsets in transactions, and a rebalance comes between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.confluent import TIMEOUT_S, create_topic, make_consumer, make_producer, send
from tests.support.kafka_python import group_member
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.transactions import await_transactions, seen

Members = Callable[[], Consumer]

pytestmark = pytest.mark.on_both_brokers

PARTITIONS = 2
COUNT = 20
KINDS: dict[str, dict[str, Any]] = {
    "classic": {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 300},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture
def source(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    """A topic with records in both partitions."""
    topic = new_topic()
    create_topic(broker, topic, partitions=PARTITIONS)
    send(make_producer(broker), topic, ({"value": b"%d" % n, "partition": n % PARTITIONS} for n in range(COUNT)))
    return topic


@pytest.fixture
def target(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    topic = new_topic()
    create_topic(broker, topic)
    return topic


@pytest.fixture(params=KINDS)
def join(request: pytest.FixtureRequest, broker: BrokerProcess, source: str) -> Iterator[Members]:
    """Makes one more member of the source's group."""
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "fetch_wait_max_ms": 20}
    made: list[Consumer] = []

    def join() -> Consumer:
        consumer = make_consumer(broker, group_id=f"group-of-{source}", **settings, **KINDS[request.param])
        consumer.subscribe([source])
        made.append(consumer)
        return consumer

    yield join
    for consumer in made:
        consumer.close()


@pytest.fixture
def producer(broker: BrokerProcess, target: str) -> Iterator[Producer]:
    with RawClient(broker.address) as raw:
        await_transactions(raw)
    producer = make_producer(broker, transactional_id=f"writes-{target}")
    producer.init_transactions(TIMEOUT_S)
    yield producer
    producer.close()


def await_shares(share: int, *members: Consumer) -> None:
    def shared() -> bool:
        for member in members:
            member.poll(0.02)
        return {len(member.assignment()) for member in members} == {share}

    eventually(shared, f"{share} partitions each")


def at(offset: int, place: TopicPartition) -> TopicPartition:
    return TopicPartition(place.topic, place.partition, offset)


def rewind(consumer: Consumer) -> None:
    """To what is committed, or else to the beginning."""
    for place in consumer.committed(consumer.assignment(), TIMEOUT_S):
        consumer.seek(at(max(place.offset, 0), place))


def test_everything_is_copied_once(
    broker: BrokerProcess, source: str, target: str, join: Members, producer: Producer
) -> None:
    """Every other transaction is aborted, and what it read is read again."""
    consumer = join()
    attempts = copied = 0
    while copied < COUNT:
        messages = consumer.consume(6, timeout=0.1)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value())
        here = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(here, consumer.consumer_group_metadata(), TIMEOUT_S)
        attempts += 1
        if attempts % 2:
            producer.abort_transaction(TIMEOUT_S)
            rewind(consumer)
        else:
            producer.commit_transaction(TIMEOUT_S)
            copied += len(messages)
    assert sorted(seen(broker, target), key=int) == [b"%d" % n for n in range(COUNT)]
    ends = consumer.committed([TopicPartition(source, index) for index in range(PARTITIONS)], TIMEOUT_S)
    assert [place.offset for place in ends] == [COUNT // PARTITIONS] * PARTITIONS


def test_a_member_that_missed_a_rebalance_must_abort(
    broker: BrokerProcess, source: str, target: str, join: Members, producer: Producer
) -> None:
    first = join()
    await_shares(2, first)
    before = first.consumer_group_metadata()
    second = join()
    await_shares(1, first, second)
    (lost,), (kept,) = second.assignment(), first.assignment()
    producer.begin_transaction()
    producer.produce(target, b"in the old generation")
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([at(1, lost)], before, TIMEOUT_S)
    assert refused.value.args[0].name() == "ILLEGAL_GENERATION"
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(target, b"in the new one")
    producer.send_offsets_to_transaction([at(1, kept)], first.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    assert seen(broker, target) == [b"in the new one"]
    assert [place.offset for place in first.committed([kept], TIMEOUT_S)] == [1]


def test_a_member_of_kafka_python_that_missed_a_rebalance_must_abort(
    broker: BrokerProcess, source: str, target: str, producer: Producer
) -> None:
    place = kafka.TopicPartition(source, 0)
    offsets = {place: kafka.OffsetAndMetadata(1, "", -1)}

    def member() -> kafka.KafkaConsumer:
        group = f"group-of-{source}"
        return group_member(broker.bootstrap, source, group, isolation_level="read_committed", enable_auto_commit=False)

    def share(*members: kafka.KafkaConsumer) -> None:
        def shared() -> bool:
            for member in members:
                member.poll(timeout_ms=200)  # a join that is interrupted takes seconds
            return {len(member.assignment()) for member in members} == {PARTITIONS // len(members)}

        eventually(shared, "all partitions are assigned")

    with (
        closing(member()) as first,
        closing(kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"of-{target}")) as writer,
    ):
        share(first)
        before = first.group_metadata()
        writer.init_transactions()
        with closing(member()) as second:
            share(first, second)
            writer.begin_transaction()
            writer.send(target, b"in the old generation")
            with pytest.raises(kafka.errors.CommitFailedError):
                writer.send_offsets_to_transaction(offsets, before)
            writer.abort_transaction()
            writer.begin_transaction()
            writer.send(target, b"in the new one")
            writer.send_offsets_to_transaction(offsets, first.group_metadata())
            writer.commit_transaction()
            assert seen(broker, target) == [b"in the new one"]
            eventually(lambda: first.committed(place) == 1, "the offset")
