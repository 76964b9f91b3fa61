from __future__ import annotations

import errno
import struct

import pytest

from oncelog.log.index import BLOCK_ENTRIES, CorruptIndex, OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset
from tests.support.faulty_storage import FaultyStorage

BASE = 1000
MAX_BYTES = 10 * 1024 * 1024
MANY = 3 * BLOCK_ENTRIES + 17


@pytest.fixture
def storage() -> FaultyStorage:
    storage = FaultyStorage()
    storage.make_directory("data")
    return storage


def offset_index(storage: FaultyStorage, count: int = 0, max_bytes: int = MAX_BYTES) -> OffsetIndex:
    """Entries at offsets 1002, 1004, ... and positions 100, 200, ..."""
    index = OffsetIndex(storage, "data/i", BASE, max_bytes)
    index.create()
    for number in range(1, count + 1):
        index.reserve()
        index.add(BASE + 2 * number, 100 * number)
    return index


def time_index(storage: FaultyStorage, count: int = 0) -> TimeIndex:
    """Timestamps 10, 20, ... at offsets 1001, 1002, ..."""
    index = TimeIndex(storage, "data/t", BASE, MAX_BYTES)
    index.create()
    for number in range(1, count + 1):
        index.reserve()
        index.add_if_newer(10 * number, BASE + number)
    return index


def test_offset_entries_are_kafkas_bytes(storage: FaultyStorage) -> None:
    index = offset_index(storage, 2)
    index.write_out()
    assert storage.content("data/i") == struct.pack(">iiii", 2, 100, 4, 200)


def test_time_entries_are_kafkas_bytes(storage: FaultyStorage) -> None:
    index = time_index(storage, 2)
    index.write_out()
    assert storage.content("data/t") == struct.pack(">qiqi", 10, 1, 20, 2)


