"""ListOffsets (key 2), versions 1-11.

Versions: 2 adds the isolation level; 4 leader epochs; 6 is flexible; each of these asks for one more special offset:
7 the record with the newest timestamp, 8 the first on local disk, 9 the last in tiered storage, 11 the first not yet
uploaded there. 10 adds a timeout for tiered storage, which does not exist here: its two offsets are answered with -1.

A record is found by its timestamp inside a batch, which may have to be decompressed for it. More than the loop's share
of that is done in a thread; the answers are remembered. A partition that is asked for twice, also under two mentions of
its topic, is answered once, with INVALID_REQUEST, as Kafka does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from oncelog.broker.dispatch import api_name, response_schema
from oncelog.broker.off_loop import INLINE_BYTES
from oncelog.broker.request import Answer, AnswerSteps, Pending, Request, Stepwise, Wait
from oncelog.errors import InvalidRequest, KafkaError, KafkaStorageError, UnsupportedVersion
from oncelog.log.partition_log import PartitionLog
from oncelog.log.segment import StoredBatch, search_batch
from oncelog.records import compression, frames
from oncelog.records.model import HEADER_SIZE
from oncelog.types import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, IsolationLevel, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message, encoded_elements

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.LIST_OFFSETS

MAX_AT_ONCE: Final = 200
"""Partitions that are answered without a look at the clock: some milliseconds, where their logs must be opened."""


class SpecialTimestamp(IntEnum):
    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


FIRST_VERSIONS = {
    SpecialTimestamp.LATEST: 1,
    SpecialTimestamp.EARLIEST: 1,
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""
NOTHING: Found = (NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH)


def handle(broker: BrokerState, request: Request) -> Answer:
    return _LookUps(broker, request).answer()


class _MustWait(Exception):
    """The batch that holds the answer is not for the loop; this is what finds it."""

    def __init__(self, key: Hashable, work: Callable[[], tuple[int, int] | None]) -> None:
        super().__init__()
        self.key = key
        self.work = work


class _LookUps:
    """The questions of a request, one after the other. What must be decompressed for one and is too much for the loop
    is done elsewhere; then that question is asked again, and the answer is known."""

    def __init__(self, broker: BrokerState, request: Request) -> None:
        self._broker = broker
        self._request = request
        asked = [(topic["name"], each) for topic in request.body["topics"] for each in topic["partitions"]]
        self._times_asked = Counter((name, each["partition_index"]) for name, each in asked)
        self._asked = iter({(name, each["partition_index"]): each for name, each in asked}.items())
        self._answers: dict[str, list[Message]] = {topic["name"]: [] for topic in request.body["topics"]}
        self._known: dict[Hashable, tuple[int, int] | None] = {}
        self._inline_left = INLINE_BYTES
        self._pending: Pending | None = None
        self._is_abandoned = False
        self._is_answered = False

    def answer(self) -> Answer:
        if len(self._times_asked) > MAX_AT_ONCE:
            return Stepwise(self._steps())
        self._go_on()
        if self._is_answered:
            return self._message()
        self._pending = Pending(abandon=self._abandon, holds_connection=True)
        return self._pending

    def _steps(self) -> AnswerSteps:
        """Of many partitions each is a step; what was found for it is encoded at once."""
        encoded = {
            name: encoded_elements(response_schema(API_KEY), self._request.version, "topics", "partitions")
            for name in self._answers
        }
        for (name, _), partition in self._asked:
            while (must_wait := self._ask(name, partition)) is not None:
                wait, came = Wait(), list[tuple[Any, KafkaError | None]]()
                self._broker.off_loop.run(must_wait.work, partial(_note, wait, came))
                yield wait
                if not self._learns(must_wait.key, name, partition, *came[0]):
                    break
            for answer in self._answers[name]:
                self._broker.metrics.count_errors(api_name(API_KEY), answer)
                encoded[name].append(answer)
            self._answers[name].clear()
            yield None
        return {"topics": [{"name": name, "partitions": found} for name, found in encoded.items()]}

    def _abandon(self) -> None:
        self._is_abandoned = True

    def _message(self) -> Message:
        return {"topics": [{"name": name, "partitions": found} for name, found in self._answers.items()]}

    def _go_on(self) -> None:
        for (name, _), partition in self._asked:
            if not self._look_up(name, partition):
                return
        self._is_answered = True
        if self._pending is not None:
            self._pending.abandon = None
            self._pending.complete(self._message())

    def _look_up(self, name: str, partition: Message) -> bool:
        """Whether it is answered; else it will be, and the rest after it."""
        must_wait = self._ask(name, partition)
        if must_wait is not None:
            self._broker.off_loop.run(must_wait.work, partial(self._ended, must_wait.key, name, partition))
        return must_wait is None

    def _ask(self, name: str, partition: Message) -> _MustWait | None:
        """Answers it, unless something must be done elsewhere first."""
        index = partition["partition_index"]
        try:
            times_asked = self._times_asked[name, index]
            if times_asked > 1:
                raise InvalidRequest(f"partition {index} of {name} is asked for {times_asked} times")
            timestamp, offset, epoch = self._find(name, partition)
        except _MustWait as wait:
            return wait
        except KafkaError as error:
            if isinstance(error, KafkaStorageError):
                error = self._broker.want_of_descriptors.to_client(error, self._request.now_ms)
            self._answers[name].append({"partition_index": index, "error_code": error.code})
        else:
            self._answers[name].append(
                {"partition_index": index, "timestamp": timestamp, "offset": offset, "leader_epoch": epoch}
            )
        return None

    def _ended(
        self, key: Hashable, name: str, partition: Message, found: tuple[int, int] | None, error: KafkaError | None
    ) -> None:
        if self._pending is None:
            self._found(key, name, partition, found, error)
        else:
            self._pending.attempt(lambda: self._found(key, name, partition, found, error))

    def _found(
        self, key: Hashable, name: str, partition: Message, found: tuple[int, int] | None, error: KafkaError | None
    ) -> None:
        if self._is_abandoned:
            return
        if not self._learns(key, name, partition, found, error) or self._look_up(name, partition):
            self._go_on()

    def _learns(
        self, key: Hashable, name: str, partition: Message, found: tuple[int, int] | None, error: KafkaError | None
    ) -> bool:
        """Whether the question can be asked again; else it is answered with the error."""
        if error is not None:
            self._answers[name].append({"partition_index": partition["partition_index"], "error_code": error.code})
            return False
        self._broker.timestamp_lookups.remember(key, found)
        self._known[key] = found
        return True

    def _find(self, name: str, partition: Message) -> Found:
        broker, request = self._broker, self._request
        index, timestamp = partition["partition_index"], partition["timestamp"]
        if timestamp < 0 and request.version < FIRST_VERSIONS.get(timestamp, request.version + 1):
            raise UnsupportedVersion(f"timestamp {timestamp} has no meaning in version {request.version}")
        log = broker.partition(name, index)
        broker.check_leader_epoch(name, index, partition["current_leader_epoch"])
        readable_end = _readable_end(log, request.body["isolation_level"])
        if timestamp == SpecialTimestamp.LATEST:
            return NO_TIMESTAMP, readable_end, broker.leader_epoch(name, index)
        if timestamp in (SpecialTimestamp.EARLIEST, SpecialTimestamp.EARLIEST_LOCAL):
            entries = log.leader_epochs.entries
            return NO_TIMESTAMP, log.log_start_offset, entries[0].epoch if entries else broker.leader_epoch(name, index)
        if timestamp in (SpecialTimestamp.LATEST_TIERED, SpecialTimestamp.EARLIEST_PENDING_UPLOAD):
            return NOTHING
        search = partial(self._search, log.topic_partition)
        if timestamp == SpecialTimestamp.MAX_TIMESTAMP:
            found = log.max_timestamp(search)
        else:
            found = log.find_offset_by_timestamp(timestamp, search)
        if found is None or found.offset >= readable_end:
            return NOTHING
        return found.timestamp, found.offset, found.leader_epoch

    def _search(
        self, log: TopicPartition, batch: StoredBatch, timestamp: int | None, start_offset: int
    ) -> tuple[int, int] | None:
        """What `search_batch` finds: remembered, or found now if that costs little, or else elsewhere."""
        header = batch.header
        first_offset = max(start_offset, header.base_offset)
        key = (log, header.base_offset, header.crc, header.size_bytes, timestamp, first_offset)
        if key in self._known:
            return self._known[key]
        remembered = self._broker.timestamp_lookups
        if key in remembered:
            return remembered[key]
        if not self._is_for_the_loop(batch):
            raise _MustWait(key, partial(search_batch, batch, timestamp, first_offset))
        found = search_batch(batch, timestamp, first_offset)
        if header.codec != compression.NONE:
            remembered.remember(key, found)
        return found

    def _is_for_the_loop(self, batch: StoredBatch) -> bool:
        header = batch.header
        cost = header.size_bytes
        if cost <= self._inline_left and header.codec != compression.NONE:
            try:
                cost += frames.readable_size_bound(header.codec, memoryview(batch.read())[HEADER_SIZE:])
            except KafkaError:
                return False  # another broker has stored it: nobody knows what comes out
        if cost > self._inline_left:
            return False
        self._inline_left -= cost
        return True


def _note(wait: Wait, came: list[tuple[Any, KafkaError | None]], found: Any, error: KafkaError | None) -> None:
    came.append((found, error))
    wait.end()


def _readable_end(log: PartitionLog, isolation_level: int) -> int:
    if isolation_level == IsolationLevel.READ_UNCOMMITTED:
        return log.high_watermark
    if isolation_level == IsolationLevel.READ_COMMITTED:
        return log.last_stable_offset
    raise InvalidRequest(f"isolation level {isolation_level} does not exist")
