"""Fetch (key 1), versions 4-18.

Versions: 5 adds the log start offset; 7 adds fetch sessions (KIP-227); 9 the current leader epoch; 11 the rack;
12 is flexible and adds the last fetched epoch, by which a truncated log is noticed; 13 names topics by id; 15 moves
the replica id; 16 adds node endpoints; 17 and 18 concern replicas.

A fetch that finds fewer than `min_bytes` waits until enough is appended, `max_wait_ms` have passed, or one of its
partitions changes. Records are not read here: the answer carries file slices, which the connection reads as the
client takes them.

Left out: reads from followers (`preferred_read_replica` is always -1) and replica fetches, which come with
replication.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from oncelog.broker.fetch_session import NO_SESSION, FetchContext, PartitionKey, TopicKey
from oncelog.broker.purgatory import WaitingFetch
from oncelog.broker.request import Answer, Chunks, Pending, Request
from oncelog.errors import (
    KafkaError,
    OffsetOutOfRange,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from oncelog.log import verification
from oncelog.log.partition_log import PartitionLog
from oncelog.types import NO_LEADER_EPOCH, NO_OFFSET, IsolationLevel, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.fetch import (
    EpochEndOffset,
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    encode_fetch_response,
)

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

logger = logging.getLogger(__name__)

API_KEY = ApiKey.FETCH
FIRST_VERSION_WITH_TOPIC_IDS = 13

MAX_COLD_BYTES = 4 * 1024 * 1024
"""What one request may make the broker verify of what it has not read since its start: two milliseconds, or sixteen if
the batches are tiny. Partitions beyond that have nothing to say this time."""

Answers = list[tuple[PartitionKey, FetchedPartition]]


def handle(broker: BrokerState, request: Request) -> Answer:
    try:
        fetch = _Fetch(broker, request)
    except KafkaError as error:
        return refusal(broker, request.version, error)
    answers = fetch.read()
    if not fetch.is_satisfied_by(answers) and broker.purgatory.has_room(len(answers)):
        return fetch.wait(answers)
    hold_ms = fetch.hold_ms(answers)
    return fetch.encode(answers) if hold_ms == 0 else fetch.hold(request.now_ms + hold_ms)


def refusal(broker: BrokerState, version: int, error: KafkaError) -> Chunks:
    """The answer to a fetch that failed as a whole."""
    broker.metrics.fetch_failed(error)
    return encode_fetch_response(version, FetchResponse([], error_code=error.code, session_id=NO_SESSION))


class _Fetch:
    def __init__(self, broker: BrokerState, request: Request) -> None:
        self._broker = broker
        self._version = request.version
        self._fetch: FetchRequest = request.body
        self._deadline_ms = request.now_ms + max(0, self._fetch.max_wait_ms)
        self._context: FetchContext = broker.fetch_sessions.begin(
            self._fetch, self._version >= FIRST_VERSION_WITH_TOPIC_IDS, request.now_ms
        )
        self._max_bytes = min(self._fetch.max_bytes, broker.config.fetch_max_bytes)
        self._meter = request.meter
        self._pace = request.peer.pace if self._meter is None else None  # quotas have a pace of their own
        if self._meter is not None:
            self._max_bytes = min(self._max_bytes, self._meter.max_fetch_bytes)
        if self._pace is not None:
            self._pace.asked(self._context.partitions, request.now_ms)
            self._max_bytes = min(self._max_bytes, self._pace.max_bytes)
        self._min_bytes: int = min(self._fetch.min_bytes, self._max_bytes)  # more could never arrive
        self._committed_only = self._fetch.isolation_level == IsolationLevel.READ_COMMITTED

    def read(self) -> Answers:
        """One slice per partition, in the order of the session, until `max_bytes` are reached.

        The first partition with data always gives at least one batch, however large, or a reader with a small limit
        would stand still forever."""
        answers: Answers = []
        remaining = self._max_bytes
        self._cold_bytes = MAX_COLD_BYTES
        found_data = False
        for key, partition in self._context.partitions.items():
            answer = self._read_partition(key, partition, max(0, remaining), not found_data)
            if answer.records is not None:
                remaining -= answer.records.size_bytes
                self._cold_bytes -= answer.records.verified_bytes
                found_data = found_data or answer.records.size_bytes > 0
            answers.append((key, answer))
        return answers

    def is_satisfied_by(self, answers: Answers) -> bool:
        if self._fetch.max_wait_ms <= 0 or not answers:
            return True
        size_bytes = 0
        for _, answer in answers:
            if answer.error_code or answer.diverging_epoch is not None:
                return True
            if answer.records is not None:
                size_bytes += answer.records.size_bytes
        is_shortened = self._cold_bytes < MAX_COLD_BYTES and size_bytes > 0  # there may be more, for the next fetch
        return size_bytes >= self._min_bytes or is_shortened

    def wait(self, answers: Answers) -> Pending:
        found_bytes = _size_bytes(answers)
        purgatory = self._broker.purgatory

        def finish() -> None:
            purgatory.remove(waiting)
            pending.complete(self._answer())

        partitions = [TopicPartition(self._topic_name(key), key.index) for key in self._context.partitions]
        is_hidden = self._is_hidden if self._committed_only else None
        waiting = WaitingFetch(partitions, self._min_bytes - found_bytes, finish, is_hidden)
        pending = Pending(self._deadline_ms, expire=finish, abandon=lambda: purgatory.remove(waiting))
        purgatory.park(waiting)
        return pending

    def hold_ms(self, answers: Answers) -> int:
        """For how long the client can wait, though there is enough for it. Errors are told at once."""
        if self._pace is None or any(answer.error_code for _, answer in answers):
            return 0
        return self._pace.answers(_size_bytes(answers))

    def hold(self, until_ms: int) -> Pending:
        """Answer then, with what there is then."""
        self._broker.metrics.fetches_held += 1
        pending = Pending(until_ms, expire=lambda: pending.complete(self._answer()))
        return pending

    def _is_hidden(self, partition: TopicPartition) -> bool:
        log = self._broker.logs.logs.get(partition)
        return log is not None and log.last_stable_offset < log.high_watermark

    def _answer(self) -> Chunks:
        """What there is by now. Must not raise: it runs inside whatever woke the fetch, such as a producer's append."""
        try:
            return self.encode(self.read())
        except Exception:
            logger.exception("bug: a waiting fetch failed")
            return refusal(self._broker, self._version, UnknownServerError("the broker failed; its log says why"))

    def encode(self, answers: Answers) -> Chunks:
        throttle_ms = 0
        if self._meter is not None:
            throttle_ms, is_withheld = self._meter.fetched(_size_bytes(answers))
            if is_withheld:
                session_id = self._broker.fetch_sessions.withhold(self._context)
                return encode_fetch_response(self._version, FetchResponse([], throttle_ms, session_id=session_id))
        topics: dict[TopicKey, list[FetchedPartition]] = {}
        size_bytes = 0
        for key, answer in self._context.news(answers):
            topics.setdefault(key.topic, []).append(answer)
            size_bytes += answer.records.size_bytes if answer.records is not None else 0
        self._broker.metrics.fetched(size_bytes)
        response = FetchResponse(
            [FetchedTopic(*key, partitions) for key, partitions in topics.items()],
            throttle_ms,
            session_id=self._context.session_id,
        )
        return encode_fetch_response(self._version, response)

    def _topic_name(self, key: PartitionKey) -> str:
        if key.topic.topic_id is None:
            return key.topic.name
        return self._broker.topic_name(key.topic.topic_id) or ""

    def _read_partition(
        self, key: PartitionKey, partition: FetchPartition, remaining: int, first: bool
    ) -> FetchedPartition:
        try:
            name = self._topic_name(key)
            if not name:
                raise UnknownTopicId(f"no topic has the id {key.topic.topic_id}")
            if self._broker.topic_id(name) is None:
                # Also while its logs are being deleted, one by one, the first of which may have woken this fetch.
                raise UnknownTopicOrPartition(f"there is no topic {name}")
            log = self._broker.partition(name, key.index)
            self._broker.check_leader_epoch(name, key.index, partition.current_leader_epoch)
            return self._read_log(log, partition, min(remaining, partition.max_bytes), first)
        except KafkaError as error:
            self._broker.metrics.fetch_failed(error)
            return failed_partition(partition.index, error)

    def _read_log(self, log: PartitionLog, partition: FetchPartition, max_bytes: int, first: bool) -> FetchedPartition:
        diverging = self._divergence(log, partition)
        stable = log.last_stable_offset
        end = stable if self._committed_only else log.high_watermark
        if diverging is not None:
            records = None
        elif partition.fetch_offset > log.high_watermark:
            raise OffsetOutOfRange(
                f"offset {partition.fetch_offset} is beyond the end of the log, {log.high_watermark}"
            )
        else:
            cold_bytes = min(self._cold_bytes, verification.MAX_COLD_BYTES)
            records = log.read(
                partition.fetch_offset,
                max_bytes,
                upper_bound=end,
                at_least_one_batch=first,
                max_cold_bytes=cold_bytes,
            )
        aborted = None
        if self._committed_only:
            aborted = []
            if records is not None and records.size_bytes:
                aborted = [
                    (transaction.producer_id, transaction.first_offset)
                    for transaction in log.aborted_transactions(partition.fetch_offset, records.offset_bound)
                ]
        return FetchedPartition(
            index=partition.index,
            error_code=0,
            high_watermark=log.high_watermark,
            last_stable_offset=stable,
            log_start_offset=log.log_start_offset,
            aborted=aborted,
            preferred_read_replica=-1,
            diverging_epoch=diverging,
            current_leader=None,
            records=records,
        )

    def _divergence(self, log: PartitionLog, partition: FetchPartition) -> EpochEndOffset | None:
        """Where the reader's log and ours part, if the last epoch it fetched ended here before where it stands."""
        if partition.last_fetched_epoch == NO_LEADER_EPOCH:
            return None
        epoch, end_offset = log.end_offset_for_epoch(partition.last_fetched_epoch)
        if epoch == NO_LEADER_EPOCH or end_offset == NO_OFFSET:
            raise OffsetOutOfRange(
                f"no epoch up to {partition.last_fetched_epoch} is left in a log that begins at {log.log_start_offset}"
            )
        if epoch < partition.last_fetched_epoch or end_offset < partition.fetch_offset:
            return EpochEndOffset(epoch, end_offset)
        return None


def _size_bytes(answers: Answers) -> int:
    return sum(answer.records.size_bytes for _, answer in answers if answer.records is not None)


def failed_partition(index: int, error: KafkaError) -> FetchedPartition:
    return FetchedPartition(
        index=index,
        error_code=error.code,
        high_watermark=NO_OFFSET,
        last_stable_offset=NO_OFFSET,
        log_start_offset=NO_OFFSET,
        aborted=None,
        preferred_read_replica=-1,
        diverging_epoch=None,
        current_leader=None,
        records=None,
    )
