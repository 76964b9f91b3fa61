"""The time of day when the broker started, and from then on a clock that nobody turns.

For deadlines: a wall clock that is corrected by an hour must neither end every member's session at once, nor let a
group wait an hour longer for its members.
"""

from __future__ import annotations

from collections.abc import Callable


class SteadyTime:
    """`wall_ms` is the time of day, `elapsed_ms` counts from anywhere and is never turned."""

    __slots__ = ("_elapsed_ms", "_start_ms")

    def __init__(self, wall_ms: Callable[[], int], elapsed_ms: Callable[[], int]) -> None:
        self._elapsed_ms = elapsed_ms
        self._start_ms = wall_ms() - elapsed_ms()

    def now_ms(self) -> int:
        return self._start_ms + self._elapsed_ms()
