"""oncelog's own producers in the suite of transactions that every client goes through."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from oncelog import AsyncProducer, Consumer, OncelogError, Producer, TopicPartition, TransactionMisuse
from tests.support.batches import CODECS
from tests.support.patience import PATIENCE_S, eventually
from tests.support.process import BrokerProcess
from tests.support.transaction_suite import BATCH_BYTES, MANY, Refused


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except OncelogError as error:
        raise Refused(type(error).__name__) from error


class OncelogProducer:
    def __init__(self, broker: BrokerProcess, transactional_id: str, timeout_ms: int, codec: str) -> None:
        self._producer = Producer(
            broker.bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            compression_type=codec,
            batch_size=BATCH_BYTES,
        )
        with refusals():
            self._producer.init_transactions(PATIENCE_S)

    @refusals()
    def begin(self) -> None:
        self._producer.begin()

    @refusals()
    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        for future in [self._producer.send(topic, value, partition=partition) for value in values]:
            future.result(PATIENCE_S)

    @refusals()
    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        wanted = {TopicPartition(topic, index): offset for index, offset in offsets.items()}
        self._producer.send_offsets_to_transaction(wanted, group, PATIENCE_S)

    @refusals()
    def commit(self) -> None:
        self._producer.commit(PATIENCE_S)

    @refusals()
    def abort(self) -> None:
        self._producer.abort(PATIENCE_S)

    def close(self) -> None:
        self._producer.close(0)


class Oncelog:
    codecs = tuple(CODECS)
    shortest_timeout_ms = 1_000
    fenced = ("TransactionalProducerFenced", "InvalidProducerEpoch")
    overdue = ("TransactionalProducerFenced", "TransactionFailed")

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def producer(self, transactional_id: str, *, timeout_ms: int, codec: str) -> OncelogProducer:
        return OncelogProducer(self._broker, transactional_id, timeout_ms, codec)

    def read(self, topic: str, partition: int, last: bytes, *, isolation: str) -> list[bytes]:
        values: list[bytes] = []

        def is_read() -> bool:
            values.extend(record.value for record in consumer.poll(0.05, max_records=MANY))
            return last in values[-1:]

        with Consumer(self._broker.bootstrap, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
            consumer.assign([TopicPartition(topic, partition)])
            eventually(is_read, f"{last!r}, not {values[-1:]}")
        return values


class AsyncOncelogProducer:
    """The asynchronous one, in a loop that turns while a call waits."""

    def __init__(self, broker: BrokerProcess, transactional_id: str, timeout_ms: int, codec: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._producer = AsyncProducer(
            broker.bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            compression_type=codec,
            batch_size=BATCH_BYTES,
        )
        self._run(self._producer.init_transactions(PATIENCE_S))

    def _run(self, call: Coroutine[Any, Any, None]) -> None:
        with refusals():
            self._loop.run_until_complete(call)

    def begin(self) -> None:
        async def begin() -> None:
            self._producer.begin()

        self._run(begin())

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        async def send() -> None:
            await asyncio.gather(*[self._producer.send(topic, value, partition=partition) for value in values])

        self._run(send())

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        wanted = {TopicPartition(topic, index): offset for index, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(wanted, group, PATIENCE_S))

    def commit(self) -> None:
        self._run(self._producer.commit(PATIENCE_S))

    def abort(self) -> None:
        self._run(self._producer.abort(PATIENCE_S))

    def close(self) -> None:
        with suppress(TransactionMisuse):
            self._loop.run_until_complete(self._producer.close(0))
        self._loop.close()


class AsyncOncelog(Oncelog):
    def producer(  # type: ignore[override]
        self, transactional_id: str, *, timeout_ms: int, codec: str
    ) -> AsyncOncelogProducer:
        return AsyncOncelogProducer(self._broker, transactional_id, timeout_ms, codec)
