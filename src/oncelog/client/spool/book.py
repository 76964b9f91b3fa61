"""One partition in the spool: how far it is written, loaded and settled, and in which files its entries lie."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from oncelog.client.spool.facts import PartitionFates
from oncelog.client.spool.ranges import EntryRanges
from oncelog.types import TopicPartition


class LiveCount(Protocol):
    """A file, as a book sees it: how many of its entries are not settled."""

    number: int
    live: int


class Run:
    """Consecutive entries that lie in one file."""

    __slots__ = ("end", "file", "first")

    def __init__(self, first: int, file: LiveCount) -> None:
        self.first = first
        self.end = first
        self.file = file


class PartitionBook:
    __slots__ = ("fates", "loaded", "next", "partition", "runs", "topic")

    def __init__(self, partition: TopicPartition, fates: PartitionFates) -> None:
        self.partition = partition
        self.topic = partition.topic.encode()
        self.fates = fates
        self.next = 0
        """The number of the next entry to be written."""
        self.loaded = 0
        """Entries below are in memory or settled; those from here on wait on disk."""
        self.runs: deque[Run] = deque()

    def written(self, entry: int, file: LiveCount) -> None:
        """An unsettled entry lies in `file`. Entries come in order."""
        runs = self.runs
        if not runs or runs[-1].file is not file or runs[-1].end != entry:
            runs.append(Run(entry, file))
        runs[-1].end = entry + 1
        file.live += 1
        self.next = entry + 1

    def take_back(self, entry: int) -> None:
        """`written` was called for this entry, the last one, and perhaps did not come to its end: it was not written
        after all. The file's count is the caller's to put right."""
        runs = self.runs
        if runs and runs[-1].end > entry:
            runs[-1].end = entry
        if runs and runs[-1].first >= runs[-1].end:
            runs.pop()
        self.next = entry

    def live_in(self, file: LiveCount) -> int:
        """How many of its entries in this file are not settled."""
        missing = self.fates.settled.missing
        return sum(high - low for run in self.runs if run.file is file for low, high in missing(run.first, run.end))

    def skip_to(self, entry: int) -> bool:
        """Count from `entry` on; whether numbers are left out, which must be settled."""
        is_ahead = self.next < entry
        self.next = max(self.next, entry)
        return is_ahead

    def took(self, count: int = 1) -> None:
        """The next waiting entries are in memory now."""
        for _ in range(count):
            self.loaded = self.fates.settled.next_missing(self.loaded + 1)

    def take_to(self, end: int) -> None:
        """All entries below are in memory now; some of them may be counted already."""
        if self.loaded < end:
            self.loaded = self.fates.settled.next_missing(end)

    def release(self, first: int, end: int) -> bool:
        """Let go of the files, before the entries are settled in the fates: those already settled count no more.
        Whether a file holds nothing any more."""
        is_emptied = False
        for low, high in self.fates.settled.missing(first, end):
            for run in self.runs:
                if run.first >= high:
                    break
                run.file.live -= max(min(run.end, high) - max(run.first, low), 0)
                is_emptied |= run.file.live == 0
        return is_emptied

    def forget_settled_runs(self) -> None:
        settled_to = self.fates.settled.next_missing(0)
        while self.runs and self.runs[0].end <= settled_to:
            self.runs.popleft()

    def rewind(self) -> None:
        """Everything waits that is neither settled nor in an open batch at the front."""
        settled = self.fates.settled
        loaded = settled.next_missing(0)
        for batch in self.fates.numbered:
            if batch.first > loaded:
                break
            loaded = settled.next_missing(batch.end)
        self.loaded = loaded

    @property
    def waiting(self) -> int:
        return sum(end - first for first, end in self.fates.settled.missing(self.loaded, self.next))

    def lost_entries(self, first: int, end: int) -> list[tuple[int, int]]:
        """Which of these entries are neither settled nor in any file."""
        known = EntryRanges()
        for ranges in (self.fates.settled, ((run.first, run.end) for run in self.runs)):
            for low, high in ranges:
                known.add(low, high)
        return known.missing(first, end)
