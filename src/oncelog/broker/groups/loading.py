"""A partition of `__consumer_offsets` becomes the state of its coordinator: read in bounded steps.

Within a step only the newest record of a key is replayed. That is what compaction would have left, so a coordinator
must cope with it anyway, and a log of commits of the same few offsets loads many times faster.

Offsets that a transaction committed (Kafka may have written them) count once their transaction is committed.
"""

from __future__ import annotations

import logging

from oncelog.broker.coordinated.reading import LogReading
from oncelog.coordinator.group_coordinator import GroupCoordinator
from oncelog.coordinator.records import UnreadableCoordinatorRecord, decode_record
from oncelog.log.partition_log import PartitionLog
from oncelog.records.batch import BatchHeader, decode_records, read_control_marker
from oncelog.records.model import Record

logger = logging.getLogger(__name__)


class Loading:
    def __init__(self, log: PartitionLog, coordinator: GroupCoordinator) -> None:
        self._log = log
        self._coordinator = coordinator
        self._reading = LogReading(log)
        self._undecided: dict[int, list[Record]] = {}
        self._newest: dict[bytes, Record] = {}

    @property
    def is_short(self) -> bool:
        """Whether all of it is one step."""
        return self._reading.is_short

    def step(self) -> bool:
        """Whether there is more. Raises CorruptMessage or KafkaStorageError."""
        for header, batch in self._reading.read():
            self._take(header, batch)
        self._replay()
        return not self._reading.is_over

    def _take(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            records = self._undecided.pop(header.producer_id, [])
            if read_control_marker(batch).commit:
                self._note(records)
        elif header.is_transactional:
            self._undecided.setdefault(header.producer_id, []).extend(decode_records(batch))
        else:
            self._note(decode_records(batch))

    def _note(self, records: list[Record]) -> None:
        for record in records:
            key = record.key
            if key is None:
                logger.warning("%s, offset %d: a record without a key", self._log.topic_partition, record.offset)
                continue
            self._newest.pop(key, None)  # so that its place is that of its newest record
            self._newest[key] = record

    def _replay(self) -> None:
        newest, self._newest = self._newest, {}
        for key, record in newest.items():
            try:
                decoded = decode_record(key, record.value)
            except UnreadableCoordinatorRecord as error:
                logger.error("%s, offset %d is left out: %s", self._log.topic_partition, record.offset, error)
                continue
            if decoded is not None:
                self._coordinator.replay(decoded, record.timestamp_ms)
