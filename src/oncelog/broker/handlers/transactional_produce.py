"""Produce requests that name a transactional id: what must be so before their batches may be appended.

All transactional batches of a request are of one producer. The coordinator of its transaction is asked about those
partitions where the transaction is not open yet, all at once; what it refuses is refused to them alone. The appends
themselves are as ever.

By protocol 2 the first batch of a transaction may come while the last one is being completed. Its producer has no part
in that, so it is not bothered: the coordinator is asked again, for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Pending, Request
from oncelog.broker.transaction_entry import Entry, Refused, enter, entry_of_produce, has_entered
from oncelog.controller.topic_names import INTERNAL_TOPICS
from oncelog.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
)
from oncelog.records import kernel
from oncelog.records.model import HEADER_SIZE
from oncelog.types import TopicPartition
from oncelog.wire.produce import ProduceRequest

if TYPE_CHECKING:
    from oncelog.broker.handlers.produce import Appends
    from oncelog.broker.state import BrokerState

RETRY_MS = 20
MAX_RETRIES = 5
"""How long a transaction may wait for the end of its producer's last one: 100 ms, as in Kafka."""


_Producer = tuple[int, int]
"""Its id and epoch."""


def perform_in_transaction(broker: BrokerState, request: Request, appends: Appends) -> Answer:
    producer: _Producer | None = None
    partitions: list[TopicPartition] = []
    for topic in request.body.topics:
        name = topic.name if topic.topic_id is None else broker.topic_name(topic.topic_id) or ""
        for index, records in topic.partitions:
            its = _producer_of(records)
            if its is None:
                continue
            if its != producer and producer is not None:
                return appends.refuse(InvalidProducerIdMapping("transactional batches of more than one producer"))
            producer = its
            partitions.append(TopicPartition(name, index))
    if producer is None or not _unentered(broker, partitions, producer):
        return appends.perform()
    return _Entering(broker, request, appends, producer, partitions).answer()


def _producer_of(records: memoryview | None) -> _Producer | None:
    """Of a transactional batch. What is no batch at all is found out when it is to be appended."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    header = kernel.parse_header(records)
    return (header.producer_id, header.producer_epoch) if header.is_transactional else None


def _unentered(broker: BrokerState, partitions: list[TopicPartition], producer: _Producer) -> list[TopicPartition]:
    return [partition for partition in partitions if not _has_entered(broker, partition, producer)]


def _has_entered(broker: BrokerState, partition: TopicPartition, producer: _Producer) -> bool:
    """Nobody is asked either where nothing can be written anyway."""
    try:
        log = broker.partition(*partition)
    except KafkaError:
        return True
    return partition.topic in INTERNAL_TOPICS or has_entered(log, *producer)


class _Entering:
    """A request whose transaction is about to enter partitions."""

    def __init__(
        self,
        broker: BrokerState,
        request: Request,
        appends: Appends,
        producer: _Producer,
        partitions: list[TopicPartition],
    ) -> None:
        self._broker = broker
        self._appends = appends
        self._produce: ProduceRequest = request.body
        self._entry = entry_of_produce(request.version)
        self._producer = producer
        self._partitions = partitions
        self._retries_left = MAX_RETRIES if self._entry is Entry.ADDED else 0
        self._answer: Answer | None = None
        self._pending: Pending | None = None

    def answer(self) -> Answer:
        self._ask()
        if self._answer is not None:
            return self._answer
        self._pending = Pending(holds_connection=True)  # or the next batch of this producer would be there first
        return self._pending

    def _ask(self) -> None:
        """Each time about those where the transaction is not open then: the last one may have ended meanwhile."""
        assert self._produce.transactional_id is not None
        enter(
            self._broker,
            self._entry,
            self._produce.transactional_id,
            *self._producer,
            _unentered(self._broker, self._partitions, self._producer),
            self._entered,
        )

    def _entered(self, refused: Refused) -> None:
        self._attempt(lambda: self._go_on(refused))

    def _attempt(self, step: Callable[[], None]) -> None:
        if self._pending is None:
            step()
        else:
            self._pending.attempt(step)

    def _go_on(self, refused: Refused) -> None:
        if self._retries_left and any(isinstance(error, ConcurrentTransactions) for error in refused.values()):
            self._retries_left -= 1
            self._broker.timers.later(RETRY_MS, lambda: self._attempt(self._ask))
            return
        known = {partition: _as_producer_knows(error, self._entry) for partition, error in refused.items()}
        self._deliver(self._appends.perform(known))

    def _deliver(self, answer: Answer) -> None:
        pending = self._pending
        if pending is None:
            self._answer = answer
        else:
            pending.follow(answer)


def _as_producer_knows(error: KafkaError, entry: Entry) -> KafkaError:
    """A producer that cannot be told what it should wait for tries again after NOT_ENOUGH_REPLICAS, without asking for
    metadata that would not help."""
    is_unknown = isinstance(error, ConcurrentTransactions) and entry is not Entry.ADDED
    if is_unknown or isinstance(error, CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator):
        return NotEnoughReplicas(f"the transaction's coordinator cannot say yet whether it is part of it: {error}")
    return error
