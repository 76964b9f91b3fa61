"""Record batches made by hand, every field open to a test's lie, and a reader for what brokers hand back.

Written from Kafka's format description, independently of `oncelog.records`, so that the two check each other.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import cramjam
from crc32c import crc32c

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_END = 21
TIMESTAMP_MS = 1_700_000_000_000
XERIAL_MAGIC = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


class Record(NamedTuple):
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_delta: int = 0
    offset_delta: int | None = None
    attributes: int = 0


class StoredRecord(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Batch(NamedTuple):
    """A batch's header as stored, plus its records section as stored (perhaps compressed)."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    section: bytes
    crc_is_right: bool

    @property
    def codec(self) -> int:
        return self.attributes & 7


def zigzag(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def uvarint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return zigzag(-1) if data is None else zigzag(len(data)) + data


def encode_record(record: Record, index: int) -> bytes:
    delta = index if record.offset_delta is None else record.offset_delta
    body = bytes([record.attributes]) + zigzag(record.timestamp_delta) + zigzag(delta)
    body += _sized(record.key) + _sized(record.value) + zigzag(len(record.headers))
    for name, value in record.headers:
        body += _sized(name.encode()) + _sized(value)
    return zigzag(len(body)) + body


def compress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(data))
        return XERIAL_MAGIC + struct.pack(">i", len(block)) + block
    if codec == LZ4:
        # Java's reader refuses frames with linked blocks, which are cramjam's default.
        compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return data


def decompress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return bytes(cramjam.gzip.decompress(data))
    if codec == SNAPPY:
        return _decompress_xerial(data)
    if codec == LZ4:
        return bytes(cramjam.lz4.decompress(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.decompress(data))
    return data


def _decompress_xerial(data: bytes) -> bytes:
    if not data.startswith(XERIAL_MAGIC[:8]):
        return bytes(cramjam.snappy.decompress_raw(data))
    out, position = b"", len(XERIAL_MAGIC)
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        out += bytes(cramjam.snappy.decompress_raw(data[position + 4 : position + 4 + size]))
        position += 4 + size
    return out


def make_batch(
    records: Iterable[Record | bytes] = (Record(),),
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    codec: int = NONE,
    attributes: int = 0,
    magic: int = 2,
    base_offset: int = 0,
    leader_epoch: int = -1,
    base_timestamp: int = TIMESTAMP_MS,
    max_timestamp: int | None = None,
    record_count: int | None = None,
    last_offset_delta: int | None = None,
    section: bytes | None = None,
    crc: int | None = None,
    length: int | None = None,
) -> bytes:
    """A batch as a good producer makes it, except for what the test sets. A bytes record is a value."""
    made = [Record(value=each) if isinstance(each, bytes) else each for each in records]
    count = len(made) if record_count is None else record_count
    if section is None:
        section = compress(codec, b"".join(encode_record(each, index) for index, each in enumerate(made)))
    if max_timestamp is None:
        max_timestamp = base_timestamp + max((each.timestamp_delta for each in made), default=0)
    after_crc = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        len(made) - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        epoch,
        sequence,
        count,
    )
    right_crc = crc32c(after_crc + section)
    size = 9 + len(after_crc) + len(section) if length is None else length
    head = struct.pack(">qiibI", base_offset, size, leader_epoch, magic, right_crc if crc is None else crc)
    return head + after_crc + section


def make_message(value: bytes = b"v", *, magic: int = 1, timestamp_ms: int = TIMESTAMP_MS) -> bytes:
    """One entry of the message sets that Kafka used before record batches (magic 0 and 1)."""
    body = struct.pack(">bb", magic, 0)
    if magic == 1:
        body += struct.pack(">q", timestamp_ms)
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def read_batches(data: bytes) -> Iterator[Batch]:
    """The complete batches in a fetch answer; a partial one at the end is left out, as clients do."""
    position = 0
    while position + HEADER.size <= len(data):
        fields = HEADER.unpack_from(data, position)
        end = position + 12 + fields[1]
        if end > len(data):
            return
        crc_is_right = crc32c(data[position + CRC_END : end]) == fields[4]
        yield Batch(*fields, section=data[position + HEADER.size : end], crc_is_right=crc_is_right)
        position = end


def read_records(data: bytes) -> list[StoredRecord]:
    return [record for batch in read_batches(data) for record in batch_records(batch)]


def batch_records(batch: Batch) -> Iterator[StoredRecord]:
    reader = _Reader(decompress(batch.codec, batch.section))
    for _ in range(batch.record_count):
        reader.varint()
        reader.take(1)
        timestamp_ms = batch.base_timestamp + reader.varint()
        if batch.attributes & LOG_APPEND_TIME:
            timestamp_ms = batch.max_timestamp
        offset = batch.base_offset + reader.varint()
        key, value = reader.sized(), reader.sized()
        headers = tuple(((reader.sized() or b"").decode(), reader.sized()) for _ in range(reader.varint()))
        yield StoredRecord(offset, timestamp_ms, key, value, headers)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        taken = self.data[self.position : self.position + size]
        assert len(taken) == size
        self.position += size
        return taken

    def varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def sized(self) -> bytes | None:
        size = self.varint()
        return None if size < 0 else self.take(size)
