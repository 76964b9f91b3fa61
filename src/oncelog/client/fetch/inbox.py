"""Fetched data that waits for its reader, counted in bytes.

One thread puts (the fetcher's), one takes (the reader's), without a lock: each writes its own counters only, and the
deque is safe at both ends. The data of a paused partition keeps its place and lets others pass.

Bytes are counted by frame: the memory of an answer is free when the last of its partitions is done with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
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
    """Of the state when it was fetched; if the state has another now, nobody wants this any more."""
    fetch_offset: int
    """What was asked for. The reader begins at `state.position`, which may be later: never before it."""
    data: memoryview
    """Whole batches, in a view of the frame."""
    aborted: list[tuple[int, int]]
    next_offset: int
    frame: Frame

    @property
    def is_current(self) -> bool:
        return self.seek_count == self.state.seek_count


class Inbox:
    def __init__(self, max_bytes: int, on_room: Callable[[], None]) -> None:
        """`on_room` is called in the reader's thread when the fetcher waits for what a `take` has just done."""
        self.max_bytes = max_bytes
        self.is_awaited = False
        """Set by the fetcher when it would do more if the reader took something."""
        self._on_room = on_room
        self._waiting: deque[FetchedData] = deque()
        self._in_hand: FetchedData | None = None
        self._bytes_put = 0
        self._bytes_freed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def buffered_bytes(self) -> int:
        """Of what waits, and of what is being read."""
        return self._bytes_put - self._bytes_freed

    # --- the fetcher's thread -----------------------------------------------------------------------------------

    def put(self, answer: list[FetchedData]) -> None:
        """The data of one answer, which share a frame."""
        self._bytes_put += answer[0].frame.size_bytes
        for fetched in answer:
            fetched.state.answers_put += 1
            self._waiting.append(fetched)

    # --- the reader's thread ------------------------------------------------------------------------------------

    def take(self) -> FetchedData | None:
        """The next data to read. Says also that the reader is done with what it took before."""
        self._release()
        found = self._next()
        self._in_hand = found
        if self.is_awaited:
            self.is_awaited = False
            self._on_room()
        return found

    def put_back_front(self, fetched: FetchedData) -> None:
        """The one that was taken last is not done with: its partition was paused, or the caller has enough."""
        assert fetched is self._in_hand
        self._in_hand = None
        fetched.state.answers_taken -= 1
        self._waiting.appendleft(fetched)

    def _next(self) -> FetchedData | None:
        place = 0
        while place < len(self._waiting):
            fetched = self._waiting[place]
            if fetched.is_current and fetched.state.is_paused:
                place += 1
                continue
            del self._waiting[place]
            fetched.state.answers_taken += 1
            if fetched.is_current:
                return fetched
            self._free(fetched.frame)
        return None

    def _release(self) -> None:
        if self._in_hand is not None:
            self._free(self._in_hand.frame)
            self._in_hand = None

    def _free(self, frame: Frame) -> None:
        frame.users -= 1
        if not frame.users:
            self._bytes_freed += frame.size_bytes
