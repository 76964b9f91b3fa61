"""Compaction of a real log in memory: what stays, what goes and when, and that nothing else notices."""

from __future__ import annotations

import errno
import re
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.errors import CorruptMessage, KafkaStorageError
from oncelog.log import cleaner
from oncelog.log.cleaner import CleaningAbandoned, Source, group_sources
from oncelog.log.partition_log import PartitionLog
from oncelog.records import compression
from tests.log.compacting import (
    COMPACTED,
    DELETE_RETENTION_MS,
    DIRECTORY,
    START_MS,
    append,
    clean,
    end_transaction,
    key_values,
    open_log,
    read_batches,
    read_committed,
    read_records,
)
from tests.support import parts
from tests.support.faulty_storage import FaultyStorage, SimulatedCrash
from tests.support.kafka import run_tool

LATER_MS = START_MS + DELETE_RETENTION_MS

OFFSET_AT, EPOCH_AT = 7, 15
"""The last bytes of both in a batch: its checksum covers neither."""


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage()


@pytest.fixture
def log(storage: FaultyStorage) -> PartitionLog:
    return open_log(storage)


def fill(log: PartitionLog, *, rounds: int = 5, keys: int = 3) -> None:
    """`rounds` values of each key, one batch per round, each round in a segment of its own."""
    for number in range(rounds):
        append(log, *[(b"k%d" % key, b"v%d" % number) for key in range(keys)])
        log.roll(START_MS)


