"""Consumers and transactional producers of two libraries behind one face: confluent-kafka's, and oncelog's own.

What a user must do differently is told by two errors: `NeedsAbort` and `GaveUp`. What can be repeated is repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import confluent_kafka
from confluent_kafka import KafkaException

import oncelog
from oncelog.client.transaction_errors import AbortNeeded, OutcomeUnknown, TransactionFailed
from oncelog.types import NO_OFFSET, TopicPartition

CALL_S = 30.0
LOOK_S = 5.0
BACKOFF_MS, BACKOFF_MAX_MS = 10, 100
SESSION_MS = 3_000
HEARTBEAT_MS = 300
TRANSACTION_TIMEOUT_MS = 60_000


class NeedsAbort(Exception):
    """The transaction cannot be committed any more."""


class GaveUp(Exception):
    """The producer is of no use any more."""


class Polled(NamedTuple):
    partition: TopicPartition
    offset: int
    value: str


class ConsumerClient(Protocol):
    moved: set[TopicPartition]
    """Assigned or sought since somebody emptied it."""

    def poll(self, max_records: int, timeout_s: float) -> list[Polled]: ...
    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Of the group, as far as it is settled; nothing if that takes too long."""
        ...

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None: ...
    def close(self) -> None: ...


class ProducerClient(Protocol):
    def begin(self) -> None: ...
    def send(self, partition: TopicPartition, value: str, acks: list[int]) -> None:
        """The offset will be appended to `acks`, NO_OFFSET if it cannot be stored."""
        ...

    def flush(self) -> None: ...
    def send_offsets(self, offsets: Mapping[TopicPartition, int], consumer: Any) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...


# --- confluent-kafka -------------------------------------------------------------------------------------------------

CONFLUENT = {
    "reconnect.backoff.ms": BACKOFF_MS,
    "reconnect.backoff.max.ms": BACKOFF_MAX_MS,
    "retry.backoff.ms": BACKOFF_MS,
    # Else librdkafka 2.16, when all brokers are away, throws away the one that it then waits for without end.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


def _insist(call: Callable[[], Any]) -> Any:
    while True:
        try:
            return call()
        except KafkaException as failure:
            error = failure.args[0]
            if error.fatal():
                raise GaveUp(str(error)) from failure
            if error.txn_requires_abort():
                raise NeedsAbort(str(error)) from failure
            if not error.retriable():
                raise


class ConfluentConsumer:
    def __init__(self, servers: str, **settings: Any) -> None:
        self.moved: set[TopicPartition] = set()
        defaults = {
            "group.id": "nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "fetch.wait.max.ms": 50,
            "fetch.error.backoff.ms": BACKOFF_MS,
            "topic.metadata.refresh.interval.ms": 1_000,
        }
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        self.client = confluent_kafka.Consumer({"bootstrap.servers": servers, **CONFLUENT, **defaults, **dotted})

    def subscribe(self, topic: str) -> None:
        self.client.subscribe([topic], on_assign=self._assigned)

    def assign(self, partitions: list[TopicPartition], *, from_start: bool) -> None:
        start = confluent_kafka.OFFSET_BEGINNING if from_start else confluent_kafka.OFFSET_END
        self.client.assign([confluent_kafka.TopicPartition(*one, start) for one in partitions])
        self.moved.update(partitions)

    def _assigned(self, _: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.moved.update(TopicPartition(one.topic, one.partition) for one in partitions)

    def poll(self, max_records: int, timeout_s: float) -> list[Polled]:
        # Errors here are news of a broker that is away; the client goes on by itself.
        messages: list[Any] = [one for one in self.client.consume(max_records, timeout_s) if one.error() is None]
        return [
            Polled(TopicPartition(one.topic(), one.partition()), one.offset(), one.value().decode()) for one in messages
        ]

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            found = self.client.committed([confluent_kafka.TopicPartition(*one) for one in partitions], LOOK_S)
        except KafkaException:
            return {}
        return {TopicPartition(one.topic, one.partition): max(one.offset, NO_OFFSET) for one in found if not one.error}

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        for (topic, index), offset in offsets.items():
            _insist(partial(self.client.seek, confluent_kafka.TopicPartition(topic, index, offset)))
        self.moved.update(offsets)

    def close(self) -> None:
        self.client.close()


class ConfluentProducer:
    def __init__(self, servers: str, transactional_id: str) -> None:
        given = {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        self._client = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 2, **CONFLUENT, **given})
        _insist(lambda: self._client.init_transactions(CALL_S))

    def begin(self) -> None:
        self._client.begin_transaction()

    def send(self, partition: TopicPartition, value: str, acks: list[int]) -> None:
        def on_delivery(error: Any, message: Any) -> None:
            acks.append(message.offset() if error is None else NO_OFFSET)

        self._client.produce(partition.topic, value, partition=partition.partition, on_delivery=on_delivery)

    def flush(self) -> None:
        self._client.flush(CALL_S)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], consumer: ConfluentConsumer) -> None:
        positions = [confluent_kafka.TopicPartition(*one, offset) for one, offset in offsets.items()]
        group = consumer.client.consumer_group_metadata()
        _insist(lambda: self._client.send_offsets_to_transaction(positions, group, CALL_S))

    def commit(self) -> None:
        _insist(lambda: self._client.commit_transaction(CALL_S))

    def abort(self) -> None:
        _insist(lambda: self._client.abort_transaction(CALL_S))


