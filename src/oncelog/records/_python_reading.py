"""How the Python kernel reads: the header of a batch, its CRC, and a walk over the records of its payload.

Every length is checked against the bytes that are there before it is believed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import crc32c as _crc32c

from oncelog.errors import CorruptMessage, InvalidRecord
from oncelog.named_tuple import NamedTuple
from oncelog.records.model import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAX_BATCH_BYTES,
    MIN_RECORD_SIZE,
    BatchHeader,
    Buffer,
    Header,
)

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC = struct.Struct(">I")
CRC_AT = 17

_MAX_VARINT_BYTES = 5
_MAX_VARLONG_BYTES = 10


# ---------------------------------------------------------------------------------------------------- batches


def crc32c(data: Buffer, value: int = 0) -> int:
    return _crc32c.crc32c(data, value)


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    if position < 0 or len(buffer) - position < HEADER_SIZE:
        raise CorruptMessage(f"a batch header takes {HEADER_SIZE} bytes, {max(0, len(buffer) - position)} are left")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    size_bytes = header.size_bytes + LOG_OVERHEAD
    if not HEADER_SIZE <= size_bytes <= MAX_BATCH_BYTES:
        raise CorruptMessage(f"a batch cannot have length {header.size_bytes}")
    return header._replace(size_bytes=size_bytes)


def crc_matches(buffer: Buffer, position: int, size_bytes: int) -> bool:
    """Whether the batch's CRC is right; a batch that the buffer does not hold whole has no right CRC."""
    if position < 0 or size_bytes < HEADER_SIZE or size_bytes > len(buffer) - position:
        return False
    (expected,) = CRC.unpack_from(buffer, position + CRC_AT)
    return bool(batch_crc(buffer, position, size_bytes) == expected)


def batch_crc(buffer: Buffer, position: int, size_bytes: int) -> int:
    with memoryview(buffer) as view, view[position + CRC_START : position + size_bytes] as covered:
        return crc32c(covered)


# ---------------------------------------------------------------------------------------------------- records


class Span(NamedTuple):
    """Where a nullable run of bytes lies; `start` is -1 for null."""

    start: int
    end: int

    def of(self, payload: memoryview) -> bytes | None:
        return None if self.start < 0 else bytes(payload[self.start : self.end])


NULL = Span(-1, -1)


class Walked(NamedTuple):
    timestamp_delta: int
    offset_delta: int
    key: Span
    value: Span
    headers: list[tuple[Span, Span]]
    end: int
    """Where the next record starts."""

    def headers_of(self, view: memoryview) -> tuple[Header, ...]:
        return tuple((_text(view, key), value.of(view)) for key, value in self.headers)


def _text(view: memoryview, span: Span) -> str:
    return str(view[span.start : span.end], "utf-8", "surrogateescape")


def walk(payload: memoryview, record_count: int) -> Iterator[Walked]:
    check_count(payload, record_count)
    position = 0
    for _ in range(record_count):
        record = walk_record(payload, position)
        yield record
        position = record.end
    check_all_read(payload, position)


def check_count(payload: memoryview, record_count: int) -> None:
    if not 0 <= record_count <= len(payload) // MIN_RECORD_SIZE:
        raise InvalidRecord(f"{record_count} records cannot lie in {len(payload)} bytes")


def check_all_read(payload: memoryview, position: int) -> None:
    if position != len(payload):
        raise InvalidRecord(f"{len(payload) - position} bytes are left over after the last record")


def walk_record(payload: memoryview, position: int) -> Walked:
    """The record at `position`."""
    length, position = _read_varint(payload, position, len(payload))
    if not 0 < length <= len(payload) - position:
        raise InvalidRecord(f"a record claims {length} bytes, {len(payload) - position} are left")
    end = position + length
    timestamp_delta, position = _read_varint(payload, position + 1, end, _MAX_VARLONG_BYTES)
    offset_delta, position = _read_varint(payload, position, end)
    key, position = _read_span(payload, position, end)
    value, position = _read_span(payload, position, end)
    header_count, position = _read_varint(payload, position, end)
    if not 0 <= header_count <= (end - position) // 2:
        raise InvalidRecord(f"a record claims {header_count} headers in {end - position} bytes")
    headers = []
    for _ in range(header_count):
        header_key, position = _read_span(payload, position, end)
        if header_key is NULL:
            raise InvalidRecord("a record has a header with a null key")
        header_value, position = _read_span(payload, position, end)
        headers.append((header_key, header_value))
    if position != end:
        raise InvalidRecord(f"a record is {end - position} bytes longer than its fields")
    return Walked(timestamp_delta, offset_delta, key, value, headers, end)


def _read_span(payload: memoryview, position: int, end: int) -> tuple[Span, int]:
    length, position = _read_varint(payload, position, end)
    if length == -1:
        return NULL, position
    if not 0 <= length <= end - position:
        raise InvalidRecord(f"a field claims {length} bytes, {end - position} are left in the record")
    return Span(position, position + length), position + length


def _read_varint(payload: memoryview, position: int, end: int, max_bytes: int = _MAX_VARINT_BYTES) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 7 * max_bytes:
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> (32 if max_bytes == _MAX_VARINT_BYTES else 64):
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise InvalidRecord("a variable-length integer is cut off or too large")


def wrap_int64(value: int) -> int:
    """`value` as Java's and C's 64-bit arithmetic would have it."""
    return ((value + 2**63) & (2**64 - 1)) - 2**63
