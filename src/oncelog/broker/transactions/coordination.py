"""All transaction coordinators of this broker: who keeps which transactional id, how requests reach them, how leaders
of partitions ask them, and how markers leave.

Decides nothing about a transaction. Which partitions of `__transaction_state` are loaded, and what wakes them, is as
for every coordinated topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from oncelog.broker.coordinated.places import place_of
from oncelog.broker.coordinated.ticket import Gathering, Ticket
from oncelog.broker.coordinated.topic import CoordinatedTopic
from oncelog.broker.coordinated.writing import as_client_knows
from oncelog.broker.request import Answer, Request
from oncelog.broker.transactions.markers import MarkerQueue
from oncelog.broker.transactions.partition import Joined, TransactionPartition
from oncelog.controller.lane import Steps
from oncelog.controller.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from oncelog.controller.topics import NewTopic
from oncelog.coordinator.groups import coordinator_for
from oncelog.coordinator.transactions.answers import refusal
from oncelog.coordinator.transactions.effects import Markers, TransactionSettings
from oncelog.coordinator.transactions.transaction import Identity
from oncelog.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from oncelog.errors import CoordinatorLoadInProgress, KafkaError, KafkaStorageError, RequestTimedOut
from oncelog.log.partition_log import PartitionLog
from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState


class TransactionCoordination(CoordinatedTopic[TransactionPartition]):
    def __init__(self, broker: BrokerState) -> None:
        super().__init__(broker, TRANSACTIONS_TOPIC)
        self._settings = transaction_settings(broker)
        self._markers = MarkerQueue(broker, self._marker_written)

    def _new_topic(self) -> NewTopic:
        values = self._broker.config.values
        return NewTopic(
            TRANSACTIONS_TOPIC,
            int(values["transaction.state.log.num.partitions"]),  # type: ignore[arg-type]
            int(values["transaction.state.log.replication.factor"]),  # type: ignore[arg-type]
            configs=[
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(values["transaction.state.log.min.isr"])),
                ("segment.bytes", str(values["transaction.state.log.segment.bytes"])),
                ("unclean.leader.election.enable", "false"),
            ],
        )

    def _new_partition(self, index: int, log: PartitionLog) -> TransactionPartition:
        coordinator = TransactionCoordinator(
            self._settings,
            self._broker.leader_epoch(TRANSACTIONS_TOPIC, index),
            self._new_producer_id,
            self._offsets_partition,
        )
        return TransactionPartition(self._broker, log, coordinator, self._markers.send, self._partition_failed)

    def _new_producer_id(self) -> int:
        """Raises CoordinatorLoadInProgress where the disk is full, as Kafka does, or a block of ids is still being
        reserved: producers try again."""
        try:
            return self._broker.controller.next_producer_id(self._timers.now_ms())
        except (KafkaStorageError, RequestTimedOut) as error:
            raise CoordinatorLoadInProgress(f"there is no producer id at present: {error.message}") from error

    def _offsets_partition(self, group_id: str) -> int:
        """Also if no group was ever asked for: the topic will have as many partitions as it is configured to."""
        topic = self._state.topics.get(OFFSETS_TOPIC)
        configured = self._broker.config.values["offsets.topic.num.partitions"]
        return coordinator_for(group_id, int(configured) if topic is None else len(topic.partitions))  # type: ignore[arg-type]

    def check_available(self, transactional_id: str) -> None:
        """Whether the id's partition can be coordinated here. Raises CoordinatorNotAvailable."""
        self._check_available(place_of(transactional_id, self._partition_count()))

    # --- requests ---

    def serve(self, request: Request, transactional_id: str) -> Answer:
        """The answer of the id's coordinator."""
        ticket = Ticket(request.api_key, request.version, request.body)
        try:
            partition = self._partition(place_of(transactional_id, self._partition_count()))
        except KafkaError as error:
            return _refused(ticket, error)
        self._ask(request, partition, ticket)
        return ticket.answer or ticket.result(_nobody_reads)

    def serve_many(
        self,
        request: Request,
        parts: Sequence[tuple[str, Message]],
        merge: Callable[[list[Message]], Message],
    ) -> Answer:
        """Each part, with the id that it is about, is answered by its coordinator; the answers are put together."""
        gathering = Gathering(merge)
        topic = self._state.topics.get(TRANSACTIONS_TOPIC)
        count = 0 if topic is None else len(topic.partitions)
        places = [place_of(transactional_id, count) if count else 0 for transactional_id, _ in parts]
        may_load = self._may_load(set(places))
        for index, (_, body) in zip(places, parts, strict=True):
            ticket = Ticket(request.api_key, request.version, body)
            gathering.add(ticket)
            try:
                self._partition_count()
                partition = self._partition(index, may_load=may_load)
            except KafkaError as error:
                ticket.settle(_refused(ticket, error))
                continue
            self._ask(request, partition, ticket)
        return gathering.result()

    def ask_each(self, request: Request) -> Iterator[Answer]:
        """The answers of all coordinators, one after the other. Partitions that hold nothing have nothing to say."""
        unloaded = list(self._unloaded())
        may_load = self._may_load(unloaded)
        for index in sorted({*self._partitions, *unloaded}):
            ticket = Ticket(request.api_key, request.version, request.body)
            try:
                partition = self._partition(index, may_load=may_load)
            except KafkaError as error:
                yield _refused(ticket, error)
                continue
            self._ask(request, partition, ticket)
            yield ticket.result(_nobody_reads)

    def _ask(self, request: Request, partition: TransactionPartition, ticket: Ticket) -> None:
        now_ms = self._timers.now_ms()
        partition.ask(request, ticket.body, ticket, now_ms)
        self._arm(partition, now_ms)

    def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        done: Joined,
    ) -> None:
        """The leader of these partitions has the first batch of a producer's transaction for each of them: they are
        added to the transaction, or (`verify_only`, by protocol 1) must have been. `done` is told which of them are
        refused, and why; nothing means that all may be written. It is called before this returns, unless there is a
        flush to wait for."""
        try:
            partition = self._partition(place_of(transactional_id, self._partition_count()))
        except KafkaError as error:
            done(dict.fromkeys(partitions, as_client_knows(error)))
            return
        producer = Identity(producer_id, producer_epoch)
        now_ms = self._timers.now_ms()
        partition.join(transactional_id, producer, partitions, verify_only=verify_only, now_ms=now_ms, done=done)
        self._arm(partition, now_ms)

    # --- markers ---

    def _marker_written(
        self, partition: TransactionPartition, markers: Markers, topic_partition: TopicPartition
    ) -> None:
        if not partition.is_gone:
            now_ms = self._timers.now_ms()
            partition.marker_written(markers, topic_partition, now_ms)
            self._arm(partition, now_ms)

    # --- the world changes ---

    def topics_changed(self) -> Steps:
        yield from super().topics_changed()
        self._markers.retry()
        yield

    # --- numbers ---

    @property
    def open_count(self) -> int:
        """Transactions that have begun and are not complete. May be asked from any thread, as the next."""
        return sum(partition.coordinator.open_count for partition in self._loaded_partitions())

    @property
    def unwritten_markers(self) -> int:
        return len(self._markers)


def _refused(ticket: Ticket, error: KafkaError) -> Message:
    return refusal(ApiKey(ticket.api_key), ticket.body, ticket.version, as_client_knows(error).code)


def _nobody_reads(_: Ticket) -> None:
    """The connection is gone; what was asked for happens all the same."""


def transaction_settings(broker: BrokerState) -> TransactionSettings:
    values = broker.config.values
    chosen: dict[str, Any] = {field.name: values[field.name.replace("_", ".")] for field in fields(TransactionSettings)}
    return TransactionSettings(**chosen)
