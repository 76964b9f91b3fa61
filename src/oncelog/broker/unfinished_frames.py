"""How much memory requests take that have not arrived in full, or wait for their turn, over all connections, and who
gives way. Pure.

A request may be as large as `socket.request.max.bytes`, and its first half as old as its client likes. So there is a
bound for all of them together: beyond it the one that has not grown for longest is given up, whose client sends it
again if it still means it. Those that have arrived and wait for their turn are served soon: if they alone are too much,
the last that came is given up, not the next in turn. One that has just grown is given up last of all.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

MAX_UNFINISHED_BYTES: Final = 64 << 20
"""Of all requests that are not served yet. One alone may be larger."""

MIN_COUNTED_BYTES: Final = 16 * 1024
"""Less than this is part of what a connection costs."""

Owner = TypeVar("Owner")


class UnfinishedFrames(Generic[Owner]):
    def __init__(self, max_bytes: int = MAX_UNFINISHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._arriving: dict[Owner, int] = {}  # who has grown longest ago comes first
        self._waiting: dict[Owner, int] = {}  # who is served next comes first
        self.total_bytes = 0

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._arriving or owner in self._waiting

    def note(self, owner: Owner, pending_bytes: int, *, is_waiting: bool = False) -> list[Owner]:
        """How much of a connection's next request has arrived, or waits for its turn. Whom to cut off for it: their
        bytes no longer count."""
        if is_waiting and owner in self._waiting:
            self.total_bytes += pending_bytes - self._waiting[owner]
            self._waiting[owner] = pending_bytes  # and stays where it is
        else:
            self.total_bytes += pending_bytes - self._arriving.pop(owner, 0) - self._waiting.pop(owner, 0)
            if pending_bytes:
                (self._waiting if is_waiting else self._arriving)[owner] = pending_bytes
        given_up = []
        while self.total_bytes > self._max_bytes and len(self._arriving) + len(self._waiting) > 1:
            given_up.append(self._give_up(owner))
        return given_up

    def _give_up(self, grown: Owner) -> Owner:
        stalest = next(iter(self._arriving), None)
        if stalest is None or (stalest == grown and self._waiting):
            newest, its_bytes = self._waiting.popitem()
            self.total_bytes -= its_bytes
            return newest
        self.total_bytes -= self._arriving.pop(stalest)
        return stalest
