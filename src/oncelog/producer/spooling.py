"""The spool of a `Producer`: its folder and lock, and the waiting that a core cannot do.

Owns three kinds of waiting: for the disk, where several sends share one fsync; for the leaders' word on what an earlier
process left, when the producer is made; and for records on disk to be loaded, in `flush()`. Decides nothing.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable
from typing import Final

from oncelog.client.accumulator import PartitionQueue
from oncelog.client.delivery import OnDelivery, RecordFuture
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.sockets import monotonic_ms
from oncelog.client.spool.errors import SpoolError, SpoolInUse, SpoolWriteFailed
from oncelog.client.spool.feeding import Feeder
from oncelog.client.spool.recovery import without_doubts
from oncelog.client.spool.resolving import Resolver
from oncelog.client.spool.spool import Spool, SpoolConfig
from oncelog.client.spool.spooled_sender import NewTransactor, SpooledSender
from oncelog.client.spool.transacting import TransactingSettings, Transactor
from oncelog.client.spool.transaction_feeding import TransactionFeeder
from oncelog.client.transaction_errors import TransactionFailed, TransactionMisuse
from oncelog.log.folder_lock import FolderInUse, FolderLock
from oncelog.log.storage import FileStorage
from oncelog.producer.assembly import Parts, wall_clock_ms
from oncelog.producer.news import News
from oncelog.records.model import Buffer, HeadersInput

MAX_ASKING_MS: Final = 10_000
"""How long a new producer waits for the leaders' word on what an earlier one left; then it goes on asking behind."""

logger = logging.getLogger(__name__)


class Spooling:
    def __init__(self, parts: Parts, news: News) -> None:
        config = parts.config
        assert config.spool_dir is not None
        self._core = parts.core
        self._news = news
        self._directory = config.spool_dir
        self._lock = threading.Lock()
        self._folder_lock: FolderLock | None = lock_folder(config.spool_dir)
        is_durable = config.spool_flush == "fsync"
        try:
            spool_config = SpoolConfig(config.spool_max_bytes, is_durable)
            self._spool, recovery = Spool.open(FileStorage(), config.spool_dir, spool_config)
            self._spool.open_for(config.transactional_id, config.spool_positions_topic)
        except BaseException:
            self._folder_lock.release()
            raise
        left = recovery.open_partitions if self._spool.identity is None else without_doubts(recovery.open_partitions)
        self._is_work_left = bool(left) or (self._spool.identity is not None and any(self._spool.unsettled()))
        self._feeder = self._new_feeder(parts, loads_at_once=not is_durable)
        self.sender = SpooledSender(
            parts.core,
            self._spool,
            self._feeder,
            Resolver(parts.core, parts.accumulator, left, wall_clock_ms),
            directory=config.spool_dir,
            when_unknown=config.spool_unknown,
            on_news=news.tell,
            found=recovery,
            new_transactor=self._maker_of_transactors(parts) if isinstance(self._feeder, TransactionFeeder) else None,
        )
        self._commits = GroupCommit(self._spool, self._lock) if is_durable else None

    def _new_feeder(self, parts: Parts, *, loads_at_once: bool) -> Feeder:
        kind = Feeder if parts.config.transactional_id is None else TransactionFeeder
        return kind(
            self._spool,
            parts.accumulator,
            lock=self._lock,
            new_waiter=self._news.new_waiter,
            wall_clock_ms=wall_clock_ms,
            loads_at_once=loads_at_once,
        )

    def _maker_of_transactors(self, parts: Parts) -> NewTransactor:
        feeder = self._feeder
        assert isinstance(feeder, TransactionFeeder)
        return lambda feed, on_unknown: Transactor(
            _transacting_settings(parts.config),
            parts.core,
            parts.accumulator,
            self._spool,
            feeder,
            feed=feed,
            on_unknown=on_unknown,
            on_news=self._news.tell,
            wall_clock_ms=wall_clock_ms,
            jitter=random.random,
        )

    def check_usable(self) -> None:
        fatal = self.sender.fatal
        if isinstance(fatal, TransactionFailed):
            raise fatal.with_traceback(None)
        if fatal is not None:
            raise ProducerClosed(f"the producer gave up: {fatal}") from fatal

    def send(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeadersInput,
        on_delivery: OnDelivery | None,
    ) -> RecordFuture:
        """Returns once the record is in the spool, as safe as `spool_flush` demands."""
        future = self._feeder.accept(queue, timestamp_ms, key, value, headers, on_delivery, monotonic_ms())
        if self._commits is not None:
            self._commits.commit()
        return future

    def is_news(self, future: RecordFuture) -> bool:
        """Whether the sender has something to do since this record."""
        return self._feeder.is_news(future)

    def await_word(self, max_ms: int) -> None:
        """Until it is known what became of an earlier process's batches, if brokers can be asked now. Raises
        SpoolFateUnknown, or why the spool cannot be used."""
        if self._is_work_left:
            self._news.wait_for(lambda: not self.sender.is_asking or None, min(max_ms, MAX_ASKING_MS) / 1000)
        if isinstance(self.sender.fatal, SpoolError):
            raise self.sender.fatal
        if self.sender.is_asking and self._is_work_left:
            logger.warning(
                "no leader tells yet what became of an earlier run's records in %s (%s); records are accepted, and"
                " sent when that is known",
                self._directory,
                self._core.network.why_unreachable() or "still asking",
            )

    def await_loaded(self, deadline: float | None) -> bool:
        """Until everything that waits on disk now is in memory, or, with transactions, committed; False after the
        deadline."""
        is_committing = isinstance(self._feeder, TransactionFeeder)
        with self._lock:
            marks = self._spool.written_marks() if is_committing else self._spool.waiting_marks()

        def is_done() -> bool:
            with self._lock:
                return self._spool.has_settled(marks) if is_committing else self._spool.has_loaded(marks)

        while not is_done() and self.sender.fatal is None:
            left = threading.TIMEOUT_MAX if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            self._news.wait_for(lambda: is_done() or self.sender.fatal or None, left)
        return True

    def unsettled_count(self) -> int:
        """How many records of the spool have no result yet."""
        with self._lock:
            return sum(end - first for _, first, end in self._spool.unsettled())

    @property
    def size_bytes(self) -> int:
        return self._spool.size_bytes

    def close(self) -> None:
        """After the sender has ended."""
        with self._lock:
            if self._folder_lock is None:
                return
            self._spool.close()
            self._folder_lock.release()
            self._folder_lock = None

    def disown(self) -> None:
        """In a forked child: the folder is the parent's."""
        if self._folder_lock is not None:
            self._folder_lock.release()
            self._folder_lock = None


