"""Fetched data that waits for its reader, counted in bytes.

One thread puts (the fetcher's) and one takes (the reader's), without a lock: only the reader removes, each writes
counters of its own, and a deque is safe at both ends. What the reader must keep to:

- It begins at `state.position`, even if the data begins earlier, and moves it on before it releases the data.
- It stops reading data that is not wanted any more, and releases it.
- It releases everything that it took, once; or puts it back.

Paused partitions need no care of the reader: their data keeps its place, and lets others pass. If it comes to take more
than half of the bound, it makes room: reading the other partitions must not depend on a partition that nobody reads.

Bytes are counted by frame: the memory of an answer is free when the last of its partitions is done with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
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
    def is_wanted(self) -> bool:
        """Nobody has jumped, the partition is still ours, and nothing before this was dropped."""
        return self.seek_count == self.state.seek_count and not self.state.has_dropped


class Inbox:
    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.is_awaited = False
        """Set by the fetcher when it could go on if the reader released something: whoever does wakes it then."""
        self._waiting: deque[FetchedData] = deque()
        self._bytes_put = 0
        self._bytes_freed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __bool__(self) -> bool:
        """Whether `take` would find something."""
        return any(one.is_wanted and not one.state.is_paused for one in list(self._waiting))

    @property
    def buffered_bytes(self) -> int:
        """Of what waits, and of what was taken and not released."""
        return self._bytes_put - self._bytes_freed

    # --- the fetcher's thread ---------------------------------------------------------------------------------------

    def put(self, answer: Sequence[FetchedData]) -> None:
        """The data of one answer, which share a frame."""
        self._bytes_put += answer[0].frame.size_bytes
        for fetched in answer:
            fetched.state.answers_put += 1
            self._waiting.append(fetched)

    # --- the reader's thread ----------------------------------------------------------------------------------------

    def take(self) -> FetchedData | None:
        """The oldest data that is wanted, and not of a paused partition."""
        paused: list[FetchedData] = []
        taken = None
        while taken is None and len(paused) < len(self._waiting):
            fetched = self._waiting[len(paused)]
            if not fetched.is_wanted:
                self._remove(len(paused))
                self.release(fetched)
            elif fetched.state.is_paused:
                paused.append(fetched)
            else:
                self._remove(len(paused))
                taken = fetched
        if paused:
            self._bound_paused(paused)
        return taken

    def put_back(self, fetched: FetchedData) -> None:
        """What was taken and not released is to be taken next, unless its partition is paused."""
        fetched.state.answers_taken -= 1
        self._waiting.appendleft(fetched)

    def release(self, fetched: FetchedData) -> None:
        """Nobody looks at it any more."""
        frame = fetched.frame
        frame.users -= 1
        if not frame.users:
            self._bytes_freed += frame.size_bytes

    def _remove(self, place: int) -> None:
        self._waiting[place].state.answers_taken += 1
        del self._waiting[place]

    def _bound_paused(self, paused: Sequence[FetchedData]) -> None:
        """They are the first in the line."""
        frames = {fetched.frame for fetched in paused}
        if 2 * sum(frame.size_bytes for frame in frames) <= self.max_bytes:
            return
        for fetched in paused:
            fetched.state.has_dropped = True
            self._remove(0)
            self.release(fetched)
