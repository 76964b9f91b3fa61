"""Ranges of offsets: what one task reads. Owns how they are split.

A range lies in one partition and has no gaps, so that a task reads in order. Two tasks of one partition run side by
side: splitting gives up the order between them, which is why nothing is split unless the query says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from oncelog.types import TopicPartition

SKEW = 2
"""A range of more than so many times the average is too long."""

MIN_SKEWED_OFFSETS = 100_000
"""Shorter ranges are not worth another task."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    partition: TopicPartition
    start: int
    end: int
    """The first offset that is not read."""

    def __len__(self) -> int:
        return self.end - self.start

    def pieces(self, count: int) -> list[OffsetRange]:
        """As even as possible, in order."""
        count = max(1, min(count, len(self)))
        edges = [self.start + len(self) * place // count for place in range(count + 1)]
        return [OffsetRange(self.partition, *edge) for edge in pairwise(edges)]


@dataclass(frozen=True, slots=True)
class Splitting:
    """What may be split, and how far; by default nothing is."""

    min_ranges: int = 1
    """Split the longest until there are so many."""
    max_offsets: int | None = None
    """No range is longer."""
    is_skew_split: bool = False
    """A range that is much longer than the others becomes several of the average length."""


def split(ranges: Sequence[OffsetRange], splitting: Splitting) -> list[OffsetRange]:
    """Without empty ranges."""
    found = [one for one in ranges if len(one) > 0]
    if splitting.max_offsets is not None:
        found = [piece for one in found for piece in one.pieces(-(-len(one) // splitting.max_offsets))]
    if splitting.is_skew_split:
        found = _without_skew(found)
    return _at_least(found, splitting.min_ranges)


def _without_skew(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    if not ranges:
        return []
    average = max(1, sum(map(len, ranges)) // len(ranges))
    longest = max(average * SKEW, MIN_SKEWED_OFFSETS)
    return [piece for one in ranges for piece in one.pieces(-(-len(one) // average) if len(one) > longest else 1)]


def _at_least(ranges: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """Each range gets tasks in proportion to its length, and one at least; the longest get those that are left."""
    if len(ranges) >= count or not ranges:
        return list(ranges)
    total = sum(map(len, ranges))
    shares = [max(1, count * len(one) // total) for one in ranges]
    while sum(shares) < count:
        place = max(range(len(ranges)), key=lambda one: (len(ranges[one]) / shares[one], -one))
        if shares[place] >= len(ranges[place]):
            break  # even the longest piece is a single offset
        shares[place] += 1
    return [piece for one, share in zip(ranges, shares, strict=True) for piece in one.pieces(share)]
