"""What the broker does without being asked: retention, flushes, checkpoints, compaction, expiry.

Owns when each is due and how its slow part gets into a thread and its outcome back. What is due, and what it means, the
log manager says. `Timers` is the shell's: it has the clock, the loop and the threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from oncelog.errors import KafkaStorageError
from oncelog.log.flush_schedule import LogFlush

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState
    from oncelog.log.cleaner import CleanedGroup, CleaningRound

logger = logging.getLogger(__name__)

T = TypeVar("T")

FLUSH_CHECK_INTERVAL_MS: Final = 1_000
"""How often unflushed logs are looked at, unless `log.flush.scheduler.interval.ms` is shorter."""

REMOVAL_INTERVAL_MS: Final = 10_000

REOPENING_INTERVAL_MS: Final = 1_000
"""How often logs that could not be opened are tried again; between two failures it waits longer by itself."""

RETIREMENT_INTERVAL_MS: Final = 1_000
"""How often the folders of deleted partitions are looked for."""

IDLE_CHECK_INTERVAL_MS: Final = 30_000
"""How often idle connections are looked for, unless `connections.max.idle.ms` is shorter."""


class Timers(Protocol):
    def every(self, interval_ms: int | Callable[[], int], step: Callable[[int], None]) -> None:
        """Call `step(now_ms)` again and again; an interval that may change is asked for each time."""

    def wall_ms(self) -> int:
        """The time of day, which may be set forward and back; `now_ms` may not."""

    def run_in_thread(self, work: Callable[[], T], done: Callable[[T | None, Exception | None, int], None]) -> None:
        """Call `work` in a thread, then `done(result, error, now_ms)` back here."""

    def in_slices(self, work: Iterator[None], done: Callable[[], None]) -> None:
        """Go through `work` a few milliseconds at a time, then call `done`. A step that raises ends it."""

    def close_idle(self, now_ms: int) -> None: ...


class Housekeeping:
    def __init__(self, broker: BrokerState, timers: Timers) -> None:
        self._broker = broker
        self._logs = broker.logs
        self._timers = timers
        self._is_reopening = False
        self._is_removing = False
        self._in_hand: set[str] = set()

    def start(self) -> None:
        config = self._broker.config
        every = self._timers.every
        every(min(config.log_flush_scheduler_interval_ms, FLUSH_CHECK_INTERVAL_MS), self._flush)
        every(config.log_flush_offset_checkpoint_interval_ms, self._checkpoint)
        every(config.log_retention_check_interval_ms, self._retain)
        every(config.producer_id_expiration_check_interval_ms, self._expire)
        every(REMOVAL_INTERVAL_MS, self._remove)
        every(RETIREMENT_INTERVAL_MS, self._retire)
        every(REOPENING_INTERVAL_MS, self._reopen)
        if config.connections_max_idle_ms >= 0:  # below, connections may be idle for ever
            every(max(1, min(config.connections_max_idle_ms, IDLE_CHECK_INTERVAL_MS)), self._timers.close_idle)
        if config.log_cleaner_enable:
            self._timers.every(self._cleaner_backoff_ms, self._clean)

    def _in_slices(self, what: str, work: Iterator[None]) -> None:
        """Unless it is still in hand since the last time."""
        if what not in self._in_hand:
            self._in_hand.add(what)
            self._timers.in_slices(work, lambda: self._in_hand.discard(what))

    def _cleaner_backoff_ms(self) -> int:
        return self._broker.config.log_cleaner_backoff_ms

    def _flush(self, now_ms: int) -> None:
        self._in_slices("flushes", self._flush_each(now_ms))

    def _flush_each(self, now_ms: int) -> Iterator[None]:
        for flush in self._logs.each_flush(now_ms):
            if flush is not None:
                self._run_flush(flush)
            yield

    def _run_flush(self, flush: LogFlush) -> None:
        def ended(_: None, error: Exception | None, now_ms: int) -> None:
            if error is None:
                self._logs.flushed(flush, now_ms)
            else:
                self._logs.flush_failed(flush, error)
                if flush.log.offline and self._logs.is_here(flush.log):  # else another log may have its name by now
                    self._broker.log_failed(flush.log.topic_partition)

        self._broker.group_commit.run(flush.log, flush.run, ended)

    def _checkpoint(self, now_ms: int) -> None:
        checkpoint = None if self._logs.is_checkpointing else self._logs.checkpoint_due()
        if checkpoint is None:
            return

        def ended(_: None, error: Exception | None, now_ms: int) -> None:
            if error is None:
                self._logs.checkpointed(checkpoint)
            else:
                self._logs.checkpoint_failed(checkpoint)
                logger.error("the next start may have to recover more than needed: %s", error)

        self._timers.run_in_thread(checkpoint.run, ended)

    def _retain(self, now_ms: int) -> None:
        self._in_slices("retention", self._retain_each(now_ms))

    def _retain_each(self, now_ms: int) -> Iterator[None]:
        deleted = 0
        for count in self._logs.each_retention(now_ms, self._timers.wall_ms()):
            deleted += count
            yield
        if deleted:
            logger.info("retention took %d segments out of use", deleted)

    def _expire(self, now_ms: int) -> None:
        self._in_slices("expiry", self._expire_each(now_ms))

    def _expire_each(self, now_ms: int) -> Iterator[None]:
        expired = 0
        for count in self._logs.each_expiry(now_ms):
            expired += count
            yield
        if expired:
            logger.debug("forgot %d silent producer ids", expired)

    def _remove(self, now_ms: int) -> None:
        """One thread at a time, and so many at once: a topic of thousands of partitions must not fill the pool."""
        if self._is_removing:
            return
        removals = self._logs.removals_due(now_ms)
        if not removals:
            return

        def run() -> None:
            for removal in removals:
                try:
                    removal.run()
                except OSError as error:
                    logger.error("files that are out of use cannot be removed: %s", error)

        def ended(_: None, error: Exception | None, now_ms: int) -> None:
            self._is_removing = False
            if error is not None:
                logger.error("bug: removing files failed: %s", error)
            self._remove(now_ms)

        self._is_removing = True
        self._timers.run_in_thread(run, ended)

    def _retire(self, now_ms: int) -> None:
        """And let the checkpoints forget what was deleted, before a topic of the same name has to wait for that."""
        if self._logs.retiring:
            self._in_slices("retirement", self._retire_all(now_ms))
        if self._logs.has_withdrawals:
            self._checkpoint(now_ms)

    def _retire_all(self, now_ms: int) -> Iterator[None]:
        """Until one fails: what prevents one mostly prevents all."""
        while self._logs.retiring:
            try:
                self._logs.retire_next(now_ms)
            except KafkaStorageError as error:
                logger.error("%s; it will be tried again", error)
                return
            yield

    def _reopen(self, now_ms: int) -> None:
        if self._is_reopening:
            return
        reopening = self._broker.next_reopening(now_ms)
        if reopening is None:
            return

        def ended(_: None, error: Exception | None, now_ms: int) -> None:
            self._is_reopening = False
            self._broker.log_reopened(reopening, error)
            self._reopen(now_ms)

        self._is_reopening = True
        self._timers.run_in_thread(reopening.run, ended)

    def _clean(self, now_ms: int) -> None:
        self._in_slices("cleaning", self._choose_cleaning(now_ms))

    def _choose_cleaning(self, now_ms: int) -> Iterator[None]:
        cleaning = yield from self._logs.choose_cleaning(now_ms, self._timers.wall_ms())
        if cleaning is not None:
            self._clean_next(cleaning)

    def _clean_next(self, cleaning: CleaningRound) -> None:
        def ended(group: CleanedGroup | None, error: Exception | None, now_ms: int) -> None:
            if error is not None:
                self._logs.cleaning_failed(error)
            elif self._logs.cleaned(group, now_ms):
                self._clean_next(cleaning)

        self._timers.run_in_thread(cleaning.clean_next, ended)
