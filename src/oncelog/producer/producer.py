"""`Producer`: the thread-safe producer. A thin shell: users' threads append, one background thread sends.

Threads meet in the accumulator, under its lock, and in `_news`, where callers wait for memory or for metadata. Nothing
here decides what a record's fate is.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from oncelog.client import arguments as checked
from oncelog.client import foreign_calls
from oncelog.client.accumulator import PartitionQueue, TopicQueues
from oncelog.client.arguments import OffsetsInput
from oncelog.client.callbacks import check_callback
from oncelog.client.consumer_records import GroupMetadata
from oncelog.client.delivery import Delivery, OnDelivery, RecordFuture
from oncelog.client.hinting import Hinting, with_hints
from oncelog.client.idempotence import Identity
from oncelog.client.intake import Intake
from oncelog.client.locks import new_lock
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_errors import ProducerClosed, TopicUnavailable
from oncelog.client.record_checks import NOT_GIVEN, check_topic, checked_records
from oncelog.client.records import HeadersGiven, ProducerRecord
from oncelog.client.selecting import SelectingDriver
from oncelog.client.sockets import monotonic_ms
from oncelog.client.spool.errors import SpoolError
from oncelog.client.standing_in import new_stand_in
from oncelog.client.table_result import OnTableDelivery, TableFuture
from oncelog.client.transaction.command import Kind
from oncelog.client.transaction.prepared import PreparedTransaction, SharedTransaction
from oncelog.client.transaction_errors import TransactionMisuse
from oncelog.client.typed_settings import ProducerSettings
from oncelog.producer.assembly import Serialized, assemble
from oncelog.producer.callbacks import run_callbacks, tell
from oncelog.producer.news import News
from oncelog.producer.sender_thread import SenderThread
from oncelog.producer.spooling import Spooling, spool_commits, waiting_of
from oncelog.producer.table import columns_of, send_table
from oncelog.producer.transactions import Transactions, no_transactions
from oncelog.records.model import ArrowStream, Buffer, HeadersInput

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

Found = TypeVar("Found")

SPOOL_CLOSE_S = 120.0  # how long closing waits for records that are safe on disk anyway


@with_hints(foreign_calls.PRODUCER)
class Producer(metaclass=Hinting):
    """Sends records to Kafka topics: each stored once, in order, or reported as failed.

        with oncelog.Producer("127.0.0.1:9092", linger_ms=5) as producer:
            future = producer.send("orders", value="paid", key="order-7")
            print(future.result(timeout=10))

    Settings are Kafka's, with dots or underscores, as keywords or as one mapping.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] | Mapping[str, Any] | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        self.config: ProducerConfig = ProducerConfig.of(
            bootstrap_servers if bootstrap_servers is not None else {}, **settings
        )
        self._news = News()
        self._parts = parts = assemble(
            self.config, new_lock(threading.Lock), self._news.new_waiter, run_callbacks, self._news.tell
        )
        self._core = parts.core
        self._counters = parts.counters
        self._accumulator = parts.accumulator
        self._append = parts.accumulator.append
        self._topics = parts.accumulator.topics
        self._placement = parts.placement
        self._interceptors = parts.interceptors
        self._intake = Intake(parts.accumulator, parts.placement, time.time, self._send_slowly, self._begin_batch)
        is_plain = self.config.takes_bytes and self.config.spool_dir is None
        self._intake.is_open = is_plain and not parts.interceptors.is_needed
        if type(self).send is Producer.send:
            self.send = self._intake.send  # type: ignore[method-assign]  # one call less for every record
        self._unusable: ProducerClosed | None = None
        self._counting = threading.Lock()  # of who waits, and of what was dropped, by many threads
        self._spooling = Spooling(parts, self._news) if self.config.spool_dir is not None else None
        self._start()
        if self._spooling is not None:
            self._await_spool(self._spooling)

    def _start(self) -> None:
        core = self._core if self._spooling is None else self._spooling.sender
        patience_s = self.config.delivery_timeout_ms / 1000
        if self._spooling is not None:
            patience_s = min(patience_s, SPOOL_CLOSE_S)
        self._driver = SelectingDriver(core, self._parts.socket_options)
        name = f"{self.config.client_id}-sender"
        waiting = waiting_of(self._parts, self._spooling)
        self._sender = SenderThread(self, self._driver, core, self._spooling, name, patience_s, waiting)
        self._news.thread = self._sender.thread
        if self._spooling is None:
            self._news.stand_in = new_stand_in(self._core, self._accumulator, self._driver)
        if self._news.stand_in is not None:
            self._intake.begin_batch = self._news.stand_in.begin_batch
        self._sender.start()

        self._transactions: Transactions | None = None
        if self._core.transaction is not None and self._spooling is None:
            self._transactions = Transactions(
                self._core.transaction, self._counters, self._news, self._driver.wake, self.config.max_block_ms
            )

    def _await_spool(self, spooling: Spooling) -> None:
        try:
            spooling.await_word(self.config.max_block_ms)
        except BaseException:
            self.close(0)
            raise

    # --- sending ----------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = NOT_GIVEN,
        key: Any = None,
        headers: HeadersGiven | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """Accept a record for sending. Returns at once, unless memory is full or the topic is not known yet.

        `value=None` writes a tombstone, which deletes its key in a compacted topic; a value must be given.
        `on_delivery(metadata, error)` is called later in the sender's thread, with exactly one of the two not None.
        Raises what is wrong with the record itself: its types, its size, a topic or partition that does not exist.
        """
        future: RecordFuture = self._intake.send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return future

    def send_many(self, topic: str, records: Iterable[Any]) -> None:
        """Accept many records at once, each a value or `(key, value)`, as `send()` accepts one. There are no single
        results: `flush()` waits for all, and a transaction is committed only with all of them."""
        waiting = records if type(records) is list else checked_records(records)
        for one in waiting[self.take_plain(topic, waiting) :]:
            key, value = one if type(one) is tuple and len(one) == 2 else (None, one)
            self._intake.send(topic, value, key)

    def take_plain(self, topic: str, records: list[Any]) -> int:
        """As `send_many`, until one needs the long way; returns how many were taken."""
        self._check_usable()
        return self._intake.send_plain(topic, records) if self._intake.is_open else 0

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersGiven | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> RecordFuture:
        """The long way: with interceptors, serializers, and all that one may have to wait for."""
        self._check_usable()
        record = ProducerRecord(topic, value, key, partition, headers or (), timestamp_ms)
        record = self._interceptors.on_send(record)
        on_delivery = self._interceptors.acknowledging(on_delivery)
        try:
            return self._send_serialized(self._parts.serialize(record), on_delivery)
        except Exception as error:
            self._interceptors.on_acknowledgement(None, error)
            raise

    def _send_serialized(self, record: Serialized, on_delivery: OnDelivery | None) -> RecordFuture:
        deadline = time.monotonic() + self.config.max_block_ms / 1000
        queues = self._topics.get(record.topic)
        if queues is None:
            queues = self._await_topic(record.topic, deadline)
        if record.partition is not None and record.partition >= len(queues.queues):
            self._await_partitions(record.topic, deadline)
        queue = self._placement.queue_for(queues, record.partition, record.key, record.value)
        return self._append_anew(queue, record, on_delivery, deadline)

    def _append_anew(
        self, queue: PartitionQueue, record: Serialized, on_delivery: OnDelivery | None, deadline: float
    ) -> RecordFuture:
        """Append where the open batch had no room: in a new batch, once there is memory for it."""
        _, _, key, value, headers, timestamp_ms = record
        if self._spooling is not None:
            future = self._spooling.send(queue, timestamp_ms, key, value, headers, on_delivery)
            if self._spooling.is_news(future):
                self._driver.wake()
            return future

        def attempt() -> RecordFuture | None:
            self._check_usable()
            future = self._append(queue, timestamp_ms, key, value, headers, on_delivery)
            return future or self._begin_batch(queue, timestamp_ms, key, value, headers, on_delivery)

        accepted = attempt()
        if accepted is None and self.config.buffer_full == "drop":
            return self._drop(queue, on_delivery)
        return accepted if accepted is not None else self._await_memory(attempt, deadline)

    def _begin_batch(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput,
        on_delivery: OnDelivery | None,
    ) -> RecordFuture | None:
        """None if there is no memory for another batch."""
        self._check_usable()
        now_ms = monotonic_ms()
        future: RecordFuture | None = self._accumulator.append_anew(
            queue, timestamp_ms, key, value, headers, on_delivery, now_ms
        )
        self._driver.wake_by(self._core.batch_due_ms(queue, now_ms))
        return future

    def _drop(self, queue: PartitionQueue, on_delivery: OnDelivery | None) -> RecordFuture:
        with self._counting:
            self._counters.buffer_exhausted += 1
            self._counters.records_dropped += 1
        error = self._parts.exhausted()
        self._parts.not_accepted(error)
        delivery = Delivery(queue.topic, queue.index, self._news.new_waiter)
        delivery.fail(error)
        if on_delivery is not None:
            tell(on_delivery, None, error)
        delivery.announce()
        return RecordFuture(delivery, 0, 0)

    def _await_memory(self, attempt: Callable[[], Found | None], deadline: float) -> Found:
        """What `attempt` returns once there is memory for it. Raises BufferExhausted after the deadline, or at once if
        the user wants that."""
        taken = None
        if self.config.buffer_full == "block" and not self._news.is_own_thread:  # a callback would wait for itself
            began_ns = time.monotonic_ns()
            is_counted = False
            try:
                with self._counting:
                    self._accumulator.are_waiting_for_memory += 1
                    is_counted = True  # a signal may strike after any call, so at once
                taken = self._news.wait_for(attempt, deadline - time.monotonic())
            finally:
                if is_counted:
                    with self._counting:
                        self._accumulator.are_waiting_for_memory -= 1
                        self._counters.buffer_wait_ns += time.monotonic_ns() - began_ns
        if taken is None:
            with self._counting:
                self._counters.buffer_exhausted += 1
            raise self._parts.exhausted()
        return taken

    def send_table(
        self,
        topic: str,
        table: pa.Table | ArrowStream,
        *,
        key: str | None = None,
        value: str | None = None,
        partition: str | int | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        on_delivery: OnTableDelivery | None = None,
    ) -> TableFuture:
        """Accept all rows of a table for sending, one record each, straight from its columns: a `pyarrow.Table`, or
        whatever exports one (`__arrow_c_stream__`: pandas, polars, DuckDB).

        Arguments name columns; columns called `key`, `value`, `headers`, `timestamp` or `partition` are found without
        them. `partition` may also be one number for all rows. Bytes and text are taken as they are: serializers and
        interceptors are for single records. Rows of a partition keep their order.

        Raises `TableError` for columns that will not do, before anything is sent. Waits for memory as `send()` does, a
        batch at a time; if it must give up half way, the result tells which rows were sent.
        """
        if self._spooling is not None:
            raise SpoolError("send_table() does not go through the spool: use send(), or a producer without spool.dir")
        check_callback(on_delivery, "on_delivery", "metadata")
        columns = columns_of(table, key, value, headers, timestamp, partition)
        return send_table(self, topic, columns, on_delivery)

    # --- transactions -----------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take the transactional id over: older producers of it are fenced, and what they left open is aborted. Once,
        before the first `begin()`. Without a timeout, here and below, `max.block.ms` is waited for."""
        self._of_transactions().init(checked.timeout_s(timeout))

    def begin(self) -> None:
        """Begin a transaction: records that are sent from now on become visible together, or not at all."""
        self._of_transactions().begin()

    def send_offsets_to_transaction(
        self, offsets: OffsetsInput, group: GroupMetadata | str, timeout: float | None = None, *, wait: bool = True
    ) -> None:
        """Commit a group's offsets together with the transaction's records. `group` is `consumer.group_metadata()`,
        by which the coordinator recognises a consumer that lost its partitions meanwhile. Without `wait`, the commit
        tells if they are refused."""
        self._of_transactions().send_offsets(offsets, group, checked.timeout_s(timeout), wait)

    def commit(self, timeout: float | None = None, *, wait: bool = True) -> None:
        """Send what was not sent yet, and make all of the transaction visible. Raises AbortNeeded if a record could
        not be stored, OutcomeUnknown after the timeout: then call it again. Without `wait` it goes on by itself, and
        the next call hears how it ended. Tables whose `send_table()` has returned are part of it as a whole, or it
        cannot be committed."""
        if wait:
            self._of_transactions().end(Kind.COMMIT, checked.timeout_s(timeout))
        else:
            self._of_transactions().commit_later()

    def flush_transaction(self, timeout: float | None = None) -> None:
        """After `commit(wait=False)`: until everything that was sent is stored, offsets too, and only the transaction's
        end is not known yet."""
        self._of_transactions().flush(checked.timeout_s(timeout))

    def abort(self, timeout: float | None = None) -> None:
        """End the transaction so that no reader of committed records ever sees any of it."""
        self._of_transactions().end(Kind.ABORT, checked.timeout_s(timeout))

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """`with producer.transaction():` begins one, commits it at the end of the block, and aborts it if the block
        raises, or if it cannot be committed: what is raised then came from the block, or is AbortNeeded."""
        with self._of_transactions().block():
            yield self

    def prepare(self, timeout: float | None = None) -> PreparedTransaction | None:
        """Store everything that was sent, and leave the transaction open for somebody else to end, such as with
        `Admin.end_transaction`. Nothing but `close()` may follow. None if nothing was sent, so that there is nothing to
        end."""
        return self._of_transactions().prepare(checked.timeout_s(timeout))

    def share(self) -> SharedTransaction:
        """Before the first record: let other producers write into the transaction, in whatever process (`join`), and
        somebody end it, such as with `Admin.end_transaction`. Nothing but `close()` may follow."""
        return self._of_transactions().share()

    def join(self, shared: SharedTransaction) -> None:
        """Write into a transaction that another producer has begun and shared, in the place of `init_transactions()`
        and `begin()`; the transactional id is the same. No two that join may write to the same partition."""
        checked.of_kind(shared, SharedTransaction, "a transaction that another producer has shared (Producer.share)")
        if shared.transactional_id != self.config.transactional_id:
            raise TransactionMisuse(
                f"the shared transaction is of {shared.transactional_id!r}, this producer of "
                f"{self.config.transactional_id!r}"
            )
        self._of_transactions().join(shared)

    def _of_transactions(self) -> Transactions:
        if self._transactions is None:
            raise no_transactions() if self.config.transactional_id is None else spool_commits()
        if self._unusable is not None:
            raise self._unusable.with_traceback(None)
        return self._transactions

    # --- metadata ---------------------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has; of a producer with transactions, at any time."""
        self._check_open()
        check_topic(topic)
        deadline = time.monotonic() + self.config.max_block_ms / 1000
        return len((self._topics.get(topic) or self._await_topic(topic, deadline, self._check_open)).queues)

    def _queues_of(self, topic: str, deadline: float) -> TopicQueues:
        self._check_usable()
        check_topic(topic)
        return self._topics.get(topic) or self._await_topic(topic, deadline)

    def _await_topic(self, topic: str, deadline: float, check: Callable[[], None] | None = None) -> TopicQueues:
        """`check` raises if there is no use in waiting any more; by default, for a record."""
        if self._news.is_own_thread:
            raise TopicUnavailable(f"topic {topic!r} is not known yet, and a callback cannot wait for it")

        self._core.metadata.topic_errors.pop(topic, None)  # what was said earlier need not hold any more

        def known() -> TopicQueues | None:
            error = self._parts.topic_error(topic)
            if error is not None:
                raise error
            return self._topics.get(topic)

        queues = self._await_metadata(topic, known, deadline, check)
        if queues is None:
            raise self._parts.unavailable(topic)
        return queues

    def _await_partitions(self, topic: str, deadline: float) -> None:
        """Until metadata was asked for once more: the topic may have grown."""
        metadata = self._core.metadata
        asked = metadata.asked
        metadata.mark_stale()
        if not self._news.is_own_thread:
            self._await_metadata(topic, lambda: metadata.answered > asked or None, deadline)

    def _await_metadata(
        self,
        topic: str,
        attempt: Callable[[], Found | None],
        deadline: float,
        check: Callable[[], None] | None = None,
    ) -> Found | None:
        """What `attempt` returns once there is news of the topic; None after the deadline."""
        check = check or self._check_usable

        def attempt_while_usable() -> Found | None:
            check()
            return attempt()

        is_counted = False
        try:
            with self._counting:
                count = self._core.awaited_topics.get(topic, 0)
                self._core.awaited_topics[topic] = count + 1
                is_counted = True  # a signal may strike after any call, so at once
            self._driver.wake()
            return self._news.wait_for(attempt_while_usable, deadline - time.monotonic())
        finally:
            if is_counted:
                with self._counting:
                    self._parts.await_topic_no_more(topic)

    # --- ends -------------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> int:
        """Send everything now, and return when every record accepted so far has its result and its callbacks have run,
        or after `timeout` seconds. Returns how many records are left without a result: 0 if all have one. Those that
        are left are still on their way. Rows of a table are records; all of them were accepted when `send_table()`
        returned, and the table's result is known once they have theirs."""
        timeout = checked.timeout_s(timeout)
        self._news.check_wait("flush()")
        deadline = None if timeout is None else time.monotonic() + timeout
        is_counted = False
        try:
            with self._counting:
                self._accumulator.flushing += 1
                is_counted = True  # a signal may strike after any call, so at once
            self._driver.wake()
            if self._spooling is not None and not self._spooling.await_loaded(deadline):
                return max(1, self._spooling.unsettled_count())
            for delivery in self._accumulator.undelivered():
                if not _await_delivery(delivery, deadline):
                    return max(1, self._accumulator.undelivered_count())
            return 0
        finally:
            if is_counted:
                with self._counting:
                    self._accumulator.flushing -= 1

    def close(self, timeout: float | None = None) -> None:
        """Send what was accepted, then end. What is not delivered after `timeout` seconds (by default
        `delivery.timeout.ms`, with a spool at most two minutes) fails, and its futures and callbacks say so; with a
        spool it stays there, for the next producer to send. An open transaction is aborted, if its coordinator can be
        reached; if not, that is a WARNING, and it will be. A `send_table()` in another thread sends no more rows, and
        its result tells which were sent. Closing twice is harmless."""
        self._close(checked.timeout_s(timeout))

    def _close(self, timeout: float | None, *, is_interrupted: bool = False) -> None:
        if self._transactions is not None and self._unusable is None and timeout != 0:
            self._transactions.abandon()
        self._refuse(ProducerClosed("the producer is closed; make a new one to send more"))
        if self._news.disowned is None:
            self._news.tell()  # those who wait to send hear that it is too late
            self._sender.end(timeout, is_interrupted=is_interrupted)

    def __del__(self) -> None:
        sender: SenderThread | None = getattr(self, "_sender", None)
        if sender is not None and self._unusable is None:
            warnings.warn(
                f"producer {self.config.client_id} was not closed; what it accepted is still sent",
                ResourceWarning,
                source=self,
                stacklevel=1,
            )
            sender.begin_to_end()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception):
            self.close()
        else:  # Ctrl-C, or an exit
            self._close(None, is_interrupted=True)

    def metrics(self) -> dict[str, float]:
        """How the producer does, under Kafka's names."""
        metrics = self._parts.metrics()
        if self._spooling is not None:
            metrics["spool-bytes"] = float(self._spooling.size_bytes)
        return metrics

    @property
    def identity(self) -> Identity | None:
        """The producer id and epoch by which brokers know this producer; None before they gave one."""
        return None if self._core.idempotence is None else self._core.idempotence.identity

    @property
    def client_id(self) -> str:
        return self.config.client_id

    @property
    def is_connected(self) -> bool:
        """Whether a broker is connected at the moment. A producer that is not tries on, and says so in its log."""
        return self._core.is_connected

    def __repr__(self) -> str:
        return self._parts.described(self) if hasattr(self, "_parts") else "<Producer>"

    def disown(self, reason: ProducerClosed) -> None:
        """In a forked child, which has no sender: called by the process, not by users."""
        self._news.disowned = reason
        self._refuse(reason)

    def _refuse(self, reason: ProducerClosed) -> None:
        """From now on `send` raises."""
        self._intake.is_open = False
        self._unusable = self._unusable or reason

    def _check_open(self) -> None:
        if self._unusable is not None:
            raise self._unusable.with_traceback(None)
        (self._parts if self._spooling is None else self._spooling).check_usable()

    def _check_usable(self) -> None:
        """For records."""
        self._check_open()
        if self._spooling is None:
            self._accumulator.check_not_suspended()


def _await_delivery(delivery: Delivery, deadline: float | None) -> bool:
    """Whether it was told of in time, with all its parts."""
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    return delivery.wait_until_told(left) and all(_await_delivery(part, deadline) for part in delivery.parts or ())
