"""Kafka's `.index` and `.timeindex` files: sparse, sorted hints from an offset or a timestamp into a segment.

Owns the entry formats, the searching and the growing of one index. An index is only ever a hint: it may lag behind
its segment, and whoever follows it checks the batch it finds there. It never reads the segment itself.

Only the last block of entries is held in memory, and only while the index grows. Everything before it is read from
the file when asked for, a block at a time, and no descriptor stays open; so a sealed index that nobody reads costs
nothing, and the indexes of a thousand partitions cost a thousand small tails. Of an index that is read, the block that
was searched last is kept too: who reads a log from end to end needs it hundreds of times in a row. A block is written
out when the next one begins and when the index is sealed or flushed: losing the last one to a crash costs a rebuild
that recovery does anyway. The file itself comes with the first block: most partitions hold few records, and none pays
for two empty files when it is first written to.

Kafka allocates `segment.index.bytes` of zeros beforehand and trims them on a clean stop. We only append, but an index
that Kafka left padded opens all the same: zeros after the last entry are not entries.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from itertools import pairwise
from typing import Final

from oncelog.errors import OncelogError
from oncelog.log.storage import File, Storage
from oncelog.named_tuple import NamedTuple
from oncelog.types import NO_TIMESTAMP

BLOCK_ENTRIES: Final = 512
"""Entries searched in memory at once; the most that an index holds in memory."""

MAX_RELATIVE_OFFSET: Final = 2**31 - 1


class CorruptIndex(OncelogError):
    """The index contradicts its own format or its segment. Rebuild it from the segment."""


class OffsetPosition(NamedTuple):
    """The batch at `position` of the segment ends with `offset`."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """No record up to `offset` is newer than `timestamp`."""

    timestamp: int
    offset: int


class _Block(NamedTuple):
    """Entries that follow one another in the file, from number `start` on. They never change, only go with the rest."""

    start: int
    entries: bytes


_NOTHING: Final = _Block(0, b"")


class _EntryFile:
    """Fixed-size sorted entries: whole blocks in the file, the last block in memory while growing."""

    __slots__ = (
        "_entry",
        "_is_begun",
        "_recent",
        "_storage",
        "_stored",
        "_tail",
        "_tail_start",
        "count",
        "max_entries",
        "path",
    )

    def __init__(self, storage: Storage, path: str, entry: struct.Struct, max_bytes: int) -> None:
        self._storage = storage
        self._entry = entry
        self.path = path
        self.max_entries = max_bytes // entry.size
        self.count = 0
        self._stored = 0  # entries that are in the file
        self._is_begun = False  # whether the file is there, and holds nothing else
        self._tail_start = 0  # the first entry that is in memory
        self._tail = bytearray()
        self._recent = _NOTHING  # the block searched last

    # --- opening ---

    def load(self, *, growing: bool) -> None:
        """Read how many entries there are, and the last block of them if more will come."""
        size = self._storage.status(self.path).size_bytes
        if size % self._entry.size:
            raise CorruptIndex(f"{self.path}: {size} bytes are not a multiple of {self._entry.size}")
        count = size // self._entry.size
        file = self._storage.open(self.path) if count else None
        if file is not None:
            count = self._without_padding(file, count)
            ends = (self._read_entries(file, index, index + 1) for index in ((0, count - 1) if count > 1 else ()))
            self._check_order(b"".join(ends))
        self.count = self._stored = self._tail_start = count
        self._is_begun = True
        self._tail = bytearray()
        self._recent = _NOTHING
        if growing and file is not None:
            file.truncate(count * self._entry.size)
            self._tail_start = count - count % BLOCK_ENTRIES
            tail = _Block(self._tail_start, self._read_entries(file, self._tail_start, count))
            self._tail += self._in_order(tail).entries

    def _without_padding(self, file: File, count: int) -> int:
        padding = bytes(self._entry.size)
        if self._read_entries(file, count - 1, count) != padding:
            return count
        first, last = 0, count - 1  # the first entry of the padding lies within
        while first < last:
            middle = (first + last) // 2
            if self._read_entries(file, middle, middle + 1) == padding:
                last = middle
            else:
                first = middle + 1
        return first

    def create(self) -> None:
        """Begin an empty index, whatever the file holds: `write_out` replaces that."""
        self._is_begun = False
        self.count = self._stored = self._tail_start = 0
        self._tail = bytearray()
        self._recent = _NOTHING

    # --- growing ---

    def reserve(self) -> None:
        """Make room for one more entry. All that can fail happens here, so that adding it afterwards cannot."""
        if self.count - self._tail_start >= BLOCK_ENTRIES:
            self.write_out()
            self._tail.clear()
            self._tail_start = self.count

    def _add(self, key: int, value: int) -> None:
        self._tail += self._entry.pack(key, value)
        self.count += 1

    def write_out(self) -> None:
        """Bring the file up to date (in the page cache; durability is the caller's)."""
        if self._is_begun and self._stored == self.count:
            return
        file = self._storage.open(self.path, create=True)
        stored_bytes = self._stored * self._entry.size
        if file.size != stored_bytes:  # a failed write left something behind, or the file is older than this index
            file.truncate(stored_bytes)
        if self._stored < self.count:
            file.append(memoryview(self._tail)[(self._stored - self._tail_start) * self._entry.size :])
        self._stored = self.count
        self._is_begun = True

    def seal(self) -> None:
        """Write everything out and hold nothing in memory."""
        self.write_out()
        self._tail = bytearray()
        self._tail_start = self.count

    def _truncate_to_count(self, count: int) -> None:
        if count == self.count:
            return
        self.write_out()
        file = self._storage.open(self.path)
        file.truncate(count * self._entry.size)
        self.count = self._stored = count
        self._recent = _NOTHING
        self._tail_start = count - count % BLOCK_ENTRIES
        self._tail = bytearray(self._read_entries(file, self._tail_start, count))

    # --- searching ---

    def _read_entries(self, file: File, start: int, end: int) -> bytes:
        size = self._entry.size
        return file.read(start * size, (end - start) * size)

    def _entry_at(self, index: int) -> tuple[int, int]:
        if index >= self._tail_start:
            return self._unpack(self._tail, index - self._tail_start)
        return self._unpack(self._read_entries(self._storage.open(self.path), index, index + 1), 0)

    def _unpack(self, block: bytes | bytearray, index: int) -> tuple[int, int]:
        key, value = self._entry.unpack_from(block, index * self._entry.size)
        return key, value

    def _search(self, target: int, field: int) -> tuple[int, int, int] | None:
        """The last entry whose `field` is at most `target`, as (index, key, value)."""
        if self._tail and self._unpack(self._tail, 0)[field] <= target:
            return self._search_block(self._tail, self._tail_start, target, field)
        if self._tail_start == 0:
            return None
        recent = self._recent
        if not recent.entries or not self._is_within(recent.entries, target, field):
            recent = self._recent = self._in_order(self._find_block(target, field))
        return self._search_block(recent.entries, recent.start, target, field)

    def _is_within(self, block: bytes, target: int, field: int) -> bool:
        last = len(block) // self._entry.size - 1
        return self._unpack(block, 0)[field] <= target <= self._unpack(block, last)[field]

    def _find_block(self, target: int, field: int) -> _Block:
        """The last block of the file whose first `field` is at most `target`, or the first one."""
        file = self._storage.open(self.path)
        first_block, last_block = 0, (self._tail_start - 1) // BLOCK_ENTRIES
        while first_block < last_block:
            middle = (first_block + last_block + 1) // 2
            start = middle * BLOCK_ENTRIES
            if self._unpack(self._read_entries(file, start, start + 1), 0)[field] <= target:
                first_block = middle
            else:
                last_block = middle - 1
        start = first_block * BLOCK_ENTRIES
        return _Block(start, self._read_entries(file, start, min(start + BLOCK_ENTRIES, self._tail_start)))

    def _in_order(self, block: _Block) -> _Block:
        self._check_order(block.entries)
        return block

    def _check_order(self, entries: bytes) -> None:
        """Raise CorruptIndex if an entry goes back: a search among such entries finds anything."""
        pairs = pairwise(self._entry.iter_unpack(entries))
        if any(later[_KEY] < earlier[_KEY] or later[_VALUE] < earlier[_VALUE] for earlier, later in pairs):
            raise CorruptIndex(f"{self.path}: its entries are not in order")

    def _search_block(
        self, block: bytes | bytearray, start: int, target: int, field: int
    ) -> tuple[int, int, int] | None:
        count = len(block) // self._entry.size
        found = bisect_right(range(count), target, key=lambda index: self._unpack(block, index)[field]) - 1
        if found < 0:
            return None
        return (start + found, *self._unpack(block, found))


_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_KEY, _VALUE = 0, 1


class OffsetIndex(_EntryFile):
    """Offset -> position: entries of (offset - base offset, position), 4 bytes each."""

    __slots__ = ("base_offset",)

    def __init__(self, storage: Storage, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(storage, path, _OFFSET_ENTRY, max_bytes)
        self.base_offset = base_offset

    @property
    def is_full(self) -> bool:
        return self.count >= self.max_entries

    def check(self, segment_bytes: int) -> None:
        """Raise CorruptIndex if the last entry cannot belong to a segment of this size."""
        if self.count == 0:
            return
        relative_offset, position = self._entry_at(self.count - 1)
        if relative_offset < 0 or not 0 <= position < segment_bytes:
            raise CorruptIndex(
                f"{self.path}: the last entry points to relative offset {relative_offset} at position {position} "
                f"of a segment of {segment_bytes} bytes"
            )

    def add(self, offset: int, position: int) -> None:
        self._add(offset - self.base_offset, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below `offset`; the start of the segment if there is none."""
        return self._found(self._search(offset - self.base_offset, _KEY))

    def lookup_position(self, position: int) -> OffsetPosition:
        """The last entry at or below `position`; the start of the segment if there is none."""
        return self._found(self._search(position, _VALUE))

    def last_entry(self) -> OffsetPosition:
        return self._found((self.count - 1, *self._entry_at(self.count - 1)) if self.count else None)

    def _found(self, found: tuple[int, int, int] | None) -> OffsetPosition:
        if found is None:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + found[1], found[2])

    def truncate_to_position(self, position: int) -> None:
        """Forget every entry at or above `position` of the segment."""
        found = self._search(position - 1, _VALUE)
        self._truncate_to_count(0 if found is None else found[0] + 1)


class TimeIndex(_EntryFile):
    """Timestamp -> offset: entries of (timestamp, offset - base offset), 8 and 4 bytes."""

    __slots__ = ("_last", "base_offset")

    def __init__(self, storage: Storage, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(storage, path, _TIME_ENTRY, max_bytes)
        self.base_offset = base_offset
        self._last: TimestampOffset | None = None

    @property
    def is_full(self) -> bool:
        return self.count >= self.max_entries - 1  # the last place is kept for the entry written when sealing

    def check(self, end_offset: int) -> None:
        """Raise CorruptIndex if the last entry cannot belong to a segment that ends before `end_offset`."""
        last = self.last_entry()
        if not self.base_offset <= last.offset <= max(end_offset, self.base_offset):
            raise CorruptIndex(
                f"{self.path}: the last entry points to offset {last.offset} of a segment that holds "
                f"[{self.base_offset}, {end_offset})"
            )

    def create(self) -> None:
        super().create()
        self._last = None

    def load(self, *, growing: bool) -> None:
        super().load(growing=growing)
        self._last = None

    def last_entry(self) -> TimestampOffset:
        if self._last is None:
            self._last = self._found((self.count - 1, *self._entry_at(self.count - 1)) if self.count else None)
        return self._last

    def add_if_newer(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless the last one says as much: timestamps only grow."""
        if timestamp > self.last_entry().timestamp:
            self._add(timestamp, offset - self.base_offset)
            self._last = TimestampOffset(timestamp, offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or below `timestamp`; the start of the segment if there is none."""
        return self._found(self._search(timestamp, _KEY))

    def _found(self, found: tuple[int, int, int] | None) -> TimestampOffset:
        if found is None:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(found[1], self.base_offset + found[2])

    def truncate_to_offset(self, offset: int) -> None:
        """Forget every entry at or above `offset`."""
        found = self._search(offset - self.base_offset - 1, _VALUE)
        self._truncate_to_count(0 if found is None else found[0] + 1)
        self._last = None
