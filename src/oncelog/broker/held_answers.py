"""How much memory answers take that their clients have not taken, over all connections, and who gives way.

A connection by itself holds at most `MAX_HELD_BYTES` and one answer more: it is served no further until its client
reads. This is the bound for all of them together. Pure.
"""

from __future__ import annotations

from typing import Generic, TypeVar

MAX_HELD_BYTES = 1 << 20
"""Answers of one connection that wait behind one that is still to come: beyond it no further request is served."""

MAX_TOTAL_HELD_BYTES = 64 << 20
"""Answers that wait for clients to read, over all connections. Beyond it whoever holds most is cut off."""

Owner = TypeVar("Owner")


class HeldAnswers(Generic[Owner]):
    def __init__(self, max_bytes: int = MAX_TOTAL_HELD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held: dict[Owner, int] = {}
        self.total_bytes = 0

    def note(self, owner: Owner, held_bytes: int) -> Owner | None:
        """What a connection holds now. Who must be cut off for it, if there is too much: its bytes no longer count."""
        self.total_bytes += held_bytes - self._held.pop(owner, 0)
        if held_bytes:
            self._held[owner] = held_bytes
        if self.total_bytes <= self._max_bytes:
            return None
        most = max(self._held, key=self._held.__getitem__)
        self.total_bytes -= self._held.pop(most)
        return most
