"""`AsyncProducer`: the same producer for asyncio. No thread: the sender's core runs in the event loop.

`send` never blocks the loop. A record that cannot be accepted at once (its topic is not known yet, or memory is full)
waits in line, in the order of the calls; the line is bounded, since a loop that never awaits would fill it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.client.batch import ProducerBatch
from oncelog.client.delivery import Delivery, OnDelivery, RecordFuture
from oncelog.client.intake import Intake
from oncelog.client.locks import new_lock
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.records import ProducerRecord, RecordMetadata
from oncelog.client.sockets import monotonic_ms
from oncelog.client.streaming import StreamingDriver
from oncelog.client.table_result import OnTableDelivery, TableMetadata
from oncelog.errors import InvalidConfig
from oncelog.producer.assembly import assemble, wall_clock_ms
from oncelog.producer.async_table import AsyncTables
from oncelog.producer.callbacks import log_raised
from oncelog.producer.table import columns_of
from oncelog.records.model import Buffer, HeadersInput

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

MAX_WAITING_SENDS = 10_000
EXPIRY_PERIOD_S = 0.1  # how exactly `max.block.ms` is kept for records that wait in line


class _NoLock:
    """Everything happens in one thread."""

    def acquire(self) -> None: ...
    def release(self) -> None: ...


class _Told:
    """A record's future, together with the callback that is told as well. The core sees a future."""

    __slots__ = ("_future", "_on_delivery")

    def __init__(self, future: asyncio.Future[RecordMetadata], on_delivery: OnDelivery) -> None:
        self._future = future
        self._on_delivery = on_delivery

    def done(self) -> bool:
        """Never before it was told: a user who cancels the wait still gets the callback."""
        return False

    def set_result(self, metadata: RecordMetadata) -> None:
        if not self._future.done():
            self._future.set_result(metadata)
        self._tell(metadata, None)

    def set_exception(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)
        self._tell(None, error)

    def exception(self) -> None:
        if not self._future.cancelled():
            self._future.exception()

    def _tell(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        try:
            self._on_delivery(metadata, error)
        except Exception:
            log_raised()


def _fail(future: Any, error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # seen: a result that nobody looks at is no warning


class _Waiting(NamedTuple):
    topic: str
    partition: int | None
    key: Buffer | None
    value: Buffer | None
    headers: HeadersInput
    timestamp_ms: int
    future: Any
    """The record's future, or what tells its callback too."""
    deadline_ms: int


class AsyncProducer:
    """Sends records to Kafka topics from asyncio: each stored once, in order, or reported as failed.

    async with oncelog.AsyncProducer("127.0.0.1:9092") as producer:
        metadata = await producer.send("orders", value="paid", key="order-7")
        results = await asyncio.gather(*[producer.send("orders", value=line) for line in lines])
    """

    def __init__(
        self, bootstrap_servers: str | Iterable[str] | Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        self.config = ProducerConfig.of(bootstrap_servers if bootstrap_servers is not None else {}, **settings)
        if self.config.spool_dir is not None:
            raise InvalidConfig(
                "spool.dir means a file write in every send(), which would block the loop: use Producer"
            )
        self._parts = parts = assemble(
            self.config, new_lock(_NoLock), _no_waiting, ProducerBatch.resolve_futures, self._on_news
        )
        self._core = parts.core
        self._counters = parts.counters
        self._accumulator = parts.accumulator
        self._placement = parts.placement
        self._interceptors = parts.interceptors
        self._serialize_key = parts.serialize_key
        self._serialize_value = parts.serialize_value
        self._intake = Intake(parts.accumulator, parts.placement, time.time)
        self._intake.is_open = False  # until there is a loop
        self._driver: StreamingDriver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._line: deque[_Waiting] = deque()
        self._line_timer: asyncio.TimerHandle | None = None
        self._line_is_empty = asyncio.Event()
        self._unusable: ProducerClosed | None = None
        self._finished: asyncio.Event | None = None
        self._tables: AsyncTables | None = None

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
    ) -> asyncio.Future[RecordMetadata]:
        """Accept a record for sending; await the result for where it was stored.

        Raises at once what is wrong with the record itself, and BufferExhausted if thousands of records already wait
        for room: await some of them first.
        """
        loop = self._loop if self._loop is not None else self._started()
        future: asyncio.Future[RecordMetadata] = loop.create_future()
        if (
            on_delivery is not None
            or self._line
            or self._intake.offer(topic, value, key, headers, partition, timestamp_ms, future) is None
        ):
            record = ProducerRecord(topic, value, key, partition, headers or (), timestamp_ms)
            self._send_slowly(record, future, on_delivery)
        return future

    def _send_slowly(
        self, record: ProducerRecord, future: asyncio.Future[RecordMetadata], on_delivery: OnDelivery | None
    ) -> None:
        """The long way: with interceptors, serializers, and the line where there is something to wait for."""
        self._started()
        record = self._interceptors.on_send(record)
        on_delivery = self._interceptors.acknowledging(on_delivery)
        try:
            waiting = _Waiting(
                record.topic,
                record.partition,
                self._serialize_key(record.topic, record.key),
                self._serialize_value(record.topic, record.value),
                record.headers,
                wall_clock_ms() if record.timestamp_ms is None else record.timestamp_ms,
                future if on_delivery is None else _Told(future, on_delivery),
                monotonic_ms() + self.config.max_block_ms,
            )
            if self._line or self._try(waiting) is None:
                self._enqueue(waiting)
        except Exception as error:
            self._interceptors.on_acknowledgement(None, error)
            raise

    def _try(self, waiting: _Waiting) -> RecordFuture | None:
        """None if the record must wait."""
        topic, partition, key, value, headers, timestamp_ms, future, _ = waiting
        queues = self._accumulator.topics.get(topic)
        if queues is None:
            return None
        queue = self._placement.queue_for(queues, partition, key, value)
        accepted = self._accumulator.append(queue, timestamp_ms, key, value, headers, future)
        if accepted is None:
            accepted = self._accumulator.append_anew(queue, timestamp_ms, key, value, headers, future, monotonic_ms())
            assert self._driver is not None
            self._driver.wake()
        return accepted

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
    ) -> asyncio.Future[TableMetadata]:
        """Accept all rows of a `pyarrow.Table` for sending, one record each, straight from its columns.

        Arguments name columns; columns called `key`, `value`, `headers`, `timestamp` or `partition` are found without
        them. `partition` may also be one number for all rows. Bytes and text are taken as they are: serializers and
        interceptors are for single records. Rows of a partition keep their order.

        Raises `TableError` for columns that will not do, before anything is sent. Waits for memory without
        blocking the loop; await the result for where the rows were stored.
        """
        self._started()
        columns = columns_of(table, key, value, headers, timestamp, partition)
        if self._tables is None:
            assert self._driver is not None
            self._tables = AsyncTables(self._parts, self._driver.wake)
        return self._tables.send(topic, columns, on_delivery)

    # --- the line ---------------------------------------------------------------------------------------------

    def _enqueue(self, waiting: _Waiting) -> None:
        if not isinstance(waiting.topic, str) or not waiting.topic:
            raise TypeError(f"the topic is a name (str), not {waiting.topic!r}")
        is_full = waiting.topic in self._accumulator.topics
        if is_full and self.config.buffer_full == "drop":
            self._counters.records_dropped += 1
            _fail(waiting.future, self._parts.exhausted())
            return
        if (is_full and self.config.buffer_full == "fail") or len(self._line) >= MAX_WAITING_SENDS:
            self._counters.buffer_exhausted += 1
            raise self._parts.exhausted()
        self._line.append(waiting)
        self._ask_for(waiting)

    def _ask_for(self, waiting: _Waiting) -> None:
        """What the first in line waits for."""
        assert self._loop is not None
        assert self._driver is not None
        if waiting.topic not in self._accumulator.topics:
            self._core.awaited_topics[waiting.topic] = 1
        self._accumulator.are_waiting_for_memory = 1
        if self._line_timer is None:
            self._line_timer = self._loop.call_later(EXPIRY_PERIOD_S, self._expire_line)
        self._driver.wake()

    def _on_news(self) -> None:
        """Memory came free, or a topic became known: the line moves."""
        while self._line:
            waiting = self._line[0]
            try:
                error = self._parts.topic_error(waiting.topic)
                if error is not None:
                    raise error
                if self._try(waiting) is None:
                    self._ask_for(waiting)
                    break
            except Exception as error:
                _fail(waiting.future, error)
            self._line.popleft()
        if not self._line:
            self._line_is_empty.set()
            self._accumulator.are_waiting_for_memory = 0
            self._core.awaited_topics.clear()
        if self._tables is not None:
            self._tables.tell()
        if self._finished is not None and self._core.is_finished:
            self._finished.set()

    def _expire_line(self) -> None:
        self._line_timer = None
        now_ms = monotonic_ms()
        while self._line and (self._line[0].deadline_ms <= now_ms or self._core.fatal is not None):
            waiting = self._line.popleft()
            is_known = waiting.topic in self._accumulator.topics
            _fail(waiting.future, self._parts.exhausted() if is_known else self._parts.unavailable(waiting.topic))
        if self._line:
            self._ask_for(self._line[0])
        else:
            self._line_is_empty.set()

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to connect; `async with` and the first `send` do it as well."""
        self._started()

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._unusable is not None:
            raise self._unusable.with_traceback(None)
        self._parts.check_usable()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._finished = asyncio.Event()
            self._driver = StreamingDriver(self._core, self._loop, self._parts.socket_options)
            self._driver.start()
            self._intake.is_open = not self._interceptors.is_needed and self.config.takes_bytes
        return self._loop

    async def flush(self) -> None:
        """Send everything now, and return when every record accepted so far has its result."""
        if self._driver is None or self._loop is None:
            return
        self._accumulator.flushing += 1
        try:
            while True:
                pending = [delivery for delivery in self._accumulator.undelivered() if not delivery.is_done]
                if not pending and not self._line:
                    return
                self._driver.wake()
                await (self._told_of(pending[-1]) if pending else self._line_ended())
        finally:
            self._accumulator.flushing -= 1

    async def _told_of(self, delivery: Delivery) -> None:
        told = asyncio.Event()
        delivery.watch(told.set)
        await told.wait()

    async def _line_ended(self) -> None:
        while self._line:
            self._line_is_empty.clear()
            await self._line_is_empty.wait()

    async def close(self, timeout: float | None = None) -> None:
        """Send what was accepted, then end. What is not delivered after `timeout` seconds (by default
        `delivery.timeout.ms`) fails, and says so."""
        self._intake.is_open = False
        if self._unusable is None:
            self._unusable = ProducerClosed("the producer is closed; make a new one to send more")
        if self._driver is None or self._finished is None:
            return
        if timeout is None:
            timeout = self.config.delivery_timeout_ms / 1000
        deadline = time.monotonic() + timeout
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._line_ended(), timeout)
        if self._tables is not None:
            await self._tables.finish(deadline - time.monotonic())
        self._core.close_at_ms = monotonic_ms() + max(0, int((deadline - time.monotonic()) * 1000))
        self._driver.wake()
        await self._finished.wait()
        await self._driver.close()
        if self._line_timer is not None:
            self._line_timer.cancel()
        for waiting in self._line:
            _fail(waiting.future, self._unusable)
        self._line.clear()

    async def __aenter__(self) -> AsyncProducer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def metrics(self) -> dict[str, float]:
        """How the producer does, under Kafka's names."""
        return self._parts.metrics()

    @property
    def client_id(self) -> str:
        return self.config.client_id


def _no_waiting() -> Any:
    raise AssertionError("nothing blocks in an event loop")
