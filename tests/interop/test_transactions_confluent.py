"""Transactions of confluent-kafka (librdkafka), which speaks version 1 of their protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaException, Producer, TopicPartition

from tests.support.batches import CODECS
from tests.support.confluent import TIMEOUT_S, make_consumer
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.transaction_suite import BATCH_BYTES, MANY, OffsetSuite, Refused

pytestmark = pytest.mark.filterwarnings("ignore:Producer abort_transaction failed during close:RuntimeWarning")


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise Refused(error.args[0].name()) from error
    except SystemError as error:  # as which Python tells of a fatal error that is raised during a delivery report
        if not isinstance(error.__cause__, KafkaException):
            raise
        raise Refused(error.__cause__.args[0].name()) from error


class ConfluentProducer:
    def __init__(self, broker: BrokerProcess, transactional_id: str, timeout_ms: int, codec: str) -> None:
        self._broker = broker
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "compression.codec": codec,
            "batch.size": BATCH_BYTES,
        }
        self._producer = Producer(settings)
        with refusals():
            self._producer.init_transactions(TIMEOUT_S)

    @refusals()
    def begin(self) -> None:
        self._producer.begin_transaction()

    @refusals()
    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        errors: list[Any] = []
        for value in values:
            self._producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
        self._producer.flush(TIMEOUT_S)
        for error in filter(None, errors):
            raise KafkaException(error)

    @refusals()
    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        consumer = make_consumer(self._broker, group_id=group)
        wanted = [TopicPartition(topic, index, offset) for index, offset in offsets.items()]
        self._producer.send_offsets_to_transaction(wanted, consumer.consumer_group_metadata(), TIMEOUT_S)
        consumer.close()

    @refusals()
    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)

    @refusals()
    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        with suppress(KafkaException):  # what went wrong before is raised once more
            self._producer.close()


class Confluent:
    codecs = tuple(CODECS)
    shortest_timeout_ms = 1_000
    fenced = overdue = ("_FENCED",)

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def producer(self, transactional_id: str, *, timeout_ms: int, codec: str) -> ConfluentProducer:
        return ConfluentProducer(self._broker, transactional_id, timeout_ms, codec)

    def read(self, topic: str, partition: int, last: bytes, *, isolation: str) -> list[bytes]:
        consumer = make_consumer(self._broker, isolation_level=isolation, fetch_wait_max_ms=20)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        values: list[bytes] = []

        def is_read() -> bool:
            values.extend(message.value() or b"" for message in consumer.consume(MANY, timeout=0.02))
            return last in values[-1:]

        eventually(is_read, f"{last!r}, not {values[-1:]}")
        consumer.close()
        return values


@pytest.fixture
def client(broker: BrokerProcess) -> Confluent:
    return Confluent(broker)


class TestTransactions(OffsetSuite):
    """The suite of every client."""
