from __future__ import annotations

import contextlib
import errno
import struct
from dataclasses import replace

import pytest

from oncelog.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    KafkaStorageError,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
)
from oncelog.log.config import COMPACT, LogConfig
from oncelog.log.file_slice import EMPTY
from oncelog.log.leader_epochs import EpochEndOffset, EpochEntry
from oncelog.log.manifest import read_manifest
from oncelog.log.partition_log import HIGH_WATERMARK, Appended, PartitionLog
from oncelog.log.producer_state import AppendOrigin
from oncelog.log.segment import FoundTimestamp
from oncelog.log.transaction_index import AbortedTransaction
from oncelog.records import kernel
from oncelog.records.batch import ControlMarker
from oncelog.records.validation import ValidatedBatch
from oncelog.types import TimestampType
from tests.log.driver import DIRECTORY, PARTITION, START_MS, append, make_batch, read_records
from tests.support.faulty_storage import FaultyStorage, SimulatedCrash

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200, retention_ms=-1, file_delete_delay_ms=0)
COMMIT = ControlMarker(commit=True, coordinator_epoch=1)
ABORT = ControlMarker(commit=False, coordinator_epoch=1)


def open_log(storage: FaultyStorage | None = None, config: LogConfig = SMALL, **kwargs: int) -> PartitionLog:
    storage = FaultyStorage() if storage is None else storage
    return PartitionLog.open(storage, DIRECTORY, PARTITION, config, now_ms=START_MS, clean=False, **kwargs)


def fill(log: PartitionLog, count: int, *, values_per_batch: int = 1) -> None:
    for _ in range(count):
        end = log.log_end_offset
        values = [b"%d" % (end + index) for index in range(values_per_batch)]
        append(log, make_batch(values, timestamp_ms=START_MS + end))
    log.advance_high_watermark(log.log_end_offset)


def end_transaction(log: PartitionLog, producer_id: int, marker: ControlMarker) -> Appended:
    return log.append_marker(marker, producer_id=producer_id, producer_epoch=0, leader_epoch=0, now_ms=START_MS)


def append_transactional(log: PartitionLog, producer_id: int, sequence: int) -> Appended:
    return append(log, make_batch([b"t"], producer_id=producer_id, sequence=sequence, transactional=True))


# --- appending ---


def test_offsets_and_epoch_are_stamped_into_the_batch() -> None:
    log = open_log()
    first = append(log, make_batch([b"a", b"b"]), leader_epoch=4)
    second = append(log, make_batch([b"c"]), leader_epoch=5)
    assert first == Appended(0, -1, 0, False)
    assert second == Appended(2, -1, 0, False)
    assert [record.value for record in read_records(log)] == [b"a", b"b", b"c"]
    headers = kernel.scan(log.read(0, 9999, upper_bound=3).read_all(), 0, log.size_bytes, True)[0]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 4), (2, 5)]
    assert log.leader_epochs.entries == (EpochEntry(4, 0), EpochEntry(5, 2))


def test_a_repeated_batch_is_answered_with_where_it_is_and_not_written() -> None:
    log = open_log()
    for sequence in range(6):
        append(log, make_batch([b"%d" % sequence], producer_id=9, sequence=sequence, timestamp_ms=START_MS + sequence))
    size = log.size_bytes
    repeated = append(log, make_batch([b"3"], producer_id=9, sequence=3, timestamp_ms=START_MS + 3))
    assert repeated == Appended(3, START_MS + 3, 0, True)
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, make_batch([b"0"], producer_id=9, sequence=0))
    assert (log.size_bytes, log.log_end_offset) == (size, 6)


def test_a_refused_batch_leaves_no_trace() -> None:
    log = open_log()
    append(log, make_batch([b"a"], producer_id=9, sequence=0, epoch=2))
    before = (log.size_bytes, log.log_end_offset, next(iter(log.producers.entries())).epoch)
    with pytest.raises(InvalidProducerEpoch):
        append(log, make_batch([b"b"], producer_id=9, sequence=1, epoch=1))
    with pytest.raises(OutOfOrderSequenceNumber):
        append(log, make_batch([b"b"], producer_id=9, sequence=5, epoch=2))
    assert (log.size_bytes, log.log_end_offset, next(iter(log.producers.entries())).epoch) == before


