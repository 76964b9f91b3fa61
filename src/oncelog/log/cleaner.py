"""Compaction of one log: which part is due, and rewriting it segment by segment beside the log.

Owns the choice of segments and the `.cleaned` files. What survives is `compaction`'s to say; putting a cleaned segment
in the place of the old ones is the log's (`PartitionLog.replace_segments`: `.cleaned` -> `.swap` -> the final name),
and finishing or undoing that after a crash is `interrupted`'s.

A log is a clean section, then a dirty one that no round has seen, then what may not be cleaned yet: the active segment,
undecided transactions, records younger than `min.compaction.lag.ms`. A round reads the keys of the dirty section, then
rewrites clean and dirty section from the start: in that order, so that a value is always gone before the tombstone that
hides it. Small neighbours are merged up to `segment.bytes`.

`plan` runs on the log's thread and takes down everything a round needs. `CleaningRound.clean_next` may run in another
thread: it reads only sealed segments, which never change, and writes only new files. If a sealed segment vanishes
meanwhile (retention, deletion, truncation) the round is abandoned, and nothing has happened.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from oncelog.errors import CorruptMessage, OncelogError
from oncelog.log.batch_scan import scan_batches
from oncelog.log.compaction import (
    DEFAULT_MAX_KEYS,
    BatchFilter,
    CleanedTransactions,
    KeyOffsets,
    LastOfProducer,
    read_marker,
)
from oncelog.log.config import LogConfig
from oncelog.log.index import MAX_RELATIVE_OFFSET
from oncelog.log.leader_epochs import EpochEntry
from oncelog.log.partition_log import PartitionLog
from oncelog.log.segment import MAX_SEGMENT_BYTES, Segment
from oncelog.log.segment_files import CLEANED_SUFFIX
from oncelog.log.storage import Storage
from oncelog.log.transaction_index import AbortedTransaction
from oncelog.log.verification import BatchOrder
from oncelog.named_tuple import NamedTuple
from oncelog.records import kernel
from oncelog.records.batch import BatchHeader, Buffer, iter_records
from oncelog.types import TopicPartition

INDEX_ENTRY_BYTES: Final = 12
"""The larger of the two kinds of index entries."""


class CleaningAbandoned(OncelogError):
    """The log changed under the round (a segment is gone). Nothing was lost; a later round begins anew."""


class Source(NamedTuple):
    """A sealed segment as it was when the round was planned. `segment` is touched only on the log's thread."""

    segment: Segment
    base_offset: int
    end_offset: int  # where the next segment begins
    path: str
    size_bytes: int
    index_entries: int
    modified_ms: int


class CleanedGroup(NamedTuple):
    """`new` holds what survived of `old`, synced, under its `.cleaned` name."""

    old: tuple[Segment, ...]
    new: Segment


class Dirtiness(NamedTuple):
    """What of a log could be cleaned now, and whether it is time to."""

    sources: tuple[Source, ...]
    first_dirty_offset: int
    ratio: float
    is_due: bool


def measure(log: PartitionLog, cleaned_below: int | None, now_ms: int) -> Dirtiness:
    """What could be cleaned now. `cleaned_below` is where the last round ended; None if there was none."""
    first_dirty_offset = log.log_start_offset
    if cleaned_below is not None and log.log_start_offset <= cleaned_below <= log.log_end_offset:
        first_dirty_offset = cleaned_below
    sources = tuple(_cleanable(log, first_dirty_offset, now_ms))
    dirty = [source for source in sources if source.end_offset > first_dirty_offset]
    dirty_bytes = sum(source.size_bytes for source in dirty)
    total_bytes = sum(source.size_bytes for source in sources)
    ratio = dirty_bytes / total_bytes if total_bytes else 0.0
    is_due = ratio > log.config.min_cleanable_dirty_ratio or (
        dirty_bytes > 0 and _is_overdue(dirty, log.config, now_ms)
    )
    return Dirtiness(sources, first_dirty_offset, ratio, is_due)


def _is_overdue(dirty: list[Source], config: LogConfig, now_ms: int) -> bool:
    """Whether a record has been dirty for longer than `max.compaction.lag.ms`."""
    due_before_ms = now_ms - config.max_compaction_lag_ms
    return due_before_ms > 0 and any(0 < source.segment.first_timestamp() < due_before_ms for source in dirty)


