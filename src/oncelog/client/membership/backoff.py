"""Pauses between attempts that grow, with jitter: clients that failed together come back one by one."""

from __future__ import annotations

from collections.abc import Callable

MAX_DOUBLINGS = 16
_JITTER = 0.2


class Backoff:
    def __init__(self, first_ms: int, most_ms: int, jitter: Callable[[], float]) -> None:
        self._first_ms = first_ms
        self._most_ms = max(first_ms, most_ms)
        self._jitter = jitter
        self._failures = 0

    def next_ms(self) -> int:
        """How long to wait after one more failure in a row."""
        pause_ms = min(self._first_ms << min(self._failures, MAX_DOUBLINGS), self._most_ms)
        self._failures += 1
        return int(pause_ms * (1 - _JITTER + 2 * _JITTER * self._jitter()))

    def reset(self) -> None:
        self._failures = 0
