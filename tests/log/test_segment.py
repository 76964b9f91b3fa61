from __future__ import annotations

import errno
import logging

import pytest

from oncelog.errors import CorruptMessage
from oncelog.log.config import LogConfig
from oncelog.log.file_slice import EMPTY
from oncelog.log.index import MAX_RELATIVE_OFFSET
from oncelog.log.segment import MAX_STOPS, FoundTimestamp, Segment
from oncelog.records import kernel
from tests.log.driver import START_MS, make_batch
from tests.support.faulty_storage import Fault, FaultyStorage

CONFIG = LogConfig(segment_bytes=10_000, index_interval_bytes=300, segment_index_bytes=4096, segment_ms=60_000)
BASE = 500
BATCHES = 40
RECORDS_PER_BATCH = 2


def new_segment(config: LogConfig = CONFIG) -> tuple[FaultyStorage, Segment]:
    storage = FaultyStorage()
    storage.make_directory("data")
    segment = Segment(storage, "data", BASE, config, now_ms=START_MS)
    segment.create()
    return storage, segment


def fill(segment: Segment, count: int = BATCHES) -> list[int]:
    """Batches of two records, one every second; their sizes. Batch n holds offsets BASE + 2n and BASE + 2n + 1."""
    sizes = []
    for number in range(count):
        batch = make_batch([b"v%d" % number] * RECORDS_PER_BATCH, timestamp_ms=START_MS + 1000 * number)
        kernel.stamp(batch, 0, BASE + RECORDS_PER_BATCH * number, 3)
        header = kernel.parse_header(batch)
        segment.append(batch, header.last_offset, header.max_timestamp, START_MS)
        sizes.append(len(batch))
    return sizes


def base_offsets(data: bytes) -> list[int]:
    headers, good_bytes = kernel.scan(data, 0, len(data), True)
    assert good_bytes == len(data)
    return [header.base_offset for header in headers]


def test_finds_the_batch_of_every_offset() -> None:
    _, segment = new_segment()
    sizes = fill(segment)
    for offset in range(BASE, BASE + RECORDS_PER_BATCH * BATCHES):
        found = segment.find_batch(offset)
        assert found is not None
        number = (offset - BASE) // RECORDS_PER_BATCH
        assert found.position == sum(sizes[:number])
        assert found.header.base_offset == BASE + RECORDS_PER_BATCH * number
    assert segment.find_batch(BASE + RECORDS_PER_BATCH * BATCHES) is None
    assert segment.offset_index.count > 5


def test_reads_only_whole_batches_within_the_limit() -> None:
    _, segment = new_segment()
    sizes = fill(segment)
    for number in (0, 7, BATCHES - 3):
        for max_bytes in range(1, 1200, 37):
            found = segment.read(BASE + 2 * number, max_bytes, None, True)
            assert found is not None
            offsets = base_offsets(found.read_all())
            fitting = 1
            while number + fitting < BATCHES and sum(sizes[number : number + fitting + 1]) <= max_bytes:
                fitting += 1
            assert offsets == [BASE + 2 * (number + index) for index in range(fitting)]


def test_a_batch_larger_than_the_limit_comes_alone_or_not_at_all() -> None:
    _, segment = new_segment()
    sizes = fill(segment)
    alone = segment.read(BASE, sizes[0] - 1, None, True)
    assert alone is not None
    assert alone.size_bytes == sizes[0]
    assert segment.read(BASE, sizes[0] - 1, None, False) is EMPTY
    exact = segment.read(BASE, sizes[0], None, False)
    assert exact is not None
    assert exact.size_bytes == sizes[0]


def test_reads_below_an_end_offset() -> None:
    _, segment = new_segment()
    fill(segment)
    for end in range(BASE + 3, BASE + 20):
        found = segment.read(BASE + 2, 10_000, end, True)
        assert found is not None
        expected = [offset for offset in range(BASE + 2, end, 2) if offset + 2 <= end]
        assert base_offsets(found.read_all()) == expected, "a batch that reaches over the bound stays out"


