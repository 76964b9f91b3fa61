"""A data directory on a real file system: its logs over starts, stops, crashes and deletions."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from oncelog.errors import KafkaStorageError, OffsetOutOfRange
from oncelog.log import checkpoints
from oncelog.log.config import LogConfig
from oncelog.log.flush_schedule import MAX_UNFLUSHED_MS, FlushSchedule
from oncelog.log.leader_epochs import UNDEFINED
from oncelog.log.manager import LogManager
from oncelog.log.partition_log import PartitionLog
from oncelog.log.partition_register import PartitionRegister, Registered
from oncelog.log.storage import FileStorage
from oncelog.types import TopicPartition
from tests.log.compacting import COMPACTED, START_MS, append, key_values, read_records
from tests.support.faulty_storage import FaultyFile, FaultyStorage, SimulatedCrash

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=200, file_delete_delay_ms=100)
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

Open = Callable[..., LogManager]


@pytest.fixture
def open_manager(tmp_path: Path) -> Open:
    def open_it(config: LogConfig | None = CONFIG, **options: object) -> LogManager:
        arguments = {"config_of": lambda topic_partition, topic_id: config, "now_ms": START_MS, **options}
        return LogManager.open(FileStorage(), str(tmp_path), **arguments)  # type: ignore[arg-type]

    return open_it


def folder_names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


class TestOpening:
    def test_an_empty_directory(self, open_manager: Open) -> None:
        manager = open_manager()
        assert dict(manager.logs) == {}
        assert not manager.report.clean
        assert manager.get(ORDERS_0) is None

    def test_logs_come_back_after_a_clean_stop_without_being_read(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager()
        topic_id = uuid4()
        log = manager.create(ORDERS_0, topic_id, CONFIG, START_MS)
        append(log, (b"a", b"1"), (b"b", b"2"))
        expected = read_records(log)
        assert manager.stop(START_MS, broker_epoch=4)
        assert (tmp_path / CLEAN_SHUTDOWN).read_text() == '{"version":0,"brokerEpoch":4}'
        reopened = open_manager()
        assert not (tmp_path / CLEAN_SHUTDOWN).exists()
        assert reopened.report.clean
        assert reopened.report.scanned_bytes == 0
        assert reopened.topic_id(ORDERS_0) == topic_id
        assert read_records(reopened.logs[ORDERS_0]) == expected

    def test_logs_come_back_after_a_kill_by_being_read(self, open_manager: Open) -> None:
        manager = open_manager()
        log = manager.create(ORDERS_0, uuid4(), CONFIG, START_MS)
        append(log, (b"a", b"1"))
        reopened = open_manager()
        assert not reopened.report.clean
        assert reopened.report.scanned_bytes == log.size_bytes
        assert reopened.logs[ORDERS_0].log_end_offset == 1

    def test_recovery_reads_only_above_the_checkpointed_recovery_point(self, open_manager: Open) -> None:
        manager = open_manager(flushes=FlushSchedule(0))
        log = manager.create(ORDERS_0, uuid4(), CONFIG, START_MS)
        for _ in range(3):
            append(log, (b"a", b"x" * 500))
            log.roll(START_MS)
        append(log, (b"a", b"first of the active segment"))
        while flushes := manager.flushes_due(START_MS):
            for flush in flushes:
                flush.run()
                manager.flushed(flush, START_MS)
        manager.checkpoint()
        append(log, (b"a", b"last"))
        reopened = open_manager()
        assert reopened.report.scanned_bytes == log.active_segment.size_bytes < 250
        assert reopened.logs[ORDERS_0].log_end_offset == 5

    def test_many_logs_open_in_parallel(self, open_manager: Open) -> None:
        manager = open_manager()
        for partition in range(20):
            log = manager.create(TopicPartition("many", partition), uuid4(), CONFIG, START_MS)
            append(log, (b"a", b"%d" % partition))
        with ThreadPoolExecutor(4) as executor:
            reopened = open_manager(parallel_map=executor.map)
            assert {tp.partition: read_records(log)[0].value for tp, log in reopened.logs.items()} == {
                partition: b"%d" % partition for partition in range(20)
            }
            assert reopened.stop(START_MS, parallel_map=executor.map)

    def test_only_logs_with_much_to_read_are_opened_in_threads(
        self, open_manager: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = open_manager()
        for partition, size in enumerate((10, 1_000, 10, 1_500)):
            log = manager.create(TopicPartition("sizes", partition), uuid4(), CONFIG, START_MS)
            append(log, (b"a", b"x" * size))
        monkeypatch.setattr("oncelog.log.manager.LONG_SCAN_BYTES", 500)
        in_threads = []

        def counted_map(function: Any, items: Any) -> Any:
            items = list(items)
            in_threads.extend(folder.topic_partition.partition for folder, _ in items)
            return map(function, items)

        reopened = open_manager(parallel_map=counted_map)
        assert sorted(in_threads) == [1, 3]
        assert {log.log_end_offset for log in reopened.logs.values()} == {1}
        assert len(reopened.logs) == 4

    def test_one_broken_log_does_not_stop_the_others(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager()
        for topic_partition in (ORDERS_0, ORDERS_1):
            append(manager.create(topic_partition, uuid4(), CONFIG, START_MS), (b"a", b"1"))
        manager.checkpoint()
        segment = tmp_path / "orders-0" / "00000000000000000000.log"
        segment.unlink()
        segment.mkdir()
        reopened = open_manager()
        assert list(reopened.logs) == [ORDERS_1]
        assert list(reopened.report.failed) == [ORDERS_0]
        with pytest.raises(KafkaStorageError):
            reopened.get(ORDERS_0)
        with pytest.raises(KafkaStorageError):
            reopened.create(ORDERS_0, uuid4(), CONFIG, START_MS)
        assert not reopened.stop(START_MS)
        assert not (tmp_path / CLEAN_SHUTDOWN).exists()
        assert "orders 0 " in (tmp_path / "recovery-point-offset-checkpoint").read_text()

    def test_a_broken_checkpoint_costs_only_time(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager()
        append(manager.create(ORDERS_0, uuid4(), CONFIG, START_MS), (b"a", b"1"))
        manager.checkpoint()
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
            (tmp_path / name).write_text("0\n5\ngarbage\n")
        assert open_manager().logs[ORDERS_0].log_end_offset == 1

    def test_an_unknown_partition_is_set_aside_and_reported(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager()
        topic_id = UUID(int=7)
        append(manager.create(ORDERS_0, topic_id, CONFIG, START_MS), (b"a", b"1"))
        reopened = open_manager(config=None)
        name = f"orders-0.{topic_id.hex}-stray"
        assert reopened.report.strays == [name]
        assert folder_names(tmp_path) == [name]
        assert dict(reopened.logs) == {}
        assert reopened.removals_due(START_MS) == []
        assert reopened.create(ORDERS_0, uuid4(), CONFIG, START_MS).log_end_offset == 0
        assert open_manager().report.strays == []

    def test_the_controllers_log_is_left_alone(self, open_manager: Open, tmp_path: Path) -> None:
        (tmp_path / "__cluster_metadata-0").mkdir()
        manager = open_manager(config=None)
        assert manager.report.strays == []
        assert folder_names(tmp_path) == ["__cluster_metadata-0"]

    def test_the_topic_id_on_the_disk_is_shown_to_whoever_decides(self, open_manager: Open) -> None:
        manager = open_manager()
        topic_id = uuid4()
        append(manager.create(ORDERS_0, topic_id, CONFIG, START_MS), (b"a", b"1"))
        seen = []

        def config_of(topic_partition: TopicPartition, found_id: UUID | None) -> LogConfig:
            seen.append((topic_partition, found_id))
            return CONFIG

        open_manager(config_of=config_of)
        assert seen == [(ORDERS_0, topic_id)]


class TestTopicIds:
    @pytest.mark.parametrize("torn", [False, True])
    def test_a_kill_while_a_log_is_created_loses_no_topic_id(self, torn: bool) -> None:
        topic_id = UUID(int=1)
        operation = 0
        while True:
            storage = FaultyStorage()
            manager = LogManager.open(storage, "data", config_of=lambda partition, topic_id: CONFIG, now_ms=START_MS)
            storage.crash_at(storage.operations + operation, torn=torn)
            with contextlib.suppress(SimulatedCrash):
                append(manager.create(ORDERS_0, topic_id, CONFIG, START_MS), (b"a", b"1"))
                break
            storage = storage.after_kill()
            found = LogManager.open(
                storage,
                "data",
                config_of=lambda partition, topic_id: CONFIG,
                now_ms=START_MS,
                topic_id_of=lambda partition: topic_id,
            )
            if ORDERS_0 in found.logs:
                assert found.topic_id(ORDERS_0) == topic_id, storage.log[-1]
                assert checkpoints.read_topic_id(storage, "data/orders-0") == topic_id
                assert PartitionRegister(storage, "data").load() == {Registered(ORDERS_0, topic_id)}
            operation += 1
        assert operation > 5


class TestStopping:
    def test_a_stop_whose_flush_fails_is_not_called_clean(self) -> None:
        storage = FaultyStorage()
        manager = LogManager.open(storage, "data", config_of=lambda partition, topic_id: CONFIG, now_ms=START_MS)
        append(manager.create(ORDERS_0, UUID(int=1), CONFIG, START_MS), (b"k", b"v"))
        whole = FaultyStorage()
        other = LogManager.open(whole, "data", config_of=lambda partition, topic_id: CONFIG, now_ms=START_MS)
        append(other.create(ORDERS_0, UUID(int=1), CONFIG, START_MS), (b"k", b"v"))
        before = whole.operations
        assert other.stop(START_MS)
        sync = next(number for number, line in enumerate(whole.log) if number >= before and " sync " in line)
        storage.fail_at(sync)
        assert not manager.stop(START_MS)
        assert storage.paths(CLEAN_SHUTDOWN) == []
        found = LogManager.open(
            storage.after_kill(), "data", config_of=lambda partition, topic_id: CONFIG, now_ms=START_MS
        )
        assert not found.report.clean
        assert found.logs[ORDERS_0].recovery_point == 0


class TestUnwritten:
    """A partition that nobody has written to."""

    def test_answers_everything_without_touching_the_disk(self) -> None:
        storage = FaultyStorage()
        manager = LogManager.open(storage, "data", config_of=lambda partition, topic_id: CONFIG, now_ms=START_MS)
        before = storage.operations
        log = manager.create(ORDERS_0, UUID(int=1), CONFIG, START_MS)
        assert log.read(0, 1_000, upper_bound=0).size_bytes == 0
        with pytest.raises(OffsetOutOfRange):
            log.read(1, 1_000, upper_bound=1)
        assert log.find_offset_by_timestamp(0) is None
        assert log.max_timestamp() is None
        assert log.aborted_transactions(0, 10) == []
        assert log.end_offset_for_epoch(0) == UNDEFINED
        assert (log.size_bytes, log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (0, 0, 0, 0)
        assert log.delete_records(-1) == 0
        assert log.flush_request() is None
        assert not log.maybe_roll(START_MS + CONFIG.segment_ms + 1)
        manager.truncate(ORDERS_0, 0, START_MS)
        manager.retention(START_MS)
        manager.expire_producers(START_MS)
        assert (manager.removals_due(START_MS), manager.flushes_due(START_MS)) == ([], [])
        assert manager.next_cleaning(START_MS) is None
        manager.checkpoint()
        manager.delete(ORDERS_0, START_MS)
        assert manager.retiring == 0
        assert storage.operations == before, storage.log[before:]

    def test_leaves_nothing_behind(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager()
        manager.create(ORDERS_0, uuid4(), CONFIG, START_MS)
        assert manager.stop(START_MS)
        assert folder_names(tmp_path) == []
        reopened = open_manager()
        assert (dict(reopened.logs), reopened.report.failed) == ({}, {})

    @pytest.mark.parametrize("torn", [False, True])
    def test_a_kill_at_any_moment_of_the_first_append(self, torn: bool) -> None:
        """After it, the partition is unwritten or its log opens; a record that was acknowledged is there; and the next
        ones can be written."""
        operation, is_done = 0, False
        while not is_done:
            storage = FaultyStorage()
            manager = open_in(storage)
            storage.crash_at(storage.operations + operation, torn=torn)
            with contextlib.suppress(SimulatedCrash):
                append(manager.create(ORDERS_0, UUID(int=1), CONFIG, START_MS), (b"a", b"1"))
                is_done = True
            reopened = open_in(storage.after_kill())
            assert reopened.report.failed == {}, storage.log[-1]
            found = reopened.logs.get(ORDERS_0)
            assert not is_done or (found is not None and found.log_end_offset == 1)
            if found is None:
                found = reopened.create(ORDERS_0, UUID(int=1), CONFIG, START_MS)
            append(found, (b"b", b"2"))
            assert [record.value for record in read_records(found)][-1] == b"2"
            operation += 1
        assert operation > 8

    @pytest.mark.parametrize("torn", [False, True])
    def test_whatever_fails_at_the_first_append_can_be_tried_again(self, torn: bool) -> None:
        operation, has_failed = 0, True
        while has_failed:
            storage = FaultyStorage()
            manager = open_in(storage)
            log = manager.create(ORDERS_0, UUID(int=1), CONFIG, START_MS)
            storage.fail_at(storage.operations + operation, errno.ENOSPC, torn=torn)
            has_failed = False
            with contextlib.suppress(KafkaStorageError):
                has_failed = True
                append(log, (b"a", b"1"))
                has_failed = False
            if has_failed:
                assert log.log_end_offset == 0
                storage.heal()
                append(log, (b"a", b"1"))
            assert not log.offline
            reopened = open_in(storage.after_kill())
            assert reopened.report.failed == {}
            assert [record.value for record in read_records(reopened.logs[ORDERS_0])] == [b"1"], operation
            operation += 1
        assert operation > 8

    @pytest.mark.parametrize("seed", range(20))
    def test_a_first_record_that_was_flushed_survives_a_loss_of_power(self, seed: int) -> None:
        storage = FaultyStorage()
        log = open_in(storage).create(ORDERS_0, UUID(int=1), CONFIG, START_MS)
        append(log, (b"a", b"1"))
        request = log.flush_request()
        assert request is not None
        request.run()
        reopened = open_in(storage.after_power_loss(seed))
        assert reopened.report.failed == {}
        assert [record.value for record in read_records(reopened.logs[ORDERS_0])] == [b"1"]


def open_in(storage: FaultyStorage, **options: object) -> LogManager:
    arguments = {"config_of": lambda partition, topic_id: CONFIG, "now_ms": START_MS, **options}
    return LogManager.open(storage, "data", **arguments)  # type: ignore[arg-type]


class TestDeleting:
    def test_a_kill_at_any_moment_of_a_deletion_and_of_what_follows(self) -> None:
        """The records of the deleted topic never come back, and those of the new one are there if acknowledged."""
        old, new = UUID(int=1), UUID(int=2)
        operation, is_done = 0, False
        while not is_done:
            storage = FaultyStorage()
            manager = open_in(storage)
            append(manager.create(ORDERS_0, old, CONFIG, START_MS), (b"a", b"old"))
            manager.checkpoint()
            storage.crash_at(storage.operations + operation)
            with contextlib.suppress(SimulatedCrash):
                manager.delete(ORDERS_0, START_MS)
                append(manager.create(ORDERS_0, new, CONFIG, START_MS), (b"a", b"new"))
                is_done = True
            reopened = open_in(
                storage.after_kill(), was_deleted=lambda topic_id: topic_id == old, topic_id_of=lambda partition: new
            )
            assert reopened.report.failed == {}, storage.log[-1]
            assert reopened.report.strays == []
            log = reopened.logs.get(ORDERS_0)
            if log is not None:
                assert reopened.topic_id(ORDERS_0) == new
            values = [record.value for record in read_records(log)] if log is not None else []
            assert values == [b"new"] if is_done else values in ([], [b"new"])
            operation += 1
        assert operation > 10

    def test_a_folder_that_cannot_be_renamed_stands_in_the_way_until_it_can(self) -> None:
        storage = FaultyStorage()
        manager = open_in(storage)
        append(manager.create(ORDERS_0, UUID(int=1), CONFIG, START_MS), (b"a", b"old"))
        manager.delete(ORDERS_0, START_MS)
        log = manager.create(ORDERS_0, UUID(int=2), CONFIG, START_MS)
        storage.fail_at(storage.operations, sticky=True)
        with pytest.raises(KafkaStorageError):
            manager.retire_next(START_MS)
        with pytest.raises(KafkaStorageError):
            append(log, (b"a", b"new"))
        storage.heal()
        append(log, (b"a", b"new"))
        assert (manager.retiring, [record.value for record in read_records(log)]) == (0, [b"new"])

    def test_the_register_knows_a_deleted_topic_when_the_metadata_has_forgotten_it(self) -> None:
        """It is asked to judge folders by a `config_of` that knows no ids, as after a snapshot of the metadata."""
        storage = FaultyStorage()
        manager = open_in(storage)
        append(manager.create(ORDERS_0, UUID(int=1), CONFIG, START_MS), (b"a", b"old"))
        manager.delete(ORDERS_0, START_MS)
        reopened = open_in(storage.after_kill())
        assert (dict(reopened.logs), reopened.report.failed, reopened.report.strays) == ({}, {}, [])
        assert open_in(storage.after_kill()).report.failed == {}

    @pytest.mark.parametrize("seed", range(20))
    def test_a_deletion_that_was_made_durable_is_known_after_a_loss_of_power(self, seed: int) -> None:
        storage = FaultyStorage()
        manager = open_in(storage)
        log = manager.create(ORDERS_0, UUID(int=1), CONFIG, START_MS)
        append(log, (b"a", b"old"))
        flush = log.flush_request()
        assert flush is not None
        flush.run()
        manager.delete(ORDERS_0, START_MS)
        manager.sync_deletions()
        append(manager.create(ORDERS_0, UUID(int=2), CONFIG, START_MS), (b"a", b"new"))
        lost = open_in(storage.after_power_loss(seed), config_of=only(UUID(int=2), None))
        assert (lost.report.failed, lost.report.strays) == ({}, [])

    def test_deletions_are_synced_once_and_only_if_all_are_written_down(self) -> None:
        storage = FaultyStorage()
        manager = open_in(storage)
        for partition in (ORDERS_0, TopicPartition("paid", 0)):
            append(manager.create(partition, uuid4(), CONFIG, START_MS), (b"a", b"1"))
        del storage.log[:]
        manager.sync_deletions()
        assert storage.log == []
        manager.delete(ORDERS_0, START_MS)
        storage.fail_at(storage.operations, errno.EIO)
        with pytest.raises(KafkaStorageError, match="made durable"):
            manager.sync_deletions()
        storage.fail_at(storage.operations, errno.ENOSPC)
        manager.delete(TopicPartition("paid", 0), START_MS)
        with pytest.raises(KafkaStorageError, match="still to be written down"):
            manager.sync_deletions()
        manager.retire_next(START_MS)
        del storage.log[:]
        for _ in range(2):
            manager.sync_deletions()
        assert [line.partition(" ")[2] for line in storage.log] == ["sync oncelog-partitions"]

    def test_a_deleted_log_is_renamed_later_and_removed_later_still(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager()
        topic_id = uuid4()
        log = manager.create(ORDERS_0, topic_id, CONFIG, START_MS)
        append(log, (b"a", b"1"))
        promised = log.read(0, 10_000, upper_bound=1)
        manager.delete(ORDERS_0, START_MS)
        assert manager.get(ORDERS_0) is None
        assert (folder_names(tmp_path), manager.retiring) == (["orders-0"], 1)
        manager.retire_next(START_MS)
        assert (folder_names(tmp_path), manager.retiring) == ([f"orders-0.{topic_id.hex}-delete"], 0)
        assert len(promised.read_all()) == promised.size_bytes  # a reader may finish
        assert manager.removals_due(START_MS + 99) == []
        (removal,) = manager.removals_due(START_MS + 100)
        removal.run()
        assert folder_names(tmp_path) == []
        assert manager.removals_due(START_MS + 100) == []

    def test_a_topic_can_be_created_again_at_once(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager()
        append(manager.create(ORDERS_0, uuid4(), CONFIG, START_MS), (b"a", b"1"))
        manager.delete(ORDERS_0, START_MS)
        anew = manager.create(ORDERS_0, uuid4(), CONFIG, START_MS)
        assert (anew.log_end_offset, len(folder_names(tmp_path))) == (0, 1)
        append(anew, (b"a", b"2"))
        assert (len(folder_names(tmp_path)), manager.retiring) == (2, 0), "the first record finds the name free"
        manager.checkpoint()
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 0\n"

    @pytest.mark.parametrize("is_renamed", [False, True])
    def test_what_a_crash_left_of_a_deletion_goes_at_the_next_start(
        self, open_manager: Open, tmp_path: Path, is_renamed: bool
    ) -> None:
        manager = open_manager()
        append(manager.create(ORDERS_0, uuid4(), CONFIG, START_MS), (b"a", b"1"))
        manager.delete(ORDERS_0, START_MS)
        if is_renamed:
            manager.retire_next(START_MS)
        reopened = open_manager()
        assert dict(reopened.logs) == {}
        assert reopened.report.failed == {}
        for removal in reopened.removals_due(START_MS):
            removal.run()
        assert folder_names(tmp_path) == []

    def test_a_log_that_could_not_be_opened_can_be_deleted(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager()
        append(manager.create(ORDERS_0, uuid4(), CONFIG, START_MS), (b"a", b"1"))
        segment = tmp_path / "orders-0" / "00000000000000000000.log"
        segment.unlink()
        segment.mkdir()
        reopened = open_manager()
        reopened.delete(ORDERS_0, START_MS)
        assert reopened.get(ORDERS_0) is None
        assert reopened.stop(START_MS)

    @pytest.mark.parametrize("ends", ["kill", "stop"])
    def test_a_damaged_topic_that_was_deleted_and_created_again_never_ends_a_start(self, ends: str) -> None:
        """`config_of` judges as after a snapshot of the metadata: it knows neither the old id nor its deletion."""
        storage = damaged_log(UUID(int=1))
        manager = open_in(storage)
        assert list(manager.report.failed) == [ORDERS_0]
        renaming = storage.rename
        storage.rename = refuse  # type: ignore[method-assign, assignment]
        manager.delete(ORDERS_0, START_MS)
        storage.rename = renaming  # type: ignore[method-assign]
        assert manager.retiring == 1
        manager.create(ORDERS_0, UUID(int=2), CONFIG, START_MS)
        if ends == "stop":
            assert manager.stop(START_MS)
            assert not storage.exists("data/orders-0")
        killed = LogManager.open(storage.after_kill(), "data", config_of=only(UUID(int=2)), now_ms=START_MS)
        assert (killed.report.failed, killed.report.strays, killed.retiring) == ({}, [], 0)

    def test_one_folder_of_doubt_does_not_end_the_start_of_the_others(self) -> None:
        storage = FaultyStorage()
        manager = open_in(storage)
        append(manager.create(ORDERS_0, UUID(int=1), CONFIG, START_MS), (b"a", b"1"))
        append(manager.create(ORDERS_1, UUID(int=2), CONFIG, START_MS), (b"a", b"1"))
        again = LogManager.open(storage.after_kill(), "data", config_of=only(UUID(int=2)), now_ms=START_MS)
        assert (list(again.report.failed), list(again.logs)) == ([ORDERS_0], [ORDERS_1])

    def test_one_folder_that_cannot_be_read_does_not_end_the_start_nor_the_memory_of_deletions(self) -> None:
        storage = FaultyStorage()
        manager = open_in(storage)
        append(manager.create(ORDERS_0, UUID(int=1), CONFIG, START_MS), (b"a", b"1"))
        append(manager.create(ORDERS_1, UUID(int=2), CONFIG, START_MS), (b"a", b"1"))
        manager.delete(ORDERS_0, START_MS)
        survivor = storage.after_kill()
        reading = survivor.read_all
        survivor.read_all = lambda path: refuse() if "/orders-0/" in path else reading(path)  # type: ignore
        again = open_in(survivor)
        assert (list(again.report.failed), list(again.logs)) == ([ORDERS_0], [ORDERS_1])
        last = open_in(survivor.after_kill())
        assert (last.report.failed, list(last.logs)) == ({}, [ORDERS_1])

    def test_half_made_files_go_with_their_topic(self) -> None:
        """Whatever failed as the first record came."""
        operation = 0
        while True:
            storage = FaultyStorage()
            manager = open_in(storage)
            log = manager.create(ORDERS_0, UUID(int=1), CONFIG, START_MS)
            storage.fail_at(storage.operations + operation, errno.ENOSPC, sticky=True)
            with contextlib.suppress(KafkaStorageError):
                append(log, (b"a", b"1"))
            storage.heal()
            if log.is_written:
                break
            manager.delete(ORDERS_0, START_MS)
            while manager.retiring:
                manager.retire_next(START_MS)
            assert not storage.exists("data/orders-0"), storage.log[-1]
            operation += 1
        assert operation > 4

    def test_a_deletion_that_could_not_be_noted_is_noted_before_the_folders_are_renamed(self) -> None:
        storage = FaultyStorage()
        manager = open_in(storage)
        for topic_partition in (ORDERS_0, ORDERS_1):
            append(manager.create(topic_partition, UUID(int=1), CONFIG, START_MS), (b"a", b"1"))
        storage.fail_at(storage.operations, errno.ENOSPC, sticky=True)
        for topic_partition in (ORDERS_0, ORDERS_1):
            manager.delete(topic_partition, START_MS)
        storage.heal()
        manager.retire_next(START_MS)
        assert manager.retiring == 1
        killed = open_in(storage.after_kill())
        assert (dict(killed.logs), killed.report.failed) == ({}, {})


def refuse(*_: object) -> bytes:
    raise OSError(errno.EIO, "the disk says no")


def only(*known: UUID | None) -> Callable[[TopicPartition, UUID | None], LogConfig]:
    def config_of(topic_partition: TopicPartition, topic_id: UUID | None) -> LogConfig:
        if topic_id not in known:
            raise KafkaStorageError(f"{topic_partition} names the topic id {topic_id}")
        return CONFIG

    return config_of


def damaged_log(topic_id: UUID) -> FaultyStorage:
    """After a clean stop, somebody cut the log off."""
    storage = FaultyStorage()
    manager = open_in(storage)
    append(manager.create(ORDERS_0, topic_id, CONFIG, START_MS), (b"a", b"1"))
    assert manager.stop(START_MS)
    del storage.content("data/orders-0/00000000000000000000.log")[-5:]
    return storage


def open_without(storage: FaultyStorage, suffix: str) -> LogManager:
    """While no descriptor is left for files of a kind; afterwards there are enough."""
    with pytest.MonkeyPatch.context() as scarce:

        def open_file(path: str, create: bool = False) -> FaultyFile:
            if path.endswith(suffix):
                raise OSError(errno.EMFILE, "Too many open files", path)
            return FaultyStorage.open(storage, path, create)

        scarce.setattr(storage, "open", open_file)
        return open_in(storage)


class TestReopening:
    def test_a_topic_deleted_and_created_again_meanwhile_is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        storage = damaged_log(UUID(int=1))
        manager = open_in(storage)
        reopening = manager.reopening(ORDERS_0, UUID(int=1), CONFIG, START_MS)
        assert reopening is not None
        manager.delete(ORDERS_0, START_MS)
        assert manager.reopening(ORDERS_0, UUID(int=1), CONFIG, START_MS) is None
        log = manager.create(ORDERS_0, UUID(int=2), CONFIG, START_MS)
        with pytest.raises(KafkaStorageError, match="being opened"):
            append(log, (b"a", b"new"))
        with pytest.raises(KafkaStorageError, match="opening"):
            manager.retire_next(START_MS)
        storage.content("data/orders-0/00000000000000000000.log")[:] = self.whole_segment()
        reopening.run()
        assert isinstance(reopening.opened, PartitionLog)
        closed: list[PartitionLog] = []
        monkeypatch.setattr(PartitionLog, "close", lambda log, **_: closed.append(log))
        assert not manager.reopened(reopening)
        assert (manager.logs[ORDERS_0], closed) == (log, [reopening.opened])
        append(log, (b"a", b"new"))
        assert [record.value for record in read_records(log)] == [b"new"]

    def whole_segment(self) -> bytes:
        storage = FaultyStorage()
        append(open_in(storage).create(ORDERS_0, UUID(int=1), CONFIG, START_MS), (b"a", b"1"))
        return bytes(storage.content("data/orders-0/00000000000000000000.log"))

    def test_nobody_sees_a_log_before_it_is_open_and_nothing_remembers_one_that_nobody_wants(self) -> None:
        storage = FaultyStorage()
        manager = open_in(storage)
        log = manager.create(ORDERS_0, UUID(int=1), CONFIG, START_MS)
        append(log, *[(b"a", b"1")] * 10)
        for flush in manager.flushes_due(START_MS + 10 * MAX_UNFLUSHED_MS):
            flush.run()
            manager.flushed(flush, START_MS)
        request = log.flush_request()
        assert request is not None
        request.run()
        log.flushed(request, START_MS)
        manager.checkpoint()
        append(log, (b"a", b"2"))
        storage = storage.after_kill()
        manager = open_without(storage, ".log")
        assert list(manager.report.failed) == [ORDERS_0]
        reopening = manager.reopening(ORDERS_0, UUID(int=1), CONFIG, START_MS)
        assert reopening is not None
        reopening.run()
        assert isinstance(reopening.opened, PartitionLog)
        assert manager.flushes_due(START_MS + 10 * MAX_UNFLUSHED_MS) == []
        manager.delete(ORDERS_0, START_MS)
        assert not manager.reopened(reopening)
        manager.retire_next(START_MS)
        manager.checkpoint()
        append(manager.create(ORDERS_0, UUID(int=2), CONFIG, START_MS), (b"a", b"new"))
        killed = open_in(storage.after_kill())
        assert killed.report.failed == {}
        assert [record.value for record in read_records(killed.logs[ORDERS_0])] == [b"new"]

    def test_a_log_that_is_open_again_is_flushed(self) -> None:
        storage = FaultyStorage()
        append(open_in(storage).create(ORDERS_0, UUID(int=1), CONFIG, START_MS), (b"a", b"1"))
        manager = open_without(storage.after_kill(), ".log")
        reopening = manager.reopening(ORDERS_0, UUID(int=1), CONFIG, START_MS)
        assert reopening is not None
        reopening.run()
        assert manager.reopened(reopening)
        assert manager.flushes_due(START_MS) == []
        (flush,) = manager.flushes_due(START_MS + MAX_UNFLUSHED_MS)
        assert flush.log is manager.logs[ORDERS_0]

    def test_the_folder_of_another_topic_is_not_opened(self) -> None:
        storage = damaged_log(UUID(int=1))
        manager = open_in(storage)
        reopening = manager.reopening(ORDERS_0, UUID(int=2), CONFIG, START_MS)
        assert reopening is not None
        reopening.run()
        assert not manager.reopened(reopening)
        with pytest.raises(KafkaStorageError, match="had this name"):
            manager.get(ORDERS_0)


class TestHousekeeping:
    def test_retention_removes_old_segments_of_all_logs(self, open_manager: Open, tmp_path: Path) -> None:
        config = replace(CONFIG, retention_ms=1_000)
        manager = open_manager(config)
        for topic_partition in (ORDERS_0, ORDERS_1):
            log = manager.create(topic_partition, uuid4(), config, START_MS)
            append(log, (b"a", b"1"))
            log.roll(START_MS)
            append(log, (b"a", b"2"), now_ms=START_MS + 900)
        assert manager.retention(START_MS + 1_000) == 0
        assert manager.retention(START_MS + 1_001) == 2
        assert [log.log_start_offset for log in manager.logs.values()] == [1, 1]
        for removal in manager.removals_due(START_MS + 1_101):
            removal.run()
        assert list(tmp_path.glob("*/*.deleted")) == []

    def test_silent_producers_are_forgotten(self, open_manager: Open) -> None:
        manager = open_manager()
        log = manager.create(ORDERS_0, uuid4(), CONFIG, START_MS)
        append(log, (b"a", b"1"), producer_id=5, sequence=0)
        assert manager.expire_producers(START_MS + CONFIG.producer_id_expiration_ms - 1) == 0
        assert manager.expire_producers(START_MS + CONFIG.producer_id_expiration_ms) == 1

    def test_checkpoints_are_kafkas_text_and_survive_a_kill(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager()
        log = manager.create(ORDERS_0, uuid4(), CONFIG, START_MS)
        append(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
        log.delete_records(2)
        manager.checkpoint()
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 0\n"
        assert not (tmp_path / "log-start-offset-checkpoint").exists(), "not before the manifest is on the disk"
        assert open_manager().logs[ORDERS_0].log_start_offset == 2
        later_ms = START_MS + MAX_UNFLUSHED_MS
        for now_ms in (START_MS, later_ms):
            for flush in manager.flushes_due(now_ms):
                flush.run()
                manager.flushed(flush, now_ms)
        manager.checkpoint()
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
        assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
        assert open_manager().logs[ORDERS_0].log_start_offset == 2

    def test_a_checkpoint_is_written_only_if_something_changed(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager()
        append(manager.create(ORDERS_0, uuid4(), CONFIG, START_MS), (b"a", b"1"))
        manager.checkpoint()
        path = tmp_path / "recovery-point-offset-checkpoint"
        path.unlink()
        manager.checkpoint()
        assert not path.exists()

    def test_truncation_moves_the_checkpointed_recovery_point_at_once(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager(flushes=FlushSchedule(0))
        log = manager.create(ORDERS_0, uuid4(), CONFIG, START_MS)
        for _ in range(4):
            append(log, (b"a", b"1"))
        for flush in manager.flushes_due(START_MS):
            flush.run()
            manager.flushed(flush, START_MS)
        manager.checkpoint()
        manager.truncate(ORDERS_0, 2, START_MS)
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"

    def test_a_kill_during_a_truncation_leaves_a_log_that_opens(self) -> None:
        operation = 0
        while True:
            storage = FaultyStorage()
            manager = LogManager.open(storage, "data", config_of=lambda partition, topic_id: CONFIG, now_ms=START_MS)
            log = manager.create(ORDERS_0, UUID(int=1), CONFIG, START_MS)
            for _ in range(3):
                append(log, (b"a", b"1"), (b"b", b"1"))
            flush = log.flush_request()
            assert flush is not None
            flush.run()
            log.flushed(flush, START_MS)
            manager.checkpoint()
            storage.crash_at(storage.operations + operation)
            with contextlib.suppress(SimulatedCrash):
                manager.truncate(ORDERS_0, 3, START_MS)
                break
            found = LogManager.open(
                storage.after_kill(), "data", config_of=lambda partition, topic_id: CONFIG, now_ms=START_MS
            )
            assert found.report.failed == {}, storage.log[-1]
            assert found.logs[ORDERS_0].log_end_offset in (2, 6)
            operation += 1
        assert operation > 5


class TestCleaning:
    def clean(self, manager: LogManager, now_ms: int = START_MS) -> bool:
        cleaning = manager.next_cleaning(now_ms)
        if cleaning is None:
            return False
        while manager.cleaned(cleaning.clean_next(), now_ms):
            pass
        return True

    def test_a_due_log_is_cleaned_once_and_remembered(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager(COMPACTED)
        log = manager.create(ORDERS_0, uuid4(), COMPACTED, START_MS)
        for number in range(5):
            append(log, (b"a", b"%d" % number))
        log.roll(START_MS)
        assert self.clean(manager)
        assert key_values(read_records(log)) == [(4, b"a", b"4")]
        assert not self.clean(manager)
        assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 5\n"
        reopened = open_manager(COMPACTED)
        assert key_values(read_records(reopened.logs[ORDERS_0])) == [(4, b"a", b"4")]
        assert not self.clean(reopened)

    def test_the_dirtiest_log_comes_first_and_others_are_left_alone(self, open_manager: Open) -> None:
        manager = open_manager(COMPACTED)
        logs = [manager.create(tp, uuid4(), COMPACTED, START_MS) for tp in (ORDERS_0, ORDERS_1)]
        deleting = manager.create(TopicPartition("plain", 0), uuid4(), CONFIG, START_MS)
        for log in (*logs, deleting):
            append(log, (b"a", b"1"))
            log.roll(START_MS)
        assert self.clean(manager)
        assert self.clean(manager)
        assert not self.clean(manager)
        append(logs[0], (b"a", b"2"))
        append(logs[1], (b"a", b"2"), (b"b", b"x" * 500))
        for log in logs:
            log.roll(START_MS)
        cleaning = manager.next_cleaning(START_MS)
        assert cleaning is not None
        assert cleaning.topic_partition == ORDERS_1
        assert manager.next_cleaning(START_MS) is None, "one round at a time"

    def test_a_log_deleted_meanwhile_is_not_touched(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager(COMPACTED)
        log = manager.create(ORDERS_0, uuid4(), COMPACTED, START_MS)
        append(log, (b"a", b"1"))
        append(log, (b"a", b"2"))
        log.roll(START_MS)
        cleaning = manager.next_cleaning(START_MS)
        assert cleaning is not None
        group = cleaning.clean_next()
        manager.delete(ORDERS_0, START_MS)
        again = manager.create(ORDERS_0, uuid4(), COMPACTED, START_MS)
        assert manager.cleaned(group, START_MS) is False
        assert again.log_end_offset == 0
        assert not (tmp_path / "cleaner-offset-checkpoint").exists()
        assert manager.next_cleaning(START_MS) is None

    def test_segments_that_retention_took_meanwhile_stay_gone(self, open_manager: Open, tmp_path: Path) -> None:
        config = replace(COMPACTED, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1_000)
        manager = open_manager(config)
        log = manager.create(ORDERS_0, uuid4(), config, START_MS)
        append(log, (b"a", b"1"), (b"b", b"1"))
        append(log, (b"a", b"2"))
        log.roll(START_MS)
        append(log, (b"c", b"1"), now_ms=START_MS + 5_000)
        cleaning = manager.next_cleaning(START_MS)
        assert cleaning is not None
        group = cleaning.clean_next()
        assert manager.retention(START_MS + 5_000) == 1
        assert manager.cleaned(group, START_MS) is False
        assert key_values(read_records(log)) == [(3, b"c", b"1")]
        assert list(tmp_path.glob("*/*.cleaned")) == []

    def test_a_damaged_log_is_not_tried_again(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager(COMPACTED)
        log = manager.create(ORDERS_0, uuid4(), COMPACTED, START_MS)
        append(log, (b"a", b"1"))
        log.roll(START_MS)
        segment = tmp_path / "orders-0" / "00000000000000000000.log"
        damaged = bytearray(segment.read_bytes())
        damaged[-1] ^= 1
        segment.write_bytes(damaged)
        cleaning = manager.next_cleaning(START_MS)
        assert cleaning is not None
        try:
            cleaning.clean_next()
        except Exception as error:  # whatever the thread raised
            manager.cleaning_failed(error)
        assert manager.next_cleaning(START_MS) is None
        assert not log.offline

    def test_a_log_that_cannot_be_rolled_or_read_for_a_while_is_tried_again(self) -> None:
        config = replace(COMPACTED, max_compaction_lag_ms=1_000)
        storage = FaultyStorage()
        manager = open_in(storage)
        log = manager.create(ORDERS_0, uuid4(), config, START_MS)
        append(log, (b"a", b"1"))
        append(log, (b"a", b"2"))
        storage.fail_at(storage.operations, errno.EMFILE, sticky=True)
        assert manager.next_cleaning(START_MS + 1_001) is None, "there is no descriptor for a new segment"
        storage.heal()
        for error in (MemoryError(), ImportError("Too many open files"), KafkaStorageError("the disk said no")):
            assert manager.next_cleaning(START_MS + 1_001) is not None
            manager.cleaning_failed(error)
        assert self.clean(manager, START_MS + 1_001)
        assert key_values(read_records(log)) == [(1, b"a", b"2")]

    def test_a_round_that_is_stopped_can_begin_again(self, open_manager: Open) -> None:
        manager = open_manager(COMPACTED)
        log = manager.create(ORDERS_0, uuid4(), COMPACTED, START_MS)
        append(log, (b"a", b"1"))
        log.roll(START_MS)
        cleaning = manager.next_cleaning(START_MS)
        assert cleaning is not None
        manager.begin_stop()
        with pytest.raises(Exception, match="cancelled") as caught:
            cleaning.clean_next()
        manager.cleaning_failed(caught.value)
        assert manager.next_cleaning(START_MS) is not None

    def test_the_maximum_lag_reaches_into_the_active_segment(self, open_manager: Open) -> None:
        config = replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1_000)
        manager = open_manager(config)
        log = manager.create(ORDERS_0, uuid4(), config, START_MS)
        append(log, (b"a", b"1"))
        append(log, (b"a", b"2"))
        assert not self.clean(manager, START_MS + 1_000)
        assert self.clean(manager, START_MS + 1_001)
        assert key_values(read_records(log)) == [(1, b"a", b"2")]

    def test_what_is_written_after_a_truncation_counts_as_dirty(self, open_manager: Open) -> None:
        manager = open_manager(COMPACTED)
        log = manager.create(ORDERS_0, uuid4(), COMPACTED, START_MS)
        for number in range(3):
            append(log, (b"a", b"%d" % number))
            log.roll(START_MS)
        assert self.clean(manager)
        manager.truncate(ORDERS_0, 1, START_MS)
        for number in range(3):
            append(log, (b"a", b"again %d" % number))
            log.roll(START_MS)
        assert self.clean(manager)
        assert [record.value for record in read_records(log)] == [b"again 2"]


class TestAnotherLogOfTheSameName:
    """A topic that is deleted and created again, and then a kill, before any checkpoint was due."""

    def test_is_not_missed_what_the_earlier_one_held(self, open_manager: Open) -> None:
        earlier = open_manager()
        append(earlier.create(ORDERS_0, uuid4(), CONFIG, START_MS), *[(b"a", b"1")] * 8)
        assert earlier.stop(START_MS)
        manager = open_manager()
        manager.delete(ORDERS_0, START_MS)
        append(manager.create(ORDERS_0, uuid4(), CONFIG, START_MS), *[(b"a", b"2")] * 3)
        killed = open_manager()
        assert killed.report.failed == {}
        assert killed.logs[ORDERS_0].log_end_offset == 3
        assert killed.report.scanned_bytes == killed.logs[ORDERS_0].size_bytes, "nothing counts as verified"

    def test_does_not_start_where_the_earlier_one_did(self, open_manager: Open) -> None:
        earlier = open_manager()
        log = earlier.create(ORDERS_0, uuid4(), CONFIG, START_MS)
        append(log, *[(b"a", b"1")] * 8)
        log.advance_high_watermark(8)
        log.delete_records(6)
        earlier.checkpoint()
        earlier.delete(ORDERS_0, START_MS)
        append(earlier.create(ORDERS_0, uuid4(), CONFIG, START_MS), *[(b"a", b"2")] * 9)
        killed = open_manager()
        assert killed.report.failed == {}
        assert killed.logs[ORDERS_0].log_start_offset == 0

    def test_counts_as_dirty(self, open_manager: Open, tmp_path: Path) -> None:
        manager = open_manager(COMPACTED)
        append(manager.create(ORDERS_0, uuid4(), COMPACTED, START_MS), (b"a", b"1"))
        manager._cleaning._set_cleaned_below(ORDERS_0, 7)
        manager.delete(ORDERS_0, START_MS)
        append(manager.create(ORDERS_0, uuid4(), COMPACTED, START_MS), (b"a", b"1"))
        assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n0\n"