def _transacting_settings(config: ProducerConfig) -> TransactingSettings:
    assert config.transactional_id is not None
    return TransactingSettings(
        config.transactional_id, config.transaction_timeout_ms, config.spool_positions_topic, uuid.uuid4().hex
    )


def spool_commits() -> TransactionMisuse:
    return TransactionMisuse(
        "the spool of this producer begins and commits transactions itself: just send(); for transactions of your own,"
        " make a producer without spool.dir"
    )


class GroupCommit:
    """Many senders, one fsync: whoever comes first syncs for all who have written by then, and the rest wait."""

    def __init__(self, spool: Spool, lock: threading.Lock) -> None:
        self._spool = spool
        self._lock = lock
        self._entry = threading.Lock()
        """Of `_turn`. Entered as itself: a signal between a condition's own steps would leave it locked."""
        self._turn = threading.Condition(self._entry)
        self._is_syncing = False
        self._asked = 0
        self._done = 0
        self._failure: SpoolWriteFailed | None = None

    def commit(self) -> None:
        """Return once all that was written before is on the disk. Raises SpoolWriteFailed."""
        is_ours = False
        try:
            with self._entry:
                self._asked += 1
                ticket = self._asked
                while self._done < ticket and self._failure is None:
                    if not self._is_syncing:
                        covered = self._asked
                        self._is_syncing = is_ours = True
                        break
                    self._turn.wait()
            if is_ours:
                self._sync()
                self._end_turn(covered)
        except OSError as error:
            failure = SpoolWriteFailed(f"the record was not accepted, the spool could not be synced: {error}")
            self._end_turn(self._done, failure)
        except BaseException:  # a signal's handler: somebody else must try
            if is_ours:
                self._end_turn(self._done)
            raise
        self._raise_failure()

    def _end_turn(self, done: int, failure: SpoolWriteFailed | None = None) -> None:
        with self._entry:
            self._is_syncing = False
            self._done = done
            self._failure = self._failure or failure
            self._turn.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _sync(self) -> None:
        with self._lock:
            request = self._spool.sync_request()
        if request is None:
            return
        try:
            request.run()
        except OSError as error:
            with self._lock:
                self._spool.sync_failed(error)
            raise
        with self._lock:
            self._spool.synced(request)


def waiting_of(parts: Parts, spooling: Spooling | None) -> Callable[[], tuple[int, str]]:
    """Tells how many records have no result yet, in memory or in the spool, and for which brokers they wait. Keeps no
    producer alive."""
    count = parts.accumulator.undelivered_count if spooling is None else spooling.unsettled_count
    servers = ", ".join(f"{host}:{port}" for host, port in parts.config.bootstrap_servers)

    def waiting() -> tuple[int, str]:
        return count(), f"an answer of the brokers ({parts.core.network.why_unreachable() or servers})"

    return waiting


def lock_folder(directory: str) -> FolderLock:
    """One producer per folder: two would overwrite each other's records."""
    try:
        return FolderLock(directory)
    except FolderInUse as error:
        raise SpoolInUse(
            f"the spool {directory} is in use by another producer (process {error.owner}): close that one, or give each"
            " producer a spool_dir of its own"
        ) from None
