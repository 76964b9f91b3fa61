"""Transactions of the clients in Python: aiokafka, which speaks the first version of each request, and kafka-python."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
import pytest

from tests.support.batches import CODECS
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess
from tests.support.transaction_suite import BATCH_BYTES, OffsetSuite, Refused, TransactionalClient

T = TypeVar("T")


class AioKafkaProducer:
    def __init__(self, run: Callable[[Awaitable[Any]], Any], **settings: Any) -> None:
        self._run = run
        self._producer = self._run(self._made(settings))

    async def _made(self, settings: dict[str, Any]) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(max_batch_size=BATCH_BYTES, **settings)
        await producer.start()
        return producer

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        async def stored() -> None:
            sent = [await self._producer.send(topic, value, partition=partition) for value in values]
            await asyncio.gather(*sent)

        self._run(stored())

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        wanted = {aiokafka.TopicPartition(topic, index): offset for index, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(wanted, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        with suppress(Refused):  # what went wrong before is raised once more
            self._run(self._producer.stop())


class AioKafka:
    codecs = tuple(CODECS)
    shortest_timeout_ms = 300
    fenced = overdue = ("ProducerFenced",)

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._loop = asyncio.new_event_loop()

    def _run(self, call: Awaitable[T]) -> T:
        async def patiently() -> T:
            async with asyncio.timeout(PATIENCE_S):
                return await call

        try:
            return self._loop.run_until_complete(patiently())
        except (aiokafka.errors.KafkaError, aiokafka.errors.IllegalOperation, AssertionError) as error:
            # After a fatal error it finds by assertions that it is in no state to go on.
            raise Refused(type(error).__name__) from error

    def producer(self, transactional_id: str, *, timeout_ms: int, codec: str) -> AioKafkaProducer:
        return AioKafkaProducer(
            self._run,
            bootstrap_servers=self._broker.bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            compression_type=None if codec == "none" else codec,
        )

    def read(self, topic: str, partition: int, last: bytes, *, isolation: str) -> list[bytes]:
        async def values() -> list[bytes]:
            place = aiokafka.TopicPartition(topic, partition)
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self._broker.bootstrap, isolation_level=isolation, enable_auto_commit=False
            )
            await consumer.start()
            try:
                consumer.assign([place])
                await consumer.seek_to_beginning(place)
                values: list[bytes] = []
                while last not in values[-1:]:
                    values += [record.value for record in (await consumer.getmany(timeout_ms=50)).get(place, [])]
                return values
            finally:
                await consumer.stop()

        return self._run(values())

    def close(self) -> None:
        self._loop.close()


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except kafka.errors.KafkaError as error:
        raise Refused(type(error).__name__) from error


class KafkaPythonProducer:
    def __init__(self, **settings: Any) -> None:
        self._producer = kafka.KafkaProducer(batch_size=BATCH_BYTES, **settings)
        with refusals():
            self._producer.init_transactions()

    @refusals()
    def begin(self) -> None:
        self._producer.begin_transaction()

    @refusals()
    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        sent = [self._producer.send(topic, value, partition=partition) for value in values]
        for each in sent:
            each.get(PATIENCE_S)

    @refusals()
    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        wanted = {
            kafka.TopicPartition(topic, index): kafka.OffsetAndMetadata(offset, "", -1)
            for index, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(wanted, group)

    @refusals()
    def commit(self) -> None:
        self._producer.commit_transaction()

    @refusals()
    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)


class KafkaPython:
    codecs = ("none", "gzip")
    shortest_timeout_ms = 300
    fenced = ("ProducerFencedError", "InvalidProducerEpochError")
    overdue = ("ProducerFencedError",)

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def producer(self, transactional_id: str, *, timeout_ms: int, codec: str) -> KafkaPythonProducer:
        return KafkaPythonProducer(
            bootstrap_servers=self._broker.bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            compression_type=None if codec == "none" else codec,
        )

    def read(self, topic: str, partition: int, last: bytes, *, isolation: str) -> list[bytes]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._broker.bootstrap, isolation_level=isolation, enable_auto_commit=False
        )
        place = kafka.TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        values: list[bytes] = []

        def is_read() -> bool:
            values.extend(record.value for record in consumer.poll(timeout_ms=50).get(place, []))
            return last in values[-1:]

        eventually(is_read, f"{last!r}, not {values[-1:]}")
        consumer.close()
        return values

    def close(self) -> None: ...


@pytest.fixture(params=[AioKafka, KafkaPython], ids=["aiokafka", "kafka-python"])
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[TransactionalClient]:
    client = request.param(broker)
    yield client
    client.close()


class TestTransactions(OffsetSuite):
    """The suite of every client."""