class TestKeys:
    def test_only_the_newest_value_of_a_key_stays_at_its_offset(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        fill(log)
        end_offset = log.log_end_offset
        newest = read_records(log)[-3:]
        assert clean(log, storage) == end_offset
        assert read_records(log) == newest  # offsets, timestamps and headers too
        assert (log.log_start_offset, log.log_end_offset) == (0, end_offset)

    def test_what_is_partly_superseded_keeps_the_range_of_its_batch(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        append(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), producer_id=5, sequence=0)
        append(log, (b"a", b"2"), (b"c", b"2"), producer_id=5, sequence=3)
        log.roll(START_MS)
        clean(log, storage)
        first = next(read_batches(log)).header
        assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)
        assert (first.base_sequence, first.last_sequence) == (0, 2)
        assert key_values(read_records(log)) == [(1, b"b", b"1"), (3, b"a", b"2"), (4, b"c", b"2")]

    def test_the_active_segment_is_neither_cleaned_nor_used_for_cleaning(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        append(log, (b"a", b"1"))
        log.roll(START_MS)
        append(log, (b"a", b"2"))
        assert clean(log, storage) == 1
        assert key_values(read_records(log)) == [(0, b"a", b"1"), (1, b"a", b"2")]

    def test_a_second_round_cleans_the_clean_section_by_the_keys_of_the_dirty_one(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        append(log, (b"a", b"1"), (b"b", b"1"))
        log.roll(START_MS)
        cleaned_below = clean(log, storage)
        append(log, (b"a", b"2"))
        log.roll(START_MS)
        assert clean(log, storage, cleaned_below=cleaned_below) == 3
        assert key_values(read_records(log)) == [(1, b"b", b"1"), (2, b"a", b"2")]

    def test_more_keys_than_there_is_room_for_take_several_rounds(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        fill(log, rounds=3, keys=10)
        cleaned_below, rounds = clean(log, storage, max_keys=4), 1
        assert cleaned_below == 4
        while cleaned_below < log.log_end_offset:
            before = cleaned_below
            cleaned_below = clean(log, storage, max_keys=4, cleaned_below=cleaned_below)
            assert cleaned_below > before
            rounds += 1
        assert rounds == 8
        assert key_values(read_records(log)) == [(20 + key, b"k%d" % key, b"v2") for key in range(10)]

    def test_long_keys_are_told_apart(self, log: PartitionLog, storage: FaultyStorage) -> None:
        long_keys = [b"x" * 100 + b"%d" % i for i in range(3)]
        append(log, *[(key, b"1") for key in long_keys])
        append(log, (long_keys[1], b"2"))
        log.roll(START_MS)
        clean(log, storage)
        assert [record.offset for record in read_records(log)] == [0, 2, 3]

    @pytest.mark.parametrize("codec", range(5), ids=compression.NAMES)
    def test_a_batch_keeps_its_codec(self, log: PartitionLog, storage: FaultyStorage, codec: int) -> None:
        append(log, (b"a", b"1" * 100), (b"b", b"1" * 100), codec=codec)
        append(log, (b"a", b"2"))
        log.roll(START_MS)
        clean(log, storage)
        assert next(read_batches(log)).header.codec == codec
        assert key_values(read_records(log)) == [(1, b"b", b"1" * 100), (2, b"a", b"2")]


class TestTombstones:
    def test_a_tombstone_hides_older_values_and_stays_until_its_horizon(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        append(log, (b"a", b"1"), (b"b", b"1"))
        append(log, (b"a", None))
        log.roll(START_MS)
        for now_ms in (START_MS, LATER_MS - 1):
            clean(log, storage, now_ms=now_ms)
            assert key_values(read_records(log)) == [(1, b"b", b"1"), (2, b"a", None)]
        horizons = [batch.header for batch in read_batches(log) if batch.header.is_delete_horizon_set]
        assert [header.base_timestamp for header in horizons] == [LATER_MS]
        clean(log, storage, now_ms=LATER_MS)
        assert key_values(read_records(log)) == [(1, b"b", b"1")]

    def test_a_horizon_does_not_change_the_timestamps_of_records(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        append(log, (b"a", None), (b"b", b"1"), now_ms=START_MS - 77)
        log.roll(START_MS)
        before = read_records(log)
        clean(log, storage)
        assert read_records(log) == before

    def test_a_value_after_the_tombstone_takes_its_place(self, log: PartitionLog, storage: FaultyStorage) -> None:
        append(log, (b"a", None))
        append(log, (b"a", b"2"))
        log.roll(START_MS)
        clean(log, storage)
        assert key_values(read_records(log)) == [(1, b"a", b"2")]


class TestTransactions:
    def test_aborted_records_go_and_do_not_supersede(self, log: PartitionLog, storage: FaultyStorage) -> None:
        append(log, (b"a", b"1"))
        append(log, (b"a", b"never"), producer_id=5, sequence=0, transactional=True)
        append(log, (b"b", b"never"), producer_id=5, sequence=1, transactional=True)
        end_transaction(log, 5, commit=False)
        append(log, (b"c", b"1"))
        log.roll(START_MS)
        clean(log, storage)
        assert key_values(read_records(log)) == [(0, b"a", b"1"), (4, b"c", b"1")]
        assert key_values(read_committed(log)) == [(0, b"a", b"1"), (4, b"c", b"1")]

    def test_committed_records_supersede(self, log: PartitionLog, storage: FaultyStorage) -> None:
        append(log, (b"a", b"1"))
        append(log, (b"a", b"2"), producer_id=5, sequence=0, transactional=True)
        end_transaction(log, 5, commit=True)
        log.roll(START_MS)
        clean(log, storage)
        assert key_values(read_committed(log)) == [(1, b"a", b"2")]

    def test_a_producer_that_aborted_in_the_clean_section_supersedes_again_in_the_dirty_one(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        append(log, (b"a", b"1"))
        append(log, (b"b", b"never"), producer_id=5, sequence=0, transactional=True)
        end_transaction(log, 5, commit=False)
        log.roll(START_MS)
        cleaned_below = clean(log, storage)
        append(log, (b"a", b"2"), producer_id=5, sequence=1, transactional=True)
        end_transaction(log, 5, commit=True)
        log.roll(START_MS)
        clean(log, storage, cleaned_below=cleaned_below)
        assert key_values(read_records(log)) == [(3, b"a", b"2")]

    def test_an_open_transaction_holds_cleaning_back(self, log: PartitionLog, storage: FaultyStorage) -> None:
        append(log, (b"a", b"1"))
        log.roll(START_MS)
        append(log, (b"a", b"2"))
        log.roll(START_MS)
        append(log, (b"a", b"perhaps"), producer_id=5, sequence=0, transactional=True)
        log.roll(START_MS)
        append(log, (b"a", b"3"))
        log.roll(START_MS)
        assert clean(log, storage) == 2
        assert [record.value for record in read_records(log)] == [b"2", b"perhaps", b"3"]

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_marker_stays_until_its_records_are_gone_and_then_until_its_horizon(
        self, log: PartitionLog, storage: FaultyStorage, commit: bool
    ) -> None:
        append(log, (b"a", b"1"), producer_id=5, sequence=0, transactional=True)
        marker_offset = end_transaction(log, 5, commit=commit)
        append(log, (b"x", b"1"), producer_id=5, sequence=1)  # so that the batch above is not the producer's last
        append(log, (b"a", b"2"))
        log.roll(START_MS)

        def markers() -> list[int]:
            return [batch.header.base_offset for batch in read_batches(log) if batch.header.is_control]

        clean(log, storage)  # the records of the transaction go
        assert b"1" not in [record.value for record in read_records(log) if record.key == b"a"]
        assert markers() == [marker_offset]
        clean(log, storage)  # nothing left of them: the marker gets its horizon
        assert markers() == [marker_offset]
        clean(log, storage, now_ms=LATER_MS - 1)
        assert markers() == [marker_offset]
        clean(log, storage, now_ms=LATER_MS)
        assert markers() == []

    def test_the_index_of_aborted_transactions_follows_the_records(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        append(log, (b"a", b"never"), producer_id=5, sequence=0, transactional=True)
        log.roll(START_MS)
        end_transaction(log, 5, commit=False)
        append(log, (b"b", b"1"))
        log.roll(START_MS)
        assert len(log.aborted_transactions(0, 3)) == 1
        clean(log, storage)
        assert len(log.aborted_transactions(0, 3)) == 1  # an emptied batch of it is still there
        append(log, (b"z", b"1"), producer_id=5, sequence=1)
        log.roll(START_MS)
        clean(log, storage)
        clean(log, storage)
        assert log.aborted_transactions(0, 3) == []


class TestProducers:
    def test_the_last_batch_of_a_producer_stays_as_an_empty_one(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        append(log, (b"a", b"1"), producer_id=5, sequence=0)
        append(log, (b"a", b"2"), (b"b", b"2"), producer_id=5, sequence=1)
        append(log, (b"a", b"3"), (b"b", b"3"), producer_id=6, sequence=0)
        log.roll(START_MS)
        clean(log, storage)
        headers = [batch.header for batch in read_batches(log)]
        assert [(header.producer_id, header.base_sequence, header.record_count) for header in headers] == [
            (5, 1, 0),
            (6, 0, 2),
        ]
        assert (headers[0].base_offset, headers[0].last_offset, headers[0].last_sequence) == (1, 2, 2)

    def test_duplicates_are_recognised_after_compaction_and_the_loss_of_every_snapshot(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        append(log, (b"a", b"1"), (b"b", b"1"), producer_id=5, sequence=0)
        append(log, (b"a", b"2"), (b"b", b"2"))
        log.roll(START_MS)
        clean(log, storage)
        log.close(clean=False, now_ms=START_MS)
        for path in storage.paths(".snapshot"):
            storage.remove(path)
        reopened = open_log(storage)
        assert append(reopened, (b"a", b"1"), (b"b", b"1"), producer_id=5, sequence=0) == 0
        assert reopened.log_end_offset == 4

    def test_the_last_marker_of_a_producer_without_batches_stays(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        append(log, (b"a", b"1"), producer_id=5, sequence=0, transactional=True)
        end_transaction(log, 5, commit=True, epoch=1)  # an epoch of its own, as transactions v2 write it
        append(log, (b"a", b"2"))
        log.roll(START_MS)
        for now_ms in (START_MS, START_MS, LATER_MS, LATER_MS):
            clean(log, storage, now_ms=now_ms)
        assert [batch.header.base_offset for batch in read_batches(log) if batch.header.is_control] == [1]


class TestChoice:
    def test_a_log_is_due_when_its_dirty_part_is_large_enough(self, log: PartitionLog) -> None:
        log.update_config(replace(COMPACTED, min_cleanable_dirty_ratio=0.5))
        fill(log, rounds=4)
        assert cleaner.measure(log, None, START_MS).ratio == 1.0
        assert cleaner.measure(log, 3, START_MS).ratio == 0.75
        assert cleaner.measure(log, 3, START_MS).is_due
        assert not cleaner.measure(log, 6, START_MS).is_due
        assert not cleaner.measure(log, 12, START_MS).is_due

    def test_records_wait_for_the_minimum_lag(self, log: PartitionLog) -> None:
        log.update_config(replace(COMPACTED, min_compaction_lag_ms=100))
        append(log, (b"a", b"1"), now_ms=START_MS)
        log.roll(START_MS)
        append(log, (b"a", b"2"), now_ms=START_MS + 50)
        log.roll(START_MS)
        assert len(cleaner.measure(log, None, START_MS + 99).sources) == 0
        assert len(cleaner.measure(log, None, START_MS + 100).sources) == 1
        assert len(cleaner.measure(log, None, START_MS + 150).sources) == 2

    def test_a_log_is_due_after_the_maximum_lag_however_clean(self, log: PartitionLog) -> None:
        log.update_config(replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=100))
        fill(log, rounds=2)
        assert not cleaner.measure(log, 3, START_MS + 100).is_due
        assert cleaner.measure(log, 3, START_MS + 110).is_due
        assert not cleaner.measure(log, 6, START_MS + 110).is_due

    def test_an_end_of_cleaning_outside_the_log_is_not_believed(self, log: PartitionLog) -> None:
        fill(log, rounds=2)
        assert cleaner.measure(log, 7, START_MS).first_dirty_offset == 0
        log.delete_records(2)
        assert cleaner.measure(log, 1, START_MS).first_dirty_offset == 2


class TestFullDisk:
    @pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
    def test_a_swap_that_finds_no_room_leaves_the_log_as_it_was(self, error: int) -> None:
        operation = 0
        while True:
            storage = FaultyStorage()
            log = open_log(storage)
            fill(log, rounds=4)
            log.roll(START_MS)
            cleaning = cleaner.plan(
                log, storage, DIRECTORY, cleaner.measure(log, None, START_MS), now_ms=START_MS, max_keys=1_000
            )
            group = cleaning.clean_next()
            assert group is not None
            before = read_records(log)
            first = storage.operations
            storage.fail_at(first + operation, error)
            try:
                log.replace_segments(group.old, [group.new], START_MS)
                break
            except (KafkaStorageError, OSError):
                _, kind, name = storage.log[first + operation].split()
                assert not log.offline or kind not in ("open", "append", "sync_directory"), (kind, name)
            storage.heal()
            if not log.offline:
                assert read_records(log) == before
                clean(log, storage)
                assert len(read_records(log)) < len(before)
            operation += 1
        assert operation > 5


class TestSegments:
    def test_small_neighbours_are_merged_up_to_the_segment_size(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        fill(log, rounds=40)
        sizes = [segment.size_bytes for segment in log.segments]
        clean(log, storage)
        cleaned = log.segments
        assert len(cleaned) == -(-sum(sizes) // (COMPACTED.segment_bytes // sizes[0] * sizes[0]))
        assert cleaned[0].base_offset == 0
        assert all(segment.size_bytes <= COMPACTED.segment_bytes for segment in cleaned)

    def test_groups_respect_size_index_and_offset_range(self, log: PartitionLog) -> None:
        def source(base_offset: int, end_offset: int, size_bytes: int = 10, index_entries: int = 1) -> Source:
            return Source(log.active_segment, base_offset, end_offset, "", size_bytes, index_entries, 0)

        def bases(sources: list[Source], **limits: int) -> list[list[int]]:
            config = replace(COMPACTED, **limits)  # type: ignore[arg-type]
            return [[each.base_offset for each in group] for group in group_sources(sources, config)]

        three = [source(0, 10), source(10, 20), source(20, 30)]
        assert bases(three) == [[0, 10, 20]]
        assert bases(three, segment_bytes=20) == [[0, 10], [20]]
        assert bases(three, segment_bytes=5) == [[0], [10], [20]]
        assert bases(three, segment_index_bytes=24) == [[0, 10], [20]]
        far = [source(0, 10), source(10, 2**31), source(2**31, 2**31 + 1)]
        assert bases(far) == [[0, 10], [2**31]]

    def test_a_clean_segment_is_left_alone(self, log: PartitionLog, storage: FaultyStorage) -> None:
        append(log, (b"a", b"1"))
        log.roll(START_MS)
        before = log.segments
        clean(log, storage)
        assert log.segments == before
        assert storage.paths(".cleaned") == []

    def test_the_last_batch_of_a_segment_stays_so_that_a_swap_knows_its_end(
        self, log: PartitionLog, storage: FaultyStorage
    ) -> None:
        append(log, (b"a", b"1"))
        append(log, (b"b", b"1"))
        log.roll(START_MS)
        append(log, (b"a", b"2"), (b"b", b"2" * 1_850))
        log.roll(START_MS)
        clean(log, storage)
        headers = [batch.header for batch in read_batches(log)]
        assert [(header.base_offset, header.record_count) for header in headers] == [(1, 0), (2, 2)]

    def test_cleaned_segments_are_found_by_offset_and_time(self, log: PartitionLog, storage: FaultyStorage) -> None:
        for number in range(60):
            append(log, (b"k%d" % (number % 7), b"v%d" % number), now_ms=START_MS + 10 * number)
        log.roll(START_MS)
        clean(log, storage)
        kept = read_records(log)
        assert [record.offset for record in kept] == list(range(53, 60))
        found = log.find_offset_by_timestamp(START_MS + 545)
        assert found is not None
        assert found.offset == 55
        reopened = open_log(storage)
        assert read_records(reopened) == kept


def write_history(log: PartitionLog) -> None:
    """Values, tombstones and transactions over several segments, some of which will be merged."""
    for number in range(6):
        append(log, (b"a", b"a%d" % number), (b"b", b"b%d" % number), producer_id=5, sequence=2 * number)
        append(log, (b"x%d" % number, b"x" * 300))
        append(log, (b"t", b"t%d" % number), producer_id=6, sequence=number, transactional=True)
        end_transaction(log, 6, commit=number % 2 == 0)
        append(log, (b"b", None), (b"x%d" % number, None if number % 3 else b"y"))
        log.roll(START_MS)
    append(log, (b"a", b"active"))
    request = log.flush_request()
    assert request is not None
    request.run()
    log.flushed(request, START_MS)


class TestAccidents:
    @pytest.mark.parametrize("power_loss_seed", [None, 1, 2, 3])
    def test_a_crash_at_any_operation_of_a_round_changes_nothing_that_readers_may_rely_on(
        self, power_loss_seed: int | None
    ) -> None:
        storage = FaultyStorage()
        log = open_log(storage)
        write_history(log)
        committed = {record.offset: record for record in read_committed(log)}
        newest = {record.key: record for record in committed.values()}
        clean(log, storage)
        expected = read_records(log)
        crashes = 0
        while True:
            storage = FaultyStorage()
            log = open_log(storage)
            write_history(log)
            storage.crash_at(storage.operations + crashes)
            try:
                clean(log, storage)
            except SimulatedCrash:
                crashes += 1
                storage = storage.after_kill() if power_loss_seed is None else storage.after_power_loss(power_loss_seed)
                log = open_log(storage, recovery_point=log.recovery_point)
                found = read_committed(log)
                assert all(committed[record.offset] == record for record in found)
                assert {record.key: record for record in found} == newest
                assert storage.paths(".cleaned") == storage.paths(".swap") == []
                clean(log, storage)
                assert read_records(log) == expected
                continue
            break
        assert crashes > 100

    def test_a_segment_that_vanishes_ends_the_round(self, log: PartitionLog, storage: FaultyStorage) -> None:
        fill(log)
        dirtiness = cleaner.measure(log, None, START_MS)
        cleaning = cleaner.plan(log, storage, DIRECTORY, dirtiness, now_ms=START_MS)
        storage.remove(log.segments[2].path)
        with pytest.raises(CleaningAbandoned):
            cleaning.clean_next()
        assert storage.paths(".cleaned") == []

    @pytest.mark.parametrize("position", [70, OFFSET_AT, EPOCH_AT], ids=["records", "offset", "leader epoch"])
    def test_a_damaged_segment_is_not_cleaned(self, log: PartitionLog, storage: FaultyStorage, position: int) -> None:
        fill(log)
        storage.content(log.segments[2].path)[position] ^= 1
        with pytest.raises(CorruptMessage):
            clean(log, storage)
        assert storage.paths(".cleaned") == []

    def test_a_cancelled_round_stops(self, log: PartitionLog, storage: FaultyStorage) -> None:
        fill(log)
        dirtiness = cleaner.measure(log, None, START_MS)
        cleaning = cleaner.plan(log, storage, DIRECTORY, dirtiness, now_ms=START_MS)
        cleaning.cancel()
        with pytest.raises(CleaningAbandoned):
            cleaning.clean_next()

    def test_a_disk_error_at_any_operation_leaves_the_log_as_it_was(self) -> None:
        """Of `clean_next`, that is: what it read and wrote is beside the log."""
        operations = 0
        while True:
            storage = FaultyStorage()
            log = open_log(storage)
            fill(log, rounds=3)
            expected = read_records(log)
            dirtiness = cleaner.measure(log, None, START_MS)
            cleaning = cleaner.plan(log, storage, DIRECTORY, dirtiness, now_ms=START_MS)
            storage.fail_at(storage.operations + operations)
            try:
                cleaning.clean_next()
            except OSError:
                storage.heal()
                assert read_records(log) == expected
                assert storage.paths(".cleaned") == []
                operations += 1
                continue
            break
        assert operations > 20


@pytest.mark.kafka
def test_kafkas_own_tool_reads_cleaned_segments(tmp_path: Path) -> None:
    parts.required(parts.java)
    parts.required(parts.kafka_libs)
    storage = FaultyStorage()
    log = open_log(storage)
    write_history(log)
    clean(log, storage)
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        for path in storage.paths(suffix):
            (tmp_path / path.rpartition("/")[2]).write_bytes(storage.content(path))
    files = ",".join(str(path) for path in sorted(tmp_path.iterdir()))
    done = run_tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", files)
    printed = done.stdout
    assert "corrupt" not in printed.lower() + done.stderr.lower()
    assert "Mismatches" not in printed
    assert printed.count("isvalid: true") == len(list(read_batches(log)))
    assert f"deleteHorizonMs: OptionalLong[{LATER_MS}]" in printed
    assert "count: 0 baseSequence" in printed
    kept = [int(offset) for offset in re.findall(r"\| offset: (\d+) ", printed)]
    markers = [batch.header.base_offset for batch in read_batches(log) if batch.header.is_control]
    assert sorted(kept) == sorted([record.offset for record in read_records(log)] + markers)
