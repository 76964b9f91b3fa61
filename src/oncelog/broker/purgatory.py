"""Fetches that wait for data, and who is to know when a partition changes.

Owns the index from partition to those that watch it: the partitions of fetch views (see `fetch_view`), each entered
once, when it is first read, and not with every fetch. Never reads a log, never looks at a clock: appends are reported
to it, deadlines are the shell's timers. A waiting fetch counts the bytes that were appended to its partitions since it
parked, so that an append costs O(views of that partition), and parking costs nothing, however many partitions a fetch
names. Bounds are those of the views: `FetchSessionCache` for sessions, `SessionlessViews` for all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oncelog.broker.fetch_view import CachedPartition, FetchView
from oncelog.types import TopicPartition


@dataclass(slots=True, eq=False)
class WaitingFetch:
    view: FetchView
    missing_bytes: int
    wake: Callable[[], None]
    is_hidden: Callable[[TopicPartition], bool] | None = None
    """Of a reader of committed records: whether an open transaction hides what was appended to a partition last."""


class FetchPurgatory:
    def __init__(self) -> None:
        self.watched_partitions = 0
        self._parked: set[WaitingFetch] = set()
        self._watching: dict[TopicPartition, dict[CachedPartition, None]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    # --- who watches ------------------------------------------------------------------------------------------------

    def watch(self, cached: CachedPartition, partition: TopicPartition) -> None:
        """From now on it becomes due when the partition changes."""
        if cached.watched is not None:
            self.unwatch(cached)
        cached.watched = partition
        self.watched_partitions += 1
        watching = self._watching.get(partition)
        if watching is None:
            self._watching[partition] = {cached: None}
        else:
            watching[cached] = None

    def unwatch(self, cached: CachedPartition) -> None:
        partition = cached.watched
        if partition is None:
            return
        cached.watched = None
        self.watched_partitions -= 1
        watching = self._watching[partition]
        del watching[cached]
        if not watching:
            del self._watching[partition]

    def park(self, fetch: WaitingFetch) -> None:
        """A view has one fetch that waits at a time."""
        assert fetch.view.waiting is None
        fetch.view.waiting = fetch
        self._parked.add(fetch)

    def remove(self, fetch: WaitingFetch) -> None:
        """Forget a fetch that expired or whose connection is gone; unknown ones are fine."""
        if fetch in self._parked:
            self._parked.discard(fetch)
            fetch.view.waiting = None

    # --- what happens -----------------------------------------------------------------------------------------------

    def appended(self, partition: TopicPartition, size_bytes: int) -> None:
        """Readers may now see `size_bytes` more of this partition: wake the fetches that have waited for as much."""
        watching = self._watching.get(partition)
        if watching is None:
            return
        enough = []
        for cached in watching:
            view = cached.view
            view.due[cached] = None
            fetch = view.waiting
            if fetch is None or (fetch.is_hidden is not None and fetch.is_hidden(partition)):
                continue
            fetch.missing_bytes -= size_bytes
            if fetch.missing_bytes <= 0:
                enough.append(fetch)
        if enough:
            self._wake(enough)

    def released(self, partition: TopicPartition) -> None:
        """A transaction has ended: readers of committed records may see what it had hidden, however much that is."""
        self._wake([fetch for fetch in self._touch(partition) if fetch.is_hidden is not None])

    def changed(self, partition: TopicPartition) -> None:
        """The partition was deleted, truncated or went offline: whoever waits for it must hear at once."""
        self._wake(self._touch(partition))

    def noted(self, partition: TopicPartition) -> None:
        """Something else is different, such as where its log begins: told with the next answer. Wakes nobody, so that
        a log may say so in the middle of its work."""
        self._touch(partition)

    def _touch(self, partition: TopicPartition) -> list[WaitingFetch]:
        waiting = []
        for cached in self._watching.get(partition, ()):
            view = cached.view
            view.due[cached] = None
            if view.waiting is not None:
                waiting.append(view.waiting)
        return waiting

    def _wake(self, fetches: list[WaitingFetch]) -> None:
        for fetch in fetches:
            if fetch in self._parked:  # else one that was woken before it has ended this one too
                self.remove(fetch)
                fetch.wake()