def test_a_read_touches_hardly_more_than_it_returns() -> None:
    storage, segment = new_segment(LogConfig(segment_bytes=10**7, index_interval_bytes=4096))
    fill(segment, 3000)
    segment.seal()
    before = storage.operations
    found = segment.read(BASE + 3001, 50_000, None, True)
    assert found is not None
    assert found.size_bytes > 40_000
    reads = [line for line in storage.log[before:] if " read " in line]
    assert len(reads) <= 12, reads


def test_a_reader_goes_on_where_it_stopped_without_asking_the_index() -> None:
    storage, segment = new_segment(LogConfig(segment_bytes=10**7, index_interval_bytes=4096))
    fill(segment, 3000)
    segment.seal()
    offsets: list[int] = []
    while len(offsets) < 3000:
        before = storage.operations
        found = segment.read(BASE + RECORDS_PER_BATCH * len(offsets), 20_000, None, True)
        assert found is not None
        if offsets:
            touched = [line for line in storage.log[before:] if " read " in line]
            assert len(touched) <= 5, touched
        offsets += base_offsets(found.read_all())
    assert offsets == list(range(BASE, BASE + RECORDS_PER_BATCH * 3000, RECORDS_PER_BATCH))


def test_many_readers_are_remembered_in_bounds() -> None:
    _, segment = new_segment()
    fill(segment)
    for number in range(BATCHES - 5):
        assert segment.read(BASE + 2 * number, 300, None, True) is not None
    assert len(segment._stops) == MAX_STOPS


def test_where_a_reader_stopped_is_forgotten_with_what_was_there() -> None:
    """A record that looks like a batch must not be taken for one because a batch once began at its place."""
    _, segment = new_segment()
    sizes = fill(segment)
    first = segment.read(BASE, sizes[0] + sizes[1], None, True)
    assert first is not None
    assert base_offsets(first.read_all()) == [BASE, BASE + 2]
    segment.truncate_to(BASE + 2)
    decoy = make_batch([b"decoy"])
    kernel.stamp(decoy, 0, BASE + 4, 3)
    padding = sizes[1] - bytes(make_batch([bytes(decoy)] * 4)).index(bytes(decoy))
    batch = make_batch([b"p" * padding + bytes(decoy), b"", b"", b""])
    kernel.stamp(batch, 0, BASE + 2, 3)
    header = kernel.parse_header(batch)
    segment.append(batch, header.last_offset, header.max_timestamp, START_MS)
    assert bytes(batch)[sizes[1] :].startswith(decoy), "the decoy lies where a batch lay"
    found = segment.read(BASE + 4, 10_000, None, True)
    assert found is not None
    assert found.position == sizes[0]


def test_rolls_when_full() -> None:
    _, segment = new_segment()
    fill(segment)
    room = CONFIG.segment_bytes - segment.size_bytes
    assert not segment.must_roll(room, BASE + 999, START_MS, START_MS, 0)
    assert segment.must_roll(room + 1, BASE + 999, START_MS, START_MS, 0)


def test_rolls_by_the_records_clock() -> None:
    _, segment = new_segment()
    fill(segment)  # the first batch's newest record is at START_MS + 1
    assert not segment.must_roll(1, BASE + 999, START_MS + 1 + 60_000, START_MS, 0)
    assert segment.must_roll(1, BASE + 999, START_MS + 1 + 60_001, START_MS, 0)
    assert segment.must_roll(1, BASE + 999, START_MS + 1 + 55_001, START_MS, 5_000), "jitter comes off"
    assert not segment.must_roll(1, BASE + 999, START_MS, START_MS + 10**9, 0), "the wall clock does not matter"


def test_rolls_by_the_wall_clock_if_records_have_none() -> None:
    _, segment = new_segment()
    batch = make_batch([b"v"], timestamp_ms=-1)
    segment.append(batch, BASE, -1, START_MS)
    assert not segment.must_roll(1, BASE + 1, -1, START_MS + 60_000, 0)
    assert segment.must_roll(1, BASE + 1, -1, START_MS + 60_001, 0)


