"""`Producer`: the thread-safe producer. A thin shell: users' threads append, one background thread sends.

Threads meet in the accumulator, under its lock, and in `_news`, where callers wait for memory or for metadata. Nothing
here decides what a record's fate is.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from oncelog.client.accumulator import PartitionQueue, TopicQueues
from oncelog.client.delivery import Delivery, NotDeliveredYet, OnDelivery, RecordFuture
from oncelog.client.intake import Intake
from oncelog.client.locks import new_lock
from oncelog.client.partitioner import PartitionerError
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_errors import ProducerClosed, TopicUnavailable
from oncelog.client.records import ProducerRecord
from oncelog.client.selecting import SelectingDriver
from oncelog.client.sender import SenderCore
from oncelog.client.sockets import monotonic_ms
from oncelog.client.spool.errors import SpoolError
from oncelog.client.spool.spooled_sender import SpooledSender
from oncelog.client.table_result import OnTableDelivery, TableFuture
from oncelog.producer.assembly import assemble, wall_clock_ms
from oncelog.producer.callbacks import run_callbacks
from oncelog.producer.spooling import Spooling
from oncelog.producer.table import columns_of, send_table
from oncelog.records.model import Buffer, HeadersInput

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

JOIN_GRACE_S = 5.0  # how long the thread may take to end after it was told to give up
SPOOL_CLOSE_S = 120.0  # how long closing waits for records that are safe on disk anyway


class Producer:
    """Sends records to Kafka topics: each stored once, in order, or reported as failed.

        with oncelog.Producer("127.0.0.1:9092", linger_ms=5) as producer:
            future = producer.send("orders", value="paid", key="order-7")
            print(future.result(timeout=10))

    Settings are Kafka's, with dots or underscores, as keywords or as one mapping.
    """

    def __init__(
        self, bootstrap_servers: str | Iterable[str] | Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        self.config = ProducerConfig.of(bootstrap_servers if bootstrap_servers is not None else {}, **settings)
        self._news = _News()
        self._parts = parts = assemble(
            self.config, new_lock(threading.Lock), threading.Event, run_callbacks, self._news.tell
        )
        self._core = parts.core
        self._counters = parts.counters
        self._accumulator = parts.accumulator
        self._append = parts.accumulator.append
        self._topics = parts.accumulator.topics
        self._placement = parts.placement
        self._interceptors = parts.interceptors
        self._serialize_key = parts.serialize_key
        self._serialize_value = parts.serialize_value
        self._intake = Intake(parts.accumulator, parts.placement, time.time, self._send_slowly)
        self._intake.is_open = not parts.interceptors.is_needed and self.config.takes_bytes
        if type(self).send is Producer.send:
            self.send = self._intake.send  # type: ignore[method-assign]  # one call less for every record
        self._unusable: ProducerClosed | None = None
        self._spooling: Spooling | None = None
        self._sender: SenderCore | SpooledSender = parts.core
        if self.config.spool_dir is not None:
            self._spooling = Spooling(parts, self._news)
            self._sender = self._spooling.sender
            self._intake.is_open = False
        self._driver = SelectingDriver(self._sender, parts.socket_options)
        self._thread = threading.Thread(target=self._driver.run, name=f"{self.config.client_id}-sender", daemon=True)
        self._thread.start()
        _remember(self)
        if self._spooling is not None:
            self._await_spool(self._spooling)

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
        value: Any = None,
        key: Any = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """Accept a record for sending. Returns at once, unless memory is full or the topic is not known yet.

        `on_delivery(metadata, error)` is called later in the sender's thread, with exactly one of the two not None.
        Raises what is wrong with the record itself: its types, its size, a topic or partition that does not exist.
        """
        future: RecordFuture = self._intake.send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return future

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersInput | None,
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
            key = self._serialize_key(record.topic, record.key)
            value = self._serialize_value(record.topic, record.value)
            timestamp_ms = record.timestamp_ms
            if timestamp_ms is None:
                timestamp_ms = wall_clock_ms()
            queues = self._topics.get(record.topic)
            if queues is None:
                queues = self._await_topic(record.topic)
            queue = self._queue_for(queues, record.partition, key, value)
            return self._append_anew(queue, timestamp_ms, key, value, record.headers, on_delivery)
        except Exception as error:
            self._interceptors.on_acknowledgement(None, error)
            raise

    def _queue_for(
        self, queues: TopicQueues, partition: int | None, key: Buffer | None, value: Buffer | None
    ) -> PartitionQueue:
        try:
            return self._placement.queue_for(queues, partition, key, value)
        except PartitionerError:
            self._await_partitions(queues)  # the topic may have grown
            return self._placement.queue_for(queues, partition, key, value)

    def _append_anew(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput,
        on_delivery: OnDelivery | None,
    ) -> RecordFuture:
        """Append where the open batch had no room: in a new batch, once there is memory for it."""
        if self._spooling is not None:
            future = self._spooling.send(queue, timestamp_ms, key, value, headers, on_delivery)
            if self._spooling.is_news(future):
                self._driver.wake()
            return future

        def attempt() -> RecordFuture | None:
            self._check_usable()
            future = self._append(queue, timestamp_ms, key, value, headers, on_delivery)
            if future is None:
                future = self._accumulator.append_anew(
                    queue, timestamp_ms, key, value, headers, on_delivery, monotonic_ms()
                )
                self._driver.wake()
            return future

        accepted = attempt()
        if accepted is None:
            accepted = self._append_to_full(attempt, queue, on_delivery)
        return accepted

    def _append_to_full(
        self, attempt: Callable[[], RecordFuture | None], queue: PartitionQueue, on_delivery: OnDelivery | None
    ) -> RecordFuture:
        config = self.config
        error = self._parts.exhausted()
        self._counters.buffer_exhausted += 1
        if config.buffer_full == "drop":
            self._counters.records_dropped += 1
            return _failed(queue, error, on_delivery)
        if config.buffer_full == "fail" or threading.current_thread() is self._thread:
            raise error  # the sender's own thread, in a callback, would wait for itself
        began_ns = time.monotonic_ns()
        self._accumulator.are_waiting_for_memory += 1
        try:
            future: RecordFuture | None = self._news.wait_for(attempt, config.max_block_ms / 1000)
        finally:
            self._accumulator.are_waiting_for_memory -= 1
            self._counters.buffer_wait_ns += time.monotonic_ns() - began_ns
        if future is None:
            raise error
        return future

    def send_table(
        self,
        topic: str,
        table: pa.Table,
        *,
        key: str | None = None,
        value: str | None = None,
        partition: str | int | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        on_delivery: OnTableDelivery | None = None,
    ) -> TableFuture:
        """Accept all rows of a `pyarrow.Table` for sending, one record each, straight from its columns.

        Arguments name columns; columns called `key`, `value`, `headers`, `timestamp` or `partition` are found without
        them. `partition` may also be one number for all rows. Bytes and text are taken as they are: serializers and
        interceptors are for single records. Rows of a partition keep their order.

        Raises `TableError` for columns that will not do, before anything is sent. Waits for memory as `send()` does, a
        batch at a time; if it must give up half way, the result tells which rows were sent.
        """
        if self._spooling is not None:
            raise SpoolError("send_table() does not go through the spool: use send(), or a producer without spool.dir")
        columns = columns_of(table, key, value, headers, timestamp, partition)
        return send_table(self, topic, columns, on_delivery)

    # --- metadata ---------------------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> int:
        """How many partitions the topic has."""
        self._check_usable()
        return len((self._topics.get(topic) or self._await_topic(topic)).queues)

    def _await_topic(self, topic: str) -> TopicQueues:
        self._check_usable()
        if not isinstance(topic, str) or not topic:
            raise TypeError(f"the topic is a name (str), not {topic!r}")
        if threading.current_thread() is self._thread:
            raise TopicUnavailable(f"topic {topic!r} is not known yet, and a callback cannot wait for it")
        awaited = self._core.awaited_topics
        awaited[topic] = awaited.get(topic, 0) + 1
        self._driver.wake()

        def known() -> TopicQueues | None:
            self._check_usable()
            error = self._parts.topic_error(topic)
            if error is not None:
                raise error
            return self._topics.get(topic)

        try:
            queues: TopicQueues | None = self._news.wait_for(known, self.config.max_block_ms / 1000)
        finally:
            awaited[topic] -= 1
            if not awaited[topic]:
                del awaited[topic]
        if queues is None:
            raise self._parts.unavailable(topic)
        return queues

    def _await_partitions(self, queues: TopicQueues) -> None:
        """Until metadata was asked for once more."""
        seen = self._core.metadata.answers
        self._core.metadata.mark_stale()
        self._driver.wake()
        if threading.current_thread() is not self._thread:
            self._news.wait_for(lambda: self._core.metadata.answers > seen or None, self.config.max_block_ms / 1000)

    # --- ends -------------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now, and return when every record accepted so far has its result. Raises NotDeliveredYet
        after `timeout` seconds; the records are still on their way then."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("flush() in a delivery callback would wait for itself")
        deadline = None if timeout is None else time.monotonic() + timeout
        self._accumulator.flushing += 1
        try:
            self._driver.wake()
            if self._spooling is not None and not self._spooling.await_loaded(deadline):
                raise NotDeliveredYet("flush() did not finish in time; the records are safe in the spool")
            for delivery in self._accumulator.undelivered():
                _await_delivery(delivery, deadline)
        finally:
            self._accumulator.flushing -= 1

    def close(self, timeout: float | None = None) -> None:
        """Send what was accepted, then end. What is not delivered after `timeout` seconds (by default
        `delivery.timeout.ms`, with a spool at most two minutes) fails, and its futures and callbacks say so; with a
        spool it stays there, for the next producer to send. Closing twice is harmless."""
        if timeout is None:
            timeout = self.config.delivery_timeout_ms / 1000
            if self._spooling is not None:
                timeout = min(timeout, SPOOL_CLOSE_S)
        self._refuse(ProducerClosed("the producer is closed; make a new one to send more"))
        self._sender.close_at_ms = monotonic_ms() + int(timeout * 1000)
        self._driver.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout + JOIN_GRACE_S)
            if self._spooling is not None and not self._thread.is_alive():
                self._spooling.close()
        _forget(self)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def metrics(self) -> dict[str, float]:
        """How the producer does, under Kafka's names."""
        metrics = self._parts.metrics()
        if self._spooling is not None:
            metrics["spool-bytes"] = float(self._spooling.size_bytes)
        return metrics

    @property
    def client_id(self) -> str:
        return self.config.client_id

    def _refuse(self, reason: ProducerClosed) -> None:
        """From now on `send` raises."""
        self._intake.is_open = False
        self._unusable = self._unusable or reason

    def _check_usable(self) -> None:
        if self._unusable is not None:
            raise self._unusable.with_traceback(None)
        self._parts.check_usable()