# --- oncelog ---------------------------------------------------------------------------------------------------------

ONCELOG = {
    "reconnect_backoff_ms": BACKOFF_MS,
    "reconnect_backoff_max_ms": BACKOFF_MAX_MS,
    "retry_backoff_ms": BACKOFF_MS,
    "retry_backoff_max_ms": BACKOFF_MAX_MS,
}


class OncelogConsumer:
    DEFAULTS: Mapping[str, Any] = {
        **ONCELOG,
        "group_id": "nobody",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "fetch_max_wait_ms": 50,
    }

    def __init__(self, servers: str, **settings: Any) -> None:
        self.moved: set[TopicPartition] = set()
        self.client = oncelog.Consumer(servers, **{**self.DEFAULTS, **settings})

    def subscribe(self, topic: str) -> None:
        self.client.subscribe(topic, on_assigned=lambda _, partitions: self.moved.update(partitions))

    def assign(self, partitions: list[TopicPartition], *, from_start: bool) -> None:
        self.client.assign(partitions)
        if from_start:
            self.client.seek_to_beginning(*partitions)
        else:
            self.client.seek_to_end(*partitions)
        self.moved.update(partitions)

    def poll(self, max_records: int, timeout_s: float) -> list[Polled]:
        return [
            Polled(TopicPartition(one.topic, one.partition), one.offset, (one.value or b"").decode())
            for one in self.client.poll(timeout_s, max_records=max_records)
        ]

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            found = self.client.committed(*partitions, timeout=LOOK_S)
        except oncelog.OncelogError:
            return {}
        return {one: NO_OFFSET if place is None else place.offset for one, place in found.items()}

    def rewind(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            self.client.seek(partition, offset)
        self.moved.update(offsets)

    def close(self) -> None:
        self.client.close()


def _heard(call: Callable[[float], object]) -> None:
    while True:
        try:
            call(CALL_S)
        except OutcomeUnknown:
            continue
        except AbortNeeded as error:
            raise NeedsAbort(str(error)) from error
        except TransactionFailed as error:
            raise GaveUp(str(error)) from error
        return


class OncelogProducer:
    def __init__(self, servers: str, transactional_id: str) -> None:
        given = {"transactional_id": transactional_id, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
        self._client = oncelog.Producer(servers, linger_ms=2, **ONCELOG, **given)
        _heard(self._client.init_transactions)

    def begin(self) -> None:
        self._client.begin()

    def send(self, partition: TopicPartition, value: str, acks: list[int]) -> None:
        def on_delivery(metadata: Any, error: Exception | None) -> None:
            acks.append(metadata.offset if error is None else NO_OFFSET)

        topic, index = partition
        _heard(lambda _: self._client.send(topic, value, partition=index, on_delivery=on_delivery))

    def flush(self) -> None:
        _heard(self._client.flush)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], consumer: OncelogConsumer) -> None:
        group = consumer.client.group_metadata()
        _heard(lambda timeout: self._client.send_offsets_to_transaction(dict(offsets), group, timeout))

    def commit(self) -> None:
        _heard(self._client.commit)

    def abort(self) -> None:
        _heard(self._client.abort)


CLIENTS: dict[str, tuple[Any, Any]] = {
    "confluent": (ConfluentConsumer, ConfluentProducer),
    "oncelog": (OncelogConsumer, OncelogProducer),
    "process": (OncelogConsumer, None),
}
