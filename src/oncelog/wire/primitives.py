"""The smallest pieces of the protocol: varints, strings, and the one exception for bytes that make no sense.

Readers take a memoryview and a position and return the value and the position behind it. They may also raise
`struct.error`, `IndexError` or `UnicodeDecodeError` where the input ends early or is no text; whoever is outermost
turns these into `MalformedMessage` (see `GARBLED`). A length is compared with the bytes left before anything is made.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from uuid import UUID

from oncelog.errors import OncelogError

MAX_STRING_BYTES = 2**15 - 1
MAX_UVARINT = 2**32 - 1

GARBLED = (struct.error, IndexError, UnicodeDecodeError)
"""What reading truncated or senseless bytes may raise besides MalformedMessage; `in_words` says what that means."""

MAX_REQUEST_ELEMENTS = 32_000
"""How many array elements one request may hold in all: 10,000 partitions of as many topics, with something to spare. An
element of two bytes becomes an object of hundreds and is worked on for microseconds: without this bound a request of
the largest allowed size, well formed and empty, would take gigabytes, and everybody's time."""

MAX_TAGGED_FIELDS = 16
"""How many tagged fields one struct may carry: more than any version that is served has, with some of the future's."""

_KEPT_UUIDS = 4096


class MalformedMessage(OncelogError):
    """Bytes that are not the message they claim to be. The only answer is to close the connection."""


def in_words(error: Exception) -> str:
    """What is wrong with a message, for people: Python speaks of its own buffers and codecs."""
    if isinstance(error, UnicodeDecodeError):
        return "a text in it is not UTF-8"
    return "it ends too early" if isinstance(error, GARBLED) else str(error)


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    shift = 7
    while True:
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise MalformedMessage("a varint is longer than five bytes")
    if value > MAX_UVARINT:
        raise MalformedMessage("a varint does not fit 32 bits")
    return value, position + 1


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    if value > MAX_UVARINT:
        raise ValueError(f"{value} does not fit an unsigned 32-bit varint")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def read_slice(buffer: memoryview, position: int, length: int) -> tuple[memoryview, int]:
    end = position + length
    if end > len(buffer):
        raise MalformedMessage(f"{length} bytes announced at byte {position}, {len(buffer) - position} are left")
    return buffer[position:end], end


def read_string(buffer: memoryview, position: int) -> tuple[str | None, int]:
    (length,) = _INT16.unpack_from(buffer, position)
    position += 2
    if length < 0:
        _check_null(length)
        return None, position
    end = position + length
    if end > len(buffer):
        raise MalformedMessage(f"a string of {length} bytes, {len(buffer) - position} are left")
    return str(buffer[position:end], "utf-8"), end


def read_compact_string(buffer: memoryview, position: int) -> tuple[str | None, int]:
    length, position = read_uvarint(buffer, position)
    if length == 0:
        return None, position
    end = position + length - 1
    if end > len(buffer):
        raise MalformedMessage(f"a string of {length - 1} bytes, {len(buffer) - position} are left")
    if length > MAX_STRING_BYTES + 1:  # the length could say more, and no answer could repeat it
        raise MalformedMessage(f"a string of {length - 1} bytes; the protocol carries at most {MAX_STRING_BYTES}")
    return str(buffer[position:end], "utf-8"), end


def read_bytes(buffer: memoryview, position: int) -> tuple[memoryview | None, int]:
    (length,) = _INT32.unpack_from(buffer, position)
    position += 4
    if length < 0:
        _check_null(length)
        return None, position
    return read_slice(buffer, position, length)


def read_compact_bytes(buffer: memoryview, position: int) -> tuple[memoryview | None, int]:
    length, position = read_uvarint(buffer, position)
    if length == 0:
        return None, position
    return read_slice(buffer, position, length - 1)


def read_count(buffer: memoryview, position: int, element_bytes: int) -> tuple[int, int]:
    """An array's count, -1 for null. Refused where so many elements of at least `element_bytes` cannot be there."""
    (count,) = _INT32.unpack_from(buffer, position)
    position += 4
    if count < 0:
        _check_null(count)
        return -1, position
    check_count(count, element_bytes, len(buffer) - position)
    return count, position


def read_compact_count(buffer: memoryview, position: int, element_bytes: int) -> tuple[int, int]:
    count, position = read_uvarint(buffer, position)
    count -= 1
    check_count(count, element_bytes, len(buffer) - position)
    return count, position


def check_count(count: int, element_bytes: int, left: int) -> None:
    if count * element_bytes > left:
        raise MalformedMessage(f"an array of {count} elements in {left} bytes")


def spend(budget: int, count: int) -> int:
    """What is left of a budget of elements."""
    if count > budget:
        raise MalformedMessage(f"too many elements in one request: {count} more, where {budget} may follow")
    return budget - count


def check_tag_count(count: int) -> None:
    if count > MAX_TAGGED_FIELDS:
        raise MalformedMessage(f"{count} tagged fields in one struct; at most {MAX_TAGGED_FIELDS} are read")


def _check_null(length: int) -> None:
    if length != -1:
        raise MalformedMessage(f"a negative length: {length}")


def skip_tagged_fields(buffer: memoryview, position: int) -> int:
    """Behind the tagged fields that start here; none of them is looked at."""
    count = buffer[position]
    if count == 0:
        return position + 1
    count, position = read_uvarint(buffer, position)
    check_tag_count(count)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        _, position = read_slice(buffer, position, size)
    return position


def string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    if len(data) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(data)} bytes; the protocol carries at most {MAX_STRING_BYTES}")
    return _INT16.pack(len(data)) + data


def compact_string(value: str | None) -> bytes:
    if value is None:
        return b"\x00"
    data = value.encode()
    if len(data) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(data)} bytes; the protocol carries at most {MAX_STRING_BYTES}")
    return uvarint(len(data) + 1) + data


@lru_cache(_KEPT_UUIDS)
def uuid_from_bytes(data: bytes) -> UUID:
    """Cached: making a UUID costs more than the rest of a small request, and the same few topics come again."""
    return UUID(bytes=data)
