"""A coordinator's log, read from its start to its end: in bounded steps, so that a long one does not keep the loop from
its clients. Nobody writes there meanwhile but those who write markers, and these are read as well. Never decides what
the batches mean.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.errors import CorruptMessage, KafkaError
from oncelog.log.partition_log import PartitionLog
from oncelog.records import kernel
from oncelog.records.batch import BatchHeader, decode_records
from oncelog.records.model import Record

STEP_BYTES = 64 * 1024
"""What is read at once, unless one batch is larger."""

STEP_RECORDS = 250
"""What is replayed at once: a few milliseconds of work, with time for clients in between."""

SHORT_BYTES = 16 * 1024
"""A log that is loaded while somebody waits, instead of being asked to come again: some milliseconds as well."""


class UnreadableRecord(CorruptMessage):
    """The checksum is right, and yet no coordinator can have written this: it may be another partition's log."""

    def __init__(self, offset: int, problem: object) -> None:
        super().__init__(f"offset {offset} cannot be understood: {problem}")
        self.offset = offset


def records_of(header: BatchHeader, batch: memoryview) -> list[Record]:
    """Each with a key. Raises UnreadableRecord."""
    try:
        records = decode_records(batch)
    except KafkaError as error:
        raise UnreadableRecord(header.base_offset, error) from error
    for record in records:
        if record.key is None:
            raise UnreadableRecord(record.offset, "a record without a key")
    return records


class LogReading:
    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._offset = log.log_start_offset

    @property
    def is_over(self) -> bool:
        return self._offset >= self._log.log_end_offset

    def read(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches of the next step. Raises CorruptMessage or KafkaStorageError."""
        if self.is_over:
            return
        end = self._log.log_end_offset
        data = self._log.read(self._offset, STEP_BYTES, upper_bound=end).read_all()
        headers, _ = kernel.scan(data, 0, len(data), True)
        if not data:  # compaction left nothing up to the end
            self._offset = end
        elif not headers:
            raise UnreadableRecord(self._offset, "no whole batch is there")
        position = after = 0  # the checksum of a batch does not cover its offset
        for header in headers:
            if header.next_offset <= self._offset or header.next_offset > end or header.base_offset < after:
                raise UnreadableRecord(header.base_offset, f"it comes after offset {max(after, self._offset) - 1}")
            after = header.next_offset
            yield header, memoryview(data)[position : position + header.size_bytes]
            position += header.size_bytes
            self._offset = header.next_offset
