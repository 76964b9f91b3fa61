"""Fetch (key 1), versions 4-18.

Versions: 5 adds the log start offset; 7 adds fetch sessions (KIP-227); 9 the current leader epoch; 11 the rack;
12 is flexible and adds the last fetched epoch, by which a truncated log is noticed; 13 names topics by id; 15 moves
the replica id; 16 adds node endpoints; 17 and 18 concern replicas.

A fetch that finds fewer than `min_bytes` waits until enough is appended, `max_wait_ms` have passed, or one of its
partitions changes. Records are not read here: the answer carries file slices, which the connection reads as the
client takes them. Each holds a descriptor: where these run out, the partitions beyond have nothing to say this time.
Only partitions that may have changed since the last fetch are looked at (`broker/fetch_view.py`).

Left out: reads from followers (`preferred_read_replica` is always -1) and replica fetches, which come with
replication.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.broker.fetch_view import NO_SESSION, CachedPartition, FetchContext, FetchView, TopicKey
from oncelog.broker.purgatory import WaitingFetch
from oncelog.broker.request import Answer, AnswerSteps, Chunks, Late, Pending, Request, Stepwise
from oncelog.errors import (
    FetchSessionIdNotFound,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from oncelog.log import verification
from oncelog.log.file_slice import EMPTY, FileSlice
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
    nothing_encoder,
)

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

logger = logging.getLogger(__name__)

API_KEY = ApiKey.FETCH
FIRST_VERSION_WITH_TOPIC_IDS = 13

MAX_COLD_BYTES = 4 * 1024 * 1024
"""What one request may make the broker verify of what it has not read since its start: two milliseconds, or sixteen if
the batches are tiny. Partitions beyond that have nothing to say this time."""

MAX_READ_AT_ONCE: Final = 500
"""Partitions that are looked at without a look at the clock: some milliseconds. More of them are, in steps of"""
PARTITIONS_PER_STEP: Final = 50

MAX_TOLD_AT_ONCE: Final = 2_000
"""Partitions of which a full answer tells that there is nothing new: a millisecond."""

MAX_OPENED_AT_ONCE: Final = 50
"""Logs of partitions that nobody has used so far: some milliseconds, for each becomes hundreds of objects."""

Answers = list[tuple[CachedPartition, FetchedPartition]]
"""Of those that are not at their end."""

Aborted = list[tuple[int, int]]
"""Producer id and first offset of transactions."""


def handle(broker: BrokerState, request: Request) -> Answer:
    named = 0
    for topic in request.body.topics:
        named += len(topic.partitions)
    if named > MAX_TOLD_AT_ONCE:
        return Stepwise(_begun(broker, request))  # what it names is long enough for a step of its own
    return _answer(broker, request)


def _begun(broker: BrokerState, request: Request) -> AnswerSteps:
    yield None
    return _answer(broker, request)


def _answer(broker: BrokerState, request: Request) -> Answer:
    try:
        fetch = _Fetch(broker, request)
    except KafkaError as error:
        return refusal(broker, request.version, error)
    return fetch.read_and(fetch.answer_or_wait)


def refusal(broker: BrokerState, version: int, error: KafkaError) -> Chunks:
    """The answer to a fetch that failed as a whole."""
    broker.metrics.fetch_failed(error)
    return encode_fetch_response(version, FetchResponse([], error_code=error.code, session_id=NO_SESSION))


class _ManyUnopened(Exception):
    """More logs must be opened than the loop may do at once."""


class _Fetch:
    def __init__(self, broker: BrokerState, request: Request) -> None:
        self._broker = broker
        self._version = request.version
        self._fetch: FetchRequest = request.body
        self._now_ms = request.now_ms
        self._deadline_ms = request.now_ms + max(0, self._fetch.max_wait_ms)
        context = broker.fetch_sessions.begin(
            self._fetch, self._version >= FIRST_VERSION_WITH_TOPIC_IDS, request.now_ms
        )
        if context is None:
            context = broker.sessionless.begin(self._fetch, request.peer)
        self._context: FetchContext = context
        self._view: FetchView = context.view
        self._max_bytes = min(self._fetch.max_bytes, broker.config.fetch_max_bytes)
        self._meter = request.meter
        self._pace = request.peer.pace if self._meter is None else None  # quotas have a pace of their own
        if self._meter is not None:
            self._max_bytes = min(self._max_bytes, self._meter.max_fetch_bytes)
        if self._pace is not None:
            self._pace.asked(context.changed, request.now_ms)
            self._max_bytes = min(self._max_bytes, self._pace.max_bytes)
        self._min_bytes: int = min(self._fetch.min_bytes, self._max_bytes)  # more could never arrive
        self._committed_only: bool = self._fetch.isolation_level == IsolationLevel.READ_COMMITTED
        self._logs = broker.logs.logs
        self._topic: TopicKey | None = None
        self._topic_name = ""
        self._nothing = nothing_encoder(self._version, self._committed_only)
        self._view.begin((self._version, self._committed_only))
        self._is_interrupted = False

    def read_and(self, end: Callable[[Answers], Answer]) -> Answer:
        """What `end` makes of what there is: in steps, if there is much to look at or to tell."""
        if not self._is_long():
            try:
                return end(self._read())
            except _ManyUnopened:
                pass
        self._view.finish = self._interrupt
        return Stepwise(self._steps(end), self._abandon)

    def _is_long(self) -> bool:
        view = self._view
        return len(view.due) > MAX_READ_AT_ONCE or (self._context.is_full and view.count > MAX_TOLD_AT_ONCE)

    def _steps(self, end: Callable[[Answers], Answer]) -> AnswerSteps:
        """What changes meanwhile is due again, and looked at once more unless there is something to tell of it already:
        nothing may be missed by a fetch that then waits for changes. An answer that holds enough need not tell of the
        others, unless it must tell of all: they stay due."""
        answers: Answers = []
        self._begin_reading(may_open=None)
        due = self._view.to_read()
        while len(due) > PARTITIONS_PER_STEP:
            for start in range(0, len(due), PARTITIONS_PER_STEP):
                self._topic = None  # it may have been deleted since
                self._read_each(due[start : start + PARTITIONS_PER_STEP], answers)
                yield None
                if self._is_interrupted:
                    return refusal(
                        self._broker, self._version, FetchSessionIdNotFound("its session went on without it")
                    )
                if self._holds_enough and not self._context.is_full:
                    self._view.finish = None
                    return end(answers)
            seen = {cached for cached, _ in answers}
            due = [cached for cached in self._view.to_read() if cached not in seen]
        self._topic = None
        self._read_each(due, answers)
        self._view.finish = None
        return end(answers)

    def _interrupt(self) -> None:
        """The session's next fetch has come, or its end, while this one is under way: it has the view from now on."""
        self._is_interrupted = True
        self._view.finish = None

    def _abandon(self) -> None:
        """Its client is gone in the middle of it."""
        if not self._is_interrupted:
            self._view.finish = None
            self._broker.sessionless.ended(self._view)

    def answer_or_wait(self, answers: Answers) -> Answer:
        if self.can_wait and not self.is_satisfied_by(answers):
            return self.wait(answers)
        hold_ms = self.hold_ms(answers)
        return self.encode(answers) if hold_ms == 0 else self.hold(self._now_ms + hold_ms)

    def _read(self) -> Answers:
        """Raises _ManyUnopened."""
        self._begin_reading(may_open=MAX_OPENED_AT_ONCE)
        return self._read_each(self._view.to_read(), [])

    def _begin_reading(self, may_open: int | None) -> None:
        self._remaining = self._max_bytes
        self._cold_bytes = MAX_COLD_BYTES
        self._lacks_descriptors = False
        self._topic = None  # it may have been deleted since
        self._found_data = False
        self._may_open = may_open
        descriptors = self._broker.want_of_descriptors
        self._may_hold = descriptors.may_be_held_by_an_answer() if may_open is None else MAX_READ_AT_ONCE

    @property
    def _holds_enough(self) -> bool:
        """No more records this time."""
        return self._may_hold <= 0 or self._lacks_descriptors

    def _read_each(self, due: Sequence[CachedPartition], answers: Answers) -> Answers:
        """One slice per partition that is due, in the order of the view, until `max_bytes` are reached.

        The first partition with data always gives at least one batch, however large, or a reader with a small limit
        would stand still forever."""
        remaining, found_data = self._remaining, self._found_data
        for cached in due:
            answer = self._read_partition(cached, max(0, remaining), not found_data)
            if answer is None:
                continue
            if answer.records is not None:
                remaining -= answer.records.size_bytes
                self._cold_bytes -= answer.records.verified_bytes
                if answer.records.size_bytes > 0:
                    found_data = True
                    self._may_hold -= 1
            self._view.untold.pop(cached, None)  # what was seen before is outdated
            answers.append((cached, answer))
        self._remaining, self._found_data = remaining, found_data
        return answers

    @property
    def can_wait(self) -> bool:
        return self._context.can_wait and self._fetch.max_wait_ms > 0 and self._view.count > 0

    def is_satisfied_by(self, answers: Answers) -> bool:
        size_bytes = 0
        for _, answer in answers:
            if answer.error_code or answer.diverging_epoch is not None:
                return True
            if answer.records is not None:
                size_bytes += answer.records.size_bytes
        is_shortened = self._cold_bytes < MAX_COLD_BYTES or self._lacks_descriptors
        return size_bytes >= self._min_bytes or (is_shortened and size_bytes > 0)  # the next fetch may find more

    def wait(self, answers: Answers) -> Pending:
        is_hidden = self._is_hidden if self._committed_only else None
        purgatory = self._broker.purgatory
        pending, finish = self._later(self._deadline_ms, lambda: purgatory.remove(waiting))
        waiting = WaitingFetch(self._view, self._min_bytes - _size_bytes(answers), finish, is_hidden)
        purgatory.park(waiting)
        return pending

    def hold_ms(self, answers: Answers) -> int:
        """For how long the client can wait, though there is enough for it. Errors are told at once, and descriptors are
        given back."""
        if self._pace is None or self._lacks_descriptors or any(answer.error_code for _, answer in answers):
            return 0
        return self._pace.answers(_size_bytes(answers))

    def hold(self, until_ms: int) -> Pending:
        """Answer then, with what there is then."""
        self._broker.metrics.fetches_held += 1
        return self._later(until_ms, lambda: None)[0]

    def _later(self, deadline_ms: int, leave: Callable[[], None]) -> tuple[Pending, Callable[[], None]]:
        """An answer that comes at the deadline, or when the second of the pair is called: with what there is then.
        `leave` takes the fetch from where it waits. Whoever needs the view has it at once: a long answer is not made
        then, and the client begins anew."""

        def finish() -> None:
            leave()
            self._view.finish = None
            pending.complete(self._late_answer())

        def give_way() -> None:
            if not self._is_long():
                finish()
                return
            leave()
            self._view.finish = None
            error = FetchSessionIdNotFound("its session went on without it")
            pending.complete(refusal(self._broker, self._version, error))

        def abandon() -> None:
            leave()
            self._view.finish = None
            self._broker.sessionless.ended(self._view)

        pending = Pending(deadline_ms, expire=finish, abandon=abandon)
        self._view.finish = give_way
        return pending, finish

    def _is_hidden(self, partition: TopicPartition) -> bool:
        log = self._broker.logs.logs.get(partition)
        return log is not None and log.last_stable_offset < log.high_watermark

    def _late_answer(self) -> Late:
        """What there is by now. Must not raise: it runs inside whatever woke the fetch, such as a producer's append."""
        try:
            return self.read_and(self.encode)  # type: ignore[return-value]  # no other one to wait for
        except Exception:
            logger.exception("bug: a waiting fetch failed")
            return refusal(self._broker, self._version, UnknownServerError("the broker failed; its log says why"))

    def encode(self, answers: Answers) -> Chunks:
        throttle_ms = 0
        size_bytes = _size_bytes(answers)
        if self._meter is not None:
            throttle_ms, is_withheld = self._meter.fetched(size_bytes)
            if is_withheld:
                session_id = self._broker.fetch_sessions.withhold(self._context)
                self._broker.sessionless.ended(self._view)
                return encode_fetch_response(self._version, FetchResponse([], throttle_ms, session_id=session_id))
        self._broker.metrics.fetched(size_bytes)
        news = self._context.news(answers)
        response = FetchResponse(
            [FetchedTopic(*topic, partitions) for topic, partitions in news.items()],
            throttle_ms,
            session_id=self._context.session_id,
        )
        self._broker.sessionless.ended(self._view)
        return encode_fetch_response(self._version, response)

    def _read_partition(self, cached: CachedPartition, remaining: int, first: bool) -> FetchedPartition | None:
        """None if the partition is at its end, where nothing can be read until it changes."""
        requested = cached.requested
        try:
            if cached.topic is not self._topic:
                self._find_topic(cached.topic)
            partition = cached.watched
            if partition is None:
                partition = TopicPartition(self._topic_name, requested.index)
            log = self._logs.get(partition)
            if log is None or log.offline:
                self._count_opened()
                log = self._broker.partition(self._topic_name, requested.index)
            if requested.current_leader_epoch != NO_LEADER_EPOCH:
                self._broker.check_leader_epoch(self._topic_name, requested.index, requested.current_leader_epoch)
            if cached.watched is None and self._context.can_wait:
                self._broker.purgatory.watch(cached, partition)
            stable = log.last_stable_offset
            end = stable if self._committed_only else log.high_watermark
            if requested.fetch_offset == end and requested.last_fetched_epoch == NO_LEADER_EPOCH:
                self._at_end(cached, log, stable)
                return None
            answer = self._read_log(log, requested, min(remaining, requested.max_bytes), first)
            if requested.fetch_offset >= end and answer.diverging_epoch is None:
                self._at_end(cached, log, stable)
                return None
            return answer
        except KafkaError as error:
            self._broker.metrics.fetch_failed(error)
            return failed_partition(requested.index, error)

    def _count_opened(self) -> None:
        if self._may_open is not None:
            self._may_open -= 1
            if self._may_open < 0:
                raise _ManyUnopened

    def _find_topic(self, topic: TopicKey) -> None:
        name = topic.name if topic.topic_id is None else self._broker.topic_name(topic.topic_id)
        if not name:
            raise UnknownTopicId(f"no topic has the id {topic.topic_id}")
        if self._broker.topic_id(name) is None:
            # Also while its logs are being deleted, one by one, the first of which may have woken this fetch.
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        self._topic, self._topic_name = topic, name

    def _at_end(self, cached: CachedPartition, log: PartitionLog, stable: int) -> None:
        high_watermark, log_start_offset = log.high_watermark, log.log_start_offset
        is_told = self._view.at_end(cached, high_watermark, log_start_offset)
        if not is_told or self._context.is_full:
            cached.piece = self._nothing(cached.requested.index, high_watermark, stable, log_start_offset)

    def _read_log(self, log: PartitionLog, partition: FetchPartition, max_bytes: int, first: bool) -> FetchedPartition:
        diverging = self._divergence(log, partition)
        stable = log.last_stable_offset
        end = stable if self._committed_only else log.high_watermark
        aborted: Aborted | None = [] if self._committed_only else None
        if diverging is not None:
            records = None
        elif partition.fetch_offset > log.high_watermark:
            raise OffsetOutOfRange(
                f"offset {partition.fetch_offset} is beyond the end of the log, {log.high_watermark}"
            )
        elif self._holds_enough:
            records = EMPTY
        else:
            try:
                records, aborted = self._read_records(log, partition.fetch_offset, max_bytes, end, first)
            except KafkaStorageError as error:
                told = self._broker.want_of_descriptors.to_client(error, self._now_ms)
                try:
                    if told is error:
                        raise
                    if first:
                        raise told from error
                finally:
                    del told  # the frame and the exception would hold each other, and the slices that were read before
                self._lacks_descriptors = True
                records = EMPTY  # what was read before is answered, and then there are descriptors again
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

    def _read_records(
        self, log: PartitionLog, offset: int, max_bytes: int, end: int, first: bool
    ) -> tuple[FileSlice, Aborted | None]:
        cold_bytes = min(self._cold_bytes, verification.MAX_COLD_BYTES)
        records = log.read(offset, max_bytes, upper_bound=end, at_least_one_batch=first, max_cold_bytes=cold_bytes)
        if not self._committed_only:
            return records, None
        if not records.size_bytes:
            return records, []
        aborted = log.aborted_transactions(offset, records.offset_bound)
        return records, [(transaction.producer_id, transaction.first_offset) for transaction in aborted]

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
