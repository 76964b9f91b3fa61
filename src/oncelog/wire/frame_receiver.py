"""Frames from a peer that is trusted with memory: a client's side of a connection, where answers may be large.

A large frame is received straight into memory of its own, of exactly its size, and is never copied: what comes behind
it goes elsewhere, and when the last view of it is gone, so is its memory. Small frames share a small buffer. Unlike the
broker's `FrameAssembler` it believes a size prefix, since pages that nothing is received into cost nothing.

Memory that is new to the process costs a page fault every 4 KiB, about as much as receiving into it. So some is kept
for the frames to come, once nobody looks at it any more: KEPT_BYTES at most, for all connections of a client together.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from sys import getrefcount
from typing import Final

from oncelog.wire.frame import SIZE_BYTES, FrameTooLarge, MalformedFrame, frame_in_words

SMALL_BUFFER_BYTES: Final = 16 * 1024
"""What an idle connection keeps."""
LARGE_FRAME_BYTES: Final = 8 * 1024
"""From here on a frame that is not complete gets memory of its own."""
KEPT_BYTES: Final = 16 * 1024 * 1024

_GRAIN_BYTES = 256 * 1024
_SIZE = struct.Struct(">i")

_NOBODYS = [object()]
_UNSEEN_REFERENCES = getrefcount(_NOBODYS[0])  # to what only a list knows; every view of a buffer adds one


class FrameMemory:
    """Memory for large frames."""

    __slots__ = ("_kept", "_kept_bytes")

    def __init__(self) -> None:
        self._kept: list[mmap] = []
        self._kept_bytes = 0

    def take(self, size_bytes: int) -> memoryview:
        """Exactly so many bytes, with anything in them."""
        kept = self._kept
        for place in range(len(kept)):
            if getrefcount(kept[place]) == _UNSEEN_REFERENCES and size_bytes <= len(kept[place]) <= 4 * size_bytes:
                return memoryview(kept[place])[:size_bytes]
        whole_bytes = -(-size_bytes // _GRAIN_BYTES) * _GRAIN_BYTES
        buffer = mmap(-1, whole_bytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self._keep(buffer)
        return memoryview(buffer)[:size_bytes]

    def _keep(self, buffer: mmap) -> None:
        """In place of those that are too many; they are freed when nobody looks at them."""
        if len(buffer) > KEPT_BYTES:
            return
        self._kept.append(buffer)
        self._kept_bytes += len(buffer)
        while self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= len(self._kept.pop(0))


class FrameReceiver:
    """Cuts a byte stream into frames. A frame is a view that stays valid for as long as it is referenced."""

    __slots__ = ("_filled", "_large", "_max_frame_bytes", "_memory", "_small", "_start")

    def __init__(self, max_frame_bytes: int, memory: FrameMemory) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._memory = memory
        self._small = memoryview(b"")
        self._large: memoryview | None = None  # the frame that is being received, if it is large
        self._start = 0  # in the small buffer: of the frame that is not complete yet
        self._filled = 0  # of the buffer that is being received into

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._large is not None:
            return self._large[self._filled :]
        if self._filled == len(self._small):
            self._replace_small()
        return self._small[self._filled :]

    def received(self, count: int) -> Iterator[memoryview]:
        """The frames that `count` more bytes complete. Must be exhausted before the next `get_buffer`.

        Raises MalformedFrame or FrameTooLarge where the stream goes wrong, after the good frames before it.
        """
        self._filled += count
        if self._large is None:
            yield from self._cut()
        elif self._filled == len(self._large):
            frame, self._large = self._large, None
            self._start = self._filled = len(self._small)
            yield frame

    def peek(self, count: int) -> memoryview | None:
        """The frame that `count` more bytes make, if they make one small frame and nothing else. They are not taken
        for received: `received` or `forget` must follow."""
        start, filled = self._start, self._filled + count
        if self._large is not None or filled - start < SIZE_BYTES:
            return None
        (size,) = _SIZE.unpack_from(self._small, start)
        return self._small[start + SIZE_BYTES : filled] if size == filled - start - SIZE_BYTES else None

    def forget(self) -> None:
        """The frame that was peeked at is done with, and nobody looks at it any more."""
        self._filled = self._start

    def _cut(self) -> Iterator[memoryview]:
        while self._filled - self._start >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(self._small, self._start)
            if not 0 <= size <= self._max_frame_bytes:
                raise self._refusal(size)
            begin = self._start + SIZE_BYTES
            if begin + size > self._filled:
                if size >= LARGE_FRAME_BYTES:
                    self._begin_large(size)
                elif begin + size > len(self._small):
                    self._replace_small()
                return
            self._start = begin + size
            yield self._small[begin : begin + size]

    def _refusal(self, size: int) -> MalformedFrame:
        if size < 0:
            return MalformedFrame(f"a frame of {size} bytes")
        return FrameTooLarge(f"{frame_in_words(size)}; the limit is {self._max_frame_bytes}")

    def _begin_large(self, size_bytes: int) -> None:
        arrived = self._small[self._start + SIZE_BYTES : self._filled]
        self._large = self._memory.take(size_bytes)
        self._large[: len(arrived)] = arrived
        self._filled = len(arrived)

    def _replace_small(self) -> None:
        """A new buffer that begins with the incomplete frame."""
        pending = self._small[self._start : self._filled]
        buffer = bytearray(SMALL_BUFFER_BYTES)
        buffer[: len(pending)] = pending
        self._small = memoryview(buffer)
        self._start, self._filled = 0, len(pending)
