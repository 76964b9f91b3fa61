"""Fetched data that waits for its reader, counted in bytes.

One thread puts (the fetcher's) and one takes (the reader's), without a lock: only the reader removes, each writes
counters of its own, and a deque is safe at both ends. What the reader must keep to:

- It begins at `state.position`, even if the data begins earlier, and moves it on before it takes the next data.
- It stops reading data that is not current any more.

Paused partitions need no care of the reader: their data keeps its place, and lets others pass. If it comes to take more
than half of the bound, it makes room: reading the other partitions must not depend on one that nobody reads.

Bytes are counted by frame: the memory of an answer is free when the last of its partitions is done with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oncelog.client.fetch.partitions import PartitionState


class Frame:
    """The memory that the data of one answer share."""

    __slots__ = ("size_bytes", "users")

    def __init__(self, size_bytes: int, users: int) -> None:
        self.size_bytes = size_bytes
        self.users = users


class FetchedData(NamedTuple):
    state: PartitionState
    seek_count: int
    fetch_offset: int
    """What was asked for."""
    data: memoryview
    """Batches, in a view of the frame; the last may be cut off."""
    aborted: Sequence[tuple[int, int]]
    """(producer id, first offset) of each aborted transaction."""
    frame: Frame

    @property
    def is_current(self) -> bool:
        """Nobody has jumped, the partition is still ours, and nothing before this was dropped."""
        return self.seek_count == self.state.seek_count and not self.state.has_dropped


class Inbox:
    def __init__(self, max_bytes: int, on_room: Callable[[], None]) -> None:
        """`on_room` is called by the reader's thread when the fetcher may go on."""
        self.max_bytes = max_bytes
        self.is_awaited = False
        """Set by the fetcher when it could go on if the reader went on."""
        self.looks = 0
        """How often the reader has looked for more."""
        self._on_room = on_room
        self._waiting: deque[FetchedData] = deque()
        self._in_hand: FetchedData | None = None
        self._bytes_put = 0
        self._bytes_freed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __bool__(self) -> bool:
        """Whether `take` would find something."""
        return any(one.is_current and not one.state.is_paused for one in list(self._waiting))

    @property
    def buffered_bytes(self) -> int:
        """Of what waits, and of what is being read."""
        return self._bytes_put - self._bytes_freed

    def held(self) -> dict[PartitionState, list[FetchedData]]:
        """What is here of each partition, in order, beginning with what is being read. For any thread."""
        held: dict[PartitionState, list[FetchedData]] = {}
        for one in (self._in_hand, *self._waiting.copy()):
            if one is not None and one.is_current:
                held.setdefault(one.state, []).append(one)
        return held

    # --- the fetcher's thread ---------------------------------------------------------------------------------------

    def put(self, answer: Sequence[FetchedData]) -> None:
        """The data of one answer, which share a frame."""
        self._bytes_put += answer[0].frame.size_bytes
        for fetched in answer:
            fetched.state.answers_put += 1
            self._waiting.append(fetched)

    # --- the reader's thread ----------------------------------------------------------------------------------------

    def take(self) -> FetchedData | None:
        """The oldest data that is current, and not of a paused partition. Whatever was taken before is done with."""
        self.looks += 1
        if self._in_hand is not None:
            self._free(self._in_hand)
        self._in_hand = self._next()
        if self.is_awaited:
            self.is_awaited = False
            self._on_room()
        return self._in_hand

    def put_back_front(self, fetched: FetchedData) -> None:
        """What was taken last is not done with."""
        assert fetched is self._in_hand
        self._in_hand = None
        fetched.state.answers_taken -= 1
        self._waiting.appendleft(fetched)

    def _next(self) -> FetchedData | None:
        paused: list[FetchedData] = []
        found = None
        while found is None and len(paused) < len(self._waiting):
            fetched = self._waiting[len(paused)]
            if fetched.is_current and fetched.state.is_paused:
                paused.append(fetched)
                continue
            self._remove(len(paused))
            if fetched.is_current:
                found = fetched
            else:
                self._free(fetched)
        if paused:
            self._bound_paused(paused)
        return found

    def _bound_paused(self, paused: Sequence[FetchedData]) -> None:
        """They are the first in the line."""
        frames = {fetched.frame for fetched in paused}
        if 2 * sum(frame.size_bytes for frame in frames) <= self.max_bytes:
            return
        for fetched in paused:
            fetched.state.has_dropped = True
            self._remove(0)
            self._free(fetched)

    def _remove(self, place: int) -> None:
        self._waiting[place].state.answers_taken += 1
        del self._waiting[place]

    def _free(self, fetched: FetchedData) -> None:
        frame = fetched.frame
        frame.users -= 1
        if not frame.users:
            self._bytes_freed += frame.size_bytes
