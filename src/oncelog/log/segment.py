"""One segment: a `.log` file of record batches and the indexes into it.

Owns appending to, finding in and cutting off one segment, and the rule when an index entry is due. It knows nothing of
other segments, of producers or of durability: those are the partition log's.

What this process wrote, or verified when it recovered the log, is handed out as it is. What it found on the disk (below
`_cold_below`) is read and verified before the first reader gets it (see `verification`).

A sealed segment keeps no descriptor and no index in memory; every read opens what it needs. What an index says is
checked against the batch found there. An index that lies is rebuilt from the `.log`, which alone is the truth.

Kafka's names: LogSegment, FileRecords.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from oncelog.errors import CorruptMessage
from oncelog.log.batch_scan import HOP_BYTES, hop_batches, scan_batches
from oncelog.log.config import LogConfig
from oncelog.log.file_slice import EMPTY, FileSlice
from oncelog.log.index import (
    MAX_RELATIVE_OFFSET,
    CorruptIndex,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
)
from oncelog.log.leader_epochs import EpochEntry
from oncelog.log.open_files import OpenFiles
from oncelog.log.segment_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_path,
)
from oncelog.log.storage import TEMPORARY_SUFFIX, File, Storage, is_out_of_descriptors
from oncelog.log.transaction_index import TransactionIndex
from oncelog.log.verification import (
    MAX_COLD_BYTES,
    BatchOrder,
    Damage,
    DamagedBatch,
    VerifiedRange,
    check_batches,
)
from oncelog.named_tuple import NamedTuple
from oncelog.records import kernel
from oncelog.records.batch import HEADER_SIZE, MAGIC, BatchHeader, Buffer, records_payload
from oncelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP

logger = logging.getLogger(__name__)

MAX_SEGMENT_BYTES: Final = 2**31 - 1
"""Positions in an index are int32."""

MAX_STOPS: Final = 16
"""Readers of one segment whose places are remembered."""

MAX_ANCHORS: Final = 16
"""Index entries that are tried until one agrees with the batch it names. Kafka's name the last offset of several
batches if they came together, so in a follower's log perhaps none agrees."""


class FoundBatch(NamedTuple):
    position: int
    header: BatchHeader


