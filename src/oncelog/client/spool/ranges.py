"""A set of entry numbers, kept as ranges: entries are settled nearly in order, so it stays as small as the disorder.

All ranges here are half open: `first <= number < end`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class EntryRanges:
    """Disjoint, ascending ranges; neighbours never touch."""

    __slots__ = ("_ends", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._ends, strict=True)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._firsts, number) - 1
        return index >= 0 and number < self._ends[index]

    @property
    def end(self) -> int:
        """One above the highest number; 0 if there is none."""
        return self._ends[-1] if self._ends else 0

    def next_missing(self, number: int) -> int:
        """The lowest number from `number` on that is not in the set."""
        index = bisect_right(self._firsts, number) - 1
        return self._ends[index] if index >= 0 and number < self._ends[index] else number

    def missing(self, first: int, end: int) -> list[tuple[int, int]]:
        """The ranges within [first, end) that are not in the set."""
        found = []
        index = bisect_right(self._ends, first)
        while first < end:
            is_last = index == len(self._firsts)
            start, stop = (end, end) if is_last else (self._firsts[index], self._ends[index])
            if first < start:
                found.append((first, min(start, end)))
            first = stop
            index += 1
        return found

    def covers(self, first: int, end: int) -> bool:
        return self.next_missing(first) >= end

    def add(self, first: int, end: int) -> None:
        low = bisect_left(self._ends, first)
        high = bisect_right(self._firsts, end)
        if low < high:
            first = min(first, self._firsts[low])
            end = max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]

    def remove(self, first: int, end: int) -> None:
        kept = [part for low, high in self for part in ((low, min(high, first)), (max(low, end), high))]
        self._firsts = [low for low, high in kept if low < high]
        self._ends = [high for low, high in kept if low < high]
