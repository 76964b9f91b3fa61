"""`AsyncProducer`'s transactions: coroutines that wait for the core in the same loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from oncelog.client import arguments as checked
from oncelog.client.arguments import OffsetsInput
from oncelog.client.consumer_records import GroupMetadata
from oncelog.client.producer_counters import ProducerCounters
from oncelog.client.transaction.command import Command, Kind
from oncelog.client.transaction.core import TransactionCore
from oncelog.client.transaction.model import Phase
from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.client.transaction_errors import AbortNeeded, TransactionError
from oncelog.producer.transactions import abort_patience_s, checked_group, count, nobody_waits, out_of_time


class AsyncTransactions:
    def __init__(
        self,
        core: TransactionCore,
        counters: ProducerCounters,
        wake: Callable[[], None],
        all_accepted: Callable[[], Awaitable[None]],
        max_block_ms: int,
    ) -> None:
        """`all_accepted`: until every record that was sent so far is in a batch."""
        self._core = core
        self._counters = counters
        self._wake = wake
        self._all_accepted = all_accepted
        self._patience_s = max_block_ms / 1000

    async def init(self, timeout: float | None) -> None:
        await self._perform(self._core.ask_init, timeout)

    def begin(self) -> None:
        self._core.begin()

    async def send_offsets(
        self, offsets: OffsetsInput, group: GroupMetadata | str, timeout: float | None, wait: bool
    ) -> None:
        wanted, member = checked.offsets(offsets), checked_group(group)
        if not wait:
            self._core.ask_offsets(wanted, member, nobody_waits)
            self._wake()
            return
        await self._perform(lambda on_end: self._core.ask_offsets(wanted, member, on_end), timeout)

    async def end(self, kind: Kind, timeout: float | None) -> None:
        if kind is not Kind.ABORT and self._core.phase is Phase.OPEN:
            await self._all_accepted()
        await self._perform(lambda on_end: self._core.ask_end(kind, on_end), timeout)

    async def commit_later(self) -> None:
        if self._core.phase is Phase.OPEN:
            await self._all_accepted()
        self._core.unheard(self._core.ask_end(Kind.COMMIT, nobody_waits))
        self._wake()

    async def flush(self, timeout: float | None) -> None:
        await self._perform(self._core.ask_flush, timeout)

    async def prepare(self, timeout: float | None) -> PreparedTransaction | None:
        await self.end(Kind.PREPARE, timeout)
        return self._core.prepared

    @asynccontextmanager
    async def block(self) -> AsyncIterator[None]:
        """A transaction around a block of code."""
        if self._core.phase is Phase.NEW:
            await self.init(None)
        self.begin()
        try:
            yield
        except BaseException as error:
            with suppress(TransactionError):  # what happened in the block matters more
                await self.end(Kind.ABORT, abort_patience_s(error))
            raise
        try:
            await self.end(Kind.COMMIT, None)
        except AbortNeeded:
            await self.end(Kind.ABORT, None)
            raise

    def abandon(self) -> None:
        """The producer is closed: a transaction that nobody will end is aborted, as far as there is time."""
        with suppress(TransactionError):
            if self._core.phase is Phase.OPEN:
                self._core.unheard(self._core.ask_end(Kind.ABORT, nobody_waits))

    async def _perform(self, ask: Callable[[Callable[[], None]], Command], timeout: float | None) -> None:
        timeout = self._patience_s if timeout is None else timeout
        begun_ns = time.monotonic_ns()
        ended = asyncio.Event()
        command = ask(ended.set)
        self._wake()
        try:
            await asyncio.wait_for(ended.wait(), timeout)
        except TimeoutError:
            self._core.unheard(command)
            raise out_of_time(command.kind, timeout, self._core.why_slow) from None
        except BaseException:  # cancelled: the command goes on
            self._core.unheard(command)
            raise
        self._core.heard(command)
        count(self._counters, command, time.monotonic_ns() - begun_ns)
        if command.error is not None:
            raise command.error.with_traceback(None)
