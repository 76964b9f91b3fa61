"""A set of natural numbers that arrive mostly in order, kept as ranges. Pure.

A stream of a million records that arrived completely costs one range, so an audit's memory grows with the damage it
finds and not with the topic it reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator


class NumberSet:
    """Disjoint, ascending ranges `starts[i] <= n < ends[i]`; neighbours never touch."""

    __slots__ = ("_count", "_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < self._ends[index]

    @property
    def first(self) -> int | None:
        return self._starts[0] if self._starts else None

    @property
    def last(self) -> int | None:
        return self._ends[-1] - 1 if self._ends else None

    def add(self, number: int) -> bool:
        """Add a number; False if it was there already."""
        ends = self._ends
        if ends and number == ends[-1]:
            ends[-1] += 1
        elif not ends or number > ends[-1]:
            self._starts.append(number)
            ends.append(number + 1)
        elif not self._insert(number):
            return False
        self._count += 1
        return True

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The (first, last) pairs of the ranges, ascending, both inclusive."""
        for start, end in zip(self._starts, self._ends, strict=True):
            yield start, end - 1

    def gaps(self, *, first: int = 0) -> Iterator[tuple[int, int]]:
        """The (first, last) pairs of the numbers missing between `first` and the highest number held."""
        expected = first
        for start, last in self.ranges():
            if start > expected:
                yield expected, start - 1
            expected = max(expected, last + 1)

    def missing_from(self, other: NumberSet) -> Iterator[tuple[int, int]]:
        """The (first, last) pairs of the numbers of this set that `other` does not hold."""
        for first, last in self.ranges():
            expected = first
            for held_first, held_last in other._ranges_from(first):
                if held_first > last:
                    break
                if held_first > expected:
                    yield expected, held_first - 1
                expected = max(expected, held_last + 1)
            if expected <= last:
                yield expected, last

    def _ranges_from(self, number: int) -> Iterator[tuple[int, int]]:
        """The ranges that hold `number` or come after it."""
        for index in range(max(bisect_right(self._starts, number) - 1, 0), len(self._starts)):
            yield self._starts[index], self._ends[index] - 1

    def _insert(self, number: int) -> bool:
        """Add a number below the highest one: start a range, widen one, or join two."""
        starts, ends = self._starts, self._ends
        index = bisect_right(starts, number)
        if index and number < ends[index - 1]:
            return False
        follows = index > 0 and ends[index - 1] == number
        precedes = index < len(starts) and starts[index] == number + 1
        if follows and precedes:
            ends[index - 1] = ends[index]
            del starts[index], ends[index]
        elif follows:
            ends[index - 1] += 1
        elif precedes:
            starts[index] -= 1
        else:
            starts.insert(index, number)
            ends.insert(index, number + 1)
        return True
