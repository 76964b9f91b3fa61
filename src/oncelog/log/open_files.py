"""Which growing segments hold their file open: as many as the process can afford, those that were written to last.

Owns the bound. A segment opens its file when it is written to, and enters here; where there are too many, one that was
not written to since it was last looked at lets go of its own. That costs it one opening at its next write. Whoever
reads or syncs holds the file itself, which closes with the last reference: nothing under way loses its descriptor.
What was written and not synced before a file was closed is synced through another descriptor of it, as that of sealed
segments always is.

Knows no file and no log. Who enters, and so who is closed, is the logs' thread's business alone; `left` may come from
any thread: logs are closed in several when the broker stops, and opened again in one of their own.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

UNLIMITED: Final = 2**63 - 1

MAX_CHANCES: Final = 16
"""Segments that are passed over because they were written to since; the next one must go all the same."""


class Growing(Protocol):
    @property
    def modified_ms(self) -> int:
        """When it was last written to."""

    def release(self) -> None:
        """Let go of the file."""


class OpenFiles:
    def __init__(self, limit: int = UNLIMITED) -> None:
        self._limit = max(limit, 1)
        self._held: OrderedDict[Growing, int] = OrderedDict()  # with the time of the last write that is known here

    def __len__(self) -> int:
        return len(self._held)

    def entered(self, segment: Growing) -> None:
        """A segment has opened its file: it is about to write, so another one goes where there are too many."""
        self._held.pop(segment, None)
        while len(self._held) >= self._limit:
            self.close_one()
        self._held[segment] = segment.modified_ms

    def left(self, segment: Growing) -> None:
        """A segment has let go of its file."""
        self._held.pop(segment, None)

    def close_one(self) -> bool:
        """Close the file of one that was not written to lately; False if there is none."""
        for chance in range(MAX_CHANCES + 1):
            if not self._held:
                return False
            segment, known_ms = self._held.popitem(last=False)
            if segment.modified_ms == known_ms or chance == MAX_CHANCES:
                segment.release()
                break
            self._held[segment] = segment.modified_ms
        return True