@pytest.mark.parametrize("count", [0, 1, 2, BLOCK_ENTRIES, BLOCK_ENTRIES + 1, MANY])
@pytest.mark.parametrize("state", ["growing", "sealed", "reloaded", "reloaded to grow"])
def test_lookup_finds_the_last_entry_at_or_below(storage: FaultyStorage, count: int, state: str) -> None:
    index = offset_index(storage, count)
    if state == "sealed":
        index.seal()
    elif state != "growing":
        index.write_out()
        index = OffsetIndex(storage, "data/i", BASE, MAX_BYTES)
        index.load(growing=state == "reloaded to grow")
    assert index.count == count
    for target in range(BASE - 3, BASE + 2 * count + 5):
        number = min(max(target - BASE, 0) // 2, count)
        assert index.lookup(target) == OffsetPosition(BASE + 2 * number, 100 * number)
    for position in (0, 99, 100, 101, 100 * count // 2, 100 * count, 100 * count + 1):
        number = min(position // 100, count)
        assert index.lookup_position(position) == OffsetPosition(BASE + 2 * number, 100 * number)
    assert index.last_entry() == OffsetPosition(BASE + 2 * count, 100 * count)


@pytest.mark.parametrize("count", [0, 1, BLOCK_ENTRIES, MANY])
def test_time_lookup(storage: FaultyStorage, count: int) -> None:
    index = time_index(storage, count)
    for timestamp in (0, 9, 10, 11, 5 * count, 10 * count, 10 * count + 1):
        number = min(timestamp // 10, count)
        expected = TimestampOffset(10 * number, BASE + number) if number else TimestampOffset(-1, BASE)
        assert index.lookup(timestamp) == expected


def test_timestamps_only_grow(storage: FaultyStorage) -> None:
    index = time_index(storage, 2)
    index.add_if_newer(20, BASE + 9)
    index.add_if_newer(5, BASE + 9)
    assert index.count == 2
    index.add_if_newer(21, BASE + 9)
    assert index.last_entry() == TimestampOffset(21, BASE + 9)


def test_holds_at_most_one_block_in_memory(storage: FaultyStorage) -> None:
    index = offset_index(storage, MANY)
    assert len(index._tail) <= BLOCK_ENTRIES * 8
    assert len(storage.content("data/i")) == (MANY - 17) * 8
    index.seal()
    assert len(index._tail) == 0


@pytest.mark.parametrize("kept", [0, 1, BLOCK_ENTRIES - 1, BLOCK_ENTRIES, 2 * BLOCK_ENTRIES + 5])
def test_truncation_forgets_later_entries_and_growth_goes_on(storage: FaultyStorage, kept: int) -> None:
    index, times = offset_index(storage, MANY), time_index(storage, MANY)
    index.truncate_to_position(100 * kept + 1)
    times.truncate_to_offset(BASE + kept + 1)
    assert (index.count, times.count) == (kept, kept)
    index.reserve()
    index.add(BASE + 9999, 999_999)
    times.reserve()
    times.add_if_newer(99_999, BASE + 9999)
    index.write_out()
    again = OffsetIndex(storage, "data/i", BASE, MAX_BYTES)
    again.load(growing=True)
    assert again.count == kept + 1
    assert again.lookup(BASE + 9998) == OffsetPosition(BASE + 2 * kept, 100 * kept)
    assert again.last_entry() == OffsetPosition(BASE + 9999, 999_999)
    assert times.last_entry() == TimestampOffset(99_999, BASE + 9999)


def test_the_block_searched_last_is_read_once(storage: FaultyStorage) -> None:
    index = offset_index(storage, MANY)
    index.seal()
    before = storage.operations
    for number in range(BLOCK_ENTRIES + 1, 2 * BLOCK_ENTRIES + 1):
        assert index.lookup_position(100 * number) == OffsetPosition(BASE + 2 * number, 100 * number)
    reads = [line for line in storage.log[before:] if " read " in line]
    assert len(reads) <= 4, reads


def test_what_was_cut_off_is_not_found_in_the_block_searched_last(storage: FaultyStorage) -> None:
    index = offset_index(storage, MANY)
    assert index.lookup(BASE + 2 * BLOCK_ENTRIES) == OffsetPosition(BASE + 2 * BLOCK_ENTRIES, 100 * BLOCK_ENTRIES)
    index.truncate_to_position(100 * 10 + 1)
    for number in range(11, 2 * BLOCK_ENTRIES):
        index.reserve()
        index.add(BASE + 3 * number, 200 * number)
    assert index.lookup(BASE + 3 * 300) == OffsetPosition(BASE + 3 * 300, 200 * 300)


@pytest.mark.parametrize("count", [0, 1, 5, BLOCK_ENTRIES])
def test_zeros_that_kafka_allocated_are_not_entries(storage: FaultyStorage, count: int) -> None:
    index = offset_index(storage, count)
    index.write_out()
    storage.content("data/i").extend(bytes(8 * 1000))
    sealed = OffsetIndex(storage, "data/i", BASE, MAX_BYTES)
    sealed.load(growing=False)
    assert sealed.last_entry() == OffsetPosition(BASE + 2 * count, 100 * count)
    growing = OffsetIndex(storage, "data/i", BASE, MAX_BYTES)
    growing.load(growing=True)
    growing.reserve()
    growing.add(BASE + 9999, 999_999)
    growing.write_out()
    assert len(storage.content("data/i")) == 8 * (count + 1), "the padding is gone before anything is appended"


def test_full(storage: FaultyStorage) -> None:
    index = offset_index(storage, 2, max_bytes=24 + 7)
    assert not index.is_full
    index.add(BASE + 9, 900)
    assert index.is_full


def test_time_index_is_full_one_early_for_the_entry_of_sealing(storage: FaultyStorage) -> None:
    index = TimeIndex(storage, "data/t", BASE, 36)
    index.create()
    index.add_if_newer(1, BASE)
    assert not index.is_full
    index.add_if_newer(2, BASE)
    assert index.is_full


def test_a_torn_file_is_corrupt(storage: FaultyStorage) -> None:
    index = offset_index(storage, 3)
    index.write_out()
    storage.content("data/i").extend(b"\x01")
    with pytest.raises(CorruptIndex, match="not a multiple of 8"):
        index.load(growing=False)


def test_an_entry_beyond_the_segment_is_corrupt(storage: FaultyStorage) -> None:
    index = offset_index(storage, 3)
    index.check(segment_bytes=301)
    with pytest.raises(CorruptIndex, match="position 300 of a segment of 300 bytes"):
        index.check(segment_bytes=300)
    times = time_index(storage, 3)
    times.check(end_offset=BASE + 3)
    with pytest.raises(CorruptIndex, match="points to offset 1003"):
        times.check(end_offset=BASE + 2)


def test_a_failed_write_changes_nothing_and_the_next_one_repairs_the_file(storage: FaultyStorage) -> None:
    index = offset_index(storage, BLOCK_ENTRIES)
    storage.fail_at(storage.operations + 1, errno.ENOSPC, torn=True)
    with pytest.raises(OSError, match="torn"):
        index.reserve()
    assert index.count == BLOCK_ENTRIES
    assert index.last_entry() == OffsetPosition(BASE + 2 * BLOCK_ENTRIES, 100 * BLOCK_ENTRIES)
    index.reserve()
    index.add(BASE + 9999, 999_999)
    index.seal()
    assert len(storage.content("data/i")) == 8 * (BLOCK_ENTRIES + 1)
    assert index.lookup(BASE + 3) == OffsetPosition(BASE + 2, 100)
