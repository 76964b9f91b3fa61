"""A partition of `__transaction_state` becomes the state of its coordinator: read in bounded steps.

Of what is read at once only the newest record of an id is decoded: that is what compaction would have left. A record
that cannot be read ends the loading, and with it the partition: what became of a transaction must never be guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from oncelog.broker.coordinated import reading
from oncelog.broker.coordinated.reading import LogReading, UnreadableRecord, records_of
from oncelog.coordinator.transactions.records import TransactionRecord, UnreadableTransactionRecord, decode_record
from oncelog.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from oncelog.log.partition_log import PartitionLog
from oncelog.records.batch import BatchHeader
from oncelog.records.model import Record


def check_batch(header: BatchHeader, batch: memoryview) -> None:
    """Whether it could be loaded, whatever came before it. Raises UnreadableRecord."""
    for record in _records(header, batch):
        _decoded(record.key or b"", record)


def _records(header: BatchHeader, batch: memoryview) -> list[Record]:
    return [] if header.is_control else records_of(header, batch)


def _decoded(key: bytes, record: Record) -> TransactionRecord | None:
    try:
        return decode_record(key, record.value)
    except UnreadableTransactionRecord as error:
        raise UnreadableRecord(record.offset, error) from error


class Loading:
    def __init__(self, log: PartitionLog, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator
        self._reading = LogReading(log)
        self._unplayed: Iterator[tuple[bytes, Record]] = iter(())

    def step(self) -> bool:
        """Whether there is more. Raises CorruptMessage or KafkaStorageError."""
        played = 0
        for key, record in islice(self._unplayed, reading.STEP_RECORDS):
            decoded = _decoded(key, record)
            if decoded is not None:
                self._coordinator.replay(decoded)
            played += 1
        if played:
            return True
        if self._reading.is_over:
            return False
        self._read()
        return True

    def _read(self) -> None:
        newest: dict[bytes, Record] = {}
        for header, batch in self._reading.read():
            for record in _records(header, batch):
                newest[record.key or b""] = record
        self._unplayed = iter(newest.items())