def test_rolls_before_a_relative_offset_overflows_or_an_index_is_full() -> None:
    _, segment = new_segment()
    fill(segment, 1)
    assert not segment.must_roll(1, BASE + MAX_RELATIVE_OFFSET, START_MS, START_MS, 0)
    assert segment.must_roll(1, BASE + MAX_RELATIVE_OFFSET + 1, START_MS, START_MS, 0)
    for count, is_full in ((2, False), (3, True)):  # room for three entries, and one is kept for sealing
        _, small = new_segment(LogConfig(index_interval_bytes=0, segment_index_bytes=12 * 3))
        fill(small, count)
        assert small.must_roll(1, BASE + 99, START_MS, START_MS, 0) is is_full


def test_a_new_segment_does_not_roll_at_once() -> None:
    _, segment = new_segment()
    assert not segment.must_roll(CONFIG.segment_bytes + 1, BASE, START_MS, START_MS + 10**9, 0)


@pytest.mark.parametrize("state", ["growing", "sealed"])
def test_finds_the_first_record_at_or_after_a_timestamp(state: str) -> None:
    _, segment = new_segment()
    fill(segment)
    if state == "sealed":
        segment.seal()
    for number in range(BATCHES):
        second = START_MS + 1000 * number
        expected = FoundTimestamp(second, BASE + 2 * number, 3)
        assert segment.find_timestamp(second, 0) == expected
        assert segment.find_timestamp(second - 500, 0) == expected
        assert segment.find_timestamp(second + 1, 0) == FoundTimestamp(second + 1, BASE + 2 * number + 1, 3)
    assert segment.find_timestamp(START_MS + 1000 * BATCHES, 0) is None
    assert segment.find_timestamp(0, BASE + 31) == FoundTimestamp(START_MS + 15_001, BASE + 31, 3)


def test_timestamps_out_of_order_are_found_all_the_same() -> None:
    _, segment = new_segment()
    times = [5000, 1000, 9000, 2000, 9000, 3000]
    for number, time in enumerate(times):
        batch = make_batch([b"x" * 200], timestamp_ms=time)
        kernel.stamp(batch, 0, BASE + number, 0)
        segment.append(batch, BASE + number, time, START_MS)
    segment.seal()
    assert segment.find_timestamp(1, 0) == FoundTimestamp(5000, BASE, 0)
    assert segment.find_timestamp(5001, 0) == FoundTimestamp(9000, BASE + 2, 0)
    assert segment.find_max_timestamp() == FoundTimestamp(9000, BASE + 2, 0)
    assert segment.largest_timestamp() == 9000


def test_an_empty_segment_is_as_old_as_its_file() -> None:
    _, segment = new_segment()
    assert segment.largest_timestamp() == START_MS
    assert segment.find_max_timestamp() is None
    assert segment.find_timestamp(0, 0) is None


def test_sealed_segments_hold_nothing_open() -> None:
    storage, segment = new_segment()
    fill(segment)
    segment.seal()
    reopened = Segment(storage, "data", BASE, CONFIG, now_ms=START_MS)
    reopened.open_sealed(BASE + 2 * BATCHES)
    for each in (segment, reopened):
        assert each._file is None
        assert each.max_timestamp() == (START_MS + 1000 * (BATCHES - 1) + 1, BASE + 2 * BATCHES - 1)
        found = each.find_batch(BASE + 41)
        assert found is not None
        assert found.header.base_offset == BASE + 40
        assert each._file is None


@pytest.mark.parametrize("count", [0, 1, 2, 3, BATCHES])
def test_a_closed_segment_grows_on_as_if_nothing_had_happened(count: int) -> None:
    storage, segment = new_segment()
    fill(segment, count)
    segment.write_out_indexes()
    reopened = Segment(storage, "data", BASE, CONFIG, now_ms=START_MS)
    assert reopened.open_growing().next_offset == BASE + 2 * count
    for name in ("size_bytes", "_last_indexed_position", "_max_timestamp"):
        assert getattr(reopened, name) == getattr(segment, name), name
    assert reopened.first_timestamp() == segment.first_timestamp()


