"""What the tests of compaction share: a compacted log in memory, and how readers and the cleaner walk it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oncelog.log import cleaner
from oncelog.log.config import COMPACT, LogConfig
from oncelog.log.partition_log import PartitionLog
from oncelog.log.storage import Storage
from oncelog.records import kernel
from oncelog.records.batch import BatchHeader, ControlMarker, Record, build_batch, decode_records, read_control_marker
from oncelog.types import TopicPartition

DIRECTORY = "data/accounts-0"
PARTITION = TopicPartition("accounts", 0)
START_MS = 1_700_000_000_000
DELETE_RETENTION_MS = 1_000
COMPACTED = LogConfig(
    segment_bytes=2_000,
    index_interval_bytes=200,
    cleanup_policy=frozenset({COMPACT}),
    delete_retention_ms=DELETE_RETENTION_MS,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)

KeyValue = tuple[bytes | None, bytes | None]


class Batch(NamedTuple):
    header: BatchHeader
    data: bytes


def open_log(
    storage: Storage, config: LogConfig = COMPACTED, *, now_ms: int = START_MS, recovery_point: int = 0
) -> PartitionLog:
    log = PartitionLog.open(
        storage, DIRECTORY, PARTITION, config, now_ms=now_ms, clean=False, recovery_point=recovery_point
    )
    log.advance_high_watermark(log.log_end_offset)
    return log


def append(
    log: PartitionLog,
    *records: KeyValue,
    now_ms: int = START_MS,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
    codec: int = 0,
) -> int:
    """Append one batch; its base offset."""
    batch = build_batch(
        [(now_ms + i, key, value, (("header", b"kept"),)) for i, (key, value) in enumerate(records)],
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
        codec=codec,
    )
    appended = log.append(batch, kernel.parse_header(batch), leader_epoch=0, now_ms=now_ms)
    log.advance_high_watermark(log.log_end_offset)
    return appended.base_offset


def end_transaction(
    log: PartitionLog, producer_id: int, *, commit: bool, epoch: int = 0, now_ms: int = START_MS
) -> int:
    marker = ControlMarker(commit, 0)
    appended = log.append_marker(marker, producer_id=producer_id, producer_epoch=epoch, leader_epoch=0, now_ms=now_ms)
    log.advance_high_watermark(log.log_end_offset)
    return appended.base_offset


def clean(
    log: PartitionLog,
    storage: Storage,
    *,
    now_ms: int = START_MS,
    cleaned_below: int | None = None,
    max_keys: int = 1_000,
) -> int:
    """One round, if there is anything to clean, as the broker would run it; where the next one begins."""
    dirtiness = cleaner.measure(log, cleaned_below, now_ms)
    if not dirtiness.sources:
        return dirtiness.first_dirty_offset
    cleaning = cleaner.plan(log, storage, DIRECTORY, dirtiness, now_ms=now_ms, max_keys=max_keys)
    while (group := cleaning.clean_next()) is not None:
        log.replace_segments(group.old, [group.new], now_ms)
        for removal in log.take_removals(now_ms):
            removal.run()
    return cleaning.cleaned_below


def read_batches(log: PartitionLog) -> Iterator[Batch]:
    """Every batch as a fetch returns it."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 700, upper_bound=log.log_end_offset).read_all()
        headers, good_bytes = kernel.scan(data, 0, len(data), True)
        assert good_bytes == len(data)
        if not headers:
            return
        position = 0
        for header in headers:
            yield Batch(header, data[position : position + header.size_bytes])
            position += header.size_bytes
        offset = headers[-1].next_offset


def read_records(log: PartitionLog) -> list[Record]:
    """Every record that is physically there, markers left out."""
    return [
        record for batch in read_batches(log) if not batch.header.is_control for record in decode_records(batch.data)
    ]


def read_committed(log: PartitionLog) -> list[Record]:
    """What a `read_committed` consumer makes of the log: it skips data of producers whose aborted transaction has
    begun, until that producer's abort marker comes by."""
    ahead = sorted(
        log.aborted_transactions(log.log_start_offset, log.log_end_offset), key=lambda aborted: aborted.first_offset
    )
    aborting: set[int] = set()
    records: list[Record] = []
    for header, data in read_batches(log):
        if header.base_offset >= log.last_stable_offset:
            break
        while ahead and ahead[0].first_offset <= header.last_offset:
            aborting.add(ahead.pop(0).producer_id)
        if header.is_control:
            if header.record_count and not read_control_marker(data).commit:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            records += decode_records(data)
    return records


def key_values(records: list[Record]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records]
