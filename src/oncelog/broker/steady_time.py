"""A time of day that never goes back, and goes on while the wall clock is turned back.

For deadlines: a member's session must neither last an hour longer because the clock was corrected by an hour, nor a
group wait that long for its members. A clock that is turned forward is followed at once.
"""

from __future__ import annotations

from collections.abc import Callable


class SteadyTime:
    """`wall_ms` is the time of day, `elapsed_ms` counts from anywhere and is never turned."""

    __slots__ = ("_ahead_ms", "_elapsed_ms", "_wall_ms")

    def __init__(self, wall_ms: Callable[[], int], elapsed_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._elapsed_ms = elapsed_ms
        self._ahead_ms = wall_ms() - elapsed_ms()

    def now_ms(self) -> int:
        elapsed_ms, wall_ms = self._elapsed_ms(), self._wall_ms()
        self._ahead_ms = max(self._ahead_ms, wall_ms - elapsed_ms)
        return elapsed_ms + self._ahead_ms
