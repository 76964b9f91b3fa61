"""What lay on the disk is verified before it is handed out: every flipped bit is noticed, and nothing is read twice."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from oncelog.errors import CorruptMessage, KafkaStorageError
from oncelog.log.leader_epochs import EpochEntry
from oncelog.log.partition_log import PartitionLog
from oncelog.log.segment import Segment
from oncelog.log.verification import BatchOrder, Checked, VerifiedRange, check_batches
from oncelog.records import kernel
from oncelog.records.batch import HEADER_SIZE, BatchHeader
from tests.log.driver import DIRECTORY, PARTITION, SMALL, START_MS, append, make_batch, read_records
from tests.support.faulty_storage import FaultyFile, FaultyStorage

UNCOVERED_BYTES = 21
"""Of a batch's header: what its checksum does not cover, and the checksum itself."""
EPOCHS = (0, 0, 0, 2, 2, 5)
"""Of the batches, in turn."""
BATCHES = 24
EVERYTHING = 1 << 30


def opened(storage: FaultyStorage, *, clean: bool = True) -> PartitionLog:
    log = PartitionLog.open(storage, DIRECTORY, PARTITION, SMALL, now_ms=START_MS, clean=clean)
    log.advance_high_watermark(log.log_end_offset)
    return log


def written() -> FaultyStorage:
    """A log of several segments, closed cleanly."""
    storage = FaultyStorage()
    log = opened(storage)
    for number in range(BATCHES):
        epoch = EPOCHS[number * len(EPOCHS) // BATCHES]
        append(log, make_batch([b"%d/%d" % (number, each) * 3 for each in range(1 + number % 3)]), leader_epoch=epoch)
    log.close(clean=True, now_ms=START_MS)
    return storage


def stored_batches(storage: FaultyStorage) -> dict[tuple[str, int], tuple[BatchHeader, bytes]]:
    """By the file and the position in it."""
    found = {}
    for path in storage.paths(".log"):
        data, position = bytes(storage.content(path)), 0
        for header in kernel.scan(data, 0, len(data), True)[0]:
            found[path, position] = header, data[position : position + header.size_bytes]
            position += header.size_bytes
    return found


def flips(storage: FaultyStorage) -> Iterator[tuple[str, FaultyStorage]]:
    """The log with one bit flipped: of every byte that no checksum covers, and of one that it does."""
    for path, start in stored_batches(storage):
        for position in [*range(UNCOVERED_BYTES), HEADER_SIZE]:
            for bit in (0, 3, 7):
                damaged = storage.copy()
                damaged.content(path)[start + position] ^= 1 << bit
                yield f"{path}, batch at {start}, byte {position}, bit {bit}", damaged


def served(log: PartitionLog, offset: int, max_bytes: int) -> bytes | None:
    """None if it is refused."""
    try:
        return log.read(offset, max_bytes, upper_bound=log.log_end_offset).read_all()
    except CorruptMessage:
        return None


@pytest.fixture(autouse=True)
def _quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    logging.disable(logging.NOTSET if "caplog" in request.fixturenames else logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("max_bytes", [1, 300, EVERYTHING])
def test_no_flipped_bit_is_served_to_whoever_begins_anywhere(max_bytes: int) -> None:
    """Nor is the batch that has it left out."""
    storage = written()
    right = {}
    for header, data in stored_batches(storage).values():
        right.update(dict.fromkeys(range(header.base_offset, header.next_offset), data))
    for what, damaged in flips(storage):
        refused = 0
        try:
            log = opened(damaged)
        except KafkaStorageError:
            continue  # a start notices it
        for offset in range(0, log.log_end_offset, 1 if max_bytes == 300 else 3):
            found = served(log, offset, max_bytes)
            position = 0
            while found is not None and position < len(found):
                batch = right[offset]
                assert found[position : position + len(batch)] == batch, f"{what}: read at {offset}"
                position += len(batch)
                offset = kernel.parse_header(batch).next_offset
            refused += found is None
            assert found is None or position > 0, f"{what}: nothing comes at {offset}, and nobody hears why"
        assert refused or max_bytes != 300, what


def test_a_reader_gets_all_before_the_damage_and_may_go_on_behind_it() -> None:
    storage = written()
    batches = stored_batches(storage)
    (path, start), (header, _) = list(batches.items())[5]
    storage.content(path)[start + 3] ^= 1
    log = opened(storage)
    before, offset = b"", 0
    while (found := served(log, offset, EVERYTHING)) is not None:
        before += found
        offset = kernel.scan(found, 0, len(found), True)[0][-1].next_offset
    assert offset == header.base_offset
    assert before == b"".join(data for each, data in batches.values() if each.base_offset < offset)
    last = log.segments[1].base_offset
    assert served(log, last, EVERYTHING)
    assert not append(log, make_batch([b"more"])).duplicate


@pytest.mark.parametrize("byte", [HEADER_SIZE, 3])
def test_who_goes_on_behind_the_damage_gets_what_is_good_in_the_same_segment(byte: int) -> None:
    """Also if no index entry lies between. A damaged batch that has a wrong offset hides what it claims."""
    storage = written()
    right = {}
    for header, data in stored_batches(storage).values():
        right.update(dict.fromkeys(range(header.base_offset, header.next_offset), data))
    for (path, start), (damaged, _) in list(stored_batches(storage).items())[:6]:
        disk = storage.copy()
        disk.content(path)[start + byte] ^= 64
        log = opened(disk)
        refused = []
        for offset in range(log.log_end_offset):
            found = served(log, offset, 1)
            assert found in (None, right[offset])
            if found is None:
                refused.append(offset)
        assert set(range(damaged.base_offset, damaged.next_offset)) <= set(refused)
        if byte == HEADER_SIZE:
            assert refused == list(range(damaged.base_offset, damaged.next_offset))


def test_damage_is_told_once_with_the_place_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    storage = written()
    path, start = list(stored_batches(storage))[5]
    storage.content(path)[start + HEADER_SIZE] ^= 1
    log = opened(storage)
    offset = stored_batches(written())[path, start][0].base_offset
    for _ in range(3):
        assert served(log, offset, EVERYTHING) is None
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert f"{path} is damaged at position {start}" in told
    assert "`oncelog doctor data --deep`" in told


# --- what it costs ---


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads that are more than looking for a batch."""
    sizes: list[int] = []
    read_into = FaultyFile.read_into

    def counted(file: FaultyFile, position: int, buffer: bytearray | memoryview) -> int:
        sizes.append(len(buffer))
        return read_into(file, position, buffer)

    monkeypatch.setattr(FaultyFile, "read_into", counted)
    return sizes


def test_what_this_process_wrote_is_never_read_to_be_verified(read_bytes: list[int]) -> None:
    storage = FaultyStorage()
    log = opened(storage)
    for number in range(BATCHES):
        append(log, make_batch([b"%d" % number]))
    assert len(read_records(log)) == BATCHES
    assert read_bytes == []


def test_what_was_recovered_is_not_verified_again(read_bytes: list[int]) -> None:
    log = opened(written().after_kill(), clean=False)
    assert read_bytes
    del read_bytes[:]
    read_records(log)
    assert read_bytes == []


def test_cold_bytes_are_verified_once(read_bytes: list[int]) -> None:
    log = opened(written())
    del read_bytes[:]
    first = read_records(log)
    assert sum(read_bytes) <= 2 * log.size_bytes
    del read_bytes[:]
    assert read_records(log) == first
    assert read_bytes == []


def test_one_read_verifies_so_much_and_no_more_and_all_comes_in_the_end() -> None:
    storage = written()
    log = opened(storage)
    offset, data = 0, b""
    while offset < log.log_end_offset:
        found = log.read(offset, EVERYTHING, upper_bound=log.log_end_offset, max_cold_bytes=250)
        assert 0 < found.size_bytes <= 250
        assert found.verified_bytes <= 250
        data += found.read_all()
        offset = kernel.scan(data, 0, len(data), True)[0][-1].next_offset
    assert data == b"".join(bytes(storage.content(path)) for path in storage.paths(".log"))


def test_a_batch_larger_than_that_is_verified_whole() -> None:
    log = opened(written())
    found = log.read(0, EVERYTHING, upper_bound=log.log_end_offset, max_cold_bytes=1)
    assert found.size_bytes == found.verified_bytes == len(make_batch([b"0/0" * 3]))


def test_without_an_allowance_only_what_is_verified_comes() -> None:
    log = opened(written())
    assert log.read(0, EVERYTHING, upper_bound=log.log_end_offset, max_cold_bytes=0).size_bytes == 0
    all_of_it = log.read(0, EVERYTHING, upper_bound=log.log_end_offset)
    again = log.read(0, EVERYTHING, upper_bound=log.log_end_offset, max_cold_bytes=0)
    assert again.size_bytes == all_of_it.size_bytes
    assert again.verified_bytes == 0


# --- the rule ---


def header_at(base_offset: int, count: int = 1, epoch: int = 0) -> BatchHeader:
    batch = make_batch([b"x"] * count)
    kernel.stamp(batch, 0, base_offset, epoch)
    return kernel.parse_header(batch)


def test_offsets_grow_within_the_segment() -> None:
    order = BatchOrder((), 10, 20)
    assert order.problem(header_at(9)) == "it has offset 9, where 10 is due"
    assert order.problem(header_at(19, 2)) == "it has offsets up to 20, and the segment ends before 20"
    assert order.problem(header_at(10, 3)) is None
    assert order.problem(header_at(12)) == "it has offset 12, where 13 is due"
    assert order.problem(header_at(19)) is None


def test_epochs_are_those_in_which_the_offsets_were_written() -> None:
    order = BatchOrder((EpochEntry(3, 10), EpochEntry(5, 20)), None)
    assert order.problem(header_at(5, epoch=2)) is None  # before all that is known
    assert order.problem(header_at(6, epoch=1)) == "it has leader epoch 1, after 2"
    assert order.problem(header_at(10, epoch=5)) == "it has leader epoch 5, and offset 10 was written in 3"
    assert order.problem(header_at(10, epoch=3)) is None
    assert order.problem(header_at(11, epoch=-1)) is None  # written before there were any
    assert order.problem(header_at(20, epoch=3)) == "it has leader epoch 3, and offset 20 was written in 5"
    assert order.problem(header_at(20, epoch=5)) is None


def compacted(*offsets: int) -> tuple[FaultyFile, list[int]]:
    file, ends = FaultyStorage().open("log", create=True), []
    for offset in offsets:
        batch = make_batch([b"x"])
        kernel.stamp(batch, 0, offset, 0)
        file.append(batch)
        ends.append(file.size)
    return file, ends


@pytest.mark.parametrize(
    ("offsets", "good"),
    [
        ((0, 4, 9, 15), 4),
        ((0, 4, 9 + 8, 15), 2),  # contradicted by the next one
        ((0, 4, 9 - 8, 15), 1),  # one of the two is wrong, and nothing tells which
        ((0, 1, 2 - 2, 15), 2),  # the one before follows: it is this one
        ((0, 4, 9, 15 + 32), 3),  # beyond the end
        ((0, 4, 9 + 2, 15), 4),  # within the gap: no one can tell
    ],
)
def test_a_batch_behind_a_gap_is_believed_if_the_next_one_follows(offsets: tuple[int, ...], good: int) -> None:
    file, ends = compacted(*offsets)
    checked = check_batches(file, 0, file.size, file.size, BatchOrder((), 0, 20))
    assert checked.end_position == ends[good - 1]
    assert (checked.damage is None) == (good == len(offsets))
    up_to_there = check_batches(file, 0, ends[2], file.size, BatchOrder((), 0, 20))
    assert up_to_there.end_position == min(ends[good - 1], ends[2])


def test_a_range_grows_with_a_reader_and_begins_anew_with_another() -> None:
    verified = VerifiedRange()
    for start, end, expected in ((10, 20, (10, 20, 20)), (20, 30, (10, 30, 30)), (5, 12, (5, 30, 30))):
        verified.add(start, Checked(end, end))
        assert (verified.start, verified.end, verified.next_offset) == expected
    verified.add(50, Checked(50, 50))
    assert verified.end == 30
    verified.add(50, Checked(60, 60))
    assert (verified.start, verified.end) == (50, 60)


def test_an_index_that_names_no_batch_right_does_not_hide_one() -> None:
    """As in a log that Kafka wrote as a follower: entries name the last offset of several batches."""
    config = replace(SMALL, segment_bytes=100_000, index_interval_bytes=0)
    storage = FaultyStorage()
    segment = Segment(storage, "data", 0, config, now_ms=START_MS)
    segment.create()
    for offset in range(0, 80, 2):
        batch = make_batch([b"a", b"b"])
        kernel.stamp(batch, 0, offset, 0)
        segment.append(batch, min(offset + 3, 79), START_MS, START_MS)
    size = segment.size_bytes // 40
    segment.seal()
    reopened = Segment(storage, "data", 0, config, now_ms=START_MS)
    reopened.open_sealed(80)
    for offset in (0, 13, 44, 79):
        found = reopened.read(offset, size, None, True, segment_end=80)
        assert found is not None
        assert kernel.parse_header(found.read_all()).base_offset == offset // 2 * 2
