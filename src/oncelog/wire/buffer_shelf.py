"""Large buffers that connections have left, for the next connection that needs one.

Memory that is new to the process costs a page fault every 4 KiB, which is more than receiving into it. So a few buffers
are kept, for all connections together. Each has pages of its own: untouched ones cost nothing, a buffer that is dropped
is freed at once, and a kept one holds nothing else in place. Owns no rule of when a buffer is needed, or left.
"""

from __future__ import annotations

from mmap import mmap
from sys import getrefcount
from typing import Final

BUFFER_BYTES: Final = 1024 * 1024
"""Of every buffer that is kept. Larger ones are made when they are needed, and freed when they are left."""

MAX_KEPT: Final = 2

# To what only a list knows; every view of a buffer adds one. Asked just as it is asked below: how many references the
# question itself holds depends on its words, and a local variable holds none of its own since Python 3.14.
_NOBODYS: Final = [object()]
_UNSEEN_REFERENCES: Final = getrefcount(_NOBODYS[-1])


class BufferShelf:
    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[mmap] = []

    def __len__(self) -> int:
        return len(self._kept)

    def leave(self, buffer: mmap) -> None:
        """Others may still look at what is in it: it is given away only if nobody does by then."""
        if len(self._kept) < MAX_KEPT and len(buffer) == BUFFER_BYTES:
            self._kept.append(buffer)

    def take(self, size_bytes: int) -> mmap:
        """A buffer of `size_bytes` or more, with anything in it."""
        while self._kept and size_bytes <= BUFFER_BYTES:
            is_unseen = getrefcount(self._kept[-1]) == _UNSEEN_REFERENCES
            buffer = self._kept.pop()
            if is_unseen:
                return buffer
        return mmap(-1, max(size_bytes, BUFFER_BYTES))
