"""Records that wait to be sent: per partition a queue of batches, bounded by `buffer.memory`.

The one object that two threads touch: users append, the sender takes. The shell gives the lock that every method here
takes for a moment; nothing waits while holding it. An append that finds no room says so, and the shell decides
whether to wait, to fail, to drop or to spill.

A queue's batches lie in the order in which they are to be stored. New records join the last one while it is open; the
sender takes from the head, and puts back at the head what must be sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol
from uuid import UUID

from oncelog.client.batch import ProducerBatch
from oncelog.client.delivery import Delivery, Futures, OnDelivery, Waiter
from oncelog.client.locks import as_quick_lock
from oncelog.client.metadata import NO_LEADER
from oncelog.client.partitioner import NO_PARTITION, RoundRobinPartitioner, StickyPartitioner
from oncelog.client.producer_errors import ProducerClosed
from oncelog.errors import OncelogError
from oncelog.records.kernel import RowSource
from oncelog.records.model import HEADER_SIZE, Buffer, HeadersInput
from oncelog.types import NO_LEADER_EPOCH

RECORD_OVERHEAD_BYTES = 32  # the most that lengths and deltas of a record without headers take
HEADER_OVERHEAD_BYTES = 10  # the same for one header
CALLBACK_BYTES = 96  # what a record that waits with its callback costs besides its bytes
NOTHING_STORED = -1
BATCH_BYTES = 1024  # what a batch costs besides its records


class RecordTooLarge(OncelogError, ValueError):
    """One record is larger than `max.request.size`, or than the whole `buffer.memory`: it could never be sent."""


class Lock(Protocol):
    """What `threading.Lock` offers."""

    def acquire(self) -> object: ...
    def release(self) -> None: ...


class PartitionQueue:
    """One partition's batches, and who leads it."""

    __slots__ = (
        "batches", "has_stored", "head", "index", "leader", "leader_epoch", "next_ordinal", "next_position", "open",
        "queued_bytes", "stored_position", "topic", "topic_id", "unsettled", "usual_bytes",
    )  # fmt: skip

    def __init__(self, topic: str, index: int) -> None:
        self.topic = topic
        self.topic_id: UUID | None = None
        self.index = index
        self.leader = NO_LEADER
        self.leader_epoch = NO_LEADER_EPOCH
        self.batches: deque[ProducerBatch] = deque()
        self.head: ProducerBatch | None = None
        """The first of them: the sender looks at all heads for every request."""
        self.open: ProducerBatch | None = None
        """The last batch, while records may join it."""
        self.queued_bytes = 0
        self.usual_bytes = 0
        """How large the batch was that was taken last, and so the next may become: with a thousand partitions, batches
        that grow step by step cost a third more."""
        self.unsettled: list[ProducerBatch] = []
        """Batches that were sent and have no final answer yet, in order; those that wait to be sent again are also in
        `batches`. Only the sender touches it, as everything below."""
        self.next_position = 0
        """Of the next record to be numbered, in the sequence of this producer id and epoch."""
        self.stored_position = NOTHING_STORED
        """The highest that was acknowledged in that sequence."""
        self.next_ordinal = 0
        """How many batches were sent for the first time."""
        self.has_stored = False
        """The broker acknowledged a batch under this id and epoch, so it knows where the sequence stands."""

    def join(self, batch: ProducerBatch) -> None:
        """Behind all others."""
        self.batches.append(batch)
        if self.head is None:
            self.head = batch

    def leave(self) -> ProducerBatch:
        """The head, which others are behind."""
        batch = self.batches.popleft()
        self.head = self.batches[0] if self.batches else None
        return batch

    def return_to(self, batch: ProducerBatch) -> None:
        """Before all others."""
        self.batches.appendleft(batch)
        self.head = batch

    def remove(self, batch: ProducerBatch) -> None:
        self.batches.remove(batch)
        self.head = self.batches[0] if self.batches else None

    def __repr__(self) -> str:
        return f"<queue {self.topic}-{self.index}: {len(self.batches)} waiting, {len(self.unsettled)} unsettled>"


