from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.log.config import COMPACT, LogConfig
from oncelog.log.leader_epochs import EpochEntry
from oncelog.log.manifest import FILE_NAME as MANIFEST_FILE
from oncelog.log.manifest import decode, encode
from oncelog.log.partition_log import PartitionLog
from oncelog.log.recovery import DamagedLog
from oncelog.log.segment import Segment
from oncelog.log.transaction_index import AbortedTransaction
from oncelog.records.batch import ControlMarker
from tests.log.driver import DIRECTORY, PARTITION, START_MS, append, make_batch, read_records
from tests.support.faulty_storage import FaultyStorage

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200, retention_ms=-1, file_delete_delay_ms=0)
COUNT = 60


def open_log(
    storage: FaultyStorage,
    *,
    clean: bool = False,
    config: LogConfig = SMALL,
    recovery_point: int = 0,
    log_start_offset: int | None = None,
) -> PartitionLog:
    return PartitionLog.open(
        storage,
        DIRECTORY,
        PARTITION,
        config,
        now_ms=START_MS,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def written(count: int = COUNT, *, clean: bool = False) -> FaultyStorage:
    """A log of `count` records of producer 9, one a batch, leader epoch 0 for the first half and 1 for the second."""
    storage = FaultyStorage()
    log = open_log(storage)
    for sequence in range(count):
        append(log, batch_of(sequence), leader_epoch=sequence * 2 // count)
    log.close(clean=clean, now_ms=START_MS)
    return storage


def forget_manifest(storage: FaultyStorage) -> FaultyStorage:
    """As Kafka, or an older oncelog, leaves a folder."""
    storage.remove(f"{DIRECTORY}/oncelog-manifest")
    return storage


def base_of(segment: Segment) -> int:
    return segment.base_offset


def claim_start(storage: FaultyStorage, offset: int) -> None:
    """Have the manifest say that the log starts there."""
    path = f"{DIRECTORY}/{MANIFEST_FILE}"
    manifest = decode(bytes(storage.content(path)))
    storage.content(path)[:] = encode(manifest._replace(log_start_offset=offset))


def batch_of(sequence: int) -> bytearray:
    return make_batch([b"%d" % sequence], producer_id=9, sequence=sequence, timestamp_ms=START_MS + sequence)


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in read_records(log)]


def expected(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, count)]


def holds(log: PartitionLog, count: int) -> None:
    """The log holds the first `count` records, and knows the producer as if nothing had happened."""
    assert values(log) == expected(count)
    assert log.log_end_offset == count
    for sequence in range(max(count - 5, 0), count):
        repeated = append(log, batch_of(sequence))
        assert (repeated.base_offset, repeated.duplicate) == (sequence, True)
    assert append(log, batch_of(count)).base_offset == count


# --- the torn tail ---


@pytest.mark.parametrize("cut_bytes", [1, 30, 61, 68])
def test_a_torn_tail_is_cut_off(cut_bytes: int) -> None:
    storage = written()
    last = storage.paths(".log")[-1]
    size = len(storage.content(last))
    del storage.content(last)[-cut_bytes:]
    batch_bytes = len(batch_of(COUNT - 1))
    log = open_log(storage)
    assert log.recovery.truncated_bytes == batch_bytes - cut_bytes
    assert len(storage.content(last)) == size - batch_bytes
    holds(log, COUNT - 1)


@pytest.mark.parametrize("damage", [b"\0" * 500, b"\xff" * 13, b"\0" * 7 + b"\x01" + b"\0\0\0\x40" + b"\0" * 100])
def test_garbage_after_the_end_is_cut_off(damage: bytes) -> None:
    storage = written()
    storage.content(storage.paths(".log")[-1]).extend(damage)
    log = open_log(storage)
    assert log.recovery.truncated_bytes == len(damage)
    holds(log, COUNT)