def _cleanable(log: PartitionLog, first_dirty_offset: int, now_ms: int) -> Iterator[Source]:
    """The sealed segments from the start of the log that may be cleaned: wholly decided, and old enough."""
    old_enough_ms = now_ms - log.config.min_compaction_lag_ms
    for segment, following in pairwise([*log.segments, log.active_segment]):
        end_offset = following.base_offset
        is_dirty = end_offset > first_dirty_offset
        is_young = log.config.min_compaction_lag_ms > 0 and segment.largest_timestamp() > old_enough_ms
        if end_offset > log.last_stable_offset or (is_dirty and is_young):
            return
        yield Source(
            segment,
            segment.base_offset,
            end_offset,
            segment.path,
            segment.size_bytes,
            max(segment.offset_index.count, segment.time_index.count),
            segment.modified_ms,
        )


def plan(
    log: PartitionLog,
    storage: Storage,
    directory: str,
    dirtiness: Dirtiness,
    *,
    now_ms: int,
    kept_from_ms: int | None = None,
    max_keys: int = DEFAULT_MAX_KEYS,
) -> CleaningRound:
    """A round over what `measure` found. Call it in the same step: the log must not have changed in between.

    A tombstone that is met for the first time is kept for `delete.retention.ms` from `kept_from_ms` on; without it,
    from `now_ms`, which says whose time is over.
    """
    sources = dirtiness.sources
    assert sources, "nothing to clean"
    return CleaningRound(
        storage,
        directory,
        log.topic_partition,
        log.config,
        dirtiness,
        aborted=tuple(log.aborted_transactions(sources[0].base_offset, sources[-1].end_offset)),
        last_of_producers={entry.producer_id: LastOfProducer.of(entry) for entry in log.producers.entries()},
        epochs=log.leader_epochs.entries,
        now_ms=now_ms,
        kept_from_ms=now_ms if kept_from_ms is None else kept_from_ms,
        max_keys=max_keys,
    )


