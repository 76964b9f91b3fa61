"""A connection's order: answers leave in the order in which their requests came, whatever order they are ready in.

Owns the places of the answers and the bounds on what one client may have under way. Does no I/O.
"""

from __future__ import annotations

from collections import deque

from oncelog.broker.held_answers import MAX_HELD_BYTES
from oncelog.broker.request import Chunks

MAX_PENDING_ANSWERS = 64
"""Requests of one connection that may wait for their answers; further ones stay unread in the socket."""


class Place:
    """One request's place in the line; filled once."""

    __slots__ = ("chunks", "held_bytes")

    def __init__(self) -> None:
        self.chunks: Chunks | None = None
        self.held_bytes = 0


class AnswerLine:
    def __init__(self) -> None:
        self._places: deque[Place] = deque()
        self.held_bytes = 0
        """Of answers that are ready and wait for one before them; records in their files take none."""

    def __len__(self) -> int:
        return len(self._places)

    def is_full(self) -> bool:
        return len(self._places) >= MAX_PENDING_ANSWERS or self.held_bytes > MAX_HELD_BYTES

    def reserve(self) -> Place:
        place = Place()
        self._places.append(place)
        return place

    def fill(self, place: Place, chunks: Chunks) -> None:
        place.chunks = chunks
        for chunk in chunks:
            if isinstance(chunk, bytes):
                place.held_bytes += len(chunk)
        self.held_bytes += place.held_bytes

    def take_ready(self) -> list[Chunks]:
        """The answers at the head of the line that can leave now."""
        ready = []
        while self._places and (chunks := self._places[0].chunks) is not None:
            self.held_bytes -= self._places.popleft().held_bytes
            ready.append(chunks)
        return ready
