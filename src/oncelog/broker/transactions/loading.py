"""A partition of `__transaction_state` becomes the state of its coordinator: read in bounded steps.

Of what is read at once only the newest record of an id is decoded: that is what compaction would have left. A record
that cannot be read ends the loading, and with it the partition: what became of a transaction must never be guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from oncelog.broker.coordinated import reading
from oncelog.broker.coordinated.reading import LogReading
from oncelog.coordinator.transactions.records import decode_record
from oncelog.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from oncelog.errors import CorruptMessage
from oncelog.log.partition_log import PartitionLog
from oncelog.records.batch import decode_records


class Loading:
    def __init__(self, log: PartitionLog, coordinator: TransactionCoordinator) -> None:
        self._log = log
        self._coordinator = coordinator
        self._reading = LogReading(log)
        self._unplayed: Iterator[tuple[bytes, bytes | None]] = iter(())

    def step(self) -> bool:
        """Whether there is more. Raises CorruptMessage, UnreadableTransactionRecord or KafkaStorageError."""
        played = 0
        for key, value in islice(self._unplayed, reading.STEP_RECORDS):
            decoded = decode_record(key, value)
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
        newest: dict[bytes, bytes | None] = {}
        for header, batch in self._reading.read():
            if header.is_control:
                continue
            for record in decode_records(batch):
                if record.key is None:
                    raise CorruptMessage(f"{self._log.topic_partition}, offset {record.offset}: a record without a key")
                newest[record.key] = record.value
        self._unplayed = iter(newest.items())
