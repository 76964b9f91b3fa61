"""`AsyncProducer`: the same producer for asyncio. No thread: the sender's core runs in the event loop.

`send` never blocks the loop. A record that cannot be put into a batch at once (its topic is not known yet, or memory is
full) waits in its topic's line, which is bounded, since a loop that never awaits would fill it. A producer belongs to
the loop that it is first used in.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from oncelog.client import arguments as checked
from oncelog.client import foreign_calls
from oncelog.client.accumulator import PartitionQueue
from oncelog.client.arguments import OffsetsInput
from oncelog.client.batch import ProducerBatch
from oncelog.client.callbacks import DeliveryCallbacks, check_callback
from oncelog.client.consumer_records import GroupMetadata
from oncelog.client.delivery import Delivery, OnDelivery
from oncelog.client.hinting import Hinting, with_hints
from oncelog.client.intake import Intake
from oncelog.client.loop_future import LoopFutures
from oncelog.client.loop_intake import LoopIntake
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.records import HeadersGiven, ProducerRecord, RecordMetadata
from oncelog.client.sockets import monotonic_ms
from oncelog.client.streaming import StreamingDriver
from oncelog.client.table_result import OnTableDelivery, TableMetadata
from oncelog.client.transaction.command import Kind
from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.client.typed_settings import ProducerSettings
from oncelog.errors import InvalidConfig
from oncelog.producer.assembly import Serialized, assemble
from oncelog.producer.async_transactions import AsyncTransactions
from oncelog.producer.async_unaccepted import Unaccepted
from oncelog.producer.callbacks import tell
from oncelog.producer.table import columns_of
from oncelog.producer.transactions import no_transactions
from oncelog.records.model import ArrowStream, Buffer, HeadersInput

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

EARLY_BYTES = 64 * 1024
"""From this size on, a batch that need not linger is sent while `send()` is still being called: a loop that sends
without a pause would else leave the broker idle until it rests."""
WORTH_BYTES = 16 * 1024
"""From this size on, it is sent before somebody waits for it."""


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
        tell(self._on_delivery, metadata, error)


@with_hints(foreign_calls.ASYNC_PRODUCER)
class AsyncProducer(LoopIntake, metaclass=Hinting):
    """Sends records to Kafka topics from asyncio: each stored once, in order, or reported as failed.

    async with oncelog.AsyncProducer("127.0.0.1:9092") as producer:
        metadata = await producer.send("orders", value="paid", key="order-7")
        results = await asyncio.gather(*[producer.send("orders", value=line) for line in lines])
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] | Mapping[str, Any] | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        self.config: ProducerConfig = ProducerConfig.of(
            bootstrap_servers if bootstrap_servers is not None else {}, **settings
        )
        if self.config.spool_dir is not None:
            raise InvalidConfig(
                "spool.dir means a file write in every send(), which would block the loop: use Producer"
            )
        self._callbacks = DeliveryCallbacks()
        self._parts = parts = assemble(self.config, None, _no_waiting, ProducerBatch.resolve_futures, self._on_news)
        self._core = parts.core
        self._interceptors = parts.interceptors
        intake = Intake(parts.accumulator, parts.placement, time.time, begin_batch=self._begin_batch)
        intake.is_open = False  # until there is a loop
        super().__init__(intake, parts.accumulator, self._hurry)
        self._unaccepted = Unaccepted(parts, self._append, self._open_intake, self._wake)
        self._lines = self._unaccepted.lines
        self._driver: StreamingDriver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unusable: ProducerClosed | None = None
        self._transactions: AsyncTransactions | None = None

    # --- sending ----------------------------------------------------------------------------------------------

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersGiven | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> asyncio.Future[RecordMetadata]:
        driver = self._driver_here()
        assert self._loop is not None
        future: asyncio.Future[RecordMetadata] = asyncio.Future(loop=self._loop)
        if on_delivery is not None:
            self._callbacks.check(on_delivery)
        record = self._interceptors.on_send(ProducerRecord(topic, value, key, partition, headers or (), timestamp_ms))
        on_delivery = self._interceptors.acknowledging(on_delivery)
        told = future if on_delivery is None else _Told(future, on_delivery)
        try:
            if self._unaccepted.send(self._parts.serialize(record), told):
                self._intake.is_open = False  # nobody overtakes those in line
        except Exception as error:
            self._interceptors.on_acknowledgement(None, error)
            raise
        driver.wake()
        return future

    def _open_intake(self) -> None:
        """Plain records go the short way, while nobody waits in line."""
        is_plain = not self._interceptors.is_needed and self.config.takes_bytes
        self._intake.is_open = is_plain and not self._lines.count and self._unusable is None

    def _append(self, record: Serialized, future: Any) -> bool:
        """Into a batch; False if the topic is not known, or memory is full."""
        topic, partition, key, value, headers, timestamp_ms = record
        accumulator = self._accumulator
        queues = accumulator.topics.get(topic)
        if queues is None:
            accumulator.check_not_suspended()  # it must not wait until the next transaction
            return False
        queue = self._parts.placement.queue_for(queues, partition, key, value)
        accepted = accumulator.append(queue, timestamp_ms, key, value, headers, future)
        if accepted is None:
            accepted = accumulator.append_anew(queue, timestamp_ms, key, value, headers, future, monotonic_ms())
        return accepted is not None

    def _begin_batch(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput,
        on_delivery: Any,
    ) -> Any:
        """For a plain record that finds no room in an open batch. None if memory is full."""
        driver = self._driver_here()
        record = self._accumulator.append_anew(queue, timestamp_ms, key, value, headers, on_delivery, monotonic_ms())
        if record is not None:
            driver.wake()
        return record

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
    ) -> asyncio.Future[TableMetadata]:
        """Accept all rows of a table for sending, one record each, straight from its columns: a `pyarrow.Table`, or
        whatever exports one (`__arrow_c_stream__`: pandas, polars, DuckDB).

        Arguments name columns; columns called `key`, `value`, `headers`, `timestamp` or `partition` are found without
        them. `partition` may also be one number for all rows. Bytes and text are taken as they are: serializers and
        interceptors are for single records. Rows of a partition keep their order.

        Raises `TableError` for columns that will not do, before anything is sent. Waits for memory without
        blocking the loop; await the result for where the rows were stored.
        """
        self._driver_here()
        check_callback(on_delivery, "on_delivery", "metadata")
        columns = columns_of(table, key, value, headers, timestamp, partition)
        return self._unaccepted.send_table(topic, columns, on_delivery)

    # --- transactions -----------------------------------------------------------------------------------------

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Take the transactional id over: older producers of it are fenced, and what they left open is aborted. Once,
        before the first `begin()`. Without a timeout, here and below, `max.block.ms` is waited for."""
        await self._of_transactions().init(checked.timeout_s(timeout))

    def begin(self) -> None:
        """Begin a transaction: records that are sent from now on become visible together, or not at all."""
        self._of_transactions().begin()

    async def send_offsets_to_transaction(
        self, offsets: OffsetsInput, group: GroupMetadata | str, timeout: float | None = None, *, wait: bool = True
    ) -> None:
        """Commit a group's offsets together with the transaction's records. `group` is `consumer.group_metadata()`,
        by which the coordinator recognises a consumer that lost its partitions meanwhile. Without `wait`, the commit
        tells if they are refused."""
        await self._of_transactions().send_offsets(offsets, group, checked.timeout_s(timeout), wait)

    async def commit(self, timeout: float | None = None, *, wait: bool = True) -> None:
        """Send what was not sent yet, and make all of the transaction visible. Raises AbortNeeded if a record could
        not be stored, OutcomeUnknown after the timeout: then call it again. Without `wait` it goes on by itself, and
        the next call hears how it ended.

        Records and tables that still wait for their topic or for memory belong to the transaction, so all of them are
        waited for first, without `wait` too: within `timeout`, or without one as long as each may wait
        (`max.block.ms`)."""
        if wait:
            await self._of_transactions().end(Kind.COMMIT, checked.timeout_s(timeout))
        else:
            await self._of_transactions().commit_later(checked.timeout_s(timeout))

    async def flush_transaction(self, timeout: float | None = None) -> None:
        """After `commit(wait=False)`: until everything that was sent is stored, offsets too, and only the transaction's
        end is not known yet."""
        await self._of_transactions().flush(checked.timeout_s(timeout))

    async def abort(self, timeout: float | None = None) -> None:
        """End the transaction so that no reader of committed records ever sees any of it. Records and tables that still
        wait for their topic or for memory fail."""
        await self._of_transactions().end(Kind.ABORT, checked.timeout_s(timeout))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncProducer]:
        """`async with producer.transaction():` begins one, commits it at the end of the block, and aborts it if the
        block raises, or if it cannot be committed: what is raised then came from the block, or is AbortNeeded."""
        async with self._of_transactions().block():
            yield self

    async def prepare(self, timeout: float | None = None) -> PreparedTransaction | None:
        """Store everything that was sent, and leave the transaction open for somebody else to end, such as with
        `Admin.end_transaction`. Nothing but `close()` may follow. None if nothing was sent, so that there is nothing to
        end."""
        return await self._of_transactions().prepare(checked.timeout_s(timeout))

    def _of_transactions(self) -> AsyncTransactions:
        if self._core.transaction is None:
            raise no_transactions()
        if self._transactions is None:
            driver = self._driver_here()
            self._transactions = AsyncTransactions(
                self._core.transaction,
                self._parts.counters,
                driver.wake,
                self._unaccepted,
                self.config.max_block_ms,
            )
        if self._unusable is not None:
            raise self._unusable.with_traceback(None)
        self._check_loop(asyncio.get_running_loop())
        return self._transactions

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to connect; `async with` and the first `send` do it as well."""
        self._driver_here()

    def _driver_here(self) -> StreamingDriver:
        """In the loop that the producer belongs to. Raises where it cannot be used."""
        if self._unusable is not None:
            raise self._unusable.with_traceback(None)
        self._parts.check_usable()
        loop = asyncio.get_running_loop()
        if self._driver is None:
            self._loop = loop
            self._driver = StreamingDriver(self._core, loop, self._parts.socket_options)
            self._driver.start()
            self._accumulator.futures = LoopFutures(loop, self._before_wait)
            self._accumulator.early_bytes = EARLY_BYTES if self.config.linger_ms == 0 else 0
            self._open_intake()
        self._check_loop(loop)
        return self._driver

    def _before_wait(self) -> None:
        """Somebody waits for a record: what is worth a request of its own need not wait for the loop's next turn. Less
        than that may be joined by what others send before then."""
        if self._accumulator.early_bytes and self._accumulator.newest_bytes >= WORTH_BYTES:
            self._hurry()

    def _on_news(self) -> None:
        """Memory came free, a topic became known, or the producer gave up."""
        self._unaccepted.on_news()

    def _wake(self) -> None:
        assert self._driver is not None
        self._driver.wake()

    def _hurry(self) -> None:
        assert self._driver is not None
        self._check_loop(asyncio.get_running_loop())
        self._driver.hurry()

    def _check_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            raise RuntimeError(
                "this AsyncProducer belongs to another event loop, the one it was first used in; make one for each loop"
            )

    async def flush(self, timeout: float | None = None) -> int:
        """Send everything now, and return when every record and every table sent so far has its result, or after
        `timeout` seconds. That includes what still waits for its topic or for memory. Returns how many records are left
        without a result, rows of tables among them: 0 if all have one."""
        timeout = checked.timeout_s(timeout)
        if self._driver is None:
            return 0
        self._check_loop(asyncio.get_running_loop())
        self._accumulator.flushing += 1
        try:
            self._driver.wake()
            if timeout is None:
                await self._all_settled()
            else:
                await asyncio.wait_for(self._all_settled(), timeout)
            return 0
        except TimeoutError:
            return self._unaccepted.count + self._accumulator.undelivered_count()
        finally:
            self._accumulator.flushing -= 1

    async def _all_settled(self) -> None:
        await self._unaccepted.all_accepted()
        for delivery in self._accumulator.undelivered():
            await _settled(delivery)

    async def close(self, timeout: float | None = None) -> None:
        """Send what was accepted, then end. What is not delivered after `timeout` seconds (by default
        `delivery.timeout.ms`) fails, and says so; so do the rows of a table that are in no batch by then, or when the
        call is cancelled. An open transaction is aborted, if its coordinator can be reached; if
        not, that is a WARNING, and it will be. Closing twice is harmless."""
        timeout = checked.timeout_s(timeout)
        if self._transactions is not None and self._unusable is None and timeout != 0:
            self._transactions.abandon()
        self._intake.is_open = False
        if self._unusable is None:
            self._unusable = ProducerClosed("the producer is closed; make a new one to send more")
        if self._driver is None:
            return
        self._check_loop(asyncio.get_running_loop())
        if timeout is None:
            timeout = self.config.delivery_timeout_ms / 1000
        deadline = time.monotonic() + timeout
        try:
            await self._unaccepted.finish(deadline, self._unusable)
            self._end_by(deadline)
            await self._driver.join()
        except asyncio.CancelledError:  # whoever closes does not want to wait any more
            self._end_by(time.monotonic())
            raise
        await self._driver.close()

    def _end_by(self, deadline: float) -> None:
        """Never later than was said before."""
        close_at_ms = monotonic_ms() + max(0, int((deadline - time.monotonic()) * 1000))
        if self._core.close_at_ms is None or close_at_ms < self._core.close_at_ms:
            self._core.close_at_ms = close_at_ms
        self._wake()

    def __del__(self) -> None:
        if getattr(self, "_driver", None) is not None and self._unusable is None:
            warnings.warn(
                f"producer {self.config.client_id} was not closed, and its loop is gone: what it had not sent is lost",
                ResourceWarning,
                source=self,
                stacklevel=1,
            )

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

    @property
    def is_connected(self) -> bool:
        """Whether a broker is connected at the moment. A producer that is not tries on, and says so in its log."""
        return self._core.is_connected

    def __repr__(self) -> str:
        return self._parts.described(self) if hasattr(self, "_parts") else "<AsyncProducer>"


def _no_waiting() -> Any:
    raise AssertionError("nothing blocks in an event loop")


async def _settled(delivery: Delivery) -> None:
    told = asyncio.Event()
    delivery.watch(told.set)
    await told.wait()
    for part in delivery.parts or ():
        await _settled(part)
