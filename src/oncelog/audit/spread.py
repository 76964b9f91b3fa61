"""Where in a topic the findings of an audit lie: counts over ranges of offsets. Pure.

The ranges are the same for all partitions of a topic, and few, so that a topic of any size makes a small picture.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oncelog.audit.account import AuditReport, Found

MAX_BINS = 50


@dataclass(frozen=True, slots=True)
class Bins:
    """Ranges of equal width that hold the offsets from `first` up to `first + width * count`."""

    first: int = 0
    width: int = 1
    count: int = 1

    @staticmethod
    def over(first: int, end: int) -> Bins:
        """For the offsets from `first` on and before `end`."""
        width = max(-(-(end - first) // MAX_BINS), 1)
        return Bins(first, width, max(-(-(end - first) // width), 1))

    def index(self, offset: int) -> int:
        return min(max((offset - self.first) // self.width, 0), self.count - 1)

    @property
    def edges(self) -> tuple[int, ...]:
        return tuple(self.first + self.width * number for number in range(self.count + 1))


@dataclass(frozen=True, slots=True)
class Spread:
    """For each bin how many records are stored there, and how many of these are stored again or too late."""

    bins: Bins
    stored: tuple[int, ...]
    duplicated: tuple[int, ...]
    out_of_order: tuple[int, ...]

    @staticmethod
    def of(bins: Bins, cells: Iterable[tuple[int, int, int, int]]) -> Spread:
        """From (bin, stored, duplicated, out of order); several cells of a bin are added up."""
        sums = [[0, 0, 0] for _ in range(bins.count)]
        for index, *counts in cells:
            sums[index] = [before + more for before, more in zip(sums[index], counts, strict=True)]
        stored, duplicated, out_of_order = zip(*sums, strict=True)
        return Spread(bins, stored, duplicated, out_of_order)


class SpreadCounter:
    def __init__(self, bins: Bins) -> None:
        self._bins = bins
        self._counts = {found: [0] * bins.count for found in Found}

    def add(self, offset: int, found: Found) -> None:
        self._counts[found][self._bins.index(offset)] += 1

    def spread(self) -> Spread:
        twice, late = self._counts[Found.DUPLICATED], self._counts[Found.OUT_OF_ORDER]
        stored = map(sum, zip(self._counts[Found.FRESH], twice, late, strict=True))
        return Spread(self._bins, tuple(stored), tuple(twice), tuple(late))


@dataclass(frozen=True, slots=True)
class TopicAudit:
    """What the audit of one topic found, and where."""

    topic: str
    report: AuditReport
    spread: Spread


def all_partitions(audits: Iterable[TopicAudit]) -> AuditReport:
    return AuditReport(tuple(entry for audit in audits for entry in audit.report.partitions))