def test_every_flipped_bit_of_the_last_batch_is_noticed() -> None:
    batch_bytes = len(batch_of(0))
    for position in range(batch_bytes):
        storage = written(5)
        path = storage.paths(".log")[-1]
        storage.content(path)[-batch_bytes + position] ^= 0x10
        log = open_log(storage)
        inside_crc = position >= 21 or 17 <= position < 21
        if inside_crc:
            assert log.log_end_offset == 4, position
            holds(log, 4)
        elif position < 8:
            # The CRC does not cover the offset. One that leaves the order is noticed; one that leaves a gap is not.
            assert log.log_end_offset >= 4
            assert values(log)[:4] == expected(4)


def test_after_the_first_bad_batch_everything_goes_even_whole_segments() -> None:
    storage = written()
    logs = storage.paths(".log")
    assert len(logs) > 4
    storage.content(logs[2])[300] ^= 1
    log = open_log(storage)
    bases = [int(path[-24:-4]) for path in logs]
    assert list(log.recovery.removed_segments) == bases[:2:-1]
    assert storage.paths(".log") == logs[:3]
    assert {int(path[-29:-9]) for path in storage.paths(".snapshot")} == set(bases[1:3]), "no snapshot of what is gone"
    assert bases[2] <= log.log_end_offset < bases[3]
    holds(log, log.log_end_offset)


def test_a_hole_between_segments_ends_the_log_but_not_if_compaction_made_it() -> None:
    for config, end in ((SMALL, 13), (replace(SMALL, cleanup_policy=frozenset({COMPACT})), COUNT)):
        storage = written()
        log = open_log(storage)
        second = log.segments[1]
        assert second.base_offset == 13
        log.close(clean=False, now_ms=START_MS)
        storage.content(second.path).clear()
        assert open_log(storage, config=config).log_end_offset == end


def test_a_gap_after_a_segment_that_was_once_compacted_is_no_hole() -> None:
    storage = written()
    content = storage.content(storage.paths(".log")[1])
    size = len(batch_of(13))
    del content[4 * size : 5 * size]  # a batch in the middle, and the last: as compaction would
    del content[-size:]
    log = open_log(storage)
    assert log.log_end_offset == COUNT
    assert log.recovery.removed_segments == ()
    assert len(read_records(log)) == COUNT - 2


def test_nothing_below_the_recovery_point_is_cut() -> None:
    """A flipped bit in what was durable long ago is for readers to notice: cutting there would lose all after it."""
    storage = written()
    logs = storage.paths(".log")
    storage.content(logs[1])[90] ^= 1  # in the records of the first batch
    log = open_log(storage, recovery_point=COUNT - 1)
    assert log.recovery.truncated_bytes == 0
    assert log.log_end_offset == COUNT


def test_only_segments_that_reach_the_recovery_point_are_scanned() -> None:
    storage = written()
    logs = storage.paths(".log")
    bases = [int(path[-24:-4]) for path in logs]
    for recovery_point in (0, 1, bases[1], bases[1] + 1, bases[2], COUNT):
        log = open_log(storage.after_kill(), recovery_point=recovery_point)
        first = max(index for index, base in enumerate(bases) if base < recovery_point or base == 0)
        assert list(log.recovery.rebuilt_indexes) == bases[first:]
        assert log.recovery.scanned_bytes == sum(len(storage.content(path)) for path in logs[first:])
        assert log.recovery_point == recovery_point, "nothing became durable by being read"


# --- indexes, snapshots, epochs ---


def lose(path: str, storage: FaultyStorage) -> None:
    storage.remove(path)


def cut(path: str, storage: FaultyStorage) -> None:
    del storage.content(path)[-1:]


