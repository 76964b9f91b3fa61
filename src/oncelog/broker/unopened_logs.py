"""Partitions whose log could not be opened at the start, because space, memory or descriptors were used up.

Owns which they are and when the next try is due. What prevents one log mostly prevents all of them, so a failure makes
all of them wait, longer each time; the one that failed goes to the end of the line, so that it holds up nobody. Opens
no log itself.
"""

from __future__ import annotations

from typing import Final

from oncelog.types import TopicPartition

FIRST_RETRY_MS: Final = 100
MAX_RETRY_MS: Final = 10_000


class UnopenedLogs:
    def __init__(self) -> None:
        self._unopened: dict[TopicPartition, None] = {}
        self._wait_ms = FIRST_RETRY_MS
        self._next_try_ms = 0

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._unopened

    def __len__(self) -> int:
        return len(self._unopened)

    def failed(self, partition: TopicPartition, steady_ms: int) -> bool:
        """A log could not be opened; whether this is news."""
        is_news = partition not in self._unopened
        self._unopened.pop(partition, None)
        self._unopened[partition] = None
        if self.is_due(steady_ms):  # else it is one more of many
            self._next_try_ms = steady_ms + self._wait_ms
            self._wait_ms = min(2 * self._wait_ms, MAX_RETRY_MS)
        return is_news

    def opened(self, partition: TopicPartition) -> bool:
        """A log is open; whether it was not before."""
        was_unopened = partition in self._unopened
        self.forget(partition)
        self._wait_ms, self._next_try_ms = FIRST_RETRY_MS, 0
        return was_unopened

    def forget(self, partition: TopicPartition) -> None:
        self._unopened.pop(partition, None)

    def is_due(self, steady_ms: int) -> bool:
        return steady_ms >= self._next_try_ms

    def next_due(self, steady_ms: int) -> TopicPartition | None:
        """The one to try now, if any. Tell `opened` or `failed` before asking again."""
        return next(iter(self._unopened), None) if self.is_due(steady_ms) else None
