"""What a log forgets and deletes, whatever time the records, the computer and the years in between claim to be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.log.cleaning_schedule import CleaningSchedule
from oncelog.log.config import LogConfig
from oncelog.log.partition_log import HIGH_WATERMARK, Appended, PartitionLog
from oncelog.records import kernel
from oncelog.records.batch import ControlMarker
from oncelog.types import TimestampType
from tests.log import compacting
from tests.log.driver import DIRECTORY, PARTITION, SMALL, START_MS, append, make_batch
from tests.support.faulty_storage import FaultyStorage

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
EXPIRATION_MS = LogConfig().producer_id_expiration_ms
PRODUCER_ID = 9


class Life:
    """A log that is closed and opened again, each time when the clock says something else."""

    def __init__(self, config: LogConfig = SMALL) -> None:
        self.storage = FaultyStorage()
        self.config = config
        self.log = self.open(START_MS, clean=False)

    def open(self, now_ms: int, *, clean: bool) -> PartitionLog:
        self.now_ms = now_ms
        self.log = PartitionLog.open(
            self.storage, DIRECTORY, PARTITION, self.config, now_ms=now_ms, clean=clean, recovery_point=0
        )
        self.log.advance_high_watermark(self.log.log_end_offset)
        return self.log

    def restart(self, now_ms: int, *, clean: bool = True) -> None:
        self.log.close(clean=clean, now_ms=self.now_ms)
        self.open(now_ms, clean=clean)

    def send(self, sequence: int, timestamp_ms: int = START_MS, *, transactional: bool = False) -> Appended:
        batch = make_batch(
            [b"%d" % sequence],
            producer_id=PRODUCER_ID,
            sequence=sequence,
            timestamp_ms=timestamp_ms,
            transactional=transactional,
        )
        appended = append(self.log, batch, self.now_ms)
        self.log.advance_high_watermark(self.log.log_end_offset)
        return appended

    def is_known(self) -> bool:
        return self.log.producers.entry(PRODUCER_ID) is not None


@pytest.fixture
def life() -> Life:
    return Life()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("age_ms", [0, 3 * DAY_MS, START_MS])
def test_a_repeat_of_old_records_is_recognised_after_a_look_and_after_a_restart(
    life: Life, age_ms: int, clean: bool
) -> None:
    for sequence in range(3):
        life.send(sequence, START_MS - age_ms)
    assert life.log.expire_producers(life.now_ms + HOUR_MS) == 0
    assert life.send(1, START_MS - age_ms).duplicate
    life.restart(START_MS + HOUR_MS, clean=clean)
    assert [life.send(sequence, START_MS - age_ms).duplicate for sequence in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("turned_ms", [-40 * DAY_MS, 0, 40 * DAY_MS])
def test_a_clock_turned_while_the_broker_is_stopped_makes_nobody_older(life: Life, turned_ms: int, clean: bool) -> None:
    life.send(0)
    life.restart(START_MS + turned_ms, clean=clean)
    assert life.log.expire_producers(life.now_ms + EXPIRATION_MS - 1) == 0
    assert life.send(0).duplicate
    assert life.log.expire_producers(life.now_ms + EXPIRATION_MS) == 1


def test_silence_goes_on_after_a_clean_restart_and_the_years_between_do_not_count(life: Life) -> None:
    life.send(0)
    life.now_ms += 20 * HOUR_MS
    life.restart(START_MS + 700 * DAY_MS)
    assert life.log.expire_producers(life.now_ms + 4 * HOUR_MS - 1) == 0
    assert life.log.expire_producers(life.now_ms + 4 * HOUR_MS) == 1


def test_silence_goes_on_in_a_log_that_nobody_writes_to(life: Life) -> None:
    life.send(0)
    for _ in range(3):
        life.restart(life.now_ms)
        life.now_ms += 8 * HOUR_MS
        forgotten = life.log.expire_producers(life.now_ms)
    assert forgotten == 1
    life.restart(life.now_ms)
    assert not life.is_known(), "nor does it come back"


def test_a_crash_comes_back_to_the_silence_of_the_last_snapshot(life: Life) -> None:
    life.send(0)
    life.now_ms += 20 * HOUR_MS
    life.log.roll(life.now_ms)
    append(life.log, make_batch([b"of somebody else"]), life.now_ms)
    life.log.close(clean=False, now_ms=life.now_ms)
    life.storage.remove(f"{DIRECTORY}/oncelog-manifest")  # it knows of no clean stop
    life.open(START_MS, clean=True)  # the snapshot is believed: in a real crash, once a flush has gone beyond it
    assert life.log.expire_producers(START_MS + 4 * HOUR_MS - 1) == 0
    assert life.log.expire_producers(START_MS + 4 * HOUR_MS) == 1


# --- retention ---


@pytest.mark.parametrize("limits", [{"retention_ms": 1000}, {"retention_bytes": 0}])
def test_retention_takes_nothing_of_an_open_transaction(limits: dict[str, int]) -> None:
    life = Life(replace(SMALL, **limits))
    for _ in range(30):
        append(life.log, make_batch([b"before"]))
    first = life.send(0, transactional=True).base_offset
    for _ in range(30):
        append(life.log, make_batch([b"after"]))
    life.log.advance_high_watermark(life.log.log_end_offset)
    life.log.apply_retention(START_MS + DAY_MS)
    assert 0 < life.log.log_start_offset <= first
    assert life.log.apply_retention(START_MS + DAY_MS) == []
    marker = ControlMarker(commit=True, coordinator_epoch=0)
    life.log.append_marker(marker, producer_id=PRODUCER_ID, producer_epoch=0, leader_epoch=0, now_ms=START_MS)
    life.log.advance_high_watermark(life.log.log_end_offset)
    life.log.apply_retention(START_MS + DAY_MS)
    assert life.log.log_start_offset == life.log.log_end_offset, "decided, so it may go"


def test_delete_records_is_a_request_and_takes_what_it_names() -> None:
    """As Apache Kafka's: up to the high watermark, open transaction or not."""
    life = Life()
    life.send(0, transactional=True)
    for _ in range(60):
        append(life.log, make_batch([b"after"]))
    life.log.advance_high_watermark(life.log.log_end_offset)
    assert life.log.delete_records(HIGH_WATERMARK) == life.log.log_end_offset
    assert life.log.apply_retention(START_MS)
    assert life.log.apply_retention(START_MS + DAY_MS) == []


