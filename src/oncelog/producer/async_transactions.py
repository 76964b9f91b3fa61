"""`AsyncProducer`'s transactions: coroutines that wait for the core in the same loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from oncelog.client import arguments as checked
from oncelog.client.arguments import OffsetsInput
from oncelog.client.consumer_records import GroupMetadata
from oncelog.client.producer_counters import ProducerCounters
from oncelog.client.producer_errors import DeliveryFailed
from oncelog.client.transaction.command import Command, Kind
from oncelog.client.transaction.core import TransactionCore
from oncelog.client.transaction.model import Phase
from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.client.transaction_errors import AbortNeeded, OutcomeUnknown, TransactionError
from oncelog.producer.async_unaccepted import Unaccepted
from oncelog.producer.transactions import abort_patience_s, checked_group, count, nobody_waits, out_of_time


class AsyncTransactions:
    def __init__(
        self,
        core: TransactionCore,
        counters: ProducerCounters,
        wake: Callable[[], None],
        unaccepted: Unaccepted,
        max_block_ms: int,
    ) -> None:
        self._core = core
        self._counters = counters
        self._wake = wake
        self._unaccepted = unaccepted
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
        begun = time.monotonic()
        if kind is not Kind.ABORT:
            await self._accept_all(kind, timeout)
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - begun))
        await self._perform(lambda on_end: self._ask_end(kind, on_end), left)

    async def commit_later(self, timeout: float | None) -> None:
        await self._accept_all(Kind.COMMIT, timeout)
        self._core.unheard(self._ask_end(Kind.COMMIT, nobody_waits))
        self._wake()

    def _ask_end(self, kind: Kind, on_end: Callable[[], None]) -> Command:
        command = self._core.ask_end(kind, on_end)
        if kind is Kind.ABORT:  # else what waits would be in the next transaction
            self._unaccepted.give_up(
                DeliveryFailed("the transaction was aborted before this was in a batch", may_be_written=False)
            )
        return command

    async def _accept_all(self, kind: Kind, timeout: float | None) -> None:
        """Everything that was sent belongs to the transaction. Without a timeout, as long as each of the records may
        wait (`max.block.ms`). Raises OutcomeUnknown: then nothing was asked for."""
        if self._core.phase is not Phase.OPEN:
            return
        try:
            await asyncio.wait_for(self._unaccepted.all_accepted(), timeout)
        except TimeoutError:
            count = self._unaccepted.count
            waits = "1 record waits" if count == 1 else f"{count:,} records wait"
            raise OutcomeUnknown(
                f"{kind.value} could not begin within {timeout:g} s: {waits} for a topic to become known, or for"
                " memory. The transaction is still open: call it again, or abort()"
            ) from None

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
                self._core.unheard(self._ask_end(Kind.ABORT, nobody_waits))

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
