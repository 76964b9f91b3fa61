"""Produce (key 0), versions 0-13.

Versions: 0-2 are advertised, since librdkafka turns compression off without them (KAFKA-18659), and answered with
UNSUPPORTED_VERSION; 3 adds the transactional id; 8 adds error messages; 9 is flexible; 10 may name the new leader;
12 adds partitions to a transaction implicitly; 13 names topics by id.

Left out: the leader hint of version 10, which one node never needs. An answer names up to `MAX_ANSWERED_RECORD_ERRORS`
records at fault, where Kafka names all. Internal topics are their coordinators' alone and answered with
INVALID_TOPIC_EXCEPTION, where Kafka makes an exception for a client that calls itself `__admin_client`. A transactional
batch in a request without a transactional id is refused for itself, where Kafka refuses the whole request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from oncelog.broker.handlers.heavy_batches import HeavyBatch, Judged, Judging, heavy_batches, judge
from oncelog.broker.handlers.produce_parts import ACKS_NONE, Came, InParts, brings_many
from oncelog.broker.handlers.transactional_produce import perform_in_transaction
from oncelog.broker.request import CLOSE, NO_REPLY, Answer, Pending, Request
from oncelog.controller.topic_names import INTERNAL_TOPICS
from oncelog.errors import (
    InvalidRequiredAcks,
    InvalidTopicException,
    KafkaError,
    NotEnoughReplicas,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    UnsupportedVersion,
)
from oncelog.log.partition_log import Appended, PartitionLog
from oncelog.named_tuple import NamedTuple
from oncelog.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    RecordError,
)
from oncelog.wire.quick import encode_produce_response

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.PRODUCE

FIRST_SERVED_VERSION = 3
FIRST_BY_PROTOCOL_2 = 12
PROTOCOL_1, PROTOCOL_2 = 1, 2
ACKS_LEADER, ACKS_ALL = 1, -1
ANY_ACKS = (ACKS_NONE, ACKS_LEADER, ACKS_ALL)
MAX_ANSWERED_RECORD_ERRORS = 10_000
"""Named in one answer. Each takes some hundred bytes, and what is at fault may be compressed a thousandfold."""
NOTHING_REFUSED: Mapping[TopicPartition, KafkaError] = {}


def handle(broker: BrokerState, request: Request) -> Answer:
    appends = Appends(broker, request)
    heavy = heavy_batches(broker, request.body)
    return _judge_first(broker, request, appends, heavy) if heavy else _perform(broker, request, appends)


def _perform(broker: BrokerState, request: Request, appends: Appends) -> Answer:
    if brings_many(request.body.topics):
        return InParts(broker, request, partial(_perform_part, broker, appends), appends.answer).answer()
    return _perform_at_once(broker, request, appends)


def _perform_part(broker: BrokerState, whole: Appends, request: Request, topic_position: int, came: Came) -> Answer:
    return _perform_at_once(broker, request, PartAppends(broker, request, whole, topic_position, came))


def _perform_at_once(broker: BrokerState, request: Request, appends: Appends) -> Answer:
    if request.body.transactional_id is None:
        return appends.perform()
    return perform_in_transaction(broker, request, appends)


def _judge_first(broker: BrokerState, request: Request, appends: Appends, heavy: list[HeavyBatch]) -> Answer:
    """What the loop may not do is done off it, and what the client sends next waits. Only then is anybody asked about
    a transaction: it may end while batches are judged, and must not between the question and the append."""
    pending = Pending(holds_connection=True)
    at_once: list[Answer] = []

    def judged(found: dict[int, Judged | KafkaError]) -> None:
        pending.abandon = None  # or the request, and all of its bytes, would refer to themselves
        appends.judged = found
        if pending.on_complete is None:
            at_once.append(_perform(broker, request, appends))
        else:
            pending.attempt(lambda: pending.follow(_perform(broker, request, appends)))

    judging = Judging(broker, heavy, request.wall_ms, judged)
    try:
        judging.start()
    except KafkaError as error:
        return appends.refuse(error)
    if at_once:
        return at_once[0]
    if appends.is_answered:  # else the client may have gone, and wants it done all the same
        pending.abandon = judging.abandon
    return pending


def _flush(
    broker: BrokerState, version: int, topics: list[ProducedTopic], unflushed: list[Unflushed], throttle_ms: int
) -> Pending | None:
    """`flush.messages` promises the disk: the answer waits for flushes that cover every partition of the request. None
    if none can begin, because the disk has failed meanwhile; then `topics` say so."""
    pending = Pending()
    remaining = len(unflushed)

    def ended(append: Unflushed, error: KafkaError | None) -> None:
        nonlocal remaining
        if error is not None:
            note_failure(broker, append.log.topic_partition, error)
            topic = topics[append.topic_position]
            partitions = list(topic.partitions)
            partitions[append.position] = failed_partition(partitions[append.position].index, error)
            topics[append.topic_position] = topic._replace(partitions=partitions)
        remaining -= 1
        if remaining == 0 and pending.on_complete is not None:
            pending.complete([encode_produce_response(version, topics, throttle_ms)])

    def flushed(append: Unflushed, error: KafkaError | None) -> None:
        pending.attempt(lambda: ended(append, error))

    for append in unflushed:
        broker.group_commit.wait(append.log, append.end_offset, partial(flushed, append))
    return pending if remaining else None


def note_failure(broker: BrokerState, partition: TopicPartition, error: KafkaError) -> None:
    broker.metrics.append_failed(error)
    if broker.is_offline(*partition):
        broker.log_failed(partition)


def failed_partition(index: int, error: KafkaError) -> ProducedPartition:
    return ProducedPartition(index, error.code, NO_OFFSET, NO_TIMESTAMP, NO_OFFSET, error.message)


class Unflushed(NamedTuple):
    """An append of the request that is in the page cache, while its topic promises the disk."""

    log: PartitionLog
    end_offset: int
    topic_position: int
    position: int


class Appends:
    """The appends of one request, one partition at a time; an error concerns only its own partition."""

    def __init__(self, broker: BrokerState, request: Request) -> None:
        self._broker = broker
        self._version = request.version
        self._produce: ProduceRequest = request.body
        self._now_ms = request.now_ms
        self._wall_ms = request.wall_ms
        self._meter = request.meter
        self._refused = NOTHING_REFUSED
        self._unflushed: list[Unflushed] = []
        self._record_errors_left = MAX_ANSWERED_RECORD_ERRORS
        self.judged: dict[int, Judged | KafkaError] | None = None
        """What came of the heavy batches, by their partitions' identities."""

    @property
    def is_answered(self) -> bool:
        return self._produce.acks != ACKS_NONE

    def perform(self, refused: Mapping[TopicPartition, KafkaError] = NOTHING_REFUSED) -> Answer:
        """Append to all partitions but those that are refused for transactional batches."""
        self._refused = refused
        return self.answer([self._topic(position, topic) for position, topic in enumerate(self._produce.topics)])

    def refuse(self, error: KafkaError) -> Answer:
        """Nothing is appended."""
        return self.answer(
            [
                ProducedTopic(
                    topic.name, topic.topic_id, [failed_partition(each.index, error) for each in topic.partitions]
                )
                for topic in self._produce.topics
            ]
        )

    def answer(self, topics: list[ProducedTopic]) -> Answer:
        """Of what was appended, once that is as durable as its topics promise."""
        acks, meter = self._produce.acks, self._meter
        throttle_ms = 0 if meter is None else meter.produced(is_answered=acks != ACKS_NONE)
        unflushed = self._unflushed
        flushing = _flush(self._broker, self._version, topics, unflushed, throttle_ms) if unflushed else None
        if acks == ACKS_NONE:
            # The client hears nothing, so an error can only be shown by hanging up: it will refresh its metadata.
            failed = any(partition.error_code for topic in topics for partition in topic.partitions)
            return CLOSE if failed else NO_REPLY
        return [encode_produce_response(self._version, topics, throttle_ms)] if flushing is None else flushing

    def _topic(self, topic_position: int, topic: ProduceTopic) -> ProducedTopic:
        name = topic.name
        if topic.topic_id is not None:
            name = self._broker.topic_name(topic.topic_id) or ""
        impossible = self._what_is_impossible(topic, name)
        partitions: list[ProducedPartition] = []
        for partition in topic.partitions:
            try:
                if impossible is not None:
                    raise impossible
                log, appended = self._append(name, partition)
            except KafkaError as error:
                note_failure(self._broker, TopicPartition(name, partition.index), error)
                partitions.append(self._failed(partition.index, error))
                continue
            if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
                self._unflushed.append(Unflushed(log, log.log_end_offset, topic_position, len(partitions)))
            partitions.append(
                ProducedPartition(
                    partition.index, 0, appended.base_offset, appended.append_time_ms, appended.log_start_offset
                )
            )
        return ProducedTopic(topic.name, topic.topic_id, partitions)

    def _failed(self, index: int, error: KafkaError) -> ProducedPartition:
        named = [RecordError(*each) for each in error.record_errors[: self._record_errors_left]]
        self._record_errors_left -= len(named)
        return failed_partition(index, error)._replace(record_errors=named)

    def _what_is_impossible(self, topic: ProduceTopic, name: str) -> KafkaError | None:
        if self._version < FIRST_SERVED_VERSION:
            return UnsupportedVersion("Produce before version 3 carries old record formats; upgrade the client")
        if self._produce.acks not in ANY_ACKS:
            return InvalidRequiredAcks(f"acks is {self._produce.acks}; it must be 0, 1 or -1 (all)")
        if topic.topic_id is not None and not name:
            return UnknownTopicId(f"no topic has the id {topic.topic_id}")
        return None

    def _append(self, name: str, partition: ProducePartition) -> tuple[PartitionLog, Appended]:
        broker = self._broker
        log = broker.partition(name, partition.index)
        if name in INTERNAL_TOPICS:
            raise InvalidTopicException(f"Cannot append to internal topic {name}")
        if self._produce.acks == ACKS_ALL and log.config.min_insync_replicas > 1:
            raise NotEnoughReplicas(
                f"min.insync.replicas of {name} is {log.config.min_insync_replicas}, and this cluster has one node"
            )
        batch = partition.records if partition.records is not None else memoryview(b"")
        known = None if self.judged is None else self.judged.get(id(partition))
        if known is None:
            known = judge(batch, broker.batch_rules(log.config, self._wall_ms), log.config, log.topic_partition)
        elif isinstance(known, KafkaError):
            raise known
        batch, validated = known
        transaction_version = self._enter_transaction(log) if validated.header.is_transactional else PROTOCOL_1
        appended = log.append(
            batch,
            validated,
            leader_epoch=broker.leader_epoch(name, partition.index),
            now_ms=self._now_ms,
            wall_ms=self._wall_ms,
            transaction_version=transaction_version,
        )
        if appended.duplicate:
            broker.metrics.duplicate_recognised()
        else:
            header = validated.header
            log.advance_high_watermark(log.log_end_offset)
            broker.metrics.appended(name, header.size_bytes, header.record_count)
            broker.purgatory.appended(log.topic_partition, header.size_bytes)
        return log, appended

    def _enter_transaction(self, log: PartitionLog) -> int:
        """By which protocol its batch is judged. Raises what is against it."""
        if self._produce.transactional_id is None:
            raise TransactionalIdAuthorizationFailed("a transactional batch, and nothing says of whose transaction")
        refusal = self._refused.get(log.topic_partition)
        if refusal is not None:
            raise refusal
        return PROTOCOL_2 if self._version >= FIRST_BY_PROTOCOL_2 else PROTOCOL_1


class PartAppends(Appends):
    """The appends of a part of a request: what came of them is handed over, and answered with the whole."""

    def __init__(self, broker: BrokerState, request: Request, whole: Appends, topic_position: int, came: Came) -> None:
        super().__init__(broker, request)
        self.judged = whole.judged
        self._record_errors_left = whole._record_errors_left
        self._whole = whole
        self._topic_position = topic_position
        self._came = came

    @property
    def is_answered(self) -> bool:
        """Whoever appends the parts waits for each, also where the client does not."""
        return True

    def answer(self, topics: list[ProducedTopic]) -> Answer:
        whole, position = self._whole, self._topic_position
        whole._record_errors_left = self._record_errors_left
        before = self._came(topics)
        whole._unflushed += [
            each._replace(topic_position=position, position=before + each.position) for each in self._unflushed
        ]
        return []
