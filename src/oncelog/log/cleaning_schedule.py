"""Which log is cleaned next, and what becomes of the outcome.

Owns `cleaner-offset-checkpoint` (how far each log is clean) and the one round that is under way. A round runs in steps:
`CleaningRound.clean_next` in any thread, its result back here on the logs' thread, until `swap` says that it is over.
A log that holds a damaged batch is not cleaned until the next start, but keeps serving; after a disk error the round is
tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oncelog.errors import KafkaStorageError, OncelogError
from oncelog.log import checkpoints
from oncelog.log.checkpoints import CorruptCheckpoint
from oncelog.log.partition_log import PartitionLog
from oncelog.log.storage import MAY_PASS, Storage
from oncelog.types import TopicPartition

if TYPE_CHECKING:  # loaded when there is a log to compact: most brokers start without one, and sooner
    from oncelog.log.cleaner import CleanedGroup, CleaningRound, Dirtiness

logger = logging.getLogger(__name__)

CLEANER_OFFSET_FILE: Final = "cleaner-offset-checkpoint"


@dataclass(slots=True)
class _UnderWay:
    log: PartitionLog
    cleaning: CleaningRound
    is_wanted: bool = True  # False once the log was deleted or truncated meanwhile


class CleaningSchedule:
    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._cleaned_below: dict[TopicPartition, int] = {}
        self._gone: set[TopicPartition] = set()
        """Deleted, and still in the file."""
        self._uncleanable: set[PartitionLog] = set()
        self._current: _UnderWay | None = None

    def load(self) -> None:
        try:
            self._cleaned_below = checkpoints.read_offsets(self._storage, self._directory, CLEANER_OFFSET_FILE)
        except CorruptCheckpoint as error:
            logger.warning("every compacted log counts as dirty: %s", error)

    def next_round(self, logs: Mapping[str, PartitionLog], now_ms: int, wall_ms: int) -> CleaningRound | None:
        """A round over the dirtiest log, by its folder, if one is due and none is under way.

        Whichever clock is behind says how old a record is; whichever is ahead, from when on a tombstone is kept for
        `delete.retention.ms`. So neither a jump nor its correction makes anything go early.
        """
        steps = self.choose(list(logs.items()), now_ms, wall_ms, lambda log: True)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                chosen: CleaningRound | None = end.value
                return chosen

    def choose(
        self,
        logs: Sequence[tuple[str, PartitionLog]],
        now_ms: int,
        wall_ms: int,
        is_here: Callable[[PartitionLog], bool],
    ) -> Generator[None, None, CleaningRound | None]:
        """As `next_round`, one look at a log after the other. `is_here` tells whether the dirtiest still exists when
        all have been looked at."""
        if self._current is not None:
            return None
        aged_ms, worst = min(now_ms, wall_ms), None
        for directory, log in logs:
            dirtiness = self._measure(log, aged_ms, now_ms) if self._is_cleanable(log) else None
            if dirtiness is not None and dirtiness.is_due and (worst is None or dirtiness.ratio > worst[0]):
                worst = dirtiness.ratio, directory, log
            yield
        if worst is None or self._current is not None:
            return None
        _, directory, log = worst
        dirtiness = self._measure(log, aged_ms, now_ms) if is_here(log) and self._is_cleanable(log) else None
        if dirtiness is None or not dirtiness.is_due:
            return None
        from oncelog.log import cleaner

        cleaning = cleaner.plan(
            log,
            self._storage,
            directory,
            dirtiness,
            now_ms=aged_ms,
            kept_from_ms=max(now_ms, wall_ms),
        )
        self._current = _UnderWay(log, cleaning)
        return cleaning

    def _is_cleanable(self, log: PartitionLog) -> bool:
        return log.config.compacts and log.is_written and not log.offline and log not in self._uncleanable

    def _measure(self, log: PartitionLog, aged_ms: int, now_ms: int) -> Dirtiness | None:
        from oncelog.log import cleaner

        try:
            active = log.active_segment
            if active.size_bytes and active.waited_ms(aged_ms, now_ms) > log.config.max_compaction_lag_ms:
                log.roll(now_ms)  # what must be compacted by now may not hide in the active segment
            return cleaner.measure(log, self._cleaned_below.get(log.topic_partition), aged_ms)
        except (OncelogError, OSError) as error:
            self._note_failure(log, error)
            return None

    def swap(self, group: CleanedGroup | None, now_ms: int) -> bool:
        """Take in what the round's `clean_next` returned. True: call it again. False: the round is over."""
        current = self._current
        assert current is not None, "no round is under way"
        if group is not None and self._replace(current, group, now_ms):
            return True
        self._current = None
        if group is None and current.is_wanted:
            self._set_cleaned_below(current.log.topic_partition, current.cleaning.cleaned_below)
        return False

    def _replace(self, current: _UnderWay, group: CleanedGroup, now_ms: int) -> bool:
        log = current.log
        is_as_planned = set(group.old) <= set(log.segments)  # else retention or truncation was faster
        try:
            if current.is_wanted and is_as_planned and not log.offline:
                log.replace_segments(group.old, [group.new], now_ms)
                return True
            current.cleaning.discard(group)
        except (KafkaStorageError, OSError) as error:
            self._note_failure(log, error)
        return False

    def failed(self, error: Exception) -> None:
        """The round's `clean_next` raised."""
        assert self._current is not None, "no round is under way"
        self._note_failure(self._current.log, error)
        self._current = None

    def _note_failure(self, log: PartitionLog, error: Exception) -> None:
        from oncelog.log.cleaner import CleaningAbandoned

        if isinstance(error, CleaningAbandoned):
            logger.info("cleaning of %s was abandoned: %s", log.topic_partition, error)
        elif isinstance(error, MAY_PASS):
            logger.warning("cleaning of %s failed, and will be tried again: %s", log.topic_partition, error)
        else:
            logger.error("%s is not compacted until the next start: %s", log.topic_partition, error)
            self._uncleanable.add(log)

    def _set_cleaned_below(self, topic_partition: TopicPartition, offset: int) -> None:
        self._cleaned_below[topic_partition] = offset
        self._write()

    def _write(self) -> None:
        for topic_partition in self._gone:
            self._cleaned_below.pop(topic_partition, None)
        self._gone.clear()
        try:
            checkpoints.write_offsets(self._storage, self._directory, CLEANER_OFFSET_FILE, self._cleaned_below)
        except OSError as error:
            logger.warning("cannot write %s, so logs will be cleaned again: %s", CLEANER_OFFSET_FILE, error)

    def truncated(self, log: PartitionLog, offset: int) -> None:
        """What is written above `offset` from now on is not what was cleaned."""
        self._disown(log)
        if self._cleaned_below.get(log.topic_partition, 0) > offset:
            self._set_cleaned_below(log.topic_partition, offset)

    def forget(self, log: PartitionLog) -> None:
        """The log is deleted."""
        self._disown(log)
        self._uncleanable.discard(log)
        if log.topic_partition in self._cleaned_below:
            self._gone.add(log.topic_partition)

    def created(self, topic_partition: TopicPartition) -> None:
        """A new log: nothing of it is clean, whatever the file says of an earlier one of its name."""
        if topic_partition in self._cleaned_below:
            self._gone.add(topic_partition)
            self._write()

    def _disown(self, log: PartitionLog) -> None:
        if self._current is not None and self._current.log is log:
            self._current.is_wanted = False
            self._current.cleaning.cancel()

    def stop(self) -> None:
        """Make a round that is under way give up soon."""
        if self._current is not None:
            self._current.cleaning.cancel()