@pytest.mark.parametrize(
    ("now_ms", "wall_ms", "goes"),
    [
        (START_MS, START_MS + DAY_MS, False),  # set forward while the broker runs
        (START_MS + DAY_MS, START_MS, False),  # ahead when the broker started, and corrected since
        (START_MS + DAY_MS, START_MS - DAY_MS, False),
        (START_MS + DAY_MS, START_MS + DAY_MS, True),
    ],
)
def test_records_are_as_old_as_the_clock_that_is_behind_says(now_ms: int, wall_ms: int, goes: bool) -> None:
    life = Life(replace(SMALL, retention_ms=HOUR_MS))
    life.send(0)
    life.log.apply_retention(now_ms, wall_ms)
    assert (life.log.log_start_offset == 1) is goes


def test_retired_files_wait_by_the_steady_clock() -> None:
    life = Life(replace(SMALL, retention_bytes=0, file_delete_delay_ms=60_000))
    life.send(0)
    life.log.apply_retention(START_MS, START_MS - DAY_MS)
    assert life.log.take_removals(START_MS + 59_999) == []
    assert len(life.log.take_removals(START_MS + 60_000)) == 1


# --- rolling ---


def test_a_segment_that_began_in_the_future_rolls_in_its_time() -> None:
    life = Life(replace(SMALL, segment_ms=HOUR_MS))
    append(life.log, make_batch([b"ahead"], timestamp_ms=START_MS + 365 * DAY_MS))
    append(life.log, make_batch([b"set right"]), START_MS + HOUR_MS)
    assert life.log.segments == []
    append(life.log, make_batch([b"an hour later"]), START_MS + HOUR_MS + 1)
    assert [segment.base_offset for segment in life.log.segments] == [0]


# --- stamps ---


def test_log_append_time_is_the_time_of_day_and_silence_is_not() -> None:
    life = Life(replace(SMALL, message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    batch = make_batch([b"x"], producer_id=PRODUCER_ID, sequence=0)
    header, wall_ms = kernel.parse_header(batch), START_MS + 5 * DAY_MS
    appended = life.log.append(batch, header, leader_epoch=0, now_ms=START_MS, wall_ms=wall_ms)
    assert appended.append_time_ms == wall_ms
    entry = life.log.producers.entry(PRODUCER_ID)
    assert entry is not None
    assert (entry.last_timestamp, entry.last_appended_ms) == (wall_ms, START_MS)


# --- compaction ---


def compact(schedule: CleaningSchedule, log: PartitionLog, now_ms: int, wall_ms: int) -> bool:
    cleaning = schedule.next_round({compacting.DIRECTORY: log}, now_ms, wall_ms)
    if cleaning is None:
        return False
    while schedule.swap(cleaning.clean_next(), now_ms):
        pass
    return True


@pytest.mark.parametrize(("now_ms", "wall_ms"), [(START_MS, START_MS + DAY_MS), (START_MS + DAY_MS, START_MS)])
def test_a_young_record_is_not_compacted_because_a_clock_was_turned(now_ms: int, wall_ms: int) -> None:
    storage = FaultyStorage()
    log = compacting.open_log(storage, replace(compacting.COMPACTED, min_compaction_lag_ms=HOUR_MS))
    for _ in range(2):
        compacting.append(log, (b"a", b"1"))
    log.roll(START_MS)
    schedule = CleaningSchedule(storage, "data")
    assert not compact(schedule, log, now_ms, wall_ms)
    assert compact(schedule, log, START_MS + DAY_MS, START_MS + DAY_MS)


@pytest.mark.parametrize(("now_ms", "wall_ms"), [(START_MS, START_MS + DAY_MS), (START_MS + DAY_MS, START_MS)])
def test_a_tombstone_stays_until_both_clocks_say_that_its_time_is_over(now_ms: int, wall_ms: int) -> None:
    storage = FaultyStorage()
    log = compacting.open_log(storage)
    schedule = CleaningSchedule(storage, "data")

    def clean_anew(now_ms: int, wall_ms: int) -> list[bytes | None]:
        compacting.append(log, (b"b", b"1"))
        log.roll(START_MS)
        assert compact(schedule, log, now_ms, wall_ms)
        return [record.key for record in compacting.read_records(log)]

    compacting.append(log, (b"a", None))
    assert clean_anew(now_ms, wall_ms) == [b"a", b"b"], "met for the first time"
    assert clean_anew(now_ms + 1, wall_ms + 1) == [b"a", b"b"]
    due_ms = START_MS + DAY_MS + compacting.DELETE_RETENTION_MS
    assert clean_anew(due_ms - 1, due_ms + DAY_MS) == [b"a", b"b"]
    assert clean_anew(due_ms + DAY_MS, due_ms - 1) == [b"a", b"b"]
    assert clean_anew(due_ms, due_ms) == [b"b"]