def test_log_append_time_replaces_the_producers_clock() -> None:
    log = open_log(config=replace(SMALL, message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    appended = append(log, make_batch([b"a", b"b"], timestamp_ms=5), now_ms=START_MS + 77)
    assert appended.append_time_ms == START_MS + 77
    records = read_records(log)
    assert [record.timestamp_ms for record in records] == [START_MS + 77, START_MS + 77]
    assert log.max_timestamp() == FoundTimestamp(START_MS + 77, 0, 0)


def test_a_wrong_max_timestamp_of_a_producer_is_mended() -> None:
    log = open_log()
    batch = make_batch([b"a"], timestamp_ms=START_MS)
    struct.pack_into(">q", batch, 35, 17)
    validated = ValidatedBatch(kernel.parse_header(batch), START_MS, 0)
    log.append(batch, validated, leader_epoch=0, now_ms=START_MS)
    data = log.read(0, 999, upper_bound=1).read_all()
    assert kernel.parse_header(data).max_timestamp == START_MS
    assert kernel.crc_matches(data, 0, len(data))


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = open_log()
    with pytest.raises(RecordListTooLarge, match="a segment of orders-0 at most 1000"):
        append(log, make_batch([b"x" * 1000]))
    assert log.log_end_offset == 0


# --- failing disks ---


def operations_of_an_append(log: PartitionLog, storage: FaultyStorage) -> int:
    before = storage.operations
    append(log, make_batch([b"warm"]))
    return storage.operations - before


def test_a_failed_write_is_taken_back_and_the_next_one_succeeds() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    append(log, make_batch([b"first"], producer_id=9, sequence=0))
    assert operations_of_an_append(log, storage) == 1, "an append is a single write"
    size = log.size_bytes
    storage.fail_at(storage.operations, errno.ENOSPC, torn=True)
    with pytest.raises(KafkaStorageError, match="nothing was written"):
        append(log, make_batch([b"second"], producer_id=9, sequence=1))
    assert not log.offline
    assert (log.log_end_offset, log.size_bytes, len(storage.content(log.active_segment.path))) == (2, size, size)
    assert append(log, make_batch([b"second"], producer_id=9, sequence=1)) == Appended(2, -1, 0, False)
    assert [record.value for record in read_records(log)] == [b"first", b"warm", b"second"]


def test_if_even_the_truncation_fails_the_log_goes_offline() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    append(log, make_batch([b"first"]))
    storage.fail_at(storage.operations, errno.EIO, torn=True, sticky=True)
    with pytest.raises(KafkaStorageError, match="offline"):
        append(log, make_batch([b"second"]))
    storage.heal()
    assert log.offline
    for attempt in (
        lambda: append(log, make_batch([b"third"])),
        lambda: log.read(0, 100, upper_bound=1),
    ):
        with pytest.raises(KafkaStorageError, match="offline"):
            attempt()
    assert [record.value for record in read_records(open_log(storage))] == [b"first"]


def test_a_failed_sync_takes_the_log_offline() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    fill(log, 3)
    request = log.flush_request()
    assert request is not None
    storage.fail_at(storage.operations, errno.EIO)
    with pytest.raises(KafkaStorageError) as caught:
        request.run()
    log.flush_failed(caught.value)
    assert log.offline
    assert log.recovery_point == 0
    assert log.flush_request() is None


def test_a_flush_without_descriptors_is_done_later() -> None:
    """What was not tried has not failed."""
    storage = FaultyStorage()
    log = open_log(storage)
    fill(log, 3)
    request = log.flush_request()
    assert request is not None
    storage.fail_at(storage.operations + len(request.files), errno.EMFILE)
    with pytest.raises(KafkaStorageError) as caught:
        request.run()
    storage.heal()
    log.flush_failed(caught.value)
    assert not log.offline
    assert log.recovery_point == 0
    again = log.flush_request()
    assert again is not None
    again.run()
    log.flushed(again, START_MS)
    assert log.recovery_point == 3
    recovered = open_log(storage.after_power_loss(1))
    assert len(read_records(recovered)) == 3


def test_a_read_error_is_a_storage_error() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    fill(log, 3)
    storage.fail_at(storage.operations, errno.EIO, sticky=True)
    with pytest.raises(KafkaStorageError, match="cannot read"):
        log.read(0, 1000, upper_bound=3)
    storage.heal()
    found = log.read(0, 1000, upper_bound=3)
    storage.fail_at(storage.operations, errno.EIO)
    with pytest.raises(KafkaStorageError, match="cannot read"):
        found.read_all()


# --- rolling ---


def test_rolls_into_a_new_segment_with_a_snapshot() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    for sequence in range(60):
        append(log, make_batch([b"x" * 20], producer_id=9, sequence=sequence))
    bases = [segment.base_offset for segment in (*log.segments, log.active_segment)]
    assert len(bases) > 5
    assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments)
    assert [int(path[-29:-9]) for path in storage.paths(".snapshot")] == bases[1:]
    assert len(read_records(log)) == 60


def test_rolls_by_time_only_when_asked_or_appended_to() -> None:
    log = open_log(config=replace(SMALL, segment_ms=1000))
    assert not log.maybe_roll(START_MS + 10**9), "an empty segment stays"
    append(log, make_batch([b"a"]), now_ms=START_MS)
    assert not log.maybe_roll(START_MS + 1000)
    assert log.maybe_roll(START_MS + 1001)
    assert not log.maybe_roll(START_MS + 10**9)
    assert [segment.base_offset for segment in log.segments] == [0]


def test_jitter_spreads_partitions_but_not_runs() -> None:
    config = replace(SMALL, segment_ms=10_000, segment_jitter_ms=5_000)
    assert open_log(config=config)._jitter_ms == open_log(config=config)._jitter_ms
    other = PartitionLog.open(
        FaultyStorage(), "data/other-1", PARTITION._replace(partition=1), config, now_ms=START_MS, clean=False
    )
    assert other._jitter_ms != open_log(config=config)._jitter_ms
    assert 0 <= other._jitter_ms < 5_000


def test_a_failed_roll_refuses_the_append_and_is_tried_again() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    while log.active_segment.size_bytes < 800:
        append(log, make_batch([b"x"]))
    end = log.log_end_offset
    failures = 0
    for operation in range(20):
        storage.fail_at(storage.operations + operation, errno.ENOSPC)
        try:
            # The first one needs a new segment, the later ones would fit into the old: but its successor may exist.
            append(log, make_batch([b"x" * (200 if not failures else 1)]))
            break
        except KafkaStorageError:
            failures += 1
            assert log.log_end_offset == end
    storage.heal()
    assert failures > 8
    assert [segment.base_offset for segment in log.segments] == [0]
    assert (log.active_segment.base_offset, log.log_end_offset) == (end, end + 1)
    assert len(read_records(open_log(storage))) == end + 1


# --- reading ---


def test_reads_end_at_the_upper_bound_and_at_the_end_of_a_segment() -> None:
    log = open_log()
    fill(log, 50)
    first_end = log.active_segment.base_offset if not log.segments else log.segments[1].base_offset
    found = log.read(0, 10_000, upper_bound=50)
    assert found.size_bytes == log.segments[0].size_bytes
    assert found.offset_bound == first_end
    assert log.read(first_end - 1, 10_000, upper_bound=first_end - 1) is EMPTY
    bounded = log.read(2, 10_000, upper_bound=5)
    assert [header.base_offset for header in kernel.scan(bounded.read_all(), 0, bounded.size_bytes, True)[0]] == [
        2,
        3,
        4,
    ]
    assert bounded.offset_bound == 5
    assert log.read(50, 100, upper_bound=50) is EMPTY


@pytest.mark.parametrize("offset", [-1, 4, 51, 10**12])
def test_an_offset_outside_the_log_is_refused(offset: int) -> None:
    log = open_log()
    fill(log, 50)
    log.delete_records(5)
    with pytest.raises(OffsetOutOfRange, match=r"not within \[5, 50\]"):
        log.read(offset, 100, upper_bound=50)


def test_an_outstanding_read_survives_the_deletion_of_its_segment() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    fill(log, 50)
    found = log.read(0, 10_000, upper_bound=50)
    log.delete_records(HIGH_WATERMARK)
    assert log.apply_retention(START_MS)
    for removal in log.take_removals(START_MS):
        removal.run()
    assert not storage.exists(f"{DIRECTORY}/00000000000000000000.log")
    assert kernel.scan(found.read_all(), 0, found.size_bytes, True)[1] == found.size_bytes


def test_timestamps_across_segments() -> None:
    log = open_log()
    fill(log, 60)  # record n has timestamp START_MS + n
    assert len(log.segments) > 2
    for number in (0, 1, 29, 59):
        assert log.find_offset_by_timestamp(START_MS + number) == FoundTimestamp(START_MS + number, number, 0)
    assert log.find_offset_by_timestamp(0) == FoundTimestamp(START_MS, 0, 0)
    assert log.find_offset_by_timestamp(START_MS + 60) is None
    assert log.max_timestamp() == FoundTimestamp(START_MS + 59, 59, 0)
    log.delete_records(30)
    assert log.find_offset_by_timestamp(0) == FoundTimestamp(START_MS + 30, 30, 0)
    assert open_log().max_timestamp() is None


def test_epoch_end_offsets() -> None:
    log = open_log()
    for epoch in (1, 1, 4, 4, 6):
        append(log, make_batch([b"x"]), leader_epoch=epoch)
    assert log.end_offset_for_epoch(1) == EpochEndOffset(1, 2)
    assert log.end_offset_for_epoch(3) == EpochEndOffset(1, 2)
    assert log.end_offset_for_epoch(6) == EpochEndOffset(6, 5)
    assert log.end_offset_for_epoch(7) == EpochEndOffset(-1, -1)


# --- transactions ---


def test_the_last_stable_offset_waits_for_open_transactions_and_replicated_markers() -> None:
    log = open_log()
    fill(log, 2)
    append_transactional(log, 9, 0)
    append_transactional(log, 8, 0)
    log.advance_high_watermark(log.log_end_offset)
    assert (log.high_watermark, log.last_stable_offset) == (4, 2)
    end_transaction(log, 9, COMMIT)
    assert log.last_stable_offset == 2, "the marker is not below the high watermark yet"
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 3
    end_transaction(log, 8, ABORT)
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.high_watermark == 6


def test_the_last_stable_offset_does_not_wait_for_what_was_deleted() -> None:
    log = open_log()
    append_transactional(log, 9, 0)
    fill(log, 2)
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 0
    log.delete_records(2)
    assert (log.log_start_offset, log.last_stable_offset) == (2, 2)


def test_aborted_transactions_of_several_segments() -> None:
    log = open_log()
    expected = []
    for number in range(12):
        first = append_transactional(log, 9, number).base_offset
        fill(log, 3)
        last = end_transaction(log, 9, ABORT if number % 2 else COMMIT).base_offset
        log.advance_high_watermark(log.log_end_offset)
        if number % 2:
            expected.append(AbortedTransaction(9, first, last, last + 1))
    assert len(log.segments) > 2
    end = log.log_end_offset
    assert log.aborted_transactions(0, end) == expected
    for start in range(0, end, 3):
        touching = [each for each in expected if each.last_offset >= start and each.first_offset < start + 20]
        found = log.aborted_transactions(start, start + 20)
        assert [each for each in found if each.first_offset < start + 20] == touching


@pytest.mark.parametrize("then", ["flush", "roll", "close", "crash"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_a_marker_whose_index_entry_cannot_be_written_yet(error: int, then: str) -> None:
    """Readers leave its transaction out at once, and the file has it before anybody relies on it."""
    storage = FaultyStorage()
    log = open_log(storage)
    append_transactional(log, 9, 0)
    storage.fail_at(storage.operations + 2, error)
    end_transaction(log, 9, ABORT)
    storage.heal()
    expected = [AbortedTransaction(9, 0, 1, 2)]
    (index,) = storage.paths(".txnindex")
    assert storage.read_all(index) == b""
    assert not log.offline
    assert log.aborted_transactions(0, 9) == expected
    if then == "flush":
        assert log.flush_request() is not None
    elif then == "roll":
        log.roll(START_MS)
    elif then == "close":
        log.close(clean=True, now_ms=START_MS)
    assert bool(storage.read_all(index)) == (then != "crash")
    assert open_log(storage.after_kill()).aborted_transactions(0, 9) == expected


def test_coordinator_batches_are_judged_by_epoch_only() -> None:
    log = open_log()
    batch = make_batch([b"offset commit"], producer_id=9, sequence=-1, transactional=True)
    for _ in range(2):
        again = bytearray(batch)
        log.append(
            again,
            kernel.parse_header(again),
            leader_epoch=0,
            now_ms=START_MS,
            origin=AppendOrigin.COORDINATOR,
        )
    assert log.log_end_offset == 2


# --- forgetting ---


def test_delete_records_moves_the_start_and_never_beyond_the_high_watermark() -> None:
    log = open_log()
    fill(log, 10)
    append(log, make_batch([b"not yet visible"]))
    assert log.delete_records(4) == 4
    assert log.delete_records(2) == 4, "never back"
    for offset in (11, 99, -2):
        with pytest.raises(OffsetOutOfRange):
            log.delete_records(offset)
    assert log.delete_records(HIGH_WATERMARK) == 10
    assert log.leader_epochs.entries == (EpochEntry(0, 10),)


def test_retention_by_size_keeps_at_least_that_much() -> None:
    log = open_log()
    fill(log, 60)
    log.update_config(replace(SMALL, retention_bytes=2500))
    sizes = [segment.size_bytes for segment in (*log.segments, log.active_segment)]
    deleted = log.apply_retention(START_MS)
    assert deleted
    assert log.size_bytes >= 2500
    assert log.size_bytes - sizes[len(deleted)] < 2500
    assert log.log_start_offset == log.segments[0].base_offset
    assert log.apply_retention(START_MS) == []


def test_retention_by_time_counts_from_the_newest_record_of_a_segment() -> None:
    log = open_log(config=replace(SMALL, retention_ms=1000))
    fill(log, 60)
    newest = log.segments[0].largest_timestamp()
    assert log.apply_retention(newest + 1000) == []
    assert [segment.base_offset for segment in log.apply_retention(newest + 1001)] == [0]


def test_when_everything_is_too_old_an_empty_segment_remains() -> None:
    storage = FaultyStorage()
    log = open_log(storage, replace(SMALL, retention_ms=1000))
    fill(log, 60)
    log.apply_retention(START_MS + 10**6)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (60, 60, 0)
    assert log.apply_retention(START_MS + 10**9) == []
    assert open_log(storage).log_end_offset == 60, "offsets never start over"


def test_retention_stops_at_the_high_watermark() -> None:
    log = open_log(config=replace(SMALL, retention_ms=1000, retention_bytes=0))
    fill(log, 30)
    for _ in range(30):
        append(log, make_batch([b"x"]))
    log.apply_retention(START_MS + 10**6)
    assert 15 < log.log_start_offset <= 30


def test_compaction_alone_deletes_only_what_delete_records_allows() -> None:
    log = open_log(config=replace(SMALL, retention_ms=1, retention_bytes=1, cleanup_policy=frozenset({COMPACT})))
    fill(log, 60)
    assert log.apply_retention(START_MS + 10**6) == []
    log.delete_records(30)
    assert log.apply_retention(START_MS + 10**6)
    assert log.segments[0].base_offset <= 30


def test_deleted_files_wait_for_their_delay_and_lose_their_names_at_once() -> None:
    storage = FaultyStorage()
    log = open_log(storage, replace(SMALL, retention_bytes=0, file_delete_delay_ms=60_000))
    fill(log, 60)
    log.apply_retention(START_MS)
    assert storage.paths(".log") == [log.active_segment.path]
    assert log.take_removals(START_MS + 59_999) == []
    removals = log.take_removals(START_MS + 60_000)
    assert sorted(path for removal in removals for path in removal.paths) == storage.paths(".deleted")
    for removal in removals:
        removal.run()
    assert storage.paths(".deleted") == []
    assert log.take_removals(START_MS + 10**9) == []
    assert [path for path in storage.paths(".snapshot") if int(path[-29:-9]) < log.active_segment.base_offset] == []


@pytest.mark.parametrize("offset", [0, 1, 17, 44, 59, 60, 99])
def test_truncation_forgets_records_producers_and_epochs(offset: int) -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    for sequence in range(60):
        append(log, make_batch([b"%d" % sequence], producer_id=9, sequence=sequence), leader_epoch=sequence // 20)
    log.advance_high_watermark(60)
    log.truncate_to(offset, START_MS)
    end = min(offset, 60)
    assert (log.log_end_offset, log.high_watermark) == (end, end)
    assert [record.value for record in read_records(log)] == [b"%d" % number for number in range(end)]
    assert log.leader_epochs.latest_epoch == ((end - 1) // 20 if end else -1)
    appended = append(log, make_batch([b"again"], producer_id=9, sequence=end), leader_epoch=7)
    assert appended == Appended(end, -1, 0, False)
    assert len(read_records(open_log(storage))) == end + 1


# --- durability ---


def test_a_flush_makes_the_log_durable_and_moves_the_recovery_point() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    fill(log, 60)
    request = log.flush_request()
    assert request is not None
    append(log, make_batch([b"later"]))
    request.run()
    log.flushed(request, START_MS)
    assert log.recovery_point == 60
    for seed in range(10):
        after = open_log(storage.after_power_loss(seed), recovery_point=60)
        assert after.log_end_offset >= 60
    second = log.flush_request()
    assert second is not None
    manifest = f"{DIRECTORY}/oncelog-manifest"
    paths = [log.active_segment.path, manifest]
    assert [repr(file) for file in second.files] == [f"FaultyFile('{path}')" for path in paths], "only what is new"
    second.run()
    log.flushed(second, START_MS)
    assert log.flush_request() is None


def test_flush_messages_and_flush_ms() -> None:
    log = open_log(config=replace(SMALL, flush_messages=3, flush_ms=1000))
    fill(log, 2)
    assert log.flush_due(START_MS + 999) is None
    by_time = log.flush_due(START_MS + 1000)
    assert by_time is not None
    fill(log, 1)
    by_count = log.flush_due(START_MS)
    assert by_count is not None
    assert (by_time.offset, by_count.offset) == (2, 3)
    log.flushed(by_count, START_MS + 5000)
    assert log.flush_due(START_MS + 10**6) is None, "nothing new"
    fill(log, 1)
    assert log.flush_due(START_MS + 5999) is None
    assert log.flush_due(START_MS + 6000) is not None


def test_a_sealed_segment_asks_for_its_flush_by_itself() -> None:
    log = open_log()
    fill(log, 5)
    assert log.flush_due(START_MS + 10**9) is None
    fill(log, 30)
    request = log.flush_due(START_MS)
    assert request is not None
    assert request.offset == log.active_segment.base_offset
    log.flushed(request, START_MS)
    assert log.recovery_point == log.active_segment.base_offset
    assert log.flush_due(START_MS + 10**9) is None


def test_a_clean_close_needs_no_scan() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    for sequence in range(60):
        append(log, make_batch([b"%d" % sequence], producer_id=9, sequence=sequence))
    log.close(clean=True, now_ms=START_MS)
    for seed in (None, 1, 2):
        left = storage.after_kill() if seed is None else storage.after_power_loss(seed)
        again = PartitionLog.open(left, DIRECTORY, PARTITION, SMALL, now_ms=START_MS, clean=True)
        assert again.recovery.scanned_bytes == 0
        assert again.recovery.snapshot_offset == again.log_end_offset == again.recovery_point == 60
        assert append(again, make_batch([b"57"], producer_id=9, sequence=57)).duplicate
        assert len(read_records(again)) == 60


def test_closing_an_untouched_log_costs_nothing() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    fill(log, 3)
    log.close(clean=True, now_ms=START_MS)
    again = PartitionLog.open(storage, DIRECTORY, PARTITION, SMALL, now_ms=START_MS, clean=True)
    operations = storage.operations
    again.close(clean=True, now_ms=START_MS)
    assert storage.operations == operations


def test_delete_removes_the_directory() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    fill(log, 30)
    log.delete()
    assert storage.paths("") == []


def test_damage_in_the_middle_of_the_log_is_reported_to_the_reader() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    fill(log, 8)
    storage.content(log.active_segment.path)[16] = 1
    with pytest.raises(CorruptMessage):
        log.read(0, 1000, upper_bound=8)


def test_a_flush_asked_for_before_a_truncation_says_nothing_about_what_came_after() -> None:
    log = open_log()
    fill(log, 10)
    request = log.flush_request()
    assert request is not None
    log.truncate_to(4, START_MS)
    fill(log, 10)
    request.run()
    log.flushed(request, START_MS)
    assert log.recovery_point == 0


def test_nothing_is_acknowledged_by_an_offline_log_not_even_a_repeat() -> None:
    log = open_log()
    append(log, make_batch([b"a"], producer_id=9, sequence=0))
    log.flush_failed(OSError("gone"))
    with pytest.raises(KafkaStorageError):
        append(log, make_batch([b"a"], producer_id=9, sequence=0))
    with pytest.raises(KafkaStorageError):
        end_transaction(log, 9, COMMIT)


# --- accidents at a clean stop ---


def emptied_log(storage: FaultyStorage) -> PartitionLog:
    """A log whose producers only its last snapshot knows, closed cleanly and open again."""
    config = replace(SMALL, retention_ms=0)
    log = open_log(storage, config)
    append(log, make_batch([b"a"], producer_id=7, sequence=0))
    log.advance_high_watermark(log.log_end_offset)
    assert log.apply_retention(START_MS + 10_000)
    for removal in log.take_removals(START_MS + 10_000):
        removal.run()
    log.close(clean=True, now_ms=START_MS + 10_000)
    again = PartitionLog.open(storage, DIRECTORY, PARTITION, config, now_ms=START_MS + 20_000, clean=True)
    again.expire_producers(START_MS + 30_000)  # so that a clean close writes the snapshot anew
    return again


@pytest.mark.parametrize("accident", ["kill", "power loss"])
def test_a_clean_stop_that_is_cut_short_forgets_no_producer(accident: str) -> None:
    operation = 0
    while True:
        storage = FaultyStorage()
        log = emptied_log(storage)
        storage.crash_at(storage.operations + operation)
        with contextlib.suppress(SimulatedCrash):
            log.close(clean=True, now_ms=START_MS + 40_000)
            break
        for seed in range(1 if accident == "kill" else 10):
            found = open_log(storage.after_kill() if accident == "kill" else storage.after_power_loss(seed))
            repeated = append(found, make_batch([b"a"], producer_id=7, sequence=0))
            assert repeated.duplicate, (storage.log[-1], seed)
        operation += 1
    assert operation > 5


def test_only_what_is_on_the_disk_is_called_closed() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    fill(log, 3)
    before = storage.operations
    log.close(clean=True, now_ms=START_MS)
    syncs = [number for number, line in enumerate(storage.log) if number >= before and " sync" in line]
    for operation in range(syncs[0], syncs[-1] + 1):
        storage = FaultyStorage()
        log = open_log(storage)
        fill(log, 3)
        storage.fail_at(operation)
        with contextlib.suppress(KafkaStorageError):
            log.close(clean=True, now_ms=START_MS)
        manifest = read_manifest(storage.after_kill(), DIRECTORY)
        assert manifest is not None
        if operation in syncs:
            assert log.offline, "what a failed sync left on the disk is anyone's guess"
        assert not manifest.is_closed or log.recovery_point == log.log_end_offset


def test_the_epochs_of_an_emptied_log_are_no_finding() -> None:
    storage = FaultyStorage()
    log = emptied_log(storage)
    append(log, make_batch([b"b"]))
    log.advance_high_watermark(log.log_end_offset)
    log.delete_records(HIGH_WATERMARK)
    for _ in range(3):
        log.close(clean=True, now_ms=START_MS + 40_000)
        log = PartitionLog.open(storage, DIRECTORY, PARTITION, SMALL, now_ms=START_MS + 40_000, clean=True)
        assert log.recovery.mended == ()


def test_a_kill_while_records_are_deleted_is_no_damage_to_the_epochs() -> None:
    operation = 0
    while True:
        storage = FaultyStorage()
        log = open_log(storage)
        fill(log, 4)
        storage.crash_at(storage.operations + operation)
        with contextlib.suppress(SimulatedCrash):
            log.delete_records(2)
            break
        found = open_log(storage.after_kill())
        assert found.recovery.mended == (), storage.log[-1]
        assert found.leader_epochs.entries == (EpochEntry(0, found.log_start_offset),)
        operation += 1
    assert operation > 5
