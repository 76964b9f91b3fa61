"""A partition of `__consumer_offsets` becomes the state of its coordinator: read in bounded steps.

Of what is read at once only the newest record of a key is replayed. That is what compaction would have left, so a
coordinator must cope with it anyway, and a log of commits of the same few offsets loads many times faster.

Offsets that a transaction committed count once its marker comes, unless something newer was said meanwhile. Those of
transactions without a marker are pending, and so they are handed over at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

from oncelog.broker.coordinated import reading
from oncelog.broker.coordinated.reading import LogReading
from oncelog.coordinator.group_coordinator import GroupCoordinator
from oncelog.coordinator.records import UnreadableCoordinatorRecord, decode_record
from oncelog.log.partition_log import PartitionLog
from oncelog.records.batch import BatchHeader, decode_records, read_control_marker
from oncelog.records.model import Record
from oncelog.types import NO_PRODUCER_ID

logger = logging.getLogger(__name__)

NO_KEY = b""
"""Of a record that has none: it cannot be decoded either."""


class Loading:
    def __init__(self, log: PartitionLog, coordinator: GroupCoordinator) -> None:
        self._log = log
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
            if header.record_count:  # else compaction has taken the marker, with all that it had ended
                self._end(header.producer_id, is_commit=read_control_marker(batch).commit)
        elif header.is_transactional:
            said = self._undecided.setdefault(header.producer_id, {})
            for record in decode_records(batch):
                said[record.key or NO_KEY] = record
        else:
            self._note(decode_records(batch))

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
        try:
            decoded = decode_record(key, record.value)
        except UnreadableCoordinatorRecord as error:
            logger.error("%s, offset %d is left out: %s", self._log.topic_partition, record.offset, error)
            return
        if decoded is not None:
            self._coordinator.replay(decoded, record.timestamp_ms, record.offset, producer_id)
