"""A spool whose records are sent in transactions of its own: after a crash, or any outage, each is committed once.

    settling ──> preparing ──> starting ──> reading ──> ready ──> taking ──> closing ──> ending ──> ready
                                  ^                                                        │
                                  └──────────────── resting <──── the transactions failed ─┘

- settling    batches of an earlier process that were sent without transactions get their fate first (`resolving`)
- preparing   the topic of positions exists, and the folder says whose it is (`identity`)
- starting    InitProducerId: whoever had the transactional id before us can commit nothing any more, and what it left
              open is aborted; from here on every earlier transaction of the id has its outcome
- reading     the last committed position: what lies below it in the spool is settled, and nothing else is
- taking      records go from disk into the open transaction (`transaction_feeding`)
- closing     its last record is the position up to which it reaches
- ending      commit; only then are its records settled in the spool, and users told

**The law.** A record and the position that covers it are in the same transaction, so they are committed together or not
at all. A record is sent only if the last committed position, read after our own start has decided every earlier
transaction, does not cover it, or after the transaction that held it was certainly aborted. So it is committed at most
once; and as only a committed position, or a reported failure, removes it from the spool, it is committed once. Nothing
here asks what brokers remember of producers or transactional ids: both may expire.

Where a commit ends without an answer that says how (the id was taken from us, or forgotten), the same start and reading
decide. That is done in the same process if the transaction had outlived its timeout, which is reason enough for the
coordinator to end it; otherwise another producer uses the id, and two of them would take turns for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from oncelog.client.accumulator import Accumulator, RecordTooLarge
from oncelog.client.membership.backoff import Backoff
from oncelog.client.sender import SenderCore
from oncelog.client.spool.errors import SpoolError
from oncelog.client.spool.fate import Unknown
from oncelog.client.spool.identity import SpoolIdentity
from oncelog.client.spool.position_reading import PositionReader, queue_of
from oncelog.client.spool.position_topic import PositionTopic
from oncelog.client.spool.positions import Position
from oncelog.client.spool.spool import Spool
from oncelog.client.spool.transaction_feeding import TransactionFeeder
from oncelog.client.transaction.command import Command, Kind
from oncelog.client.transaction.core import TransactionCore
from oncelog.client.transaction_errors import AbortNeeded, TransactionalProducerFenced, TransactionFailed
from oncelog.errors import ClusterAuthorizationFailed, TransactionalIdAuthorizationFailed, UnsupportedVersion
from oncelog.records import kernel

MAX_TAKING_MS: Final = 100
"""How long a transaction takes records in, if there is no end of them."""
PACE_MS: Final = 25
"""Under load, one transaction begins no sooner than this after the one before, unless somebody waits in `flush()`: each
costs brokers about the same, whatever it holds. After a pause a record is committed at once."""
MAX_RESTARTS: Final = 10
"""In a row, without a commit in between, for reasons that we do not understand. Outages are as long as they are."""
BACKOFF_MS, MAX_BACKOFF_MS = 100, 5_000

_HOPELESS = (ClusterAuthorizationFailed, TransactionalIdAuthorizationFailed, UnsupportedVersion)

logger = logging.getLogger(__name__)


class Stage(Enum):
    SETTLING = auto()
    PREPARING = auto()
    STARTING = auto()
    READING = auto()
    READY = auto()
    TAKING = auto()
    CLOSING = auto()
    ENDING = auto()
    RESTING = auto()


@dataclass(frozen=True, slots=True)
class TransactingSettings:
    transactional_id: str
    transaction_timeout_ms: int
    positions_topic: str
    new_spool_id: str
    """For a folder that has none."""


class Transactor:
    def __init__(
        self,
        settings: TransactingSettings,
        core: SenderCore,
        accumulator: Accumulator,
        spool: Spool,
        feeder: TransactionFeeder,
        *,
        feed: Callable[[int], bool],
        on_unknown: Callable[[Iterable[Unknown]], None],
        on_news: Callable[[], None],
        wall_clock_ms: Callable[[], int],
        jitter: Callable[[], float],
    ) -> None:
        """`on_unknown` raises, or decides about entries of which nobody can tell any more."""
        assert core.transaction is not None
        self.stage = Stage.SETTLING
        self._settings = settings
        self._core = core
        self._accumulator = accumulator
        self._spool = spool
        self._feeder = feeder
        self._feed = feed
        self._on_unknown = on_unknown
        self._on_news = on_news
        self._wall_clock_ms = wall_clock_ms
        self._transaction: TransactionCore = core.transaction
        self._topic = PositionTopic(settings.positions_topic, core.network, core.metadata.mark_stale)
        self._reader: PositionReader | None = None
        self._command: Command | None = None
        self._reaches = Position({})
        """Of the transaction that takes no more."""
        self._in_doubt: Position | None = None
        """Of the transaction whose commit was asked for, until it is known how that ended."""
        self._began_ms: int | None = None
        """When the open transaction took its first record."""
        self._pace_ms = 0
        self._pause_until_ms = 0
        self._restarts = 0
        self._backoff = Backoff(BACKOFF_MS, MAX_BACKOFF_MS, jitter)
        self._now_ms = 0
        self._is_hurried = False
        self._steps: dict[Stage, Callable[[int], int | None]] = {
            Stage.SETTLING: self._settle,
            Stage.PREPARING: self._prepare,
            Stage.STARTING: self._start,
            Stage.READING: self._read,
            Stage.READY: self._begin,
            Stage.TAKING: self._take,
            Stage.CLOSING: self._close,
            Stage.ENDING: self._end,
            Stage.RESTING: self._begin_anew,
        }
        self._judged: Exception | None = None
        self._recovers = False
        core.transaction = None  # until no batch of an earlier process, sent without transactions, is open

    # --- what the sender asks -----------------------------------------------------------------------------------

    @property
    def has_started(self) -> bool:
        """What an earlier process left is known."""
        return self.stage not in (Stage.SETTLING, Stage.PREPARING, Stage.STARTING, Stage.READING)

    @property
    def needs_time(self) -> bool:
        """Whether records wait that could still be sent."""
        if self._feeder.taken or self._in_doubt is not None:
            return True
        return self._spool.waiting > 0 and not (self.stage is Stage.TAKING and self._feeder.is_drained)

    @property
    def recovers(self) -> bool:
        """Whether the failure of the transactions is one that a new start mends."""
        fatal = self._core.fatal
        if fatal is not self._judged:
            self._judged, self._recovers = fatal, self._judge(fatal)
        return self._recovers

    def _judge(self, fatal: Exception | None) -> bool:
        if isinstance(fatal, TransactionalProducerFenced):
            return self._is_overdue
        if not isinstance(fatal, TransactionFailed) or self._restarts >= MAX_RESTARTS:
            return False
        return not isinstance(fatal.__cause__, _HOPELESS)

    @property
    def _is_overdue(self) -> bool:
        return self._began_ms is not None and self._now_ms - self._began_ms >= self._settings.transaction_timeout_ms

    def saw(self, now_ms: int) -> None:
        """Something happens now."""
        self._now_ms = now_ms

    def poll(self, now_ms: int, *, is_closing: bool) -> int | None:
        """Does what is due. When to look again, if nothing happens before. Raises SpoolError."""
        self._now_ms = now_ms
        self._is_hurried = is_closing or self._accumulator.flushing > 0
        if self._core.fatal is not None and self.stage is not Stage.RESTING:
            self._rest(self._core.fatal)
        while True:
            stage = self.stage
            wake_ms = self._steps[stage](now_ms)
            if self.stage is stage:
                return wake_ms

    # --- before the first transaction ---------------------------------------------------------------------------

    def _settle(self, now_ms: int) -> int | None:
        if not self._accumulator.incomplete:
            self._core.transaction = self._transaction
            self.stage = Stage.PREPARING
        return None

    def _prepare(self, now_ms: int) -> int | None:
        topic, name = self._topic, self._settings.positions_topic
        wake_ms = topic.poll(now_ms)
        if topic.failure is not None:
            raise topic.failure
        if not topic.is_ready:
            return wake_ms
        self._core.metadata.want(name, now_ms)
        if name not in self._accumulator.topics:
            return wake_ms
        if self._spool.identity is None:
            partitions = len(self._accumulator.topics[name].queues)
            partition = kernel.partition_of(self._settings.transactional_id.encode(), partitions)
            self._spool.belong_to(
                SpoolIdentity(self._settings.transactional_id, self._settings.new_spool_id, name, partition)
            )
        self.stage = Stage.STARTING
        return None

    def _start(self, now_ms: int) -> int | None:
        if self._command is None:
            self._command = self._transaction.ask_init(_nothing)
        if self._command.has_ended:
            self._command = None
            self._reader = PositionReader(self._core, self._accumulator, self._identity, self._spool.placed)
            self.stage = Stage.READING
        return None

    def _read(self, now_ms: int) -> int | None:
        reader = self._reader
        assert reader is not None
        wake_ms = reader.poll(now_ms)
        if reader.failure is not None:
            raise reader.failure
        if not reader.is_done:
            return wake_ms
        self._reader = None
        self._resume_from(reader.found, is_lost=reader.is_lost)
        self._pause_until_ms = now_ms
        self.stage = Stage.READY
        self._on_news()
        return None

    def _resume_from(self, found: Position | None, *, is_lost: bool) -> None:
        unknown = self._perhaps_committed() if is_lost else []
        is_committed = self._in_doubt is not None and found == self._in_doubt
        self._in_doubt = None
        if is_committed:
            self._feeder.committed(self._reaches.ends)
        else:
            self._feeder.aborted()
        self._feeder.acquire()
        try:
            if unknown:
                self._on_unknown(unknown)
            elif found is not None:
                self._spool.committed(found.ends)
            self._spool.dispel_doubts()
            self._spool.resolved()
        finally:
            self._feeder.release()

    def _perhaps_committed(self) -> list[Unknown]:
        """What was in transactions of which only the position would tell: those of earlier processes, and the last."""
        sent = self._spool.loaded_ends() if self._in_doubt is not None else {}
        reason = f"how far they were committed was deleted from {self._identity.place}"
        found = []
        for place, first, end in self._spool.unsettled():
            end = min(end, max(self._identity.first_entry, sent.get(place, 0)))
            if first < end:
                found.append(Unknown(place, first, end, reason))
        return found

    @property
    def _identity(self) -> SpoolIdentity:
        assert self._spool.identity is not None
        return self._spool.identity

    # --- transactions -------------------------------------------------------------------------------------------

    def _begin(self, now_ms: int) -> int | None:
        if now_ms < self._pause_until_ms:
            return self._pause_until_ms
        self._transaction.begin()
        self._feeder.is_flowing = True
        self._began_ms = None
        self.stage = Stage.TAKING
        return None

    def _take(self, now_ms: int) -> int | None:
        feeder = self._feeder
        if self._transaction.abort_reason is not None:
            self._ask(Kind.ABORT)
            return None
        is_hungry = self._feed(now_ms) if not feeder.is_full else False
        if not feeder.taken:
            return now_ms if is_hungry else None
        if self._began_ms is None:
            self._began_ms = now_ms
        end_ms = self._began_ms + MAX_TAKING_MS
        if feeder.is_drained:
            end_ms = now_ms if self._is_hurried else min(end_ms, self._pace_ms)
        if feeder.is_full or now_ms >= end_ms:
            self._pace_ms = self._began_ms + PACE_MS
            self._reaches = feeder.stop()
            self.stage = Stage.CLOSING
            return None
        return now_ms if is_hungry else end_ms

    def _close(self, now_ms: int) -> int | None:
        if self._transaction.abort_reason is not None:
            self._ask(Kind.ABORT)
            return None
        queue = queue_of(self._accumulator, self._identity)
        assert queue is not None
        key, value = self._reaches.encode(self._identity)
        try:
            written = self._accumulator.append_anew(queue, self._wall_clock_ms(), key, value, (), None, now_ms)
        except RecordTooLarge as error:
            raise SpoolError(
                f"how far the spool reaches, in so many partitions, is too much to tell: {error}"
            ) from error
        if written is not None:  # else there is no memory: answers make room
            self._feeder.wrote_position(written)
            self._in_doubt = self._reaches
            self._ask(Kind.COMMIT)
        return None

    def _ask(self, kind: Kind) -> None:
        self._feeder.stop()
        self._command = self._transaction.ask_end(kind, _nothing)
        self.stage = Stage.ENDING

    def _end(self, now_ms: int) -> int | None:
        command = self._command
        assert command is not None
        if command.has_ended and command.error is None:
            self._ended(command.kind)
        elif command.has_ended and isinstance(command.error, AbortNeeded):
            self._ask(Kind.ABORT)
            return now_ms
        return None

    def _ended(self, kind: Kind) -> None:
        self._command = self._in_doubt = self._began_ms = None
        if kind is Kind.COMMIT:
            self._feeder.committed(self._reaches.ends)
            self._restarts = 0
            self._backoff.reset()
        else:
            refusal = self._feeder.refusal
            if refusal is not None:
                raise SpoolError(
                    f"how far the spool was committed cannot be stored in {self._identity.place}: {refusal}"
                )
            logger.info("a transaction of the spool was aborted; its records are sent again")
            self._feeder.aborted()
            self._pause_until_ms = self._now_ms + self._backoff.next_ms()
        self.stage = Stage.READY
        self._on_news()

    # --- when transactions fail ---------------------------------------------------------------------------------

    def _rest(self, fatal: Exception) -> None:
        logger.warning("the spool starts its transactions anew: %s", fatal)
        self._feeder.stop()
        self._command = self._reader = None
        self._pause_until_ms = self._now_ms + self._backoff.next_ms()
        self.stage = Stage.RESTING

    def _begin_anew(self, now_ms: int) -> int | None:
        if now_ms < self._pause_until_ms:
            return self._pause_until_ms
        if self._core.is_in_flight():
            return None
        self._restarts += not isinstance(self._core.fatal, TransactionalProducerFenced)
        self._began_ms = None
        self._transaction = self._core.begin_anew()
        self.stage = Stage.STARTING
        return None


def _nothing() -> None: ...
