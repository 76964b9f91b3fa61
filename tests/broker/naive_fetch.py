"""Fetch as it was before it knew what had changed: every partition is visited at each request and at each wake.

The model that `handlers/test_fetch_model.py` holds the handler to. Reads the same logs, and keeps sessions and waiting
fetches of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from oncelog.broker.handlers.fetch import failed_partition
from oncelog.broker.state import BrokerState
from oncelog.errors import KafkaError, OffsetOutOfRange, UnknownTopicId, UnknownTopicOrPartition
from oncelog.log.partition_log import PartitionLog
from oncelog.types import TopicPartition
from oncelog.wire.fetch import EpochEndOffset, FetchedPartition, FetchPartition, FetchRequest

Key = tuple[Any, int]
"""The topic's name or id, and the partition."""

Found = dict[Key, FetchedPartition]


class Limits(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    committed_only: bool


class NaiveSession:
    """One client's. Without `is_incremental` it names everything each time, and is told everything."""

    def __init__(self, broker: BrokerState, *, is_incremental: bool) -> None:
        self._broker = broker
        self._is_incremental = is_incremental
        self._told: dict[Key, tuple[int, int]] = {}
        self._is_first = True
        self.partitions: dict[Key, FetchPartition] = {}
        self.waiting: NaiveWait | None = None

    def update(self, request: FetchRequest) -> None:
        if not self._is_incremental:
            self.partitions = {}
        for topic in request.topics:
            for partition in topic.partitions:
                self.partitions[topic.topic_id or topic.name, partition.index] = partition
        for topic_name, topic_id, indexes in request.forgotten:
            for index in indexes:
                self.partitions.pop((topic_id or topic_name, index), None)
                self._told.pop((topic_id or topic_name, index), None)

    def fetch(self, request: FetchRequest) -> Found | None:
        """What the client hears; None if it has to wait."""
        self.update(request)
        limits = Limits(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level == 1)
        found = self.read(limits)
        if (
            limits.max_wait_ms > 0
            and self.partitions
            and not _is_enough(found, min(limits.min_bytes, limits.max_bytes))
        ):
            self.waiting = NaiveWait(self, limits, min(limits.min_bytes, limits.max_bytes) - _size_bytes(found))
            return None
        return self.news(found)

    def finish(self) -> Found:
        assert self.waiting is not None
        limits, self.waiting = self.waiting.limits, None
        return self.news(self.read(limits))

    def read(self, limits: Limits) -> Found:
        found: Found = {}
        remaining = limits.max_bytes
        found_data = False
        for key, partition in self.partitions.items():
            answer = self._read_partition(key, partition, limits, max(0, remaining), not found_data)
            if answer.records is not None:
                remaining -= answer.records.size_bytes
                found_data = found_data or answer.records.size_bytes > 0
            found[key] = answer
        return found

    def news(self, found: Found) -> Found:
        if not self._is_incremental:
            return found
        is_full, self._is_first = self._is_first, False
        chosen: Found = {}
        for key, answer in found.items():
            now_told = (answer.high_watermark, answer.log_start_offset)
            has_data = answer.records is not None and answer.records.size_bytes > 0
            is_loud = has_data or answer.error_code != 0 or answer.diverging_epoch is not None
            if not (is_full or is_loud or self._told.get(key) != now_told):
                continue
            chosen[key] = answer
            if answer.error_code:
                self._told.pop(key, None)
            else:
                self._told[key] = now_told
            if has_data:
                self.partitions[key] = self.partitions.pop(key)
        return chosen

    def topic_name(self, topic: Any) -> str:
        return topic if isinstance(topic, str) else self._broker.topic_name(topic) or ""

    def _read_partition(
        self, key: Key, partition: FetchPartition, limits: Limits, remaining: int, first: bool
    ) -> FetchedPartition:
        try:
            name = self.topic_name(key[0])
            if not name:
                raise UnknownTopicId(f"no topic has the id {key[0]}")
            if self._broker.topic_id(name) is None:
                raise UnknownTopicOrPartition(f"there is no topic {name}")
            log = self._broker.partition(name, key[1])
            self._broker.check_leader_epoch(name, key[1], partition.current_leader_epoch)
            return _read_log(log, partition, limits, min(remaining, partition.max_bytes), first)
        except KafkaError as error:
            return failed_partition(partition.index, error)


class NaiveWait:
    def __init__(self, session: NaiveSession, limits: Limits, missing_bytes: int) -> None:
        self._session = session
        self.limits = limits
        self.missing_bytes = missing_bytes
        self.is_woken = False
        self.watched = {TopicPartition(session.topic_name(topic), index) for topic, index in session.partitions}


class NaivePurgatory:
    """Hears what the broker's own does, and says who should be woken by it."""

    def __init__(self, broker: BrokerState, waiting: Callable[[], NaiveWait | None]) -> None:
        self._broker = broker
        self._waiting = waiting
        real = broker.purgatory
        for name in ("appended", "released", "changed"):
            setattr(real, name, self._both(getattr(self, name), getattr(real, name)))

    def _both(self, ours: Callable[..., None], real: Callable[..., None]) -> Callable[..., None]:
        def happens(*arguments: Any) -> None:
            ours(*arguments)
            real(*arguments)

        return happens

    def _of(self, partition: TopicPartition) -> NaiveWait | None:
        waiting = self._waiting()
        return waiting if waiting is not None and partition in waiting.watched else None

    def appended(self, partition: TopicPartition, size_bytes: int) -> None:
        waiting = self._of(partition)
        if waiting is None:
            return
        log = self._broker.logs.logs.get(partition)
        is_hidden = log is not None and log.last_stable_offset < log.high_watermark
        if not (waiting.limits.committed_only and is_hidden):
            waiting.missing_bytes -= size_bytes
            waiting.is_woken = waiting.is_woken or waiting.missing_bytes <= 0

    def released(self, partition: TopicPartition) -> None:
        waiting = self._of(partition)
        if waiting is not None and waiting.limits.committed_only:
            waiting.is_woken = True

    def changed(self, partition: TopicPartition) -> None:
        waiting = self._of(partition)
        if waiting is not None:
            waiting.is_woken = True


def _is_enough(found: Found, min_bytes: int) -> bool:
    if any(answer.error_code or answer.diverging_epoch is not None for answer in found.values()):
        return True
    return _size_bytes(found) >= min_bytes


def _size_bytes(found: Found) -> int:
    return sum(answer.records.size_bytes for answer in found.values() if answer.records is not None)


def _read_log(
    log: PartitionLog, partition: FetchPartition, limits: Limits, max_bytes: int, first: bool
) -> FetchedPartition:
    diverging = _divergence(log, partition)
    end = log.last_stable_offset if limits.committed_only else log.high_watermark
    records = None
    if diverging is None:
        if partition.fetch_offset > log.high_watermark:
            raise OffsetOutOfRange("beyond the end")
        records = log.read(partition.fetch_offset, max_bytes, upper_bound=end, at_least_one_batch=first)
    aborted = None
    if limits.committed_only:
        aborted = []
        if records is not None and records.size_bytes:
            listed = log.aborted_transactions(partition.fetch_offset, records.offset_bound)
            aborted = [(one.producer_id, one.first_offset) for one in listed]
    return FetchedPartition(
        partition.index,
        0,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        aborted,
        -1,
        diverging,
        None,
        records,
    )


def _divergence(log: PartitionLog, partition: FetchPartition) -> EpochEndOffset | None:
    if partition.last_fetched_epoch == -1:
        return None
    epoch, end_offset = log.end_offset_for_epoch(partition.last_fetched_epoch)
    if epoch == -1 or end_offset == -1:
        raise OffsetOutOfRange("no such epoch is left")
    if epoch < partition.last_fetched_epoch or end_offset < partition.fetch_offset:
        return EpochEndOffset(epoch, end_offset)
    return None
