"""The frame around everything that the spool writes: a mark, a length, a CRC32C, a body.

    4 bytes  mark
    uint32   length of the body
    uint32   CRC32C of the file's number, the frame's position, the length, and the body
    body

A process that dies in the middle of a write leaves a frame that is too short: a torn tail, which nobody was promised
and which is cut. Anything else that is no frame is damage; the mark tells where the next frame may begin, so that one
bad sector costs the records in it and no others. The CRC knows where its frame belongs: a value that happens to hold
the bytes of a frame is never taken for one, nor is a sector that the disk put in the wrong place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.records.kernel import crc32c

MARK: Final = b"\xc7Sp\x01"
_HEAD = struct.Struct(">4sII")
_PLACE = struct.Struct(">QQI")
HEAD_BYTES: Final = _HEAD.size


class Frame(NamedTuple):
    position: int
    body: memoryview

    @property
    def end(self) -> int:
        return self.position + HEAD_BYTES + len(self.body)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a file that hold no frame. `is_torn`: such as a death in the middle of the last write leaves."""

    position: int
    size_bytes: int
    is_torn: bool


def encode_frame(file_number: int, position: int, body: bytes) -> bytes:
    length = len(body)
    crc = crc32c(body, crc32c(_PLACE.pack(file_number, position, length)))
    return _HEAD.pack(MARK, length, crc) + body


def decode_frame(file_number: int, position: int, data: memoryview) -> Frame | None:
    """The frame at `position` of a file, whose bytes from there on are `data`; None if it is not whole and unharmed."""
    if len(data) < HEAD_BYTES:
        return None
    mark, length, crc = _HEAD.unpack_from(data)
    if mark != MARK or len(data) - HEAD_BYTES < length:
        return None
    body = data[HEAD_BYTES : HEAD_BYTES + length]
    is_good = crc32c(body, crc32c(_PLACE.pack(file_number, position, length))) == crc
    return Frame(position, body) if is_good else None


def missing_bytes(data: memoryview) -> int:
    """How many more bytes it takes to see the frame at the start of `data` whole; 0 if it is no frame's start."""
    if len(data) < HEAD_BYTES:
        return HEAD_BYTES - len(data)
    mark, length, _ = _HEAD.unpack_from(data)
    return max(HEAD_BYTES + length - len(data), 0) if mark == MARK else 0


def walk(file_number: int, data: bytes, *, may_be_torn: bool) -> Iterator[Frame | Damage]:
    """Everything in a file, in order. `may_be_torn`: the last file that was written to, so its end may be missing."""
    view = memoryview(data)
    position = 0
    while position < len(data):
        frame = decode_frame(file_number, position, view[position:])
        if frame is not None:
            yield frame
            position = frame.end
            continue
        following = _next_frame(file_number, data, position + 1)
        is_torn = may_be_torn and following == len(data) and _looks_torn(view[position:])
        yield Damage(position, following - position, is_torn)
        position = following


def _next_frame(file_number: int, data: bytes, position: int) -> int:
    """Where the next good frame begins; the end of the data if there is none."""
    view = memoryview(data)
    while (position := data.find(MARK, position)) >= 0:
        if decode_frame(file_number, position, view[position:]) is not None:
            return position
        position += 1
    return len(data)


def _looks_torn(rest: memoryview) -> bool:
    """A frame whose end never came, or the zeros of a file that grew before its bytes were written."""
    head = bytes(rest[: len(MARK)])
    if head != MARK[: len(head)]:
        return not any(rest)
    return missing_bytes(rest) > 0
