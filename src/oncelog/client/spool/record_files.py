"""The files of records: entries of all partitions, in the order in which they were sent, one write each.

    00000000000000000012.records

A file that has reached its size is followed by the next one, and goes when all of its entries are settled. Every
process begins a file of its own. Owns sizes, rolling and removal; what is settled is told by the books.

The journal tells how far each file goes, and the files tell, in notes between the entries, how far the journal did when
numbers were written down: so either of them shows that the other is not what it was.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from oncelog.client.spool.book import PartitionBook
from oncelog.client.spool.entry import JournalNote, encode_note
from oncelog.client.spool.errors import SpoolFull, SpoolWriteFailed
from oncelog.client.spool.frame import FRAME_BYTES, Damage, encode_frame, reserved_end
from oncelog.log.storage import File, Storage

SUFFIX: Final = ".records"
ROLL_BYTES: Final = 16 * 1024 * 1024
MIN_FILES: Final = 8
"""A file takes at most this fraction of the spool, so that space comes back in small parts."""

logger = logging.getLogger(__name__)


def records_path(directory: str, number: int) -> str:
    return f"{directory}/{number:020d}{SUFFIX}"


class RecordFile:
    __slots__ = ("damages", "file", "live", "number", "path", "reserved", "size", "synced_bytes")

    def __init__(self, number: int, path: str, file: File) -> None:
        self.number = number
        self.path = path
        self.file = file
        self.size = file.size
        self.synced_bytes = 0
        self.reserved = 0
        """How far it goes with its zeros."""
        self.live = 0
        """How many of its entries are not settled."""
        self.damages: list[Damage] = []

    def reserve(self, size: int) -> None:
        """Zeros behind the frames, which are to reach to `size`."""
        self.file.reserve(reserved_end(size))
        self.reserved = reserved_end(size)

    def clear(self, position: int) -> None:
        """Zeros again from there on."""
        self.file.clear(position, max(self.reserved, reserved_end(position)))


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """Makes everything durable that was written before it was asked for. Runs in any thread, outside any lock."""

    storage: Storage
    directory: str
    files: tuple[tuple[RecordFile, int], ...]
    directory_changes: int
    """How many there were before it."""
    is_directory_changed: bool

    def run(self) -> None:
        """Raises OSError. A failed sync must not be tried again: it would seem to succeed."""
        for record_file, _ in self.files:
            record_file.file.sync()
        if self.is_directory_changed:
            self.storage.sync_directory(self.directory)


class RecordFiles:
    def __init__(self, storage: Storage, directory: str, *, max_bytes: int, is_durable: bool) -> None:
        self._storage = storage
        self._directory = directory
        self._max_bytes = max_bytes
        self._roll_bytes = max(min(ROLL_BYTES, max_bytes // MIN_FILES), 1)
        self._is_durable = is_durable
        self.files: dict[int, RecordFile] = {}
        self._passed_bytes = 0
        """Of all files but the one that grows."""
        self._active: RecordFile | None = None
        self._next_number = 1
        self._unfinished: tuple[RecordFile, int] | None = None
        """A write that has begun, in this file from this position on. While it is here, the write may be whole, torn or
        counted in part, and it never counts: an error or a signal can come at any point. One assignment ends it."""
        self._directory_changes = 0
        self._synced_changes = 0
        self.before_growing: Callable[[RecordFile], None] = lambda record_file: None
        """Called whenever zeros were reserved in a file, before they are written over. May raise SpoolWriteFailed."""

    def adopt(self, record_file: RecordFile) -> None:
        """A file of an earlier process. It is only read from now on."""
        self.files[record_file.number] = record_file
        self._passed_bytes += record_file.size
        self._next_number = max(self._next_number, record_file.number + 1)

    @property
    def total_bytes(self) -> int:
        return self._passed_bytes if self._active is None else self._passed_bytes + self._active.size

    def append(self, book: PartitionBook, body: bytes) -> tuple[RecordFile, int]:
        """Write an entry; where it lies. It counts once `keep` was called, and else `take_back` must be. Raises
        SpoolFull or SpoolWriteFailed, and nothing was written."""
        size = FRAME_BYTES + len(body)
        if self.total_bytes + size > self._max_bytes:
            raise SpoolFull(
                f"the spool {self._directory} holds {self.total_bytes} bytes, and {size} more would exceed"
                f" spool_max_bytes ({self._max_bytes}); wait until brokers have taken some, or raise spool_max_bytes"
            )
        active = self._active
        try:
            if active is None or (active.size + size > self._roll_bytes and active.size):
                active = self._roll()
            position = self._write(active, body)
        except OSError as error:
            self.take_back()
            raise SpoolWriteFailed(
                f"the record was not accepted, {self._directory} cannot be written: {error}; make room on the disk or"
                " choose another spool_dir"
            ) from error
        book.written(book.next, active)
        return active, position

    def append_note(self, note: JournalNote) -> None:
        """How far the journal is. Raises OSError or SpoolWriteFailed: then nothing was written."""
        try:
            self._write(self._active or self._roll(), encode_note(note))
            self.keep()
        except BaseException:
            self.take_back()
            raise

    def _write(self, active: RecordFile, body: bytes) -> int:
        """Returns the position."""
        self._clean()
        position = active.size
        end = position + FRAME_BYTES + len(body)
        if end >= active.reserved:
            self._grow(active, end)
        self._unfinished = active, position
        active.file.append(encode_frame(active.number, position, body))
        active.size = end
        return position

    @property
    def is_unfinished(self) -> bool:
        """An entry was written, or a part of it, and not kept."""
        return self._unfinished is not None

    def keep(self) -> None:
        """The entry that was written last counts."""
        self._unfinished = None

    def take_back(self) -> None:
        """It does not count after all. Until the disk lets us take it away, nothing is written behind it."""
        if self._unfinished is not None:
            record_file, position = self._unfinished
            record_file.size = position
        self._count_passed()
        with contextlib.suppress(OSError):
            self._clean()

    def _clean(self) -> None:
        if self._unfinished is not None:
            record_file, position = self._unfinished
            record_file.size = position
            record_file.clear(position)
            self._unfinished = None

    def _roll(self) -> RecordFile:
        number = self._next_number
        path = records_path(self._directory, number)
        self._clean()
        active = RecordFile(number, path, self._storage.open(path, create=True))
        active.file.resume(0)  # it may be there since a try that failed
        active.size = 0
        self._grow(active, 0)
        self._next_number = number + 1
        self._directory_changes += 1
        self.files[number] = active
        self._active = active
        self._count_passed()
        return active

    def _count_passed(self) -> None:
        self._passed_bytes = sum(one.size for one in self.files.values() if one is not self._active)

    def _grow(self, active: RecordFile, size: int) -> None:
        before = active.reserved
        active.reserve(size)
        try:
            self.before_growing(active)
        except BaseException:
            active.reserved = before  # so that the next write tells of it
            raise

    @property
    def active(self) -> RecordFile | None:
        return self._active

    # --- durability -------------------------------------------------------------------------------------------

    def readable_bytes(self, record_file: RecordFile) -> int:
        return record_file.synced_bytes if self._is_durable else record_file.size

    def sync_request(self) -> SyncRequest | None:
        """What is to be synced now; None if nothing is. One request at a time."""
        files = tuple((one, one.size) for one in self.files.values() if one.synced_bytes < one.size)
        if not files and self._synced_changes == self._directory_changes:
            return None
        changes = self._directory_changes
        return SyncRequest(self._storage, self._directory, files, changes, changes != self._synced_changes)

    def synced(self, request: SyncRequest) -> None:
        for record_file, size in request.files:
            record_file.synced_bytes = max(record_file.synced_bytes, size)
        self._synced_changes = max(self._synced_changes, request.directory_changes)

    def cut_unsynced(self) -> None:
        """After a failed sync: take back what was never promised, as far as the disk obeys."""
        for record_file in self.files.values():
            with contextlib.suppress(OSError):
                if record_file.synced_bytes < record_file.size:
                    record_file.clear(record_file.synced_bytes)

    # --- space ------------------------------------------------------------------------------------------------

    def settled(self, *, with_active: bool = False) -> list[int]:
        """The files that are not needed any more."""
        return [
            number for number, one in self.files.items() if not one.live and (one is not self._active or with_active)
        ]

    def remove(self, numbers: list[int]) -> None:
        for number in numbers:
            record_file = self.files[number]
            try:
                self._storage.remove(record_file.path)
            except OSError as error:
                logger.warning("%s is not needed any more and cannot be removed: %s", record_file.path, error)
                continue
            record_file.file.close()
            del self.files[number]
            if record_file is self._active:
                self._active = None
            else:
                self._passed_bytes -= record_file.size

    def close(self) -> None:
        for record_file in self.files.values():
            record_file.file.close()