def flip(path: str, storage: FaultyStorage) -> None:
    content = storage.content(path)
    if content:
        content[len(content) // 2] ^= 0x20


def blank(path: str, storage: FaultyStorage) -> None:
    content = storage.content(path)
    content[:] = bytes(len(content))


@pytest.mark.parametrize("damage", [lose, cut, flip, blank])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize(("clean", "recovery_point"), [(True, COUNT), (False, 0), (False, 3 * COUNT // 4)])
def test_any_damage_beside_the_log_is_mended_from_the_log(
    suffix: str, clean: bool, recovery_point: int, damage: Callable[[str, FaultyStorage], None]
) -> None:
    for number in range(len(written(clean=clean).paths(suffix))):
        storage = written(clean=clean)
        damage(storage.paths(suffix)[number], storage)
        log = open_log(storage, clean=clean, recovery_point=recovery_point)
        for offset in range(COUNT):
            found = log.find_offset_by_timestamp(START_MS + offset)
            assert found is not None
            if suffix != ".timeindex" or damage is not flip:
                assert found.offset == offset
        if suffix.startswith("leader"):
            assert log.leader_epochs.entries == (EpochEntry(0, 0), EpochEntry(1, COUNT // 2))
        holds(log, COUNT)


def test_a_broken_snapshot_is_never_believed(caplog: pytest.LogCaptureFixture) -> None:
    storage = written(clean=True)
    newest = storage.paths(".snapshot")[-1]
    storage.content(newest)[20] ^= 1
    with caplog.at_level(logging.WARNING):
        log = open_log(storage, clean=True)
    assert "rebuilding producers" in caplog.text
    assert log.recovery.broken_snapshots == (COUNT,)
    assert log.recovery.snapshot_offset == log.active_segment.base_offset
    log.close(clean=True, now_ms=START_MS)
    again = open_log(storage, clean=True)
    assert again.recovery.snapshot_offset == COUNT, "a good one has taken its place"
    holds(again, COUNT)


def test_without_any_snapshot_the_whole_log_is_replayed() -> None:
    storage = written(clean=True)
    for path in storage.paths(".snapshot"):
        storage.remove(path)
    log = open_log(storage, clean=True)
    assert log.recovery.snapshot_offset is None
    holds(log, COUNT)


def test_the_newest_snapshot_and_those_of_segments_are_kept() -> None:
    storage = written(clean=True)
    log = open_log(storage, clean=True)
    append(log, batch_of(COUNT))
    log.close(clean=True, now_ms=START_MS)
    again = open_log(storage, clean=True)
    kept = {int(path[-29:-9]) for path in storage.paths(".snapshot")}
    assert kept == {*(segment.base_offset for segment in again.segments[1:]), again.active_segment.base_offset, 61}


def test_transactions_come_back_open_ended_and_aborted() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    for number in range(20):
        batch = make_batch([b"t"], producer_id=9, sequence=number, transactional=True)
        append(log, batch)
        marker = ControlMarker(commit=number % 3 > 0, coordinator_epoch=5)
        log.append_marker(marker, producer_id=9, producer_epoch=0, leader_epoch=0, now_ms=START_MS)
    append(log, make_batch([b"open"], producer_id=8, sequence=0, transactional=True))
    log.advance_high_watermark(99)
    before = log.aborted_transactions(0, 99)
    assert before[0] == AbortedTransaction(9, 0, 1, 2)
    log.close(clean=False, now_ms=START_MS)
    for damage in (None, lose, cut, flip):
        left = storage.after_kill()
        if damage is not None:
            damage(left.paths(".txnindex")[1], left)
        log = open_log(left)
        log.advance_high_watermark(99)
        assert log.aborted_transactions(0, 99) == before
        assert log.last_stable_offset == 40
        assert left.paths(".txnindex") == storage.paths(".txnindex")


def test_a_torn_transaction_index_is_rebuilt_even_after_a_clean_stop() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    for number in range(20):
        append(log, make_batch([b"t"], producer_id=9, sequence=number, transactional=True))
        marker = ControlMarker(commit=False, coordinator_epoch=5)
        log.append_marker(marker, producer_id=9, producer_epoch=0, leader_epoch=0, now_ms=START_MS)
    before = log.aborted_transactions(0, 99)
    log.close(clean=True, now_ms=START_MS)
    del storage.content(storage.paths(".txnindex")[1])[-3:]
    assert open_log(storage, clean=True).aborted_transactions(0, 99) == before


# --- the start of the log ---


def test_the_start_offset_is_the_checkpoint_or_the_first_segment() -> None:
    storage = written()
    forget_manifest(storage)
    assert open_log(storage.after_kill(), log_start_offset=17).log_start_offset == 17
    forget_manifest(storage)
    storage.remove(storage.paths(".log")[0])
    log = open_log(storage, log_start_offset=3)
    assert log.log_start_offset == log.segments[0].base_offset == 13
    assert log.leader_epochs.entries[0] == EpochEntry(0, 13)


def test_a_start_behind_the_end_is_not_believed_without_a_checksum() -> None:
    storage = forget_manifest(written())
    before = {path: bytes(storage.content(path)) for path in storage.paths("")}
    with pytest.raises(DamagedLog, match="ends at 60, and log-start-offset-checkpoint says that it starts at 1000"):
        open_log(storage, log_start_offset=1000)
    assert {path: bytes(storage.content(path)) for path in storage.paths("")} == before


def test_a_log_that_ends_before_its_start_starts_over(caplog: pytest.LogCaptureFixture) -> None:
    """By the word of its manifest: a power loss took what came after."""
    storage = written()
    claim_start(storage, 1000)
    log = open_log(storage)
    assert "starting over" in caplog.text
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
    assert append(log, make_batch([b"x"])).base_offset == 1000


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_tail_that_is_torn_after_a_clean_stop_is_not_cut_off(has_manifest: bool) -> None:
    storage = written(clean=True)
    if not has_manifest:
        forget_manifest(storage)
    path = storage.paths(".log")[-1]
    content = storage.content(path)
    del content[-5:]
    left = bytes(content)
    with pytest.raises(DamagedLog, match="oncelog doctor data"):
        open_log(storage, clean=True)
    assert storage.content(path) == left


def test_recovery_is_the_same_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that do not fit one read of the scan, and reads that end within a batch."""
    storage = FaultyStorage()
    big = LogConfig(index_interval_bytes=200)
    log = open_log(storage, config=big)
    for sequence in range(50):
        append(log, make_batch([b"x" * (sequence * 37 % 900)], producer_id=9, sequence=sequence))
    index = bytes(storage.content(log.active_segment.path))
    log.close(clean=False, now_ms=START_MS)
    for scan_bytes in (61, 100, 333, 5000):
        monkeypatch.setattr("oncelog.log.batch_scan.SCAN_BYTES", scan_bytes)
        recovered = open_log(storage.after_kill(), config=big)
        assert recovered.log_end_offset == 50
        assert recovered.size_bytes == len(index)
        assert recovered.recovery.truncated_bytes == 0


@pytest.mark.parametrize("scan_batches", [1, 2, 3, 100])
@pytest.mark.parametrize("wrong", range(1, 6))
@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
def test_a_wrong_epoch_costs_its_batch_and_what_follows_wherever_the_reads_end(
    wrong: int, scan_batches: int, segment_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksum does not cover it, and only the next batch contradicts."""
    size = len(batch_of(0))
    config = replace(SMALL, segment_bytes=segment_bytes)
    storage = FaultyStorage()
    log = open_log(storage, config=config)
    for sequence in range(8):
        append(log, batch_of(sequence))
    segment = max((each for each in [*log.segments, log.active_segment] if each.base_offset <= wrong), key=base_of)
    storage.content(segment.path)[size * (wrong - segment.base_offset) + 13] ^= 1
    monkeypatch.setattr("oncelog.log.batch_scan.SCAN_BYTES", scan_batches * size)
    recovered = open_log(forget_manifest(storage.after_kill()), config=config)
    assert (values(recovered), recovered.leader_epochs.latest_epoch) == (expected(wrong), 0)


@pytest.mark.parametrize("scan_batches", [1, 2, 3, 100])
def test_a_wrong_offset_behind_a_gap_costs_its_batch_wherever_the_reads_end(
    scan_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where compaction may have left gaps."""
    size = len(batch_of(0))
    config = replace(SMALL, segment_bytes=1 << 20, cleanup_policy=frozenset({COMPACT}))
    storage = FaultyStorage()
    log = open_log(storage, config=config)
    for sequence in range(8):
        append(log, batch_of(sequence))
    storage.content(log.active_segment.path)[size * 5 + 7] ^= 64
    monkeypatch.setattr("oncelog.log.batch_scan.SCAN_BYTES", scan_batches * size)
    assert values(open_log(storage.after_kill(), config=config)) == expected(5)


def test_batches_without_producer_are_recovered_too() -> None:
    storage = FaultyStorage()
    log = open_log(storage)
    for number in range(30):
        append(log, make_batch([b"%d" % number]))
    assert values(open_log(storage)) == expected(30)


# --- one accident after another ---


def test_what_was_cut_off_does_not_come_back_with_the_power() -> None:
    """A whole batch beyond the torn one would fit onto the batch that takes the torn one's place."""
    size = len(batch_of(0))
    for seed in range(30):
        storage = FaultyStorage()
        log = open_log(storage)
        for sequence in range(6):
            append(log, batch_of(sequence))
        request = log.flush_request()
        assert request is not None
        request.run()
        storage.content(log.active_segment.path)[3 * size + 70] ^= 1
        recovered = open_log(storage)
        assert recovered.log_end_offset == 3
        append(recovered, make_batch([b"3"], timestamp_ms=START_MS))  # of the same size, from elsewhere
        again = open_log(storage.after_power_loss(seed))
        assert again.log_end_offset in (3, 4)


def test_a_snapshot_that_the_log_no_longer_leads_on_from_is_not_believed() -> None:
    storage = forget_manifest(written(clean=True))
    first, second, third = storage.paths(".log")[:3]
    for path in (first, second):
        storage.remove(path)
    newer = [path for path in storage.paths(".snapshot") if int(path[-29:-9]) >= int(third[-24:-4])]
    for path in newer:
        storage.remove(path)
    assert storage.paths(".snapshot") != []
    log = open_log(storage)
    assert log.recovery.snapshot_offset is None
    assert storage.paths(".snapshot")[0] > third[:-4]


def test_snapshots_above_the_recovery_point_are_written_again() -> None:
    storage = written()
    right = {path: bytes(storage.content(path)) for path in storage.paths(".snapshot")}
    for path in right:
        storage.content(path)[:] = b"torn"
    log = open_log(storage)
    assert {path: bytes(storage.content(path)) for path in storage.paths(".snapshot")} == right
    assert log.recovery.broken_snapshots == ()


def test_a_log_that_starts_over_forgets_its_producers() -> None:
    storage = written()
    claim_start(storage, 1000)
    log = open_log(storage)
    assert len(log.producers) == 0
    assert append(log, batch_of(COUNT + 5)).base_offset == 1000


# --- what opening costs ---


def test_opening_a_small_log_after_a_kill_writes_no_file() -> None:
    """A broker has thousands of them, and each write delays its start. What a file lacks, the batches tell again."""
    storage = written(3)
    del storage.log[:]
    log = open_log(storage)
    assert log.leader_epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 2))
    writes = [line for line in storage.log if line.split()[1] in ("append", "rename", "truncate")]
    assert writes == []


def test_what_opening_after_a_kill_found_is_written_with_the_next_flush() -> None:
    storage = written(3)
    log = open_log(storage)
    request = log.flush_request()
    assert request is not None
    request.run()
    assert storage.content(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n2\n0 0\n1 2\n"
    reopened = open_log(storage.after_power_loss(1))
    assert (values(reopened), reopened.leader_epochs.entries) == (expected(3), log.leader_epochs.entries)
