"""The time of day when the broker started, and from then on a clock that nobody turns.

What the broker calls `now_ms` is this: deadlines, silences, delays, how long a flush may wait. A wall clock that is
corrected by an hour must neither end every member's session at once, nor let a group wait an hour longer for its
members; one that is set forward by a day must not make the broker forget who wrote what. The time of day itself,
`wall_ms`, is for what is stamped with it or compared with such a stamp.
"""

from __future__ import annotations

from collections.abc import Callable


class SteadyTime:
    """`wall_ms` is the time of day, `elapsed_ns` counts from anywhere and is never turned."""

    __slots__ = ("_elapsed_ns", "_start_ms", "wall_ms")

    def __init__(self, wall_ms: Callable[[], int], elapsed_ns: Callable[[], int]) -> None:
        self.wall_ms = wall_ms
        self._elapsed_ns = elapsed_ns
        self._start_ms = wall_ms() - elapsed_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._start_ms + self._elapsed_ns() // 1_000_000
