"""Between spool and accumulator: every record goes through the first into the second, each partition's in order.

A record goes into memory at once if it finds room and nothing of its partition waits on disk before it; else it stays
on disk, and `feed` loads it when there is room. Which entries a batch holds is remembered here, so that the sender's
journal (numbers before bytes, results after answers) can speak of entries.

Users' threads call `accept`, the sender's everything else; the lock that the shell gives keeps them apart. It is taken
before the accumulator's, never after.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Protocol
from weakref import WeakValueDictionary

from oncelog.client.accumulator import Accumulator, PartitionQueue, RecordTooLarge
from oncelog.client.batch import ProducerBatch
from oncelog.client.delivery import Delivery, OnDelivery, RecordFuture, Waiter
from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.spool.facts import Identity, Numbered
from oncelog.client.spool.recovery import OpenBatch
from oncelog.client.spool.spool import Spool, SpooledRecord
from oncelog.client.transaction_errors import TransactionError
from oncelog.records.model import Buffer, HeadersInput
from oncelog.types import TopicPartition

FEED_BURST: Final = 500
"""Records that are loaded while users' threads wait for the lock."""

logger = logging.getLogger(__name__)


class Lock(Protocol):
    """What `threading.Lock` offers. Users' threads enter it by `with`: a signal between `acquire()` and `try` would
    leave it taken for ever."""

    def acquire(self) -> object: ...
    def release(self) -> None: ...
    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


class WaitingFuture(RecordFuture):
    """The result of a record that waits on disk; once it is loaded, this one follows that of its batch."""

    __slots__ = ("__weakref__",)


class _Waiting:
    """Who wants to hear of a partition's records on disk: futures, while somebody holds them, and callbacks."""

    __slots__ = ("callbacks", "futures")

    def __init__(self) -> None:
        self.futures: WeakValueDictionary[int, WaitingFuture] = WeakValueDictionary()
        self.callbacks: dict[int, OnDelivery] = {}


class _Entries:
    """What the spool knows of a batch: its first entry, and the numbers that were written down."""

    __slots__ = ("first", "numbers")

    def __init__(self, first: int, numbers: tuple[Identity, int] | None = None) -> None:
        self.first = first
        self.numbers = numbers