class TopicQueues:
    """A topic's queues, in the order of its partitions, and where records without a key go now."""

    __slots__ = ("chooser", "name", "queues", "sticky", "sticky_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.chooser: StickyPartitioner | RoundRobinPartitioner | None = None
        self.sticky = NO_PARTITION
        self.sticky_bytes = 0


class Accumulator:
    __slots__ = (
        "_batch_size", "_buffer_memory", "_callback_bytes", "_lock", "_max_request_size", "_new_waiter", "_overhead",
        "_quick_lock", "are_waiting_for_memory", "early_bytes", "flushing", "futures", "has_early_batch",
        "incomplete", "is_closed", "refusal", "topics", "used_bytes",
    )  # fmt: skip

    def __init__(
        self,
        *,
        batch_size: int,
        buffer_memory: int,
        max_request_size: int,
        lock: Lock | None,
        new_waiter: Callable[[], Waiter],
    ) -> None:
        """`lock` is None where everything happens in one thread."""
        self._batch_size = batch_size
        self._buffer_memory = buffer_memory
        self._max_request_size = max_request_size
        self._new_waiter = new_waiter
        self._lock = lock
        self._quick_lock = as_quick_lock(lock)
        self._overhead = RECORD_OVERHEAD_BYTES  # at hand, since every record needs them
        self._callback_bytes = CALLBACK_BYTES
        self.futures = Futures()
        """Who makes what `append` returns."""
        self.topics: dict[str, TopicQueues] = {}
        self.used_bytes = 0
        self.incomplete: dict[ProducerBatch, None] = {}
        """Every batch whose records were accepted and have no result yet, oldest first; the parts of one that was split
        are as old as it was."""
        self.flushing = 0
        """How many callers wait for everything to be sent at once."""
        self.are_waiting_for_memory = 0
        self.early_bytes = 0
        """How large a batch is that is worth a request of its own while others still grow; 0 if none is."""
        self.has_early_batch = False
        """Since somebody last looked, a batch has reached that size."""
        self.is_closed = False
        """No batch is begun any more: whoever would have sent it has ended."""
        self.refusal: Exception | None = None
        """Why no record is taken at the moment."""

    def _acquire(self) -> None:
        if self._quick_lock is not None:
            self._quick_lock.acquire()
        elif self._lock is not None:
            self._lock.acquire()

    def _release(self) -> None:
        if self._quick_lock is not None:
            self._quick_lock.release()
        elif self._lock is not None:
            self._lock.release()

    # --- for users' threads -----------------------------------------------------------------------------------

    def append(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput,
        on_delivery: OnDelivery | None,
    ) -> Any:
        """Add a record to the open batch. None if there is none, or no room in it or in memory: `append_anew` helps."""
        size = self._overhead
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            size += _headers_size(headers)
        self._acquire()
        try:
            batch = queue.open
            if batch is None or batch.size_bytes + size > self._batch_size:
                return None
            if self.used_bytes + size + self._callback_bytes > self._buffer_memory:
                return None
            return self._add(queue, batch, timestamp_ms, key, value, headers, on_delivery)
        finally:
            self._release()

    def append_anew(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput,
        on_delivery: OnDelivery | None,
        now_ms: int,
    ) -> Any:
        """Close the queue's last batch and begin another one with this record. None if memory is full. Raises
        RecordTooLarge for a record that no waiting would help, TypeError for one that is not made of bytes,
        ProducerClosed if nobody would send it any more."""
        size = self.check_fits(queue, key, value, headers)
        needed = size + CALLBACK_BYTES + HEADER_SIZE + BATCH_BYTES
        self._acquire()
        try:
            self.check_open()
            self._close(queue)  # also without room for another one: it is sent and makes room
            if self.used_bytes + needed > self._buffer_memory:
                return None
            batch = self._new_batch(queue, size, now_ms)
            future = self._add(queue, batch, timestamp_ms, key, value, headers, on_delivery)
            batch.charged_bytes += HEADER_SIZE + BATCH_BYTES
            queue.queued_bytes += HEADER_SIZE + BATCH_BYTES
            self.used_bytes += HEADER_SIZE + BATCH_BYTES
            queue.open = batch
            queue.join(batch)
            self.incomplete[batch] = None
            return future
        finally:
            self._release()

    def new_batch_with(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput,
        on_delivery: OnDelivery | None,
        now_ms: int,
    ) -> ProducerBatch:
        """As `append_anew`, for who wants to know the batch before anybody else does: `add` is the second step. Raises
        RecordTooLarge or TypeError."""
        batch = self._new_batch(queue, self.check_fits(queue, key, value, headers), now_ms)
        batch.append(timestamp_ms, key, value, headers)
        batch.charged_bytes = batch.size_bytes + BATCH_BYTES
        if on_delivery is not None:
            batch.call_back(0, timestamp_ms, on_delivery)
            batch.charged_bytes += CALLBACK_BYTES
        return batch

    def _new_batch(self, queue: PartitionQueue, size: int, now_ms: int) -> ProducerBatch:
        """For a first record of this size."""
        return ProducerBatch(
            queue.topic,
            queue.index,
            now_ms,
            max(self._batch_size, HEADER_SIZE + size),
            Delivery(queue.topic, queue.index, self._new_waiter),
            min(queue.usual_bytes, self._buffer_memory // (len(self.incomplete) + 1)),
        )

    def holds(self, batch: ProducerBatch) -> bool:
        """Whether it was added, and has no result yet."""
        return batch in self.incomplete

    def append_rows(
        self, queue: PartitionQueue, rows: RowSource, start: int, stop: int, order: Buffer | None
    ) -> tuple[Delivery, int, int] | None:
        """Add rows of a table to the open batch: as many as it has room for, and memory. A batch that does not take all
        of them is closed. Returns its delivery, the index there of the first row, and how many it took; None if there
        is no open batch."""
        self._acquire()
        try:
            batch = queue.open
            if batch is None:
                return None
            first_index, charged = batch.record_count, batch.charged_bytes
            limit_bytes = min(self._batch_size, batch.size_bytes + self._buffer_memory - self.used_bytes)
            try:
                if batch.append_rows(rows, start, stop, limit_bytes, order) < stop:
                    self._close(queue)
            finally:
                queue.queued_bytes += batch.charged_bytes - charged
                self.used_bytes += batch.charged_bytes - charged
            return batch.delivery, first_index, batch.record_count - first_index
        finally:
            self._release()

    def add(self, queue: PartitionQueue, batch: ProducerBatch, is_full: bool) -> bool:
        """A batch that was filled elsewhere, behind those of its queue; open to others unless it is full. False if
        there is no memory for it. Raises ProducerClosed if nobody would send it any more."""
        self._acquire()
        try:
            self.check_open()
            self._close(queue)  # also without room for another one: it is sent and makes room
            if self.used_bytes + batch.charged_bytes > self._buffer_memory:
                return False
            queue.join(batch)
            queue.queued_bytes += batch.charged_bytes
            self.used_bytes += batch.charged_bytes
            self.incomplete[batch] = None
            queue.open = batch
            if is_full:
                self._close(queue)
            return True
        finally:
            self._release()

    def _add(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput,
        on_delivery: OnDelivery | None,
    ) -> Any:
        before = batch.size_bytes
        index = batch.append(timestamp_ms, key, value, headers)
        future = self.futures.new(batch.delivery, index, timestamp_ms)
        charge = batch.size_bytes - before
        if on_delivery is not None:
            batch.call_back(index, timestamp_ms, on_delivery)
            charge += self._callback_bytes
        if before < self.early_bytes <= batch.size_bytes:
            self.has_early_batch = True
        batch.charged_bytes += charge
        queue.queued_bytes += charge
        self.used_bytes += charge
        return future

    @property
    def newest_bytes(self) -> int:
        """The size of the batch that was begun last, if records may still join it."""
        newest = next(reversed(self.incomplete), None)
        return newest.size_bytes if newest is not None and newest.is_open else 0

    def check_fits(self, queue: PartitionQueue, key: Buffer | None, value: Buffer | None, headers: HeadersInput) -> int:
        """About how many bytes the record takes. Raises RecordTooLarge if it could never be sent."""
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") + _headers_size(headers)
        needed = size + CALLBACK_BYTES + HEADER_SIZE + BATCH_BYTES
        if size > self._max_request_size:
            raise RecordTooLarge(
                f"a record of about {size} bytes for {queue.topic}-{queue.index} is larger than max.request.size"
                f" ({self._max_request_size}); send less, or raise max.request.size (and the topic's max.message.bytes)"
            )
        if needed > self._buffer_memory:
            raise RecordTooLarge(
                f"a record of about {size} bytes for {queue.topic}-{queue.index} never fits into buffer.memory"
                f" ({self._buffer_memory}); raise buffer.memory"
            )
        return size

    def check_open(self) -> None:
        """To be called with the lock held: what is added before the lock is let go of is sent, or fails."""
        if self.is_closed:
            raise ProducerClosed("the producer is closed; make a new one to send more")
        self.check_not_suspended()

    def check_not_suspended(self) -> None:
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)

    def suspend(self, refusal: Exception) -> None:
        """Take no record until `resume`. Those that were taken before are sent without waiting for others."""
        self._acquire()
        try:
            self.refusal = refusal
            for topic in self.topics.values():
                for queue in topic.queues:
                    self._close(queue)
        finally:
            self._release()

    def resume(self) -> None:
        self.refusal = None

    def _close(self, queue: PartitionQueue) -> None:
        if queue.open is not None:
            queue.open.is_open = False
            queue.open = None

    def undelivered(self) -> list[Delivery]:
        """The deliveries of everything accepted so far that has no result yet."""
        self._acquire()
        try:
            return [batch.delivery for batch in self.incomplete]
        finally:
            self._release()

    def undelivered_count(self) -> int:
        """How many records those are."""
        self._acquire()
        try:
            return sum([batch.record_count for batch in self.incomplete])
        finally:
            self._release()

    def ripe_bytes(self, count: int) -> int:
        """How large a batch should become where so many partitions share the memory: most of what it may, or a little
        more than its share, since those that still grow are half as large on average."""
        return min(self._batch_size * 3 // 4, self._buffer_memory * 5 // (4 * count))

    @property
    def available_bytes(self) -> int:
        return self._buffer_memory - self.used_bytes

    # --- for the sender ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Begin no batch any more."""
        self._acquire()
        self.is_closed = True
        self._release()

    def close_if_complete(self) -> bool:
        """Begin no batch any more if every record has its result."""
        self._acquire()
        self.is_closed |= not self.incomplete
        self._release()
        return self.is_closed

    def learn_partitions(self, topic: str, partitions: Iterable[tuple[int, UUID, int, int]]) -> TopicQueues:
        """`(index, topic id, leader, leader epoch)` as metadata tells, in order. Partitions never go away."""
        known = self.topics.get(topic)
        if known is None:
            known = TopicQueues(topic)
        queues = list(known.queues)
        for index, topic_id, leader, leader_epoch in partitions:
            if index == len(queues):
                queues.append(PartitionQueue(topic, index))
            queue = queues[index]
            queue.topic_id = topic_id
            queue.leader = leader
            queue.leader_epoch = leader_epoch
        known.queues = queues  # all at once: a key is placed by the old number of partitions, or by the new one
        self.topics[topic] = known
        return known

    def forget_leaders(self, topic: str) -> None:
        """No broker has the topic: it was deleted, or is not known everywhere yet."""
        known = self.topics.get(topic)
        for queue in () if known is None else known.queues:
            queue.leader = NO_LEADER

    def adopt(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A batch that was made elsewhere, behind those of its queue; no record joins it."""
        self._acquire()
        try:
            self._close(queue)
            batch.is_open = False
            batch.charged_bytes = batch.size_bytes + BATCH_BYTES
            queue.queued_bytes += batch.charged_bytes
            self.used_bytes += batch.charged_bytes
            queue.join(batch)
            self.incomplete[batch] = None
        finally:
            self._release()

    def oldest_ms(self, now_ms: int) -> int:
        """When the oldest batch without a result was begun; now, if there is none."""
        self._acquire()
        try:
            for batch in self.incomplete:
                return batch.created_ms
            return now_ms
        finally:
            self._release()

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """The head, closed: no record joins it any more."""
        self._acquire()
        try:
            batch = queue.leave()
            queue.usual_bytes = batch.size_bytes
            if batch is queue.open:
                self._close(queue)
            return batch
        finally:
            self._release()

    def put_back(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """To be sent again: before everything that was sent after it, behind what was sent before."""
        self._acquire()
        try:
            earlier = []
            while queue.head is not None and queue.head.was_sent_before(batch):
                earlier.append(queue.leave())
            queue.return_to(batch)
            for one in reversed(earlier):
                queue.return_to(one)
        finally:
            self._release()

    def put_back_parts(self, queue: PartitionQueue, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """The parts of a batch that was too large, in its place."""
        for part in reversed(parts):
            self.put_back(queue, part)
        self._acquire()
        try:
            by_age = {one: None for one in self.incomplete if one is not batch}
            by_age.update(dict.fromkeys(parts))
            self.incomplete = dict.fromkeys(sorted(by_age, key=_created_ms))
        finally:
            self._release()

    def drop(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Out of the queue; its records have a result."""
        self._acquire()
        try:
            if batch is queue.open:
                self._close(queue)
            queue.remove(batch)
        finally:
            self._release()

    def finish(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Its records have a result: give its memory back."""
        self._acquire()
        try:
            self.incomplete.pop(batch, None)
            self.used_bytes -= batch.charged_bytes
            queue.queued_bytes -= batch.charged_bytes
            batch.charged_bytes = 0
        finally:
            self._release()


def _created_ms(batch: ProducerBatch) -> int:
    return batch.created_ms


def _headers_size(headers: HeadersInput) -> int:
    size = 0
    for name, value in headers:
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + (0 if value is None else len(value))
    return size
