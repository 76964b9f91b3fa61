"""What an `AsyncProducer` was given and is in no batch yet: records in line, and tables. In threads, `send()` and
`send_table()` themselves would wait; here everything that comes after them has to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from oncelog.client.sockets import monotonic_ms
from oncelog.client.table_result import OnTableDelivery, TableMetadata
from oncelog.producer.assembly import Parts, Serialized
from oncelog.producer.async_line import Lines
from oncelog.producer.async_table import AsyncTables

EXPIRY_PERIOD_S = 0.1  # how exactly `max.block.ms` is kept for records that wait in line


class Unaccepted:
    def __init__(
        self,
        parts: Parts,
        attempt: Callable[[Serialized, Any], bool],
        on_moved: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        """`attempt`: as of `Lines`. `on_moved`: somebody may have left the line."""
        self.lines = Lines(parts, attempt)
        self._tables = AsyncTables(parts, wake)
        self._on_moved = on_moved
        self._moved = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def send(self, record: Serialized, future: Any) -> bool:
        """As `Lines.send`."""
        if not self.lines.send(record, future, monotonic_ms()):
            return False
        self._watch()
        return True

    def send_table(
        self, topic: str, columns: Any, on_delivery: OnTableDelivery | None
    ) -> asyncio.Future[TableMetadata]:
        return self._tables.send(topic, columns, on_delivery)

    @property
    def count(self) -> int:
        """How many records, rows of tables too."""
        return self.lines.count + self._tables.waiting_rows

    def on_news(self) -> None:
        """Memory came free, a topic became known, or the producer gave up."""
        if self.lines.count:
            self.lines.move()
            self._have_moved()
        self._tables.tell()

    def _have_moved(self) -> None:
        self._moved.set()
        self._on_moved()

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EXPIRY_PERIOD_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self.lines.expire(monotonic_ms())
        self._have_moved()
        if self.lines.count:
            self._watch()

    async def all_accepted(self) -> None:
        """Until all that was sent so far is in batches, or has failed."""
        last_number = self.lines.last_number
        await self._tables.all_accepted()
        await self._until_moved(last_number)

    async def _until_moved(self, number: int) -> None:
        """Until nobody waits in line who came before, or with, this one."""
        while self.lines.first_number <= number:
            self._moved.clear()
            await self._moved.wait()

    def give_up(self, error: Exception) -> None:
        """All of it fails: records at once, tables as soon as their tasks have a turn."""
        self.lines.fail_all(error)
        self._have_moved()
        self._tables.give_up(error)

    async def finish(self, deadline: float, error: Exception) -> None:
        """Until all of it is accepted; what is not by then fails, also if the wait is cancelled."""
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.all_accepted(), max(0.0, deadline - time.monotonic()))
        finally:
            self.give_up(error)
            if self._timer is not None:
                self._timer.cancel()
        await self._tables.all_accepted()
