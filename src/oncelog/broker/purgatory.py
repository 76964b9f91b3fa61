"""Fetches that wait for data: who waits for which partition, and when there is enough.

Owns the index from partition to waiting fetches. Never reads a log, never looks at a clock: appends are reported
to it, deadlines are the shell's timers. A waiting fetch counts the bytes that were appended to its partitions since
it parked, so that an append costs O(fetches waiting on that partition), however many partitions each of them names.
There is room for `MAX_WATCHED_PARTITIONS`: a fetch that finds none is answered with what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from oncelog.types import TopicPartition

MAX_WATCHED_PARTITIONS = 100_000
"""The partitions of all waiting fetches, each as often as it is waited for: some 500 bytes with what the fetch itself
remembers of it."""


@dataclass(slots=True, eq=False)
class WaitingFetch:
    partitions: Collection[TopicPartition]
    missing_bytes: int
    wake: Callable[[], None]
    is_hidden: Callable[[TopicPartition], bool] | None = None
    """Of a reader of committed records: whether an open transaction hides what was appended to a partition last."""


class FetchPurgatory:
    def __init__(self) -> None:
        self.watched_partitions = 0
        self._parked: set[WaitingFetch] = set()
        self._waiting: dict[TopicPartition, dict[WaitingFetch, None]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def has_room(self, partition_count: int) -> bool:
        return self.watched_partitions + partition_count <= MAX_WATCHED_PARTITIONS

    def park(self, fetch: WaitingFetch) -> None:
        self._parked.add(fetch)
        self.watched_partitions += len(fetch.partitions)
        for partition in fetch.partitions:
            self._waiting.setdefault(partition, {})[fetch] = None

    def remove(self, fetch: WaitingFetch) -> None:
        """Forget a fetch that expired or whose connection is gone; unknown ones are fine."""
        if fetch not in self._parked:
            return
        self._parked.discard(fetch)
        self.watched_partitions -= len(fetch.partitions)
        for partition in fetch.partitions:
            fetches = self._waiting.get(partition)
            if fetches is not None:
                fetches.pop(fetch, None)
                if not fetches:
                    del self._waiting[partition]

    def appended(self, partition: TopicPartition, size_bytes: int) -> None:
        """Readers may now see `size_bytes` more of this partition: wake the fetches that have waited for as much."""
        fetches = self._waiting.get(partition)
        if not fetches:
            return
        enough = []
        for fetch in fetches:
            if fetch.is_hidden is not None and fetch.is_hidden(partition):
                continue
            fetch.missing_bytes -= size_bytes
            if fetch.missing_bytes <= 0:
                enough.append(fetch)
        self._wake(enough)

    def released(self, partition: TopicPartition) -> None:
        """A transaction has ended: readers of committed records may see what it had hidden, however much that is."""
        fetches = self._waiting.get(partition, ())
        self._wake([fetch for fetch in fetches if fetch.is_hidden is not None])

    def changed(self, partition: TopicPartition) -> None:
        """The partition was deleted, truncated or went offline: whoever waits for it must hear at once."""
        self._wake(list(self._waiting.get(partition, ())))

    def _wake(self, fetches: list[WaitingFetch]) -> None:
        for fetch in fetches:
            if fetch in self._parked:  # else one that was woken before it has ended this one too
                self.remove(fetch)
                fetch.wake()