class CleaningRound:
    """One pass over a log. Call `clean_next` until it returns None, and swap each group in before the next call."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        dirtiness: Dirtiness,
        *,
        aborted: tuple[AbortedTransaction, ...],
        last_of_producers: dict[int, LastOfProducer],
        epochs: tuple[EpochEntry, ...],
        now_ms: int,
        kept_from_ms: int,
        max_keys: int,
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._config = config
        self._sources = dirtiness.sources
        self._first_dirty_offset = dirtiness.first_dirty_offset
        self._aborted = aborted
        self._last_of_producers = last_of_producers
        self._epochs = epochs
        self._now_ms = now_ms
        self._max_keys = max_keys
        self._new_horizon_ms = kept_from_ms + config.delete_retention_ms
        self._cleaned_below = dirtiness.first_dirty_offset
        self._groups: deque[tuple[Source, ...]] | None = None
        self._is_cancelled = False
        self.topic_partition = topic_partition

    @property
    def cleaned_below(self) -> int:
        """Where the next round's dirty section begins, once this one is over."""
        return self._cleaned_below

    def cancel(self) -> None:
        """Make a `clean_next` that runs in another thread give up soon."""
        self._is_cancelled = True

    def clean_next(self) -> CleanedGroup | None:
        """Write the next cleaned segment; None at the end. Raises CleaningAbandoned, CorruptMessage or OSError, and
        then leaves no file behind."""
        if self._groups is None:
            self._groups = self._begin()
        while self._groups:
            cleaned = self._clean(self._groups.popleft())
            if cleaned is not None:
                return cleaned
        return None

    def discard(self, group: CleanedGroup) -> None:
        """Remove what `clean_next` wrote, if it cannot be used."""
        for path in group.new.file_paths():
            self._storage.remove(path)

    # --- reading keys ---

    def _begin(self) -> deque[tuple[Source, ...]]:
        """Read the keys, and tell what is to be rewritten. The map takes its memory here: not on the log's thread."""
        dirty_offsets = max(1, self._sources[-1].end_offset - self._first_dirty_offset)
        self._keys = KeyOffsets(min(self._max_keys, dirty_offsets), self._first_dirty_offset)
        self._filter = BatchFilter(
            self._keys,
            CleanedTransactions(self._aborted),
            self._last_of_producers,
            now_ms=self._now_ms,
            new_horizon_ms=self._new_horizon_ms,
        )
        self._read_keys()
        self._cleaned_below = self._keys.end_offset
        reached = [source for source in self._sources if source.base_offset < self._keys.end_offset]
        return deque(group_sources(reached, self._config))

    def _read_keys(self) -> None:
        """Take in the dirty section, or as much of it as there is room for keys."""
        transactions = CleanedTransactions(
            transaction for transaction in self._aborted if transaction.last_offset >= self._first_dirty_offset
        )
        for source in self._sources:
            if source.end_offset <= self._first_dirty_offset:
                continue
            for _, header, batch in self._batches(source):
                if header.last_offset >= self._first_dirty_offset and not self._read_batch(header, batch, transactions):
                    return
            self._keys.end_offset = source.end_offset

    def _read_batch(self, header: BatchHeader, batch: Buffer, transactions: CleanedTransactions) -> bool:
        if header.is_control:
            marker = read_marker(header, batch)
            if marker is not None:
                transactions.end(header, commit=marker.commit)
        elif not transactions.is_aborted(header) and header.record_count:
            for record in iter_records(batch):
                if record.key is None or record.offset < self._first_dirty_offset:
                    continue
                if not self._keys.put(record.key, record.offset):
                    return False
        self._keys.end_offset = header.next_offset
        return True

    # --- writing segments ---

    def _clean(self, group: tuple[Source, ...]) -> CleanedGroup | None:
        """None if cleaning would change nothing."""
        filled = [source for source in group if source.size_bytes]
        if not filled:
            return None
        base_offset = group[0].base_offset
        new = Segment(
            self._storage, self._directory, base_offset, self._config, now_ms=self._now_ms, suffix=CLEANED_SUFFIX
        )
        cleaned = CleanedGroup(tuple(source.segment for source in group), new)
        try:
            has_changed = self._copy_survivors(filled, new)
            if has_changed or len(group) > 1:
                new.seal()
                new.modified_ms = group[-1].modified_ms
                for path in new.file_paths():
                    self._storage.open(path).sync()
                return cleaned
        except (OncelogError, OSError):
            with contextlib.suppress(OSError):
                self.discard(cleaned)
            raise
        self.discard(cleaned)
        return None

    def _copy_survivors(self, sources: list[Source], new: Segment) -> bool:
        """Whether anything was left out or rewritten."""
        new.create()
        self._storage.remove(new.transaction_index.path)
        has_changed = False
        for source in sources:
            for end_position, header, batch in self._batches(source):
                ends_segment = source is sources[-1] and end_position == source.size_bytes
                survivor = self._filter.survivor(header, batch, ends_segment=ends_segment)
                has_changed = has_changed or survivor.batch is not batch
                if survivor.aborted is not None:
                    new.transaction_index.append(survivor.aborted)
                if survivor.batch is not None:
                    max_timestamp = kernel.parse_header(survivor.batch).max_timestamp
                    new.append(survivor.batch, header.last_offset, max_timestamp, self._now_ms)
        return has_changed

    def _batches(self, source: Source) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Every batch of a segment, with the position where it ends. Its bytes last until the next one is asked for.

        Raises CorruptMessage at the latest with the batch after a bad one: a copy would make the damage look right."""
        try:
            file = self._storage.open(source.path)
        except FileNotFoundError as error:
            raise CleaningAbandoned(f"{source.path} is gone") from error
        position = 0
        order = BatchOrder(self._epochs, source.base_offset, source.end_offset)
        for scanned in scan_batches(file, 0, source.size_bytes, verify_crc=True):
            if self._is_cancelled:
                raise CleaningAbandoned(f"cleaning of {self.topic_partition} was cancelled")
            for header in scanned.headers:
                problem = order.problem(header)
                if problem is not None:
                    raise CorruptMessage(f"{source.path} is damaged at position {position}: {problem}")
                start = position - scanned.position
                position += header.size_bytes
                yield position, header, scanned.data[start : start + header.size_bytes]
        if position != source.size_bytes:
            raise CorruptMessage(f"{source.path} has no good batch at position {position}")


def group_sources(sources: list[Source], config: LogConfig) -> Iterator[tuple[Source, ...]]:
    """Neighbours that fit into one segment together, by their size before cleaning."""
    group: list[Source] = []
    for source in sources:
        if group and not _fits(group, source, config):
            yield tuple(group)
            group = []
        group.append(source)
    if group:
        yield tuple(group)


def _fits(group: list[Source], source: Source, config: LogConfig) -> bool:
    together = [*group, source]
    return (
        sum(each.size_bytes for each in together) <= min(config.segment_bytes, MAX_SEGMENT_BYTES)
        and sum(each.index_entries for each in together) * INDEX_ENTRY_BYTES <= config.segment_index_bytes
        and source.end_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
    )
