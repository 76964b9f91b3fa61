"""The way of records from the spool into transactions: what each holds, and who hears what became of it.

A record is taken into the open transaction, at once or from disk, and its future and callback wait for the commit: a
transaction that is aborted was never heard of, and its records are taken by the next one, in the same order. What
cannot be stored at all (a record too large, a topic that is forbidden) fails once its transaction is aborted, and is
left out of the next. A topic with a partition that has no leader is passed by until it has one. Time alone never makes
a record fail: it can wait on disk. Users hear of a partition's records in their order.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from oncelog.client.accumulator import PartitionQueue
from oncelog.client.batch import ProducerBatch
from oncelog.client.delivery import Delivery, OnDelivery, RecordFuture
from oncelog.client.metadata import NO_LEADER
from oncelog.client.producer_errors import RefusedWithOthers
from oncelog.client.spool.feeding import Feeder
from oncelog.client.spool.positions import Ends, Position
from oncelog.client.spool.promises import Outcome, Promises
from oncelog.client.spool.spool import SpooledRecord
from oncelog.client.transaction_errors import AbortNeeded, TransactionError
from oncelog.client.verdict import Verdict, verdict_of
from oncelog.errors import (
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionAbortable,
    TransactionCoordinatorFenced,
    UnknownProducerId,
)
from oncelog.records.model import Buffer, HeadersInput
from oncelog.types import NO_OFFSET, TopicPartition

MAX_RECORDS: Final = 5_000
"""In one transaction: what an abort makes us send again."""

_OF_THE_TRANSACTION: Final = (
    InvalidTxnState,
    InvalidProducerIdMapping,
    ProducerFenced,
    TransactionAbortable,
    TransactionCoordinatorFenced,
    UnknownProducerId,
)
"""Final for a batch, and no fault of its records."""

logger = logging.getLogger(__name__)


class TransactionFeeder(Feeder):
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.taken = 0
        """Records in the open transaction."""
        self.refusal: Exception | None = None
        """Why the position could not be stored, if that will not change."""
        self._position: RecordFuture | None = None
        self._is_news = False
        self._firsts: dict[Delivery, int] = {}
        """Which entry the first record of a batch is."""
        self._stored: list[tuple[TopicPartition, Outcome]] = []
        """In the open transaction."""
        self._failed: list[tuple[TopicPartition, Outcome]] = []
        self._untold: dict[TopicPartition, list[Outcome]] = {}
        """What is decided, and waits for entries before it."""
        self._promises: dict[TopicPartition, Promises] = {}

    # --- taking -----------------------------------------------------------------------------------------------

    def accept(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput,
        on_delivery: OnDelivery | None,
        now_ms: int,
    ) -> RecordFuture:
        self._accumulator.check_fits(queue, key, value, headers)
        with self.lock:
            if self._closed is not None:
                raise self._closed
            entry = self._spool.append(queue.topic, queue.index, timestamp_ms, key, value, headers)
            self._is_news |= self.is_flowing and not self.taken
            if self._may_take(queue) and self._spool.is_next(queue.topic, queue.index, entry):
                self._take(queue, entry, timestamp_ms, key, value, headers, now_ms)
            place = TopicPartition(queue.topic, queue.index)
            promises = self._promises.get(place)
            if promises is None:
                promises = self._promises[place] = Promises(place, entry, self._new_waiter)
            return promises.give(entry, timestamp_ms, on_delivery)

    def _take(
        self,
        queue: PartitionQueue,
        entry: int,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput,
        now_ms: int,
    ) -> None:
        taken = self.taken
        try:
            loaded = self._load(queue, entry, timestamp_ms, key, value, headers, None, now_ms)
            self.taken = taken + (loaded is not None)
        except BaseException:  # a signal's handler, at any point
            self.taken = taken + (not self._spool.is_next(queue.topic, queue.index, entry))
            raise

    def is_news(self, future: RecordFuture) -> bool:
        """Whether the sender should look: a transaction has its first record, or another batch to send."""
        is_news, self._is_news = self._is_news, False
        return is_news

    def _may_take(self, queue: PartitionQueue) -> bool:
        return self._loads_at_once and self.is_flowing and not self.is_full and queue.leader != NO_LEADER

    @property
    def is_full(self) -> bool:
        return self.taken >= MAX_RECORDS

    @property
    def _burst(self) -> int:
        return min(super()._burst, MAX_RECORDS - self.taken)

    def _queue_of(self, record: SpooledRecord) -> PartitionQueue | None:
        """None without a leader too: a record that waits for one would hold up all others of its transaction."""
        queue = super()._queue_of(record)
        return None if queue is None or queue.leader == NO_LEADER else queue

    def _is_usable(self, topic: str) -> bool:
        known = self._accumulator.topics.get(topic)
        return known is not None and all(queue.leader != NO_LEADER for queue in known.queues)

    def _callback_of(self, record: SpooledRecord) -> OnDelivery | None:
        """It is called after the commit, not by the batch."""
        return None

    def _began_batch(self, delivery: Delivery, entry: int) -> None:
        self._firsts[delivery] = entry
        self._is_news = True

    def _forget_batch(self, delivery: Delivery) -> None:
        self._firsts.pop(delivery, None)

    def _loaded(self, record: SpooledRecord, loaded: RecordFuture) -> None:
        self.taken += 1

    def stop(self) -> Position:
        """Take no more into this transaction; how far it reaches."""
        self.acquire()
        try:
            self.is_flowing = False
            return Position(self._spool.loaded_ends())
        finally:
            self.release()

    def wrote_position(self, position: RecordFuture) -> None:
        """With it the transaction is complete."""
        self._position = position

    # --- what the sender tells ----------------------------------------------------------------------------------

    def numbered(self, batches: Sequence[ProducerBatch]) -> None:
        """Only batches of an earlier process, from before there were transactions, depend on their numbers."""
        revived = [batch for batch in batches if batch.delivery in self._entries]
        if revived:
            super().numbered(revived)

    def split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        if batch.delivery in self._entries:
            super().split(batch, parts)
            return
        first = self._first_entry(batch)
        if first is not None:
            for part in parts:
                self._firsts[part.delivery] = first + part.delivery.first_index - batch.delivery.first_index

    def settled(self, batch: ProducerBatch) -> None:
        """What is stored counts after the commit only."""
        if batch.delivery in self._entries:
            super().settled(batch)
            return
        error, first = batch.delivery.error, self._first_entry(batch)
        if first is None:
            if error is not None and _is_final(error, batch):
                self.refusal = error
            return
        place, end = TopicPartition(batch.topic, batch.partition), first + batch.record_count
        if error is None:
            delivery = batch.delivery
            self._stored.append((place, Outcome(first, end, delivery.base_offset, delivery.append_time_ms)))
        elif self.keeps_failed:
            return
        elif isinstance(error, AbortNeeded) and place in error.refused:
            if isinstance(error.refused[place], _OF_THE_TRANSACTION):
                return
            self._failed.append((place, Outcome(first, end, error=error.refused[place])))
        elif _is_final(error, batch):
            self._failed += [(place, outcome) for outcome in _at_fault(batch, first)]

    def _first_entry(self, batch: ProducerBatch) -> int | None:
        """None for the position. Whoever appends its first record holds the lock until it is known."""
        self.acquire()
        try:
            return self._firsts.pop(batch.delivery, None)
        finally:
            self.release()

    # --- how it ended -------------------------------------------------------------------------------------------

    def committed(self, ends: Ends) -> None:
        """Tell whoever waits, then let go of the entries, which reach to `ends`."""
        offset = NO_OFFSET if self._position is None else self._position.result(0).offset
        for place, outcome in self._stored:
            self._untold.setdefault(place, []).append(outcome)
        self._tell(ends)
        self.acquire()
        try:
            self._spool.committed(ends, offset if offset != NO_OFFSET else None)
        finally:
            self.release()
        self._begin_again()

    def aborted(self) -> None:
        """Take it all again, but for what cannot be stored."""
        for place, outcome in self._failed:
            count = outcome.end - outcome.first
            logger.error("%d spooled records for %s were given up: %s", count, place, outcome.error)
            self._untold.setdefault(place, []).append(outcome)
        self.acquire()
        try:
            for place, outcome in self._failed:
                self._spool.settled(*place, outcome.first, outcome.end - outcome.first)
            self._spool.resolved()
            ends = self._spool.loaded_ends()
        finally:
            self.release()
        self._tell(ends)
        self._next_in_batch.clear()
        self._begin_again()

    def _begin_again(self) -> None:
        self.taken = 0
        self._position = None
        self._firsts.clear()
        self._stored.clear()
        self._failed.clear()

    def _tell(self, ends: Ends) -> None:
        """All entries below `ends` are decided."""
        for place in [place for place in self._untold if place in ends]:
            outcomes = sorted(one for one in self._untold[place] if one.end <= ends[place])
            later = [one for one in self._untold[place] if one.end > ends[place]]
            if later:
                self._untold[place] = later
            else:
                del self._untold[place]
            promises = self._promises.get(place)
            if promises is not None:
                self._keep(promises, outcomes, ends[place])

    def _keep(self, promises: Promises, outcomes: list[Outcome], end: int) -> None:
        self.acquire()
        try:
            decided = promises.split(end)
        finally:
            self.release()
        promises.keep(decided, outcomes)

    def close(self, error: Exception) -> None:
        super().close(error)
        for promises in self._promises.values():
            promises.break_all(error)
        self._promises.clear()


def _at_fault(batch: ProducerBatch, first: int) -> list[Outcome]:
    """What of a refused batch, whose first entry is `first`, will never be stored. Where the broker named the records
    at fault, the others go out again in the next transaction."""
    start = batch.delivery.first_index
    outcomes = [
        Outcome(first + at - start, first + stop - start, error=error)
        for at, stop, error in batch.delivery.errors_within(start, start + batch.record_count)
    ]
    return [one for one in outcomes if not isinstance(one.error, RefusedWithOthers)] or outcomes


def _is_final(error: Exception, batch: ProducerBatch) -> bool:
    """Whether the records are at fault, and would fail again in every other transaction. What merely shared the
    transaction with them was never sent, or is aborted with it: its error names theirs as the cause."""
    if isinstance(error, TransactionError):
        return False
    cause = error if isinstance(error, KafkaError) else error.__cause__
    if not isinstance(cause, KafkaError) or isinstance(cause, _OF_THE_TRANSACTION):
        return False
    verdict = verdict_of(cause.code)
    return verdict is Verdict.INVALID or (verdict is Verdict.TOO_LARGE and batch.record_count == 1)
