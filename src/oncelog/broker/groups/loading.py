"""A partition of `__consumer_offsets` becomes the state of its coordinator: read in bounded steps.

Of what is read at once only the newest record of a key is replayed. That is what compaction would have left, so a
coordinator must cope with it anyway, and a log of commits of the same few offsets loads many times faster.

Offsets that a transaction committed count once its marker comes, unless something newer was said meanwhile. Those of
transactions without a marker are pending, and so they are handed over at the end.

A record that cannot be read ends the loading, as in Kafka, and with it the partition: a group whose offsets are missing
would begin where it should not. A type that is not known is skipped: a newer or a fuller broker may have written it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from oncelog.broker.coordinated import reading
from oncelog.broker.coordinated.reading import LogReading, UnreadableRecord, records_of
from oncelog.coordinator.group_coordinator import GroupCoordinator
from oncelog.coordinator.records import CoordinatorRecord, UnreadableCoordinatorRecord, decode_record
from oncelog.errors import KafkaError
from oncelog.log.partition_log import PartitionLog
from oncelog.records.batch import BatchHeader, read_control_marker
from oncelog.records.model import Record
from oncelog.types import NO_PRODUCER_ID

NO_KEY = b""
"""`records_of` lets none through."""


def check_batch(header: BatchHeader, batch: memoryview) -> None:
    """Whether it could be loaded, whatever came before it. Raises UnreadableRecord."""
    if header.is_control:
        _is_commit(header, batch)
        return
    for record in records_of(header, batch):
        _decoded(record.key or NO_KEY, record)


def _is_commit(header: BatchHeader, batch: memoryview) -> bool | None:
    """None: compaction has taken the marker, with all that it had ended."""
    if not header.record_count:
        return None
    try:
        return read_control_marker(batch).commit
    except KafkaError as error:
        raise UnreadableRecord(header.base_offset, error) from error


def _decoded(key: bytes, record: Record) -> CoordinatorRecord | None:
    try:
        return decode_record(key, record.value)
    except UnreadableCoordinatorRecord as error:
        raise UnreadableRecord(record.offset, error) from error


class Loading:
    def __init__(self, log: PartitionLog, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator
        self._reading = LogReading(log)
        self._undecided: dict[int, dict[bytes, Record]] = {}
        """What each open transaction has said last about a key."""
        self._newest: dict[bytes, Record] = {}
        self._unplayed: Iterator[tuple[bytes, Record]] = iter(())
        """What was read and is still to be replayed."""

    def step(self) -> bool:
        """Whether there is more. Raises CorruptMessage or KafkaStorageError."""
        played = 0
        for key, record in islice(self._unplayed, reading.STEP_RECORDS):
            self._replay(key, record)
            played += 1
        if played:
            return True
        if not self._reading.is_over:
            self._read()
            return True
        # In one go: as soon as one of them is handed over, its marker is no longer for us to read.
        for producer_id, records in self._undecided.items():
            for key, record in records.items():
                self._replay(key, record, producer_id)
        return False

    def _read(self) -> None:
        for header, batch in self._reading.read():
            self._take(header, batch)
        newest, self._newest = self._newest, {}
        self._unplayed = iter(newest.items())

    def _take(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            is_commit = _is_commit(header, batch)
            if is_commit is not None:
                self._end(header.producer_id, is_commit=is_commit)
        elif header.is_transactional:
            said = self._undecided.setdefault(header.producer_id, {})
            for record in records_of(header, batch):
                said[record.key or NO_KEY] = record
        else:
            self._note(records_of(header, batch))

    def _note(self, records: list[Record]) -> None:
        newest = self._newest
        for record in records:
            key = record.key or NO_KEY
            newest.pop(key, None)  # so that its place is that of its newest record
            newest[key] = record
            if record.value is None:
                for said in self._undecided.values():
                    said.pop(key, None)

    def _end(self, producer_id: int, *, is_commit: bool) -> None:
        """What was said within the step is compared here, what was said before it by the coordinator."""
        said = self._undecided.pop(producer_id, {})
        if is_commit:
            newest = self._newest
            for key, record in said.items():
                if key not in newest or newest[key].offset < record.offset:
                    newest[key] = record

    def _replay(self, key: bytes, record: Record, producer_id: int = NO_PRODUCER_ID) -> None:
        decoded = _decoded(key, record)
        if decoded is not None:
            self._coordinator.replay(decoded, record.timestamp_ms, record.offset, producer_id)
