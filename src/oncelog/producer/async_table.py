"""`send_table` of `AsyncProducer`: a task for each table puts its rows into batches, and waits where memory is full.

What is wrong with the table's columns is raised at once; everything else is the result of the whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from oncelog.client.accumulator import TopicQueues
from oncelog.client.partitioner import checked_partition
from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.sockets import monotonic_ms
from oncelog.client.table_result import OnTableDelivery, TableFuture, TableMetadata
from oncelog.client.table_sending import Step, TableSending
from oncelog.producer.assembly import Parts
from oncelog.producer.callbacks import tell
from oncelog.producer.table import give_up, new_sending

if TYPE_CHECKING:
    from oncelog.records.arrow_columns import TableColumns

BREATH_BATCHES = 8  # so many are encoded before an event loop's other tasks have a turn

Found = TypeVar("Found")


class _Table:
    """One that is being sent."""

    __slots__ = ("columns", "on_delivery", "refusal", "result", "sending", "topic")

    def __init__(
        self,
        topic: str,
        columns: TableColumns,
        on_delivery: OnTableDelivery | None,
        result: asyncio.Future[TableMetadata],
    ) -> None:
        self.topic = topic
        self.columns = columns
        self.on_delivery = on_delivery
        self.result = result
        self.sending: TableSending | None = None
        """Once its topic is known."""
        self.refusal: Exception | None = None
        """Why no more of its rows are to be sent."""

    @property
    def waiting_rows(self) -> int:
        return self.columns.row_count - (0 if self.sending is None else self.sending.accepted_rows)


class AsyncTables:
    """The tables that an `AsyncProducer` sends: a task for each."""

    def __init__(self, parts: Parts, wake: Callable[[], None]) -> None:
        self._parts = parts
        self._wake = wake
        self._news = asyncio.Event()
        self._tables: dict[asyncio.Task[None], _Table] = {}

    def send(
        self, topic: str, columns: TableColumns, on_delivery: OnTableDelivery | None
    ) -> asyncio.Future[TableMetadata]:
        loop = asyncio.get_running_loop()
        table = _Table(topic, columns, on_delivery, loop.create_future())
        task = loop.create_task(self._send(table))
        self._tables[task] = table
        task.add_done_callback(self._ended)
        return table.result

    def _ended(self, task: asyncio.Task[None]) -> None:
        table = self._tables.pop(task)
        if task.cancelled() or task.exception() is not None:  # by the end of its loop, perhaps before it began
            self._fail(table, ProducerClosed("the event loop ended before all rows of the table were sent"))

    def tell(self) -> None:
        """Memory came free, a topic became known, or the producer failed."""
        if self._tables:
            self._news.set()

    @property
    def waiting_rows(self) -> int:
        """How many rows are in no batch yet."""
        return sum(table.waiting_rows for table in self._tables.values())

    async def all_accepted(self) -> None:
        """Until all rows of the tables that were sent so far are in batches, or have failed."""
        if self._tables:
            await asyncio.wait(set(self._tables))

    def give_up(self, error: Exception) -> None:
        """Of the tables that were sent so far, what is in no batch yet fails, as soon as their tasks have a turn."""
        for table in self._tables.values():
            table.refusal = error
        self._news.set()

    async def _send(self, table: _Table) -> None:
        try:
            queues = await self._queues(table)
            future = TableFuture(table.topic, _no_waiting, table.on_delivery)
            future.add_done_callback(lambda done: _resolve(table.result, done))
            sending = new_sending(self._parts, table.columns, queues, future, _no_waiting)
            for _ in sending.check():
                await asyncio.sleep(0)
            table.sending = sending
            try:
                await self._send_all(table, sending)
            except BaseException as error:
                give_up(self._parts, sending, error)
        except Exception as error:
            self._fail(table, error)

    def _fail(self, table: _Table, error: Exception) -> None:
        """All of it, or what nobody will hear of any more."""
        self._parts.not_accepted(error)
        if not table.result.done():
            table.result.set_exception(error)
            table.result.exception()  # a result that nobody looks at is no warning
        if table.on_delivery is not None and (table.sending is None or not table.sending.has_sent):
            tell(table.on_delivery, None, error)

    async def _queues(self, table: _Table) -> TopicQueues:
        topic = table.topic
        queues = self._parts.accumulator.topics.get(topic)
        if queues is None:
            queues = await self._await_topic(table)
        greatest = table.columns.greatest_partition()
        if greatest is not None and greatest >= len(queues.queues):
            metadata = self._parts.core.metadata
            asked = metadata.asked
            metadata.mark_stale()  # the topic may have grown
            await self._until(table, lambda: metadata.answered > asked or None)
        if greatest is not None:
            checked_partition(greatest, topic, len(queues.queues))
        return queues

    async def _await_topic(self, table: _Table) -> TopicQueues:
        parts, topic = self._parts, table.topic
        parts.core.metadata.topic_errors.pop(topic, None)  # what was said earlier need not hold any more

        def known() -> TopicQueues | None:
            error = parts.topic_error(topic)
            if error is not None:
                raise error
            return parts.accumulator.topics.get(topic)

        parts.await_topic(topic)
        try:
            queues = await self._until(table, known)
        finally:
            parts.await_topic_no_more(topic)
        if queues is None:
            raise parts.unavailable(topic)
        return queues

    async def _send_all(self, table: _Table, sending: TableSending) -> None:
        config = self._parts.config
        batches = 0
        while (step := self._advance(table, sending)) is not Step.ENDED:
            if step is Step.FULL and (config.buffer_full != "block" or not await self._memory(table, sending)):
                self._parts.counters.buffer_exhausted += 1
                raise self._parts.exhausted()
            batches += 1
            if batches % BREATH_BATCHES == 0:
                await asyncio.sleep(0)

    def _advance(self, table: _Table, sending: TableSending) -> Step:
        self._check_usable(table)
        step = sending.advance(monotonic_ms())
        self._wake()
        return step

    async def _memory(self, table: _Table, sending: TableSending) -> bool:
        """Until the batch at hand was taken."""
        parts = self._parts
        began_ns = time.monotonic_ns()
        parts.accumulator.are_waiting_for_memory += 1
        try:
            taken = await self._until(table, lambda: self._advance(table, sending) is not Step.FULL or None)
            return taken is not None
        finally:
            parts.accumulator.are_waiting_for_memory -= 1
            parts.counters.buffer_wait_ns += time.monotonic_ns() - began_ns

    async def _until(self, table: _Table, attempt: Callable[[], Found | None]) -> Found | None:
        """What `attempt` returns, once that is not None; None after `max.block.ms`."""
        deadline = time.monotonic() + self._parts.config.max_block_ms / 1000
        while True:
            self._check_usable(table)
            found = attempt()
            left = deadline - time.monotonic()
            if found is not None or left <= 0:
                return found
            self._news.clear()
            self._wake()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)

    def _check_usable(self, table: _Table) -> None:
        if table.refusal is not None:
            raise table.refusal.with_traceback(None)
        self._parts.check_usable()
        self._parts.accumulator.check_not_suspended()


def _resolve(result: asyncio.Future[TableMetadata], done: TableFuture) -> None:
    if result.done():  # the user may have cancelled the wait; the rows are sent all the same
        return
    error = done.exception()
    if error is None:
        result.set_result(done.result())
    else:
        result.set_exception(error)
        result.exception()  # a result that nobody looks at is no warning: callers may fire and forget


def _no_waiting() -> Any:
    raise AssertionError("nothing blocks in an event loop")
