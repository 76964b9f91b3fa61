"""Deadlines by key, of which most are moved long before they come.

A member's session moves with every heartbeat, so moving one later must cost next to nothing: the heap keeps the old,
earlier time, and learns of the new one when that time comes. Never reads a clock.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._looks: dict[K, int] = {}
        """When the heap will look at a key: at its deadline or before."""
        self._heap: list[tuple[int, int, K]] = []
        self._pushes = 0

    def set(self, key: K, deadline_ms: int) -> None:
        self._deadlines[key] = deadline_ms
        look = self._looks.get(key)
        if look is None or deadline_ms < look:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def next_ms(self) -> int | None:
        """When to call `take_due`; perhaps earlier than anything is due."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[K]:
        """The keys whose time has come, the earliest first; they are set no more."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            look, _, key = heappop(self._heap)
            if self._looks.get(key) != look:
                continue
            del self._looks[key]
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline > now_ms:
                self._push(key, deadline)
                continue
            del self._deadlines[key]
            due.append(key)
        return due

    def _push(self, key: K, deadline_ms: int) -> None:
        self._pushes += 1
        self._looks[key] = deadline_ms
        heappush(self._heap, (deadline_ms, self._pushes, key))
