"""Drives a PartitionLog through a script and keeps the books: what was acknowledged, what was flushed, what was asked
to go. After any accident it opens the log again, checks the invariants, and repeats the step that did not finish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from oncelog.errors import KafkaStorageError
from oncelog.log.config import LogConfig
from oncelog.log.partition_log import Appended, PartitionLog
from oncelog.records import kernel
from oncelog.records.batch import ControlMarker, Record, build_batch, decode_records
from oncelog.types import TopicPartition
from tests.support.faulty_storage import FaultyStorage, SimulatedCrash

DIRECTORY = "data/orders-0"
PARTITION = TopicPartition("orders", 0)
START_MS = 1_700_000_000_000
SMALL = LogConfig(
    segment_bytes=1000, index_interval_bytes=200, retention_ms=-1, retention_bytes=-1, file_delete_delay_ms=0
)
PRODUCER_ID = 7
MAX_ATTEMPTS = 4


def make_batch(
    values: list[bytes],
    *,
    sequence: int = -1,
    producer_id: int = -1,
    epoch: int = 0,
    timestamp_ms: int = START_MS,
    transactional: bool = False,
) -> bytearray:
    return build_batch(
        [(timestamp_ms + index, b"key", value, ()) for index, value in enumerate(values)],
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
    )


def append(log: PartitionLog, batch: bytearray, now_ms: int = START_MS, leader_epoch: int = 0) -> Appended:
    return log.append(batch, kernel.parse_header(batch), leader_epoch=leader_epoch, now_ms=now_ms)


def read_records(log: PartitionLog, max_bytes: int = 500) -> list[Record]:
    """Everything between the start and the end of the log, as consumers would fetch it. Every CRC is checked."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes, upper_bound=log.log_end_offset).read_all()
        headers, good_bytes = kernel.scan(data, 0, len(data), True)
        if not headers:
            break
        assert good_bytes == len(data), "a read returns whole batches"
        position = 0
        for header in headers:
            records += decode_records(data[position : position + header.size_bytes])
            position += header.size_bytes
        offset = headers[-1].next_offset
    return [record for record in records if record.offset >= log.log_start_offset]


class Sent(NamedTuple):
    sequence: int
    values: list[bytes]
    base_offset: int


class Driver:
    def __init__(self, storage: FaultyStorage, config: LogConfig = SMALL) -> None:
        self.storage = storage
        self.config = config
        self.now_ms = START_MS
        self.acknowledged: list[Sent] = []
        self.markers: list[int] = []
        self.recovery_point = 0
        self.clean = False
        self.log = self._open()

    def _open(self) -> PartitionLog:
        log = PartitionLog.open(
            self.storage,
            DIRECTORY,
            PARTITION,
            self.config,
            now_ms=self.now_ms,
            clean=self.clean,
            recovery_point=self.recovery_point,
        )
        self.clean = False
        log.advance_high_watermark(log.log_end_offset)
        return log

    # --- steps ---

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            sequence = self._next_sequence
            values = [b"%d" % (sequence + index) + b"." * 40 for index in range(1 + sequence % 3)]
            batch = make_batch(values, sequence=sequence, producer_id=PRODUCER_ID, timestamp_ms=self.now_ms)
            appended = append(self.log, batch, self.now_ms)
            self.acknowledged.append(Sent(sequence, values, appended.base_offset))
            self.now_ms += 10
            self.log.advance_high_watermark(self.log.log_end_offset)

    @property
    def _next_sequence(self) -> int:
        return self.acknowledged[-1].sequence + len(self.acknowledged[-1].values) if self.acknowledged else 0

    def marker(self) -> None:
        marker = ControlMarker(commit=True, coordinator_epoch=1)
        appended = self.log.append_marker(marker, producer_id=99, producer_epoch=0, leader_epoch=0, now_ms=self.now_ms)
        self.markers.append(appended.base_offset)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def flush(self) -> None:
        request = self.log.flush_request()
        if request is not None:
            try:
                request.run()
            except KafkaStorageError as error:
                self.log.flush_failed(error)
                raise
            self.log.flushed(request, self.now_ms)
        self.recovery_point = self.log.recovery_point

    def delete_records(self) -> None:
        self.log.delete_records((self.log.log_start_offset + self.log.high_watermark) // 2)

    def retention(self) -> None:
        self.log.apply_retention(self.now_ms)
        for removal in self.log.take_removals(self.now_ms):
            removal.run()

    def retention_by_size(self) -> None:
        self.log.update_config(replace(self.config, retention_bytes=2500))
        self.retention()
        self.log.update_config(self.config)

    def reopen_cleanly(self) -> None:
        self.log.close(clean=True, now_ms=self.now_ms)
        self.recovery_point = self.log.recovery_point
        self.clean = True
        self.log = self._open()

    # --- accidents ---

    def run(self, script: list[Callable[[Driver], None]], seed: int | None = None) -> None:
        """Run every step to its end. With a seed, a crash takes the power with it."""
        for step in script:
            for attempt in range(MAX_ATTEMPTS):
                try:
                    step(self)
                    break
                except KafkaStorageError:
                    assert attempt < MAX_ATTEMPTS - 1, f"{step} keeps failing:\n" + "\n".join(self.storage.log[-9:])
                    if self.log.offline:
                        self._reopen_after_accident()
                    elif attempt:
                        self.storage.heal()  # a disk that is full for a while
                except SimulatedCrash:
                    self._crash(seed)
        self.storage.heal()
        self.check()

    def _crash(self, seed: int | None) -> None:
        if seed is None:
            self.storage = self.storage.after_kill()
        else:
            self.storage = self.storage.after_power_loss(seed)
        self._reopen_after_accident()
        if seed is not None:
            self._forget_what_was_never_durable()
        self.check()

    def _reopen_after_accident(self) -> None:
        self.storage.heal()
        self.clean = False
        self.log = self._open()

    def _forget_what_was_never_durable(self) -> None:
        end = self.log.log_end_offset
        assert end >= self.recovery_point, "what was flushed is there"
        self.acknowledged = [sent for sent in self.acknowledged if sent.base_offset + len(sent.values) <= end]
        self.markers = [offset for offset in self.markers if offset < end]

    # --- invariants ---

    def check(self) -> None:
        records = read_records(self.log)
        offsets = [record.offset for record in records]
        assert offsets == list(range(self.log.log_start_offset, self.log.log_end_offset)), "offsets are contiguous"
        self._no_acknowledged_record_is_lost(records)
        self._nothing_is_stored_twice(records)

    def _no_acknowledged_record_is_lost(self, records: list[Record]) -> None:
        stored = {record.offset: record.value for record in records}
        for sent in self.acknowledged:
            for index, value in enumerate(sent.values):
                offset = sent.base_offset + index
                if offset >= self.log.log_start_offset:
                    assert stored.get(offset) == value, f"offset {offset} holds what was acknowledged there"

    def _nothing_is_stored_twice(self, records: list[Record]) -> None:
        numbers = [int(record.value.partition(b".")[0]) for record in records if record.value and b"." in record.value]
        assert numbers == sorted(set(numbers)), "in order, and none twice"
