"""Lag as what is left to read, on both brokers: on histories of several transactional producers, counted by librdkafka
record by record."""

from __future__ import annotations

import random
import uuid
from collections import defaultdict

import confluent_kafka as ck
import pytest

from oncelog.admin import Admin, Lag
from oncelog.admin.lag import Budget, measure_lags
from oncelog.admin.values import TransactionState
from oncelog.client.blocking import BlockingClient
from oncelog.client.config import ClientConfig
from oncelog.types import IsolationLevel, TopicPartition
from tests.support.batches import make_batch
from tests.support.confluent import create_topic, make_consumer, make_producer
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import produce

pytestmark = pytest.mark.on_both_brokers

PARTITIONS = 100
PLACES_IN_EACH = 10
"""What follows a place in a partition is a history of its own: a thousand of them."""
PRODUCERS = 4
ROUNDS = 6
PARTITIONS_OF_EACH = 35
PATIENCE_S = 60
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


@pytest.fixture
def topic() -> str:
    return f"lag-{uuid.uuid4().hex[:8]}"


def write_histories(broker: BrokerProcess, topic: str, chance: random.Random) -> ck.Producer:
    """Transactions of several producers, one inside the other, and records outside of any; returns a producer whose
    transaction is open."""
    plain = make_producer(broker, linger_ms=0)
    producers = [
        make_producer(broker, transactional_id=f"{topic} {number}", linger_ms=5) for number in range(PRODUCERS + 1)
    ]
    for producer in producers:
        producer.init_transactions(PATIENCE_S)
    *ending, staying = producers
    for number in range(ROUNDS):
        for producer in ending:
            producer.begin_transaction()
        for _ in range(2):
            for producer in (*ending, plain):
                write(producer, topic, chance, PARTITIONS_OF_EACH)
        chance.shuffle(ending)
        for producer in ending:
            _ = (
                producer.commit_transaction(PATIENCE_S)
                if chance.random() < 0.5
                else producer.abort_transaction(PATIENCE_S)
            )
        if number == ROUNDS - 2:
            staying.begin_transaction()
            write(staying, topic, chance, PARTITIONS // 4)
    return staying


def write(producer: ck.Producer, topic: str, chance: random.Random, partitions: int) -> None:
    for partition in chance.sample(range(PARTITIONS), partitions):
        for _ in range(chance.randrange(1, 4)):
            producer.produce(topic, b"v", partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def await_markers(admin: Admin, transactional_ids: list[str]) -> None:
    """Kafka answers a commit before its markers are written; until they are, the log does not end where it will."""

    def are_written() -> bool:
        described = admin.describe_transactions(transactional_ids).values()
        return {each.state for each in described} <= {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}

    eventually(are_written, "markers of all transactions that were ended")


def read_one_by_one(
    broker: BrokerProcess, topic: str, ends: dict[TopicPartition, int], isolation: IsolationLevel
) -> dict[TopicPartition, list[int]]:
    """The offset of every record that librdkafka shows."""
    consumer = make_consumer(
        broker, isolation_level=isolation.name.lower(), enable_partition_eof=True, fetch_wait_max_ms=10
    )
    found = defaultdict(list)
    waiting = {partition for partition, end in ends.items() if end > 0}
    try:
        consumer.assign([ck.TopicPartition(*partition, ck.OFFSET_BEGINNING) for partition in waiting])
        while waiting:
            for message in consumer.consume(500, 0.1):
                partition = TopicPartition(message.topic(), message.partition())
                if message.error() is None:
                    found[partition].append(message.offset())
                else:
                    assert message.error().code() == ck.KafkaError._PARTITION_EOF, message.error()
                    waiting.discard(partition)
    finally:
        consumer.close()
    return found


def test_a_thousand_histories(broker: BrokerProcess, topic: str) -> None:
    chance = random.Random(4711)
    create_topic(broker, topic, partitions=PARTITIONS)
    staying = write_histories(broker, topic, chance)
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    with Admin(broker.bootstrap) as admin:
        await_markers(admin, [f"{topic} {number}" for number in range(PRODUCERS)])
        for isolation in (COMMITTED, UNCOMMITTED):
            from_start = admin.list_lags(dict.fromkeys(partitions, 0), isolation_level=isolation)
            ends = {partition: lag.end_offset for partition, lag in from_start.items()}
            shown = read_one_by_one(broker, topic, ends, isolation)
            smaller = 0
            for _ in range(PLACES_IN_EACH):
                places = {partition: chance.randrange(ends[partition] + 1) for partition in partitions}
                lags = admin.list_lags(places, isolation_level=isolation)
                expected = {
                    partition: Lag(sum(offset >= place for offset in shown[partition]), ends[partition])
                    for partition, place in places.items()
                }
                assert lags == expected
                smaller += sum(lags[one].records < ends[one] - places[one] for one in partitions)
            assert smaller > PARTITIONS * PLACES_IN_EACH / 2, "where offsets and records differ is what this is about"
    staying.abort_transaction(PATIENCE_S)


def test_beyond_the_budget_it_is_a_bound(broker: BrokerProcess, topic: str) -> None:
    """Batches of nearly a megabyte: one answer brings four of them. Compaction would leave fewer records than offsets,
    and nobody who has not read them may say that it did not."""
    create_topic(broker, topic, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with RawClient(broker.address) as client:
        for partition in (0, 1):
            for _ in range(6):
                assert produce(client, topic, make_batch([bytes(900_000)]), partition=partition)["error_code"] == 0
    with BlockingClient(ClientConfig.of(broker.bootstrap)) as client:

        def measured(budget: Budget) -> list[Lag]:
            return list(measure_lags(client, {first: 0, second: 2}, COMMITTED, budget).values())

        assert measured(Budget(0)) == [Lag(6, 6, is_exact=False), Lag(4, 6, is_exact=False)]
        assert measured(Budget(1)) == [Lag(6, 6, is_exact=False), Lag(4, 6, is_exact=False)]
        assert measured(Budget(None, 1)) == [Lag(6, 6, is_exact=False), Lag(4, 6)]
        assert measured(Budget()) == measured(Budget(None, None)) == [Lag(6, 6), Lag(4, 6)]
    assert str(Lag(5, 9, is_exact=False)) == "<= 5"


def test_offsets_outside_of_the_log(broker: BrokerProcess, topic: str) -> None:
    """What retention took is not left to read, and nothing is left behind the end."""
    create_topic(broker, topic)
    place = TopicPartition(topic, 0)
    with RawClient(broker.address) as client:
        assert produce(client, topic, make_batch([b"v"] * 10))["error_code"] == 0
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({place: 4})
        assert admin.list_lags({place: 1}) == {place: Lag(6, 10)}
        assert admin.list_lags({place: 50}) == {place: Lag(0, 10)}
        assert admin.list_lags({}) == {}
