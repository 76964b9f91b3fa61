"""The frame around everything that the spool writes, and the zeros behind the last one.

    4 bytes  mark
    uint32   length of the body
    uint32   CRC32C of the file's number, the frame's position, the length, and the body
    body
    1 byte   end, which is not zero

A file is longer than its frames: zeros are reserved behind them, up to a multiple of `RESERVED_BYTES`, before a frame
is written over them. So three things look different that would be the same in a file that merely grows:

    a process died in the middle of a write    a last frame without its end, then zeros: nobody was promised anything
    the file was cut, wherever                 no zeros at the end, or not such a length: damage
    the disk spoilt a frame                    damage; the mark tells where the next frame may begin, so that one bad
                                               sector costs the records in it and no others

The CRC knows where its frame belongs: a value that happens to hold the bytes of a frame is never taken for one, nor is
a sector that the disk put in the wrong place.

The first format had neither zeros nor ends, and another mark. It is read, and not written any more.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog.records.kernel import crc32c

MARK: Final = b"\xc7Sp\x02"
OLD_MARK: Final = b"\xc7Sp\x01"
END: Final = b"\xe5"
"""No flipped bit makes it a zero."""
RESERVED_BYTES: Final = 64 * 1024

_MARK_START: Final = MARK[:3]
_HEAD = struct.Struct(">4sII")
_PLACE = struct.Struct(">QQI")
HEAD_BYTES: Final = _HEAD.size
FRAME_BYTES: Final = HEAD_BYTES + len(END)
"""What a frame adds to its body."""


class Frame(NamedTuple):
    position: int
    body: memoryview
    end: int
    is_old: bool = False


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a file that hold no frame. `is_torn`: such as a death in the middle of the last write leaves."""

    position: int
    size_bytes: int
    is_torn: bool


def encode_frame(file_number: int, position: int, body: bytes) -> bytes:
    length = len(body)
    crc = crc32c(body, crc32c(_PLACE.pack(file_number, position, length)))
    return _HEAD.pack(MARK, length, crc) + body + END


def decode_frame(file_number: int, position: int, data: memoryview) -> Frame | None:
    """The frame at `position` of a file, whose bytes from there on are `data`; None if it is not whole and unharmed."""
    if len(data) < HEAD_BYTES:
        return None
    mark, length, crc = _HEAD.unpack_from(data)
    is_old = mark == OLD_MARK
    size = HEAD_BYTES + length + (0 if is_old else len(END))
    if (mark != MARK and not is_old) or len(data) < size:
        return None
    body = data[HEAD_BYTES : HEAD_BYTES + length]
    is_good = crc32c(body, crc32c(_PLACE.pack(file_number, position, length))) == crc
    return Frame(position, body, position + size, is_old) if is_good and (is_old or data[size - 1] == END[0]) else None


def missing_bytes(data: memoryview) -> int:
    """How many more bytes it takes to see the frame at the start of `data` whole; 0 if it is no frame's start."""
    if len(data) < HEAD_BYTES:
        return HEAD_BYTES - len(data)
    mark, length, _ = _HEAD.unpack_from(data)
    size = HEAD_BYTES + length + (0 if mark == OLD_MARK else len(END))
    return max(size - len(data), 0) if mark in (MARK, OLD_MARK) else 0


def reserved_end(size: int) -> int:
    """How far a file with frames up to `size` goes, with at least one zero behind them."""
    return (size // RESERVED_BYTES + 1) * RESERVED_BYTES


def has_reserve(data: bytes) -> bool:
    """Whether a file ends as one does that nobody cut."""
    return bool(data) and len(data) % RESERVED_BYTES == 0 and not data[-1]


def walk(file_number: int, data: bytes, *, may_be_torn: bool) -> Iterator[Frame | Damage]:
    """Everything in a file, in order, without the zeros at its end. `may_be_torn`: the last write may not have been
    completed."""
    view = memoryview(data)
    end = len(data.rstrip(b"\0")) if has_reserve(data) else len(data)
    position = 0
    while position < end:
        frame = decode_frame(file_number, position, view[position:])
        if frame is not None:
            yield frame
            position = frame.end
            continue
        following = _next_frame(file_number, data, position + 1)
        is_torn = may_be_torn and following == len(data) and _looks_torn(view[position:], view[position:end])
        following = min(following, max(end, position + 1))
        yield Damage(position, following - position, is_torn)
        position = following


def _next_frame(file_number: int, data: bytes, position: int) -> int:
    """Where the next good frame begins; the end of the data if there is none."""
    view = memoryview(data)
    while (position := data.find(_MARK_START, position)) >= 0:
        if decode_frame(file_number, position, view[position:]) is not None:
            return position
        position += 1
    return len(data)


def _looks_torn(rest: memoryview, written: memoryview) -> bool:
    """A frame whose end never came. `written`: without the zeros behind it, if there are such."""
    head = bytes(rest[: len(MARK)])
    if len(written) == len(rest):  # no zeros: a file as they were before, which grew with each write
        return not any(rest) or (head == OLD_MARK[: len(head)] and missing_bytes(rest) > 0)
    if len(rest) < HEAD_BYTES:
        return False
    start = bytes(written[: len(MARK)])
    if start != MARK[: len(start)] or written[-1] == END[0]:
        return False
    length: int = _HEAD.unpack_from(rest)[1]
    return len(written) < FRAME_BYTES + length < len(rest)
