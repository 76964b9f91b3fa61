"""`Producer`'s transactions: users' threads ask, the sender's thread does it, and here they wait for each other.

Owns who waits for how long, and what they are told. Decides nothing about a transaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from oncelog.client import arguments as checked
from oncelog.client.arguments import OffsetsInput
from oncelog.client.consumer_records import GroupMetadata
from oncelog.client.producer_counters import ProducerCounters
from oncelog.client.transaction.command import Command, Kind
from oncelog.client.transaction.core import TransactionCore
from oncelog.client.transaction.model import Phase
from oncelog.client.transaction.prepared import PreparedTransaction, SharedTransaction
from oncelog.client.transaction_errors import AbortNeeded, OutcomeUnknown, TransactionError, TransactionMisuse
from oncelog.producer.news import News

INTERRUPTED_ABORT_S = 5.0
"""How long Ctrl-C, or the cancellation of a task, waits at most for a transaction to be aborted, which goes on."""


class Transactions:
    def __init__(
        self,
        core: TransactionCore,
        counters: ProducerCounters,
        news: News,
        wake: Callable[[], None],
        max_block_ms: int,
    ) -> None:
        self._core = core
        self._counters = counters
        self._news = news
        self._wake = wake
        self._patience_s = max_block_ms / 1000
        self._asking = threading.Lock()

    def init(self, timeout: float | None) -> None:
        self._perform(lambda: self._core.ask_init(self._news.tell), timeout)

    def begin(self) -> None:
        with self._asking:
            self._core.begin()

    def send_offsets(
        self, offsets: OffsetsInput, group: GroupMetadata | str, timeout: float | None, wait: bool
    ) -> None:
        wanted, member = checked.offsets(offsets), checked_group(group)
        if wait:
            self._perform(lambda: self._core.ask_offsets(wanted, member, self._news.tell), timeout)
            return
        with self._asking:
            self._core.ask_offsets(wanted, member, nobody_waits)
            self._wake()

    def end(self, kind: Kind, timeout: float | None) -> None:
        self._perform(lambda: self._core.ask_end(kind, self._news.tell), timeout)

    def commit_later(self) -> None:
        with self._asking:
            self._core.unheard(self._core.ask_end(Kind.COMMIT, nobody_waits))
            self._wake()

    def flush(self, timeout: float | None) -> None:
        self._perform(lambda: self._core.ask_flush(self._news.tell), timeout)

    def prepare(self, timeout: float | None) -> PreparedTransaction | None:
        self.end(Kind.PREPARE, timeout)
        return self._core.prepared

    def share(self) -> SharedTransaction:
        with self._asking:
            return self._core.share()

    def join(self, shared: SharedTransaction) -> None:
        with self._asking:
            self._core.join(shared)

    @contextmanager
    def block(self) -> Iterator[None]:
        """A transaction around a block of code."""
        if self._core.phase is Phase.NEW:
            self.init(None)
        self.begin()
        try:
            yield
        except BaseException as error:
            with suppress(TransactionError):  # what happened in the block matters more
                self.end(Kind.ABORT, abort_patience_s(error))
            raise
        try:
            self.end(Kind.COMMIT, None)
        except AbortNeeded:
            self.end(Kind.ABORT, None)
            raise

    def abandon(self) -> None:
        """The producer is closed: a transaction that nobody will end is aborted, as far as there is time."""
        with self._asking, suppress(TransactionError):
            if self._core.phase is Phase.OPEN:
                self._core.unheard(self._core.ask_end(Kind.ABORT, nobody_waits))

    def _perform(self, ask: Callable[[], Command], timeout: float | None) -> None:
        self._news.check_wait("a transaction")
        timeout = self._patience_s if timeout is None else timeout
        begun_ns = time.monotonic_ns()
        with self._asking:
            command = ask()
            self._wake()
        try:
            has_ended = self._news.wait_for(lambda: command.has_ended or None, timeout)
        except BaseException:  # Ctrl-C, or what a signal's handler raises: the command goes on
            with self._asking:
                self._core.unheard(command)
            raise
        if not has_ended:
            with self._asking:
                self._core.unheard(command)
            raise out_of_time(command.kind, timeout, self._core.why_slow)
        with self._asking:
            self._core.heard(command)
            count(self._counters, command, time.monotonic_ns() - begun_ns)
        if command.error is not None:
            raise command.error.with_traceback(None)


def nobody_waits() -> None:
    """Whether it went well is heard later."""


_TIMES = {
    Kind.INIT: "txn_init_ns",
    Kind.OFFSETS: "txn_offsets_ns",
    Kind.COMMIT: "txn_commit_ns",
    Kind.ABORT: "txn_abort_ns",
}


def count(counters: ProducerCounters, command: Command, took_ns: int) -> None:
    """A call has returned."""
    field = _TIMES.get(command.kind)
    if field is not None:
        setattr(counters, field, getattr(counters, field) + took_ns)
    if command.error is None:
        counters.transactions_committed += command.kind is Kind.COMMIT
        counters.transactions_aborted += command.kind is Kind.ABORT


def out_of_time(kind: Kind, timeout: float, why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{kind.value} was not answered within {timeout:g} s ({why}). It goes on: call it again to hear how it ends"
    )


def abort_patience_s(error: BaseException) -> float | None:
    """How long a block that ended so waits until its transaction is aborted. None: as every call does."""
    return None if isinstance(error, Exception) else INTERRUPTED_ABORT_S


def no_transactions() -> TransactionMisuse:
    return TransactionMisuse("this producer has no transactions: make one with transactional_id=..., a name of its own")


def checked_group(group: GroupMetadata | str) -> GroupMetadata:
    if isinstance(group, str):
        group = GroupMetadata(group)
    if not isinstance(group, GroupMetadata) or not group.group_id:
        raise TypeError(f"the group is consumer.group_metadata() or a group's name, not {checked.shown(group)}")
    return group
