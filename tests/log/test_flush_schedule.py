"""When a sync is due, and that its end moves the recovery point."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from oncelog.errors import KafkaStorageError
from oncelog.log.flush_schedule import MAX_FLUSHES_AT_ONCE, FlushSchedule, LogFlush
from oncelog.log.partition_log import PartitionLog
from tests.log.compacting import COMPACTED, START_MS, append, open_log
from tests.support.faulty_storage import FaultyStorage

CONFIG = replace(COMPACTED, segment_bytes=100_000)
MAX_BYTES = 1_000
MAX_MS = 500


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage()


@pytest.fixture
def log(storage: FaultyStorage) -> PartitionLog:
    return open_log(storage, CONFIG)


@pytest.fixture
def schedule() -> FlushSchedule:
    return FlushSchedule(MAX_BYTES, MAX_MS)


def run(schedule: FlushSchedule, flushes: list[LogFlush], now_ms: int = START_MS) -> None:
    for flush in flushes:
        flush.run()
        schedule.ended(flush, now_ms)


def test_nothing_is_due_for_an_empty_or_little_changed_log(log: PartitionLog, schedule: FlushSchedule) -> None:
    assert schedule.due([log], START_MS) == []
    append(log, (b"a", b"1"))
    assert schedule.due([log], START_MS) == []
    assert log.recovery_point == 0


def test_a_flush_is_due_after_so_many_bytes_and_then_counts_anew(log: PartitionLog, schedule: FlushSchedule) -> None:
    for _ in range(3):
        append(log, (b"a", b"x" * 600))
        append(log, (b"a", b"x" * 600))
        flushes = schedule.due([log], START_MS)
        assert len(flushes) == 1
        run(schedule, flushes)
        assert log.recovery_point == log.log_end_offset
        assert schedule.unflushed_bytes(log) == 0


def test_a_flush_is_due_after_a_while(log: PartitionLog, schedule: FlushSchedule) -> None:
    append(log, (b"a", b"1"))
    assert schedule.due([log], START_MS) == []
    assert schedule.due([log], START_MS + MAX_MS - 1) == []
    run(schedule, schedule.due([log], START_MS + MAX_MS))
    assert log.recovery_point == 1
    append(log, (b"a", b"2"))
    assert schedule.due([log], START_MS + 2 * MAX_MS) == []


def test_a_start_that_was_moved_is_flushed_though_all_records_are(log: PartitionLog, schedule: FlushSchedule) -> None:
    append(log, (b"a", b"1"), (b"b", b"1"))
    run(schedule, schedule.due([log], START_MS))
    run(schedule, schedule.due([log], START_MS + MAX_MS))
    assert log.recovery_point == log.log_end_offset
    log.delete_records(1)
    assert schedule.due([log], START_MS + MAX_MS) == []
    run(schedule, schedule.due([log], START_MS + 2 * MAX_MS))
    assert log.durable_start_offset == 1
    assert schedule.due([log], START_MS + 9 * MAX_MS) == []


def test_a_sealed_segment_is_flushed_at_once(log: PartitionLog, schedule: FlushSchedule) -> None:
    append(log, (b"a", b"1"))
    log.roll(START_MS)
    append(log, (b"a", b"2"))
    run(schedule, schedule.due([log], START_MS))
    assert log.recovery_point == 1


def test_the_settings_of_a_topic_count(log: PartitionLog, schedule: FlushSchedule) -> None:
    log.update_config(replace(CONFIG, flush_messages=2))
    append(log, (b"a", b"1"))
    assert schedule.due([log], START_MS) == []
    append(log, (b"a", b"2"))
    assert len(schedule.due([log], START_MS)) == 1


def test_a_log_is_not_flushed_twice_at_once(log: PartitionLog, schedule: FlushSchedule) -> None:
    append(log, (b"a", b"x" * 2_000))
    flushes = schedule.due([log], START_MS)
    append(log, (b"a", b"x" * 2_000))
    assert schedule.due([log], START_MS) == []
    run(schedule, flushes)
    assert log.recovery_point == 1
    assert len(schedule.due([log], START_MS)) == 1


def test_flushes_under_way_are_bounded(schedule: FlushSchedule) -> None:
    logs = [open_log(FaultyStorage(), CONFIG) for _ in range(MAX_FLUSHES_AT_ONCE + 3)]
    for log in logs:
        append(log, (b"a", b"x" * 2_000))
    flushes = schedule.due(logs, START_MS)
    assert len(flushes) == MAX_FLUSHES_AT_ONCE
    assert schedule.due(logs, START_MS) == []
    run(schedule, flushes[:2])
    assert len(schedule.due(logs, START_MS)) == 2


def test_a_failed_sync_takes_the_log_offline(
    log: PartitionLog, storage: FaultyStorage, schedule: FlushSchedule
) -> None:
    append(log, (b"a", b"x" * 2_000))
    (flush,) = schedule.due([log], START_MS)
    storage.fail_at(storage.operations, errno.EIO)
    with pytest.raises(KafkaStorageError) as caught:
        flush.run()
    schedule.failed(flush, caught.value)
    assert log.offline
    assert log.recovery_point == 0
    assert schedule.due([log], START_MS + MAX_MS) == []


def test_the_outcome_for_a_deleted_log_is_ignored(log: PartitionLog, schedule: FlushSchedule) -> None:
    append(log, (b"a", b"x" * 2_000))
    (flush,) = schedule.due([log], START_MS)
    schedule.forget(log)
    schedule.failed(flush, OSError("gone"))
    assert not log.offline
    schedule.ended(flush, START_MS)
    assert log.recovery_point == 0