class _News:
    """Where callers wait for something that the sender may bring about."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting = 0

    def tell(self) -> None:
        if self._waiting:
            with self._condition:
                self._condition.notify_all()

    def wait_for(self, attempt: Any, timeout_s: float) -> Any:
        """What `attempt` returns, once that is not None; None after the timeout."""
        deadline = time.monotonic() + timeout_s
        with self._condition:
            self._waiting += 1
            try:
                while True:
                    result = attempt()
                    left = deadline - time.monotonic()
                    if result is not None or left <= 0:
                        return result
                    self._condition.wait(left)
            finally:
                self._waiting -= 1


def _failed(queue: PartitionQueue, error: Exception, on_delivery: OnDelivery | None) -> RecordFuture:
    delivery = Delivery(queue.topic, queue.index, threading.Event)
    delivery.fail(error)
    delivery.announce()
    if on_delivery is not None:
        on_delivery(None, error)
    return RecordFuture(delivery, 0, 0)


def _await_delivery(delivery: Delivery, deadline: float | None) -> None:
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    if not delivery.wait(left):
        raise NotDeliveredYet("flush() did not finish in time; the records are still on their way")
    for part in delivery.parts or ():
        _await_delivery(part, deadline)


# --- producers that outlive their process, or the program's end -----------------------------------------------------

_living: weakref.WeakSet[Producer] = weakref.WeakSet()


def _remember(producer: Producer) -> None:
    _living.add(producer)


def _forget(producer: Producer) -> None:
    _living.discard(producer)


def _disown_in_child() -> None:
    """A fork copies the producer but not its thread, and both processes would use the same connections."""
    for producer in list(_living):
        if producer._spooling is not None:
            producer._spooling.disown()
        producer._refuse(
            ProducerClosed(
                "this producer was made before a fork and belongs to the parent process; make a new one in the child"
            )
        )
    _living.clear()


def _close_at_exit() -> None:
    for producer in list(_living):
        producer.close()


os.register_at_fork(after_in_child=_disown_in_child)
atexit.register(_close_at_exit)