@pytest.mark.parametrize("offset", [BASE, BASE + 1, BASE + 2, BASE + 41, BASE + 2 * BATCHES - 1, BASE + 2 * BATCHES])
def test_truncation_cuts_whole_batches_and_grows_on(offset: int) -> None:
    storage, segment = new_segment()
    sizes = fill(segment)
    kept = (offset - BASE) // 2
    assert segment.truncate_to(offset) == BASE + 2 * kept
    assert segment.size_bytes == sum(sizes[:kept]) == len(storage.content(segment.path))
    assert segment.find_batch(BASE + 2 * kept) is None
    if kept:
        assert segment.max_timestamp() == (START_MS + 1000 * (kept - 1) + 1, BASE + 2 * kept - 1)
    batch = make_batch([b"new"], timestamp_ms=START_MS + 10**6)
    kernel.stamp(batch, 0, BASE + 2 * kept, 4)
    segment.append(batch, BASE + 2 * kept, START_MS + 10**6, START_MS)
    found = segment.find_batch(BASE + 2 * kept)
    assert found is not None
    assert found.header.leader_epoch == 4


@pytest.mark.parametrize("position", range(0, 8 * 6, 3))
def test_a_flipped_bit_in_the_offset_index_is_noticed_when_used(
    position: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the index says, the right batch is found; if it lied, it is rebuilt."""
    for bit in range(8):
        storage, segment = new_segment()
        fill(segment)
        segment.seal()
        right = bytes(storage.content(segment.offset_index.path))
        storage.content(segment.offset_index.path)[position] ^= 1 << bit
        with caplog.at_level(logging.WARNING):
            for offset in range(BASE, BASE + 2 * BATCHES):
                found = segment.find_batch(offset)
                assert found is not None
                assert found.header.base_offset <= offset <= found.header.last_offset
                read = segment.read(offset, 900, None, True)
                assert read is not None
                assert base_offsets(read.read_all())[0] == found.header.base_offset
        if caplog.messages:
            assert storage.content(segment.offset_index.path) == right, "rebuilt"
        caplog.clear()


def test_a_time_index_that_lies_about_the_newest_record_is_rebuilt() -> None:
    """Retention goes by it: a flipped bit must not make a segment look old."""
    storage, segment = new_segment()
    fill(segment)
    segment.seal()
    right = bytes(storage.content(segment.time_index.path))
    storage.content(segment.time_index.path)[-10] ^= 0x40
    reopened = Segment(storage, "data", BASE, CONFIG, now_ms=START_MS)
    reopened.open_sealed(BASE + 2 * BATCHES)
    assert reopened.largest_timestamp() == START_MS + 1000 * (BATCHES - 1) + 1
    assert storage.content(segment.time_index.path) == right


def test_damage_in_the_log_itself_is_an_error_not_an_endless_repair() -> None:
    storage, segment = new_segment()
    sizes = fill(segment)
    segment.seal()
    storage.content(segment.path)[sum(sizes[:20]) + 16] = 9  # the magic byte of batch 20
    with pytest.raises(CorruptMessage):
        segment.find_batch(BASE + 41)


class LettingGo(FaultyStorage):
    """While something is written, the segment loses its file, as to another one that needs the descriptor."""

    segment: Segment | None = None

    def _begin(self, what: str, path: str) -> Fault | None:
        if what == "append" and self.segment is not None:
            self.segment.release()
        return super()._begin(what, path)


def test_a_torn_write_is_cut_off_even_if_the_file_is_not_held_any_more() -> None:
    storage = LettingGo()
    storage.make_directory("data")
    storage.segment = segment = Segment(storage, "data", BASE, CONFIG, now_ms=START_MS)
    segment.create()
    (size,) = fill(segment, 1)
    storage.fail_at(storage.operations + 1, errno.ENOSPC, torn=True)
    with pytest.raises(OSError, match="torn"):
        fill(segment, 1)
    assert len(storage.content(segment.path)) > size
    segment.discard_torn_write()
    assert len(storage.content(segment.path)) == segment.size_bytes == size