class Feeder:
    def __init__(
        self,
        spool: Spool,
        accumulator: Accumulator,
        *,
        lock: Lock,
        new_waiter: Callable[[], Waiter],
        wall_clock_ms: Callable[[], int],
        loads_at_once: bool,
    ) -> None:
        self._spool = spool
        self._accumulator = accumulator
        self._new_waiter = new_waiter
        self._wall_clock_ms = wall_clock_ms
        self._loads_at_once = loads_at_once
        """Whether a record may be sent as soon as it is written; not if it must be synced first."""
        self.is_flowing = False
        """Whether anything may be loaded: not before the fate of what an earlier process left is known."""
        self.lock = lock
        self.acquire = lock.acquire
        self.release = lock.release
        self.keeps_failed = False
        """The producer gave up as a whole: what fails now stays in the spool, for the next one to send."""
        self._entries: dict[Delivery, _Entries] = {}
        self._next_in_batch: dict[tuple[str, int], int] = {}
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        self._closed: Exception | None = None
        self.is_drained = False
        """The last `feed` left nothing on disk but records of parked topics."""
        self.parked: set[str] = set()
        """Topics with records on disk that cannot be loaded: their partitions are not known."""

    # --- for users' threads -----------------------------------------------------------------------------------

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
        """Write the record to the spool, and load it if there is room. Raises RecordTooLarge, TypeError, SpoolError or
        ProducerClosed: then it was not accepted."""
        self._accumulator.check_fits(queue, key, value, headers)
        with self.lock:
            if self._closed is not None:
                raise self._closed
            entry = self._spool.append(queue.topic, queue.index, timestamp_ms, key, value, headers)
            if self._loads_at_once and self.is_flowing and self._spool.is_next(queue.topic, queue.index, entry):
                future = self._load(queue, entry, timestamp_ms, key, value, headers, on_delivery, now_ms)
                if future is not None:
                    return future
            return self._let_wait(queue, entry, timestamp_ms, on_delivery)

    def _load(
        self,
        queue: PartitionQueue,
        entry: int,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput,
        on_delivery: OnDelivery | None,
        now_ms: int,
    ) -> RecordFuture | None:
        """None if memory is full. A batch holds consecutive entries; behind a gap another one begins."""
        place = (queue.topic, queue.index)
        batch = queue.open if self._next_in_batch.get(place) == entry else None
        count = 0 if batch is None else batch.record_count
        future: RecordFuture | None = None
        try:
            if batch is not None:
                future = self._accumulator.append(queue, timestamp_ms, key, value, headers, on_delivery)
            if future is None:
                batch, count = None, 0
                new = self._accumulator.new_batch_with(queue, timestamp_ms, key, value, headers, on_delivery, now_ms)
                batch = new
                future = RecordFuture(new.delivery, 0, timestamp_ms)
                if not self._begin(queue, new, entry):
                    return None
            self._next_in_batch[place] = entry + 1
            self._spool.took(*place)
        except BaseException:  # a signal's handler, at any point
            if batch is not None and batch.record_count > count and self._accumulator.holds(batch):
                self._next_in_batch[place] = entry + 1
                self._spool.took_to(*place, entry + 1)
            raise
        return future

    def _begin(self, queue: PartitionQueue, batch: ProducerBatch, entry: int) -> bool:
        """Known here before anybody can send it."""
        self._began_batch(batch.delivery, entry)
        is_added = False
        try:
            is_added = self._accumulator.add(queue, batch, is_full=False)
        except (ProducerClosed, TransactionError):  # between an end and our hearing of it
            return False
        finally:
            if not is_added and not self._accumulator.holds(batch):
                self._forget_batch(batch.delivery)
        return is_added

    def _began_batch(self, delivery: Delivery, entry: int) -> None:
        self._entries[delivery] = _Entries(entry)

    def _forget_batch(self, delivery: Delivery) -> None:
        self._entries.pop(delivery, None)

    def _let_wait(
        self, queue: PartitionQueue, entry: int, timestamp_ms: int, on_delivery: OnDelivery | None
    ) -> RecordFuture:
        waiting = self._waiting.setdefault((queue.topic, queue.index), _Waiting())
        future = WaitingFuture(Delivery(queue.topic, queue.index, self._new_waiter), 0, timestamp_ms)
        waiting.futures[entry] = future
        if on_delivery is not None:
            waiting.callbacks[entry] = on_delivery
        return future

    def is_news(self, future: RecordFuture) -> bool:
        """Whether the sender should look: a record to load, or the first one of a batch."""
        return isinstance(future, WaitingFuture) or future.index == 0

    # --- loading ----------------------------------------------------------------------------------------------

    def feed(self, now_ms: int) -> bool:
        """Load what waits on disk while there is room. Whether to call again at once. Raises SpoolReadFailed."""
        if not self.is_flowing or not self._spool.waiting:
            self.is_drained = self.is_flowing
            return False
        self.acquire()
        try:
            self._unpark()
            self.is_drained = False
            for _ in range(self._burst):
                record = self._spool.peek()
                if record is None:
                    self.is_drained = True
                    return False
                if not self._feed_one(record, now_ms):
                    return False
            return True
        finally:
            self.release()

    @property
    def _burst(self) -> int:
        return FEED_BURST

    def _feed_one(self, record: SpooledRecord, now_ms: int) -> bool:
        """False if memory is full."""
        queue = self._queue_of(record)
        if queue is None:
            self.parked.add(record.topic)
            self._spool.skip(record.topic)
            return True
        try:
            loaded = self._load(queue, *record[2:], self._callback_of(record), now_ms)
        except RecordTooLarge as error:  # an earlier process accepted it under other settings
            self._give_up_one(record, error)
            return True
        if loaded is None:
            return False
        self._loaded(record, loaded)
        return True

    def _callback_of(self, record: SpooledRecord) -> OnDelivery | None:
        """To be called by the batch."""
        waiting = self._waiting.get((record.topic, record.partition))
        return None if waiting is None else waiting.callbacks.get(record.entry)

    def _loaded(self, record: SpooledRecord, loaded: RecordFuture) -> None:
        waiting = self._waiting.get((record.topic, record.partition))
        if waiting is not None:
            waiting.callbacks.pop(record.entry, None)
            future = waiting.futures.pop(record.entry, None)
            if future is not None:
                future.follow(loaded)

    def _queue_of(self, record: SpooledRecord) -> PartitionQueue | None:
        topic = self._accumulator.topics.get(record.topic)
        if topic is None or record.partition >= len(topic.queues):
            return None
        return topic.queues[record.partition]

    def _unpark(self) -> None:
        for topic in [topic for topic in self.parked if self._is_usable(topic)]:
            self.parked.discard(topic)
            self._spool.unskip(topic)

    def _is_usable(self, topic: str) -> bool:
        return topic in self._accumulator.topics

    def _give_up_one(self, record: SpooledRecord, error: Exception) -> None:
        logger.error("a spooled record for %s-%d cannot be sent: %s", record.topic, record.partition, error)
        self._spool.took(record.topic, record.partition)
        self._spool.settled(record.topic, record.partition, record.entry, 1)
        self._next_in_batch.pop((record.topic, record.partition), None)

    # --- the sender's journal -----------------------------------------------------------------------------------

    def numbered(self, batches: Sequence[ProducerBatch]) -> None:
        self.acquire()
        try:
            facts, noted = [], []
            for batch in batches:
                entries = self._entries[batch.delivery]
                identity = Identity(batch.producer_id, batch.producer_epoch)
                numbers = (identity, batch.base_sequence)
                if entries.numbers != numbers:
                    place = TopicPartition(batch.topic, batch.partition)
                    facts.append(Numbered(place, entries.first, batch.record_count, *numbers, self._wall_clock_ms()))
                    noted.append((entries, numbers))
            if facts:
                self._spool.numbered(facts)
            for entries, numbers in noted:
                entries.numbers = numbers
        finally:
            self.release()

    def split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        first = self._entries.pop(batch.delivery).first - batch.delivery.first_index
        for part in parts:
            self._entries[part.delivery] = _Entries(first + part.delivery.first_index)

    def settled(self, batch: ProducerBatch) -> None:
        entries = self._entries.pop(batch.delivery, None)
        error = batch.delivery.error
        if entries is None or (error is not None and self.keeps_failed):
            return
        if error is not None:
            logger.error("%d spooled records were given up: %s", batch.record_count, error)
        was_refused = error is not None and entries.numbers is not None and not batch.may_be_written
        self.acquire()
        try:
            self._spool.settled(
                batch.topic, batch.partition, entries.first, batch.record_count, was_refused=was_refused
            )
        finally:
            self.release()

    def revive(self, left: OpenBatch, now_ms: int) -> ProducerBatch:
        """The batch that an earlier process may have sent: the same records under the same numbers."""
        numbers = left.numbers
        topic, partition = numbers.partition
        batch = ProducerBatch(topic, partition, now_ms, 0, Delivery(topic, partition, self._new_waiter))
        for record in left.records:
            batch.append(record.timestamp_ms, record.key, record.value, record.headers)
        batch.number(*numbers.identity, numbers.base_sequence)
        batch.may_be_written = True
        batch.is_revived = True
        self._entries[batch.delivery] = _Entries(numbers.first, (numbers.identity, numbers.base_sequence))
        return batch

    # --- the end ------------------------------------------------------------------------------------------------

    def close(self, error: Exception) -> None:
        """Accept nothing more. Tell whoever waits for records on disk that this producer will not send them; they stay
        there."""
        self.acquire()
        try:
            self._closed = error
            waiting, self._waiting = self._waiting, {}
        finally:
            self.release()
        for one in waiting.values():
            for future in list(one.futures.values()):
                future.delivery.fail(error)
                future.delivery.announce()
            _call_back(one.callbacks.values(), error)


def _call_back(callbacks: Iterable[OnDelivery], error: Exception) -> None:
    for on_delivery in callbacks:
        try:
            on_delivery(None, error)
        except Exception:
            logger.exception("a delivery callback raised; the record stays in the spool all the same")
