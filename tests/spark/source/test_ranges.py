from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as some

from oncelog.spark.source.ranges import MIN_SKEWED_OFFSETS, OffsetRange, Splitting, split
from oncelog.types import TopicPartition


def ranges_of(*lengths: int) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", place), 5, 5 + length) for place, length in enumerate(lengths)]


def lengths_of(ranges: list[OffsetRange]) -> list[int]:
    return [len(one) for one in ranges]


def test_by_default_a_partition_is_one_task() -> None:
    assert split(ranges_of(10, 0, 1_000_000_000), Splitting()) == [*ranges_of(10), ranges_of(0, 0, 1_000_000_000)[2]]


def test_the_longest_are_split_until_there_are_enough() -> None:
    assert lengths_of(split(ranges_of(100, 10), Splitting(min_ranges=5))) == [25, 25, 25, 25, 10]
    assert lengths_of(split(ranges_of(2), Splitting(min_ranges=5))) == [1, 1]
    assert split([], Splitting(min_ranges=5)) == []


def test_no_range_is_longer_than_allowed() -> None:
    assert lengths_of(split(ranges_of(10, 3), Splitting(max_offsets=4))) == [3, 3, 4, 3]


def test_a_skewed_partition_is_split_into_average_ones() -> None:
    long, short = 8 * MIN_SKEWED_OFFSETS, MIN_SKEWED_OFFSETS
    found = split(ranges_of(long, *[short] * 7), Splitting(is_skew_split=True))
    average = (long + 7 * short) // 8
    assert max(lengths_of(found)) <= average
    assert len(found) == 7 + -(-long // average)
    even = ranges_of(long, long, long)
    assert split(even, Splitting(is_skew_split=True)) == even


@given(
    some.lists(some.integers(0, 10**9), max_size=12),
    some.builds(
        Splitting,
        some.integers(1, 40),
        some.none() | some.integers(10**6, 10**9),
        some.booleans(),
    ),
)
def test_pieces_are_the_whole_in_order(lengths: list[int], splitting: Splitting) -> None:
    whole = [one for one in ranges_of(*lengths) if len(one)]
    pieces = split(whole, splitting)
    for one in whole:
        own = [piece for piece in pieces if piece.partition == one.partition]
        assert own[0].start == one.start
        assert own[-1].end == one.end
        assert all(before.end == after.start for before, after in pairwise(own))
    assert all(len(piece) > 0 for piece in pieces)
    assert len(pieces) >= min(splitting.min_ranges, sum(lengths))
