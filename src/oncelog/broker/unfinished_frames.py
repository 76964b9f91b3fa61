"""How much memory requests take that have not arrived in full, or wait for their turn, over all connections, and who
gives way. Pure.

A request may be as large as `socket.request.max.bytes`, and its first half as old as its client likes. So there is a
bound for all of them together: beyond it the one that has not grown for longest is given up, whose client sends it
again if it still means it. One that grows is given up last.
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
        self._pending: dict[Owner, int] = {}  # who has grown longest ago comes first
        self.total_bytes = 0

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._pending

    def note(self, owner: Owner, pending_bytes: int) -> list[Owner]:
        """How much has arrived of a connection's next request. Whom to cut off for it: their bytes no longer count."""
        self.total_bytes += pending_bytes - self._pending.pop(owner, 0)
        if pending_bytes:
            self._pending[owner] = pending_bytes
        given_up = []
        while self.total_bytes > self._max_bytes and len(self._pending) > 1:
            stalest = next(iter(self._pending))
            self.total_bytes -= self._pending.pop(stalest)
            given_up.append(stalest)
        return given_up
