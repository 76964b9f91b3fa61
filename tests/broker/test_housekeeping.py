"""Housekeeping: what is due when, what runs in threads, and what failures become, with time and threads in hand."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.housekeeping import (
    FLUSH_CHECK_INTERVAL_MS,
    IDLE_CHECK_INTERVAL_MS,
    REOPENING_INTERVAL_MS,
    RETIREMENT_INTERVAL_MS,
    Housekeeping,
)
from oncelog.log.flush_schedule import MAX_UNFLUSHED_MS
from oncelog.log.storage import FileStorage, Storage
from tests.broker.support import NOW_MS, Desk, FailingStorage, Later
from tests.support.batches import Record, batch_records, make_batch, read_batches
from tests.support.faulty_storage import Fault, FaultyStorage
from tests.support.requests import fetch_request, produce_request

KAFKA_STORAGE_ERROR = 56
MINUTE_MS, DAY_MS = 60_000, 86_400_000
MIB = 1 << 20


@dataclass
class Step:
    ask_interval_ms: Callable[[], int]
    run: Callable[[int], None]
    due_ms: int

    @property
    def interval_ms(self) -> int:
        return self.ask_interval_ms()


class Clockwork:
    """The shell's timers, but time passes when the test says so; threads are the desk's."""

    def __init__(self, desk: Desk) -> None:
        self.now_ms = NOW_MS
        self.turned_ms = 0
        """By how much the time of day has been set forward since the start."""
        self.steps: list[Step] = []
        self.idle_checks: list[int] = []
        self._desk = desk

    def every(self, interval_ms: int | Callable[[], int], step: Callable[[int], None]) -> None:
        ask = interval_ms if callable(interval_ms) else lambda: interval_ms
        self.steps.append(Step(ask, step, self.now_ms + ask()))

    def run_in_thread(self, work: Callable[[], Any], done: Callable[[Any, Exception | None, int], None]) -> None:
        self._desk.threads.run_in_thread(work, done)

    def in_slices(self, work: Iterator[None], done: Callable[[], None]) -> None:
        for _ in work:
            pass
        done()

    def wall_ms(self) -> int:
        return self.now_ms + self.turned_ms

    def close_idle(self, now_ms: int) -> None:
        self.idle_checks.append(now_ms)

    def advance(self, elapsed_ms: int) -> None:
        """Everything that falls due, in order; what it leaves to threads stays there."""
        end_ms = self.now_ms + elapsed_ms
        while (step := min(self.steps, key=lambda each: each.due_ms)).due_ms <= end_ms:
            self.now_ms = step.due_ms
            step.due_ms += step.interval_ms
            step.run(self.now_ms)
        self.now_ms = end_ms


class House:
    def __init__(self, storage: Storage, folder: str, **settings: str) -> None:
        self.desk = Desk(storage, folder, **settings)
        self.clock = Clockwork(self.desk)
        Housekeeping(self.desk.broker, self.clock).start()

    def append(self, topic: str = "orders", count: int = 1, batch: bytes | None = None) -> None:
        for _ in range(count):
            request = produce_request(topic, batch or make_batch([b"value"]))
            self.desk.ask("produce", 9, request, now_ms=self.clock.now_ms)

    def wait_for_more(self, topic: str = "orders") -> Later:
        return self.desk.ask_later("fetch", 12, fetch_request(topic, 0, min_bytes=1 << 20, max_wait=MINUTE_MS))


@pytest.fixture
def storage() -> FailingStorage:
    return FailingStorage()


@pytest.fixture
def house(storage: FailingStorage) -> House:
    return House(storage, "/data")


@pytest.fixture
def real_house(tmp_path: Path) -> Iterator[House]:
    house = House(FileStorage(), str(tmp_path), log_cleaner_backoff_ms="1000", log_retention_check_interval_ms="1000")
    yield house
    house.desk.broker.stop(house.clock.now_ms)


def names(folder: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in folder.rglob(f"*{suffix}"))


# --- when ---


def test_intervals_are_the_configs() -> None:
    house = House(
        FailingStorage(),
        "/data",
        log_flush_scheduler_interval_ms="300",
        log_flush_offset_checkpoint_interval_ms="7000",
        log_retention_check_interval_ms="8000",
        producer_id_expiration_check_interval_ms="9000",
        log_cleaner_backoff_ms="11000",
        connections_max_idle_ms="1500",
    )
    assert {step.interval_ms for step in house.clock.steps} >= {300, 7000, 8000, 9000, 11000, 1500}


def test_the_cleaner_can_be_switched_off() -> None:
    on, off = (House(FailingStorage(), "/data", log_cleaner_enable=text) for text in ("true", "false"))
    assert len(on.clock.steps) == len(off.clock.steps) + 1


def test_the_cleaners_pause_may_change() -> None:
    house = House(FailingStorage(), "/data")
    changed = {"name": "log.cleaner.backoff.ms", "config_operation": 0, "value": "77"}
    resource = {"resource_type": 4, "resource_name": "", "configs": [changed]}
    (answer,) = house.desk.ask("incremental_alter_configs", 1, {"resources": [resource]})["responses"]
    assert answer["error_code"] == 0
    assert 77 in {step.interval_ms for step in house.clock.steps}


@pytest.mark.parametrize(
    ("max_idle_ms", "interval_ms"), [("600000", IDLE_CHECK_INTERVAL_MS), ("700", 700), ("0", 1), ("-1", None)]
)
def test_idle_connections_are_looked_for_in_time(max_idle_ms: str, interval_ms: int | None) -> None:
    house = House(FailingStorage(), "/data", connections_max_idle_ms=max_idle_ms)
    found = [step.interval_ms for step in house.clock.steps if step.run == house.clock.close_idle]
    assert found == ([] if interval_ms is None else [interval_ms])


# --- flushing ---


def test_what_is_unflushed_for_long_is_flushed_in_a_thread(house: House) -> None:
    house.desk.create("orders")
    house.append()
    log = house.desk.broker.partition("orders", 0)
    house.clock.advance(MAX_UNFLUSHED_MS - FLUSH_CHECK_INTERVAL_MS)
    assert house.desk.threads.waiting == []
    house.clock.advance(3 * FLUSH_CHECK_INTERVAL_MS)
    assert len(house.desk.threads.waiting) == 2, "the flush, once however often it is looked at, and the checkpoint"
    assert log.recovery_point == 0
    house.desk.threads.run_all()
    assert log.recovery_point == 1


def test_flush_ms_of_a_topic(house: House) -> None:
    house.desk.create("orders", flush_ms="5000")
    house.append()
    house.clock.advance(5000 + FLUSH_CHECK_INTERVAL_MS)
    house.desk.threads.run_all()
    assert house.desk.broker.partition("orders", 0).recovery_point == 1


def test_a_log_is_not_flushed_twice_at_a_time(house: House) -> None:
    """A producer waits for the one that runs; housekeeping queues behind it."""
    house.desk.create("orders", flush_messages="1")
    produced = house.desk.ask_later("produce", 9, produce_request("orders", make_batch()))
    house.clock.advance(2 * FLUSH_CHECK_INTERVAL_MS)
    assert len(house.desk.threads.waiting) == 1
    house.desk.threads.run_next()
    assert produced.message is not None
    house.desk.threads.run_all()
    assert house.desk.broker.partition("orders", 0).recovery_point == 1


def test_a_flush_that_fails_takes_the_log_offline_and_tells_who_waits(house: House, storage: FailingStorage) -> None:
    house.desk.create("orders", flush_ms="1000")
    house.desk.create("others")
    house.append()
    house.append("others")
    waiting, unconcerned = house.wait_for_more(), house.wait_for_more("others")
    house.clock.advance(3000)
    storage.fail_next("sync")
    house.desk.threads.run_all()
    storage.heal()
    assert waiting.message is not None
    assert waiting.message["responses"][0]["partitions"][0]["error_code"] == KAFKA_STORAGE_ERROR
    assert unconcerned.message is None
    assert house.desk.broker.is_offline("orders", 0)
    assert not house.desk.broker.is_offline("others", 0)
    house.clock.advance(2 * MAX_UNFLUSHED_MS)
    house.desk.threads.run_all()
    assert house.desk.broker.partition("others", 0).recovery_point == 1


def test_a_flush_of_a_topic_deleted_meanwhile(real_house: House) -> None:
    house = real_house
    house.desk.create("orders", flush_ms="1000")
    house.append()
    house.clock.advance(3000)
    house.desk.ask("delete_topics", 6, {"topics": [{"name": "orders", "topic_id": None}], "timeout": 1})
    house.desk.create("orders")
    house.desk.threads.run_all()
    assert house.desk.broker.partition("orders", 0).log_end_offset == 0


def test_a_flush_that_fails_of_a_topic_deleted_meanwhile_is_no_news_of_its_successor(
    house: House, storage: FailingStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.desk.create("orders", flush_ms="1000")
    house.append()
    house.clock.advance(3000)
    house.desk.ask("delete_topics", 6, {"topics": [{"name": "orders", "topic_id": None}], "timeout": 1})
    house.desk.create("orders")
    house.desk.broker.partition("orders", 0)
    told: list[object] = []
    monkeypatch.setattr(house.desk.broker, "log_failed", told.append)
    storage.fail_next("sync")
    house.desk.threads.run_all()
    storage.heal()
    assert told == []


# --- checkpoints ---


def test_recovery_points_are_written_down(house: House, storage: FailingStorage) -> None:
    house.desk.create("orders", flush_ms="1000")
    house.append(count=3)
    house.clock.advance(3000)
    house.desk.threads.run_all()
    house.clock.advance(2 * MINUTE_MS)
    house.desk.threads.run_all()
    assert b"orders 0 3" in bytes(storage.content("/data/recovery-point-offset-checkpoint"))


def test_a_checkpoint_that_fails_is_tried_again(
    house: House, storage: FailingStorage, caplog: pytest.LogCaptureFixture
) -> None:
    house.desk.create("orders", flush_ms="1000")
    house.append()
    house.clock.advance(3000)
    house.desk.threads.run_all()
    storage.fail_next("rename")
    with caplog.at_level(logging.ERROR):
        house.clock.advance(MINUTE_MS)
        house.desk.threads.run_all()
    assert "the next start may have to recover more than needed" in caplog.text
    storage.heal()
    house.clock.advance(MINUTE_MS)
    house.desk.threads.run_all()
    assert b"orders 0 1" in bytes(storage.content("/data/recovery-point-offset-checkpoint"))


# --- forgetting ---


def test_old_segments_are_taken_out_of_use_and_then_removed(real_house: House, tmp_path: Path) -> None:
    house = real_house
    house.desk.create("orders", segment_bytes=str(MIB), retention_bytes="100", file_delete_delay_ms="15000")
    house.append(count=3, batch=make_batch([bytes(700_000)], base_timestamp=NOW_MS))
    assert len(names(tmp_path / "orders-0", ".log")) == 3
    house.clock.advance(1000)
    assert house.desk.broker.partition("orders", 0).log_start_offset == 2
    assert len(names(tmp_path / "orders-0", ".log.deleted")) == 2
    house.clock.advance(10_000)
    house.desk.threads.run_all()
    assert len(names(tmp_path / "orders-0", ".log.deleted")) == 2, "a reader may still hold them"
    house.clock.advance(20_000)
    house.desk.threads.run_all()
    assert names(tmp_path / "orders-0", ".deleted") == []


def test_the_folder_of_a_deleted_topic_is_removed_in_a_thread(real_house: House, tmp_path: Path) -> None:
    house = real_house
    house.desk.create("orders", file_delete_delay_ms="0")
    house.append()
    house.desk.ask("delete_topics", 6, {"topics": [{"name": "orders", "topic_id": None}], "timeout": 1})
    assert len(names(tmp_path, "-delete")) == 0, "whoever deletes a topic does not wait for its folders"
    house.clock.advance(RETIREMENT_INTERVAL_MS)
    assert len(names(tmp_path, "-delete")) == 1
    house.clock.advance(20_000)
    assert len(names(tmp_path, "-delete")) == 1
    house.desk.threads.run_all()
    assert names(tmp_path, "-delete") == []


def test_a_folder_that_cannot_be_removed_is_an_error_in_the_log(
    real_house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    house = real_house
    house.desk.create("orders", file_delete_delay_ms="0")
    house.append()
    house.desk.ask("delete_topics", 6, {"topics": [{"name": "orders", "topic_id": None}], "timeout": 1})
    house.clock.advance(20_000)

    def refuse(_: FileStorage, path: str) -> None:
        raise OSError(f"{path} stays")

    monkeypatch.setattr(FileStorage, "remove_directory", refuse)
    with caplog.at_level(logging.ERROR):
        house.desk.threads.run_all()
    assert "files that are out of use cannot be removed" in caplog.text


def test_silent_producers_are_forgotten(house: House) -> None:
    house.desk.create("orders")
    house.append(batch=make_batch(producer_id=7, epoch=0, sequence=0, base_timestamp=NOW_MS))
    log = house.desk.broker.partition("orders", 0)
    house.clock.advance(DAY_MS - 2 * MINUTE_MS)
    assert len(log.producers) == 1
    house.clock.advance(15 * MINUTE_MS)
    assert len(log.producers) == 0


def test_a_clock_set_forward_by_a_day_forgets_nobody_and_deletes_nothing(house: House) -> None:
    house.desk.create("orders", retention_ms=str(10 * 60 * MINUTE_MS))
    house.append(batch=make_batch(producer_id=7, epoch=0, sequence=0, base_timestamp=NOW_MS))
    house.clock.turned_ms = 3 * DAY_MS
    house.clock.advance(30 * MINUTE_MS)
    log = house.desk.broker.partition("orders", 0)
    assert len(log.producers) == 1
    assert log.log_start_offset == 0
    house.clock.advance(10 * 60 * MINUTE_MS)
    assert log.log_start_offset == 1, "old by both clocks"


def test_a_clock_that_was_ahead_at_the_start_and_is_corrected_deletes_nothing(house: House) -> None:
    house.desk.create("orders", retention_ms=str(10 * 60 * MINUTE_MS))
    house.append(batch=make_batch(base_timestamp=NOW_MS - DAY_MS))
    house.clock.turned_ms = -DAY_MS
    house.clock.advance(30 * MINUTE_MS)
    assert house.desk.broker.partition("orders", 0).log_start_offset == 0


# --- cleaning ---


def compacted(house: House, topic: str = "orders") -> None:
    house.desk.create(topic, cleanup_policy="compact", segment_bytes=str(MIB), min_cleanable_dirty_ratio="0.01")
    for number in range(6):
        record = Record(b"key", b"%d" % number + bytes(400_000))
        house.append(topic, batch=make_batch([record], base_timestamp=NOW_MS))


def begin_cleaning(house: House) -> None:
    house.clock.advance(1000)
    house.desk.threads.run_next()  # the flush of the sealed segments
    assert len(house.desk.threads.waiting) == 1


def versions(house: House, topic: str = "orders") -> list[bytes]:
    found: list[bytes] = []
    offset, end = 0, house.desk.broker.partition(topic, 0).log_end_offset
    while offset < end:
        answer = house.desk.ask("fetch", 12, fetch_request(topic, offset, max_wait=0))
        for batch in read_batches(answer["responses"][0]["partitions"][0]["records"]):
            found += [(record.value or b"")[:1] for record in batch_records(batch)]
            offset = batch.base_offset + batch.last_offset_delta + 1
    return found


def test_a_compacted_topic_is_cleaned_step_by_step_in_threads(real_house: House) -> None:
    house = real_house
    compacted(house)
    assert versions(house) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    begin_cleaning(house)
    house.clock.advance(5000)
    assert len(house.desk.threads.waiting) == 1, "one round at a time"
    steps = 0
    while house.desk.threads.waiting:
        house.desk.threads.run_next()
        steps += 1
    assert steps > 1
    assert versions(house)[-2:] == [b"4", b"5"], "the active segment is not cleaned"
    assert b"0" not in versions(house)


def test_a_cleaning_that_fails_is_logged_and_the_log_serves(
    real_house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house = real_house
    compacted(house)
    begin_cleaning(house)
    _, done = house.desk.threads.waiting.pop()
    with caplog.at_level(logging.WARNING):
        done(None, OSError("the disk is full"), house.clock.now_ms)
    assert "cleaning of orders-0 failed, and will be tried again: the disk is full" in caplog.text
    assert versions(house) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    house.clock.advance(1000)
    house.desk.threads.run_all()
    assert b"0" not in versions(house)


def test_stopping_ends_a_round_early(real_house: House) -> None:
    house = real_house
    compacted(house)
    begin_cleaning(house)
    house.desk.broker.logs.begin_stop()
    house.desk.threads.run_next()
    assert house.desk.threads.waiting == []
    assert versions(house) == [b"0", b"1", b"2", b"3", b"4", b"5"]


# --- logs that could not be opened ---


def test_a_log_that_could_not_be_opened_is_opened_when_it_can_be(house: House, storage: FailingStorage) -> None:
    house.desk.create("orders")
    house.append()
    survivor = FewDescriptors.of(storage)
    again = House(survivor, "/data")
    assert again.desk.broker.is_offline("orders", 0)
    again.desk.alarms.time_ms += MINUTE_MS
    again.clock.advance(REOPENING_INTERVAL_MS)
    again.desk.threads.run_all()
    assert again.desk.broker.is_offline("orders", 0), "there are no more of them yet"
    survivor.is_short = False
    again.desk.alarms.time_ms += MINUTE_MS
    again.clock.advance(REOPENING_INTERVAL_MS)
    again.desk.threads.run_all()
    assert len(again.desk.broker.unopened_logs) == 0
    again.append()
    assert again.desk.broker.partition("orders", 0).log_end_offset == 2


class FewDescriptors(FaultyStorage):
    """No file of the topic `orders` can be opened while they are short."""

    is_short = True

    @classmethod
    def of(cls, storage: FaultyStorage) -> FewDescriptors:
        few, survivor = cls(), storage.after_kill()
        few.__dict__.update(survivor.__dict__)
        return few

    def _begin(self, what: str, path: str) -> Fault | None:
        if self.is_short and what == "open" and "/orders-" in path:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super()._begin(what, path)


# --- what the metadata forgets ---


@pytest.mark.parametrize("seed", range(10))
def test_a_topic_whose_earlier_namesake_comes_back_with_the_power_is_served(seed: int) -> None:
    """The metadata has forgotten that it was deleted: a snapshot tells only what there is."""
    storage = FailingStorage()
    house = House(storage, "/data", metadata_log_max_record_bytes_between_snapshots="1")
    house.desk.create("orders")
    house.append()
    request = house.desk.broker.partition("orders", 0).flush_request()
    assert request is not None
    request.run()
    house.desk.ask("delete_topics", 6, {"topics": [{"name": "orders"}], "timeout": 1000})
    house.desk.create("orders")
    house.append()
    again = Desk(storage.after_power_loss(seed), "/data")
    report = again.broker.logs.report
    assert (report.failed, report.strays) == ({}, [])
