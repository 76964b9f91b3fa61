"""Markers: what ends a transaction in each of its partitions.

Owns how a marker gets into a local log, and that those which cannot be written at present (the disk is full, the log is
offline) are tried until they are. After a restart the coordinators hand out again what was not complete.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from oncelog.broker.coordinated.writing import awaits_flush
from oncelog.controller.topic_names import OFFSETS_TOPIC
from oncelog.coordinator.transactions.effects import Markers
from oncelog.errors import InvalidProducerEpoch, InvalidRequest, KafkaError, UnknownServerError, UnknownTopicOrPartition
from oncelog.named_tuple import NamedTuple
from oncelog.records.batch import build_control_batch
from oncelog.records.model import ControlMarker
from oncelog.types import TopicPartition

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState
    from oncelog.broker.transactions.partition import TransactionPartition

logger = logging.getLogger(__name__)

MAX_MARKERS_AT_ONCE = 256
"""Written before the loop sees its clients again: a few milliseconds of work."""

MARKER_BYTES = len(build_control_batch(ControlMarker(True, 0), producer_id=0, producer_epoch=0, timestamp_ms=0))

FIRST_RETRY_MS = 100
LAST_RETRY_MS = 5_000
"""How long the pauses between attempts are at first, and at most."""

Written: TypeAlias = Callable[[KafkaError | None], None]


class Outcome(NamedTuple):
    """What a marker says."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


def write_marker(
    broker: BrokerState, topic_partition: TopicPartition, outcome: Outcome, now_ms: int, done: Written
) -> None:
    """`done` is called once the marker is as durable as its topic promises, or with what prevents it."""
    topic, index = topic_partition
    try:
        if outcome.producer_id < 0 or outcome.producer_epoch < 0:
            raise InvalidRequest(f"producer {outcome.producer_id} with epoch {outcome.producer_epoch} is not valid")
        log = broker.partition(topic, index)
        stable_offset, end_offset = log.last_stable_offset, log.log_end_offset
        log.append_marker(
            ControlMarker(outcome.is_commit, outcome.coordinator_epoch),
            producer_id=outcome.producer_id,
            producer_epoch=outcome.producer_epoch,
            leader_epoch=broker.leader_epoch(topic, index),
            now_ms=now_ms,
            wall_ms=broker.timers.wall_ms(),
            transaction_version=outcome.transaction_version,
        )
    except KafkaError as error:
        if broker.is_offline(topic, index):
            broker.log_failed(topic_partition)
        done(error)
        return
    log.advance_high_watermark(log.log_end_offset)
    broker.purgatory.appended(topic_partition, MARKER_BYTES)
    if stable_offset < min(end_offset, log.last_stable_offset):
        broker.purgatory.released(topic_partition)
    if topic == OFFSETS_TOPIC:
        done = partial(_tell_groups, broker, index, outcome, done)
    if awaits_flush(log):
        broker.group_commit.wait(log, log.log_end_offset, done)
    else:
        done(None)


def _tell_groups(broker: BrokerState, index: int, outcome: Outcome, done: Written, error: KafkaError | None) -> None:
    """Offsets of the transaction count from now on, or never. Whoever waits hears of it if that fails, and tries the
    marker again: else the transaction would never be complete."""
    if error is None:
        try:
            now_ms = broker.timers.now_ms()
            broker.coordination.transaction_ended(index, outcome.producer_id, outcome.is_commit, now_ms)
        except Exception:
            logger.exception("bug: groups were not told of the end of a transaction")
            error = UnknownServerError("the broker failed; its log says why")
    done(error)


class _Undelivered(NamedTuple):
    sender: TransactionPartition
    markers: Markers
    topic_partition: TopicPartition

    @property
    def outcome(self) -> Outcome:
        markers = self.markers
        return Outcome(
            markers.producer_id,
            markers.producer_epoch,
            markers.coordinator_epoch,
            markers.is_commit,
            markers.transaction_version,
        )


class MarkerQueue:
    """Markers on their way. Bounded by the transactions that are prepared: each is here once for each partition."""

    def __init__(
        self, broker: BrokerState, written: Callable[[TransactionPartition, Markers, TopicPartition], None]
    ) -> None:
        """`written` is told of each marker that is, or that its partition does not need."""
        self._broker = broker
        self._timers = broker.timers
        self._tell = written
        self._waiting: deque[_Undelivered] = deque()
        self._failed: list[_Undelivered] = []
        self._is_writing = False
        self._retry_ms = FIRST_RETRY_MS
        self._cancel_retry: Callable[[], object] | None = None

    def __len__(self) -> int:
        """Those that could not be written so far. May be asked from any thread."""
        return len(self._failed)

    def send(self, sender: TransactionPartition, many: Sequence[Markers]) -> None:
        for markers in many:
            for topic_partition in markers.partitions:
                self._waiting.append(_Undelivered(sender, markers, topic_partition))
        if self._waiting and not self._is_writing:
            self._is_writing = True
            self._timers.later(0, self._write)  # whoever asked for the end is answered first

    def _write(self) -> None:
        """The next ones; the rest after the loop has seen its clients."""
        self._is_writing = True
        for _ in range(min(len(self._waiting), MAX_MARKERS_AT_ONCE)):
            marker = self._waiting.popleft()
            if marker.sender.is_gone:
                continue
            self._write_one(marker)
        self._is_writing = bool(self._waiting)
        if self._waiting:
            self._timers.later(0, self._write)

    def _write_one(self, marker: _Undelivered) -> None:
        now_ms = self._timers.now_ms()
        try:
            write_marker(self._broker, marker.topic_partition, marker.outcome, now_ms, partial(self._written, marker))
        except Exception as error:  # one that fails in a way of its own must not keep the others from ending
            logger.exception("bug: a marker in %s", marker.topic_partition)
            self._written(marker, UnknownServerError(str(error)))

    def _written(self, marker: _Undelivered, error: KafkaError | None) -> None:
        if error is None or self._is_settled(marker, error):
            if not self._failed:
                self._retry_ms = FIRST_RETRY_MS
            self._tell(*marker)
            return
        self._failed.append(marker)
        if self._cancel_retry is None:
            logger.error("a marker of %s in %s: %s", marker.markers.transactional_id, marker.topic_partition, error)
            self._cancel_retry = self._timers.later(self._retry_ms, self.retry)
            self._retry_ms = min(2 * self._retry_ms, LAST_RETRY_MS)

    @staticmethod
    def _is_settled(marker: _Undelivered, error: KafkaError) -> bool:
        """A partition that is no more needs no marker, and one where the producer's next epoch has begun has had it, or
        has been ended by somebody else."""
        if isinstance(error, InvalidProducerEpoch):
            logger.error("%s has no need of a marker: %s", marker.topic_partition, error)
        return isinstance(error, UnknownTopicOrPartition | InvalidProducerEpoch)

    def retry(self) -> None:
        """Try those again that could not be written."""
        if self._cancel_retry is not None:
            self._cancel_retry()
            self._cancel_retry = None
        self._waiting.extend(self._failed)
        self._failed.clear()
        if not self._is_writing:
            self._write()