class FoundTimestamp(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class GrowsFrom(NamedTuple):
    """How a segment ends: the next offset, and the leader epoch of the last batch (-1 if there is none)."""

    next_offset: int
    leader_epoch: int


class StoredBatch(NamedTuple):
    """A batch in its file, which stays readable for as long as this is held."""

    file: File
    position: int
    header: BatchHeader

    def read(self) -> bytes:
        return self.file.read(self.position, self.header.size_bytes)


BatchSearch = Callable[[StoredBatch, int | None, int], tuple[int, int] | None]
"""Finds time and offset of the first record of a batch that is neither older than a timestamp nor before an offset.
Without a timestamp: of its newest record."""


def search_batch(batch: StoredBatch, timestamp: int | None, start_offset: int) -> tuple[int, int] | None:
    """Raises CorruptMessage if the batch is damaged: nobody who gets an answer made of it could tell."""
    data = batch.read()
    if not kernel.scan(data, 0, len(data), True)[0]:
        raise CorruptMessage(f"no good batch at position {batch.position} of {batch.file!r}")
    payload = records_payload(data, batch.header)
    if timestamp is None:
        return kernel.find_newest(payload, batch.header)
    return kernel.find_timestamp(payload, batch.header, timestamp, start_offset)


class Segment:
    __slots__ = (
        "_cold_below",
        "_file",
        "_first_timestamp",
        "_last_indexed_position",
        "_max_timestamp",
        "_open_files",
        "_stops",
        "_storage",
        "_verified",
        "base_offset",
        "config",
        "modified_ms",
        "offset_index",
        "opened_ms",
        "path",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        storage: Storage,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        now_ms: int,
        suffix: str = "",
        open_files: OpenFiles | None = None,
    ) -> None:
        self._storage = storage
        self._open_files = open_files
        self.base_offset = base_offset
        self.config = config
        self.path = file_path(directory, base_offset, LOG_SUFFIX + suffix)
        index_bytes = config.segment_index_bytes
        index_path = file_path(directory, base_offset, INDEX_SUFFIX + suffix)
        time_index_path = file_path(directory, base_offset, TIME_INDEX_SUFFIX + suffix)
        transaction_index_path = file_path(directory, base_offset, TRANSACTION_INDEX_SUFFIX + suffix)
        self.offset_index = OffsetIndex(storage, index_path, base_offset, index_bytes)
        self.time_index = TimeIndex(storage, time_index_path, base_offset, index_bytes)
        self.transaction_index = TransactionIndex(storage, transaction_index_path, base_offset)
        self.size_bytes = 0
        self.opened_ms = now_ms
        self.modified_ms = now_ms
        self._file: File | None = None  # held open while the segment grows, as long as there are enough descriptors
        self._last_indexed_position = 0
        self._max_timestamp: TimestampOffset | None = None
        self._first_timestamp: int | None = None
        self._stops: dict[int, int] = {}  # where reads ended: offset and position of the next batch; oldest first
        self._cold_below = 0  # what lies before this position was on the disk already
        self._verified = VerifiedRange()  # of that

    # --- opening ---

    def create(self) -> None:
        """Begin an empty segment that grows. The indexes get their files when there is something to put there, or when
        the segment is sealed."""
        file = self._open_to_grow(create=True)
        if file.size:  # of a try that failed
            file.truncate(0)
        self.offset_index.create()
        self.time_index.create()
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def plan(self) -> None:
        """Answer as an empty segment without touching the disk; `create` begins it."""
        self.transaction_index.create()
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def open_sealed(self, end_offset: int) -> None:
        """Take note of a segment that ends before `end_offset`; raise CorruptIndex if its indexes cannot be its own."""
        self._load_status()
        try:
            self.offset_index.load(growing=False)
            self.offset_index.check(self.size_bytes)
            self.time_index.load(growing=False)
            self.time_index.check(end_offset)
        except FileNotFoundError as error:
            raise CorruptIndex(f"{error.filename} is missing") from error

    def open_growing(self) -> GrowsFrom:
        """Continue a segment that was left complete, from its end. Raise CorruptIndex, CorruptMessage if it lies."""
        self._load_status()
        self._file = self._storage.open(self.path)
        try:
            self.offset_index.load(growing=True)
            self.time_index.load(growing=True)
        except FileNotFoundError as error:
            raise CorruptIndex(f"{error.filename} is missing") from error
        self.offset_index.check(self.size_bytes)
        last_indexed = self.offset_index.last_entry()
        self._last_indexed_position = last_indexed.position
        newest = self.time_index.last_entry()
        next_offset, epoch = self.base_offset, NO_LEADER_EPOCH
        for _, header in self._hop_from(last_indexed):
            next_offset, epoch = header.next_offset, header.leader_epoch
            if header.max_timestamp > newest.timestamp:
                newest = TimestampOffset(header.max_timestamp, header.last_offset)
        self.time_index.check(next_offset)
        self._check_last_time()
        self._max_timestamp = newest
        return GrowsFrom(next_offset, epoch)

    def _check_last_time(self) -> None:
        """Raise CorruptIndex if the batch that the time index ends with does not agree."""
        last = self.time_index.last_entry()
        found = self._find_batch(last.offset) if last.timestamp != NO_TIMESTAMP else None
        if last.timestamp != NO_TIMESTAMP and (found is None or found.header.max_timestamp != last.timestamp):
            raise CorruptIndex(f"{self.time_index.path}: offset {last.offset} has not time {last.timestamp}")

    def _load_status(self) -> None:
        self.size_bytes, self.modified_ms = self._storage.status(self.path)
        self.note_cold(self.size_bytes)

    def note_cold(self, position: int) -> None:
        """What lies before `position` was on the disk already and has not been verified."""
        self._cold_below = position
        self._verified.forget()

    # --- growing ---

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int, now_ms: int) -> None:
        """Write one batch at the end. If this raises, nothing has changed but perhaps the bytes beyond the end, which
        `discard_torn_write` removes."""
        file = self._file
        if file is None:
            file = self._reopen_to_grow()
        position = self.size_bytes
        is_indexed = position - self._last_indexed_position > self.config.index_interval_bytes
        if is_indexed:
            self.offset_index.reserve()
            self.time_index.reserve()
        try:
            file.append(batch)
        except OSError:
            self._file = file  # whatever a part of it was written to, that is where it is cut off
            raise
        newest = self._max_timestamp
        if is_indexed or newest is None or max_timestamp > newest[0] or position == 0:
            self._note_batch(position, len(batch), last_offset, max_timestamp)
        else:  # as most small batches: there is nothing to note
            self.size_bytes = position + len(batch)
        self.modified_ms = now_ms

    def _note_batch(self, position: int, size_bytes: int, last_offset: int, max_timestamp: int) -> None:
        newest = self._max_timestamp
        if newest is None or max_timestamp > newest.timestamp:
            newest = self._max_timestamp = TimestampOffset(max_timestamp, last_offset)
        if position - self._last_indexed_position > self.config.index_interval_bytes:
            self.offset_index.add(last_offset, position)
            self.time_index.add_if_newer(*newest)
            self._last_indexed_position = position
        elif position == 0:
            self._first_timestamp = max_timestamp
        self.size_bytes = position + size_bytes

    def discard_torn_write(self) -> None:
        if self._file is not None:  # else it could not even be opened, and nothing was written
            self._file.truncate(self.size_bytes)

    def _open_to_grow(self, *, create: bool = False) -> File:
        try:
            file = self._storage.open(self.path, create)
        except OSError as error:
            if not is_out_of_descriptors(error) or self._open_files is None or not self._open_files.close_one():
                raise
            file = self._storage.open(self.path, create)
        self._file = file
        if self._open_files is not None:
            self._open_files.entered(self)
        return file

    def _reopen_to_grow(self) -> File:
        file = self._open_to_grow()
        if file.size != self.size_bytes:
            self.release()
            raise OSError(errno.EIO, f"it has {file.size} bytes, {self.size_bytes} were written", self.path)
        return file

    def must_roll(self, batch_bytes: int, last_offset: int, max_timestamp: int, now_ms: int, jitter_ms: int) -> bool:
        """Whether the next batch belongs into a new segment."""
        size, config = self.size_bytes, self.config
        if size == 0:
            return False  # it begins where the log ends: a new one would be the same
        return (
            size + batch_bytes > config.segment_bytes
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
            or self.offset_index.is_full
            or self.time_index.is_full
            or self.waited_ms(max_timestamp, now_ms) > config.segment_ms - jitter_ms
        )

    def waited_ms(self, timestamp: int, now_ms: int) -> int:
        """How long the segment has been growing, by the records' clock if they have one.

        If the segment began in the future and the records' clock has been set back since, by ours: else a segment whose
        first record is of next year would grow until then (Kafka's does).
        """
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp()
        if first < 0 or (timestamp < first and first > now_ms):
            return now_ms - self.opened_ms
        return timestamp - first

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, which time-based rolling counts from; -1 if there is none."""
        if self._first_timestamp is None:
            if self.size_bytes == 0:
                return NO_TIMESTAMP
            _, header = next(hop_batches(self.file(), 0, self.size_bytes))
            self._first_timestamp = header.max_timestamp
        return self._first_timestamp

    def write_out_indexes(self) -> None:
        self.offset_index.write_out()
        self.time_index.write_out()
        self.transaction_index.write_out()

    def complete_time_index(self) -> None:
        """End the time index with the newest timestamp, so that a sealed segment knows it without being read."""
        if self._max_timestamp is not None:
            self.time_index.reserve()
            self.time_index.add_if_newer(*self._max_timestamp)

    def seal(self) -> None:
        """Grow no more: the indexes are complete and in their files, and nothing is held open."""
        self.complete_time_index()
        self.offset_index.seal()
        self.time_index.seal()
        self.release()

    def change_suffix(self, old: str, new: str) -> None:
        """Rename the files from one state of a replacement to the next, `.log` last: it makes the segment. The time
        index first, which every segment has: once it has its name, so tells its missing `.swap`, nothing of the
        replaced segment is left, and a `.txnindex` is the new one (see `interrupted`)."""
        parts: list[Segment | OffsetIndex | TimeIndex | TransactionIndex] = [self.time_index, self.offset_index, self]
        if self.transaction_index.exists:
            parts.insert(2, self.transaction_index)
        for part in parts:
            path = part.path.removesuffix(old) + new
            self._storage.rename(part.path, path)
            part.path = path

    def release(self) -> None:
        """Let go of the open file; the next write opens it again."""
        self._file = None
        if self._open_files is not None:
            self._open_files.left(self)

    def file_paths(self) -> list[str]:
        """The files of this segment, `.log` first."""
        paths = [self.path, self.offset_index.path, self.time_index.path]
        if self.transaction_index.exists:
            paths.append(self.transaction_index.path)
        return paths

    # --- finding ---

    def file(self) -> File:
        return self._file if self._file is not None else self._storage.open(self.path)

    def find_batch(self, offset: int) -> FoundBatch | None:
        """The first batch that ends at or after `offset`."""
        if not self.size_bytes:
            return None
        try:
            return self._find_batch(offset)
        except (CorruptIndex, FileNotFoundError) as error:
            self._repair(error)
            return self._find_batch(offset)

    def _find_batch(self, offset: int) -> FoundBatch | None:
        entry = self.offset_index.lookup(offset)
        near = self._find_near(entry, offset)
        if near is not None:
            return near
        for position, header in self._hop_from(entry):
            if header.last_offset >= offset:
                return FoundBatch(position, header)
        return None

    def headers_around(self, offset: int) -> list[BatchHeader]:
        """The last batch that begins before `offset`, and the first that does not, if they are here and can be read:
        nothing is repaired."""
        before: list[BatchHeader] = []
        try:
            for _, header in self._hop_from(self.offset_index.lookup(offset - 1)):
                if header.base_offset >= offset:
                    return [*before, header]
                before = [header]
        except (CorruptIndex, CorruptMessage, FileNotFoundError):
            return []
        return before

    def _find_near(self, entry: OffsetPosition, offset: int) -> FoundBatch | None:
        """What one read behind an index entry shows, if nothing about it is odd: among small batches this is all."""
        data = self.file().read(entry.position, min(HOP_BYTES, self.size_bytes - entry.position))
        found = kernel.find_batch(data, 0, len(data), offset)
        if found < 0:
            return None
        first, header = kernel.parse_header(data), kernel.parse_header(data, found)
        is_right = entry.position == 0 or self.base_offset <= first.base_offset <= entry.offset
        is_whole = header.magic == MAGIC and header.size_bytes <= self.size_bytes - entry.position - found
        return FoundBatch(entry.position + found, header) if is_right and is_whole else None

    def _hop_from(self, entry: OffsetPosition) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from an index entry on; raise CorruptIndex if it does not point to the batch it names."""
        hops = hop_batches(self.file(), entry.position, self.size_bytes)
        if entry.position:
            try:
                first = next(hops, None)
            except CorruptMessage as error:
                raise CorruptIndex(f"{self.offset_index.path}: no batch at position {entry.position}") from error
            if first is None or not self.base_offset <= first[1].base_offset <= entry.offset:
                raise CorruptIndex(f"{self.offset_index.path}: offset {entry.offset} is not at {entry.position}")
            yield first
        yield from hops

    def read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int | None,
        at_least_one_batch: bool,
        *,
        segment_end: int | None = None,
        epochs: Sequence[EpochEntry] = (),
        max_cold_bytes: int = MAX_COLD_BYTES,
    ) -> FileSlice | None:
        """Whole batches from `offset` on, below `end_offset` if given; None if nothing here reaches `offset`.

        What was not verified before is now, up to `max_cold_bytes`; nothing comes if that is 0. `segment_end` is the
        offset that follows the segment. Raises DamagedBatch.
        """
        file = self.file()
        found = self._resume(file, offset) or self.find_batch(offset)
        limit, verified_bytes = self.size_bytes, 0
        if self._cold_below and (found is None or found.position < self._cold_below):
            if not self._is_verified(found, offset):
                is_too_large = found is not None and found.header.size_bytes > max_bytes and not at_least_one_batch
                if max_cold_bytes <= 0 or is_too_large:
                    return EMPTY
                order = BatchOrder(epochs, None, segment_end)
                verified_bytes = self._verify(file, found, offset, min(max_bytes, max_cold_bytes), order)
            if self._verified.end < self._cold_below:
                limit = self._verified.end
        if found is None:
            return None
        if end_offset is not None:
            beyond = self.find_batch(end_offset)
            limit = limit if beyond is None else min(limit, beyond.position)
        size = limit - found.position
        if size > max_bytes:
            size = self._size_of_whole_batches(found, max_bytes, at_least_one_batch)
        return FileSlice(file, found.position, size, verified_bytes=verified_bytes) if size > 0 else EMPTY

    def _is_verified(self, found: FoundBatch | None, offset: int) -> bool:
        """A batch after `offset` is no proof that there is none before it."""
        if found is None or found.header.base_offset > offset:
            return False
        return self._verified.start <= found.position < self._verified.end

    def _verify(self, file: File, found: FoundBatch | None, offset: int, max_bytes: int, order: BatchOrder) -> int:
        """Verify what a read from `offset` on touches; how many bytes. Raises DamagedBatch if it begins with damage."""
        verified = self._verified
        if found is not None and 0 < verified.end == found.position and found.header.base_offset <= offset:
            start, order.next_offset = verified.end, verified.next_offset
        else:
            start, order.next_offset = self._anchor(file, found, offset)
            if verified.start <= start < verified.end:
                start, order.next_offset = verified.end, verified.next_offset
        end = self._cold_below
        if found is not None:
            end = min(end, found.position + max(max_bytes, found.header.size_bytes))
        if start >= end:
            return 0
        checked = check_batches(file, start, end, self.size_bytes, order)
        verified.add(start, checked)
        if checked.damage is not None and (found is None or checked.end_position <= found.position):
            order.next_offset = checked.next_offset
            return self._verify_behind(file, found, offset, end, checked.damage, order)
        if found is not None and checked.end_position <= found.position:
            raise self._damaged(Damage(checked.end_position, "the batches do not lead on from there"))
        return checked.end_position - start

    def _verify_behind(
        self, file: File, found: FoundBatch | None, offset: int, end: int, damage: Damage, order: BatchOrder
    ) -> int:
        """What a reader asks for who goes on behind the damage: the batch that has the offset itself, as nobody knows
        how far a damaged one went. `order` knows what is due where the damage is."""
        if found is None or found.position <= damage.position or found.header.base_offset > offset:
            raise self._damaged(damage)
        checked = check_batches(file, found.position, end, self.size_bytes, order)
        if checked.end_position <= found.position:
            raise self._damaged(checked.damage or damage)
        self._verified.add(found.position, checked)
        return checked.end_position - found.position

    def _damaged(self, damage: Damage) -> DamagedBatch:
        return DamagedBatch(f"{self.path} is damaged at position {damage.position}: {damage.problem}")

    def _anchor(self, file: File, found: FoundBatch | None, offset: int) -> tuple[int, int | None]:
        """Where to begin to verify so that `offset` cannot hide, and the offset that is due there: at a batch that the
        index, which is another file, says the same of."""
        try:
            return self._find_anchor(file, found, offset)
        except (CorruptIndex, FileNotFoundError) as error:
            self._repair(error)
            return self._find_anchor(file, found, offset)

    def _find_anchor(self, file: File, found: FoundBatch | None, offset: int) -> tuple[int, int | None]:
        entry = self.offset_index.lookup(offset)
        if found is not None and entry.position > found.position:
            entry = self.offset_index.lookup_position(found.position)
        for _ in range(MAX_ANCHORS):
            if entry.position == 0:
                return 0, self.base_offset
            header = kernel.parse_header(file.read(entry.position, HEADER_SIZE))
            if header.last_offset == entry.offset:
                return entry.position, header.base_offset
            entry = self.offset_index.lookup_position(entry.position - 1)
        return entry.position, None

    def _resume(self, file: File, offset: int) -> FoundBatch | None:
        """The batch at `offset` if a read has ended there: a reader goes on where it stopped."""
        position = self._stops.get(offset)
        if position is None:
            return None
        header = kernel.parse_header(file.read(position, HEADER_SIZE))
        return FoundBatch(position, header) if header.base_offset == offset else None

    def _size_of_whole_batches(self, first: FoundBatch, max_bytes: int, at_least_one_batch: bool) -> int:
        """How many bytes of whole batches from `first` on fit into `max_bytes`."""
        if first.header.size_bytes > max_bytes:
            return first.header.size_bytes if at_least_one_batch else 0
        limit = first.position + max_bytes
        try:
            return self._last_boundary(first, limit) - first.position
        except (CorruptIndex, FileNotFoundError) as error:
            self._repair(error)
            return self._last_boundary(first, limit) - first.position

    def _last_boundary(self, first: FoundBatch, limit: int) -> int:
        entry = self.offset_index.lookup_position(limit)
        if entry.position <= first.position:
            entry = OffsetPosition(first.header.last_offset, first.position)
        end = entry.position
        for position, header in self._hop_from(entry):
            if position + header.size_bytes > limit:
                self._note_stop(header.base_offset, position)
                break
            end = position + header.size_bytes
        return end

    def _note_stop(self, next_offset: int, position: int) -> None:
        if len(self._stops) >= MAX_STOPS:
            del self._stops[next(iter(self._stops))]
        self._stops[next_offset] = position

    def max_timestamp(self) -> TimestampOffset:
        """The newest timestamp, and the last offset of the batch that has it; -1 in an empty segment."""
        if self._max_timestamp is None:
            self._max_timestamp = self._read_max_timestamp()
        return self._max_timestamp

    def _read_max_timestamp(self) -> TimestampOffset:
        """From the time index, if the batch it names agrees: retention deletes by this, so a flipped bit must not."""
        last = self.time_index.last_entry()
        found = self.find_batch(last.offset) if self.size_bytes else None
        if found is not None and found.header.max_timestamp != last.timestamp:
            self._repair(CorruptIndex(f"{self.time_index.path}: the newest timestamp is not {last.timestamp}"))
            return self.time_index.last_entry()
        return last

    def largest_timestamp(self) -> int:
        """What retention counts from: the newest record, or the last change of the file if no record has a time."""
        newest = self.max_timestamp().timestamp
        return newest if newest >= 0 else self.modified_ms

    def find_timestamp(
        self, timestamp: int, start_offset: int, search: BatchSearch = search_batch
    ) -> FoundTimestamp | None:
        """The first record at or after `start_offset` that is not older than `timestamp`."""
        entry = self._lookup_time(timestamp)
        found = self.find_batch(max(entry.offset, start_offset))
        if found is None:
            return None
        file = self.file()
        for position, header in hop_batches(file, found.position, self.size_bytes):
            if header.max_timestamp >= timestamp:
                record = search(StoredBatch(file, position, header), timestamp, start_offset)
                if record is not None:
                    return FoundTimestamp(*record, header.leader_epoch)
        return None

    def _lookup_time(self, timestamp: int) -> TimestampOffset:
        """The last entry of the time index at or below `timestamp`, if the batch it names agrees: one that leads too
        far hides records."""
        try:
            entry = self.time_index.lookup(timestamp)
        except CorruptIndex as error:
            self._repair(error)
            return self.time_index.lookup(timestamp)
        if entry.timestamp == NO_TIMESTAMP:
            return entry
        found = self.find_batch(entry.offset)
        if found is not None and found.header.max_timestamp == entry.timestamp:
            return entry
        self._repair(CorruptIndex(f"{self.time_index.path}: offset {entry.offset} has not time {entry.timestamp}"))
        return self.time_index.lookup(timestamp)

    def find_max_timestamp(self, search: BatchSearch = search_batch) -> FoundTimestamp | None:
        """The first record that has the newest timestamp of the segment."""
        newest = self.max_timestamp()
        found = self.find_batch(newest.offset) if newest.timestamp >= 0 else None
        if found is None:
            return None
        record = search(StoredBatch(self.file(), *found), None, found.header.base_offset)
        return None if record is None else FoundTimestamp(*record, found.header.leader_epoch)

    # --- scanning and cutting ---

    def begin_scan(self) -> File:
        """Forget what is known of the content, to learn it again from `note_scanned`; the file to scan."""
        if self._file is None:
            self._file = self._storage.open(self.path)
        self._restart_indexes()
        self.note_cold(0)
        return self._file

    def _restart_indexes(self) -> None:
        self.size_bytes = 0
        self._last_indexed_position = 0
        self._first_timestamp = None
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._stops.clear()
        self.offset_index.create()
        self.time_index.create()

    def note_scanned(self, headers: Iterable[BatchHeader]) -> None:
        """Take the next batches of a scan into the indexes, exactly as if they had just been appended."""
        interval_bytes = self.config.index_interval_bytes
        for header in headers:
            position = self.size_bytes
            if position - self._last_indexed_position > interval_bytes:
                self.offset_index.reserve()
                self.time_index.reserve()
            self._note_batch(position, header.size_bytes, header.last_offset, header.max_timestamp)

    def truncate_to(self, offset: int) -> int:
        """Cut off the batch that holds `offset` and everything after it, to grow on from the offset returned."""
        found = self.find_batch(offset)
        self.write_out_indexes()
        self._stops.clear()
        if found is not None:
            self.cut_durably(found.position)
            self.transaction_index.truncate_to_offset(found.header.base_offset)
            self.offset_index.truncate_to_position(found.position)
            self.time_index.truncate_to_offset(found.header.base_offset)
        return self.open_growing().next_offset

    def cut_durably(self, size_bytes: int) -> None:
        """Cut the `.log` and wait for the disk: batches that came back with the power would fit onto new ones."""
        file = self.file()
        file.truncate(size_bytes)
        file.sync()

    def _repair(self, error: Exception) -> None:
        logger.warning("rebuilding the indexes of %s: %s", self.path, error)
        self.rebuild_indexes()

    def _check_order(self, headers: list[BatchHeader], next_offset: int) -> int:
        """The offset after these batches; raise CorruptMessage if theirs do not grow, which no checksum covers."""
        for header in headers:
            if header.base_offset < next_offset or header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
                raise CorruptMessage(f"{self.path} has offset {header.base_offset} where {next_offset} is due")
            next_offset = header.next_offset
        return next_offset

    def rebuild_indexes(self) -> None:
        """Write both indexes anew from the batches, under other names until they are complete: half a time index
        would make the segment look older than it is."""
        indexes: tuple[OffsetIndex | TimeIndex, ...] = (self.offset_index, self.time_index)
        paths = [index.path for index in indexes]
        size_bytes, is_growing = self.size_bytes, self._file is not None
        try:
            for index in indexes:
                index.path += TEMPORARY_SUFFIX
            self._restart_indexes()
            next_offset = self.base_offset
            for scanned in scan_batches(self.file(), 0, size_bytes, verify_crc=False):
                next_offset = self._check_order(scanned.headers, next_offset)
                self.note_scanned(scanned.headers)
            self.complete_time_index()
            for index, path in zip(indexes, paths, strict=True):
                index.write_out()
                self._storage.open(index.path).sync()
                self._storage.rename(index.path, path)
        finally:
            self.size_bytes = size_bytes
            for index, path in zip(indexes, paths, strict=True):
                index.path = path
        if not is_growing:
            self.offset_index.seal()
            self.time_index.seal()
