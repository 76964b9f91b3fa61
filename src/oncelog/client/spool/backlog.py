"""The entries that wait on disk because memory had no room for them, in the order of the files, read ahead in bounds.

An entry waits until its book says that it was loaded. With nothing waiting, the next entry to be written becomes the
place to read from; so a producer that keeps up never reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from oncelog.client.spool.book import PartitionBook
from oncelog.client.spool.entry import SpooledRecord, decode_entry, decode_note
from oncelog.client.spool.errors import SpoolReadFailed
from oncelog.client.spool.frame import decode_frame, missing_bytes
from oncelog.client.spool.record_files import RecordFile, RecordFiles

READ_AHEAD_BYTES: Final = 256 * 1024


class Backlog:
    def __init__(self, files: RecordFiles, books: Mapping[tuple[str, int], PartitionBook]) -> None:
        self._files = files
        self._books = books
        self.count = 0
        self._ahead: deque[SpooledRecord] = deque()
        self._skipped: set[str] = set()
        self._file_number = 0
        self._position = 0

    def rewind(self) -> None:
        """Begin again with the oldest file; the books tell what waits."""
        self._ahead.clear()
        self._file_number = self._position = 0
        self.recount()

    def recount(self) -> None:
        self.count = sum(book.waiting for book in self._books.values())

    def wrote(self, record_file: RecordFile, position: int) -> None:
        if not self.count:
            self._ahead.clear()
            self._file_number = record_file.number
            self._position = position
        self.count += 1

    def loaded(self, count: int = 1) -> None:
        self.count -= count

    def peek(self) -> SpooledRecord | None:
        """The next record to load; None if none waits, or none is durable yet. Raises SpoolReadFailed."""
        ahead = self._ahead
        while self.count:
            while ahead:
                record = ahead[0]
                if self._is_waiting(record.topic, record.partition, record.entry):
                    return record
                ahead.popleft()
            if not self._read_ahead():
                return None
        return None

    def skip(self, topic: str) -> None:
        """Pass by the topic's records for now."""
        self._skipped.add(topic)

    def unskip(self, topic: str) -> None:
        self._skipped.discard(topic)
        self._ahead.clear()
        self._file_number = self._position = 0

    def _is_waiting(self, topic: str, partition: int, entry: int) -> bool:
        return entry >= self._books[(topic, partition)].loaded and topic not in self._skipped

    def _read_ahead(self) -> bool:
        """Read the next part of a file; False if there is none yet."""
        record_file = self._current_file()
        if record_file is None:
            return False
        try:
            data = self._read_some(record_file)
        except OSError as error:
            raise SpoolReadFailed(
                f"{record_file.path} cannot be read at position {self._position}: {error}; nothing is lost yet, make a"
                " new producer on the same spool_dir to read it again"
            ) from error
        self._take_frames(record_file, memoryview(data))
        return True

    def _current_file(self) -> RecordFile | None:
        """The file to read from, with the position behind known damage."""
        for number in sorted(self._files.files):
            if number < self._file_number:
                continue
            record_file = self._files.files[number]
            if number > self._file_number:
                self._file_number, self._position = number, 0
            for damage in record_file.damages:
                if damage.position == self._position:
                    self._position += damage.size_bytes
            if self._position < self._files.readable_bytes(record_file):
                return record_file
        return None

    def _read_some(self, record_file: RecordFile) -> bytes:
        """A good bite of the file, at least one whole frame."""
        end = self._files.readable_bytes(record_file)
        data = record_file.file.read(self._position, min(READ_AHEAD_BYTES, end - self._position))
        more = min(missing_bytes(memoryview(data)), end - self._position - len(data))
        return data + record_file.file.read(self._position + len(data), more) if more > 0 else data

    def _take_frames(self, record_file: RecordFile, data: memoryview) -> None:
        start = self._position
        while frame := decode_frame(record_file.number, self._position, data[self._position - start :]):
            self._position = frame.end
            if decode_note(frame.body) is not None:
                continue
            record = decode_entry(frame.body)
            if self._is_waiting(record.topic, record.partition, record.entry):
                self._ahead.append(record)
        if self._position == start:
            raise SpoolReadFailed(
                f"{record_file.path} is damaged at position {start}; make a new producer on the same spool_dir: it"
                " sends what can still be read and names the rest"
            )
