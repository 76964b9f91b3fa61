from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from oncelog.spark.source.limits import Patience, limited
from oncelog.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
sizes = some.lists(some.integers(0, 10**12), min_size=1, max_size=20)


def test_shares_are_in_proportion() -> None:
    assert limited(100, {A: 0, B: 50, C: 7}, {A: 900, B: 150, C: 7}) == {A: 90, B: 60, C: 7}


def test_a_small_partition_does_not_starve() -> None:
    assert limited(10, {A: 0, B: 0}, {A: 1_000_000, B: 1}) == {A: 9, B: 1}


def test_what_fits_is_taken_as_a_whole() -> None:
    assert limited(10, {A: 0, B: 5}, {A: 5, B: 10}) == {A: 5, B: 10}


@given(sizes, some.integers(1, 10**6))
def test_a_limit_is_kept_and_everybody_goes_on(lengths: list[int], limit: int) -> None:
    start = {TopicPartition("t", place): place for place in range(len(lengths))}
    end = {partition: start[partition] + length for partition, length in zip(start, lengths, strict=True)}
    found = limited(limit, start, end)
    taken = {partition: found[partition] - start[partition] for partition in start}
    assert all(start[one] <= found[one] <= end[one] for one in start)
    assert all(taken[one] > 0 for one in start if end[one] > start[one])
    assert sum(taken.values()) <= limit + len(lengths)


def test_patience_ends_with_enough_or_with_time() -> None:
    patience = Patience(min_offsets=100, max_delay_ms=1000)
    assert not patience.waits(1, last_batch_ms=None, now_ms=5)
    assert patience.waits(99, last_batch_ms=0, now_ms=999)
    assert not patience.waits(100, last_batch_ms=0, now_ms=1)
    assert not patience.waits(1, last_batch_ms=0, now_ms=1000)
