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
from oncelog.producer.table import give_up, new_sending

if TYPE_CHECKING:
    from oncelog.records.arrow_columns import TableColumns

BREATH_BATCHES = 8  # so many are encoded before an event loop's other tasks have a turn

Found = TypeVar("Found")


class AsyncTables:
    """The tables that an `AsyncProducer` sends: a task for each."""

    def __init__(self, parts: Parts, wake: Callable[[], None]) -> None:
        self._parts = parts
        self._wake = wake
        self._news = asyncio.Event()
        self._waiting_for_memory = 0
        self._awaited_topics: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False

    def send(
        self, topic: str, columns: TableColumns, on_delivery: OnTableDelivery | None
    ) -> asyncio.Future[TableMetadata]:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[TableMetadata] = loop.create_future()
        task = loop.create_task(self._send(topic, columns, on_delivery, result))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return result

    def tell(self) -> None:
        """Memory came free, a topic became known, or the producer failed."""
        self._news.set()

    def _ask(self) -> None:
        """Let the sender know what is waited for."""
        accumulator = self._parts.accumulator
        accumulator.are_waiting_for_memory = max(accumulator.are_waiting_for_memory, self._waiting_for_memory)
        self._parts.core.awaited_topics.update(self._awaited_topics)
        self._wake()

    async def all_accepted(self) -> None:
        """Until all rows of the tables that were sent so far are in batches, or have failed."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def finish(self, timeout_s: float) -> None:
        """Until all rows were accepted; those that are not in time fail."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=max(0.0, timeout_s))
        self._is_over = True
        self._news.set()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _send(
        self,
        topic: str,
        columns: TableColumns,
        on_delivery: OnTableDelivery | None,
        result: asyncio.Future[TableMetadata],
    ) -> None:
        try:
            queues = await self._queues(topic, columns)
            future = TableFuture(topic, _no_waiting, on_delivery)
            future.add_done_callback(lambda done: _resolve(result, done))
            sending = new_sending(self._parts, columns, queues, future, _no_waiting)
            for _ in sending.check():
                await asyncio.sleep(0)
            try:
                await self._send_all(sending)
            except BaseException as error:
                give_up(self._parts, sending, error)
        except Exception as error:
            self._parts.not_accepted(error)
            if not result.done():
                result.set_exception(error)
                result.exception()  # a result that nobody looks at is no warning

    async def _queues(self, topic: str, columns: TableColumns) -> TopicQueues:
        accumulator = self._parts.accumulator
        queues = accumulator.topics.get(topic)
        if queues is None:
            queues = await self._await_topic(topic)
        greatest = columns.greatest_partition()
        if greatest is not None and greatest >= len(queues.queues):
            metadata = self._parts.core.metadata
            asked = metadata.asked
            metadata.mark_stale()  # the topic may have grown
            await self._until(lambda: metadata.answered > asked or None)
        if greatest is not None:
            checked_partition(greatest, topic, len(queues.queues))
        return queues

    async def _await_topic(self, topic: str) -> TopicQueues:
        def known() -> TopicQueues | None:
            error = self._parts.topic_error(topic)
            if error is not None:
                raise error
            return self._parts.accumulator.topics.get(topic)

        awaited = self._awaited_topics
        awaited[topic] = awaited.get(topic, 0) + 1
        try:
            queues = await self._until(known)
        finally:
            awaited[topic] -= 1
            if not awaited[topic]:
                del awaited[topic]
        if queues is None:
            raise self._parts.unavailable(topic)
        return queues

    async def _send_all(self, sending: TableSending) -> None:
        config = self._parts.config
        batches = 0
        while (step := self._advance(sending)) is not Step.ENDED:
            if step is Step.FULL and (config.buffer_full != "block" or not await self._memory(sending)):
                self._parts.counters.buffer_exhausted += 1
                raise self._parts.exhausted()
            batches += 1
            if batches % BREATH_BATCHES == 0:
                await asyncio.sleep(0)

    def _advance(self, sending: TableSending) -> Step:
        self._check_usable()
        step = sending.advance(monotonic_ms())
        self._wake()
        return step

    async def _memory(self, sending: TableSending) -> bool:
        """Until the batch at hand was taken."""
        began_ns = time.monotonic_ns()
        self._waiting_for_memory += 1
        try:
            return await self._until(lambda: self._advance(sending) is not Step.FULL or None) or False
        finally:
            self._waiting_for_memory -= 1
            self._parts.counters.buffer_wait_ns += time.monotonic_ns() - began_ns

    async def _until(self, attempt: Callable[[], Found | None]) -> Found | None:
        """What `attempt` returns, once that is not None; None after `max.block.ms`."""
        deadline = time.monotonic() + self._parts.config.max_block_ms / 1000
        while True:
            self._check_usable()
            found = attempt()
            left = deadline - time.monotonic()
            if found is not None or left <= 0:
                return found
            self._news.clear()
            self._ask()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)

    def _check_usable(self) -> None:
        if self._is_over:
            raise ProducerClosed("the producer was closed before all rows of the table were sent")
        self._parts.check_usable()


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
