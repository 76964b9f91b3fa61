"""The records section of a batch in every shape that a compressor, or somebody with bad intentions, may give it.

Frames are put together byte by byte from the descriptions of their formats, so that each can be wrong in one place.
`SECTIONS` holds the same three records in all of them.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import cramjam

from tests.support.batches import GZIP, LZ4, NONE, SNAPPY, XERIAL_MAGIC, ZSTD, Record, encode_record

RECORDS = (Record(b"k0", b"first " * 40), Record(b"k1", b"second " * 40), Record(b"k2", b"third " * 40))
VALUES = tuple(record.value for record in RECORDS)
DATA = b"".join(encode_record(record, index) for index, record in enumerate(RECORDS))
CUT = len(encode_record(RECORDS[0], 0))
"""Where the first record ends: frames are divided here."""


class Section(NamedTuple):
    codec: int
    data: bytes


# --- lz4: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md

LZ4_MAGIC = 0x184D2204
LZ4_LEGACY_MAGIC = 0x184C2102
SKIPPABLE_MAGIC = 0x184D2A50
INDEPENDENT, BLOCK_CHECKSUM, CONTENT_SIZE, CONTENT_CHECKSUM, RESERVED, DICTIONARY = 0x20, 0x10, 0x08, 0x04, 0x02, 0x01
VERSION_1 = 0x40
BLOCK_64_KIB, BLOCK_4_MIB = 4, 7
STORED = 0x80000000
_U32 = 0xFFFFFFFF
_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


def xxh32(data: bytes) -> int:
    p1, p2, p3, p4, p5 = _PRIMES

    def rotated(value: int, by: int) -> int:
        value &= _U32
        return (value << by | value >> 32 - by) & _U32

    position, end = 0, len(data)
    if end >= 16:
        lanes = [(p1 + p2) & _U32, p2, 0, -p1 & _U32]
        while position + 16 <= end:
            for lane, word in enumerate(struct.unpack_from("<4I", data, position)):
                lanes[lane] = rotated(lanes[lane] + word * p2, 13) * p1 & _U32
            position += 16
        value = sum(rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        value = p5
    value += end
    while position + 4 <= end:
        value = rotated(value + struct.unpack_from("<I", data, position)[0] * p3, 17) * p4
        position += 4
    for byte in data[position:]:
        value = rotated(value + byte * p5, 11) * p1
    for shift, prime in ((15, p2), (13, p3), (16, 1)):
        value = (value & _U32 ^ (value & _U32) >> shift) * prime & _U32
    return value


def lz4_block(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress_block(data, store_size=False))


def lz4_frame(
    *blocks: bytes,
    flags: int = VERSION_1 | INDEPENDENT,
    descriptor: int = BLOCK_64_KIB << 4,
    magic: int = LZ4_MAGIC,
    content_size: int | None = None,
    dictionary_id: int | None = None,
    header_checksum_error: int = 0,
    block_checksum_error: int | None = None,
    content_checksum_error: int | None = None,
    stored: bool = False,
    is_ended: bool = True,
) -> bytes:
    """A frame of these blocks, given as they were before compression; an error is added to a checksum that is there."""
    header = bytes([flags, descriptor])
    header += b"" if content_size is None else struct.pack("<Q", content_size)
    header += b"" if dictionary_id is None else struct.pack("<I", dictionary_id)
    checksum = (xxh32(header) >> 8) + header_checksum_error & 0xFF
    frame = struct.pack("<I", magic) + header + bytes([checksum])
    for raw in blocks:
        block = raw if stored else lz4_block(raw)
        frame += struct.pack("<I", len(block) | (STORED if stored else 0)) + block
        if block_checksum_error is not None:
            frame += struct.pack("<I", xxh32(block) + block_checksum_error & _U32)
    frame += bytes(4) if is_ended else b""
    if content_checksum_error is not None:
        frame += struct.pack("<I", xxh32(b"".join(blocks)) + content_checksum_error & _U32)
    return frame


def skippable(size: int = 5) -> bytes:
    """In the formats of lz4 and of zstd."""
    return struct.pack("<II", SKIPPABLE_MAGIC, size) + b"x" * size


def lz4_linked(data: bytes) -> bytes:
    """As most libraries write it unless told otherwise."""
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=True)
    compressor.compress(data)
    return bytes(compressor.finish())


_PLAIN = VERSION_1 | INDEPENDENT
LZ4_SECTIONS = {
    "plain": lz4_frame(DATA),
    "two blocks": lz4_frame(DATA[:CUT], DATA[CUT:]),
    "stored blocks": lz4_frame(DATA, stored=True),
    "blocks of 4 MiB": lz4_frame(DATA, descriptor=BLOCK_4_MIB << 4),
    "block checksums": lz4_frame(DATA, flags=_PLAIN | BLOCK_CHECKSUM, block_checksum_error=0),
    "a wrong block checksum": lz4_frame(DATA, flags=_PLAIN | BLOCK_CHECKSUM, block_checksum_error=1),
    "content checksum": lz4_frame(DATA, flags=_PLAIN | CONTENT_CHECKSUM, content_checksum_error=0),
    "a wrong content checksum": lz4_frame(DATA, flags=_PLAIN | CONTENT_CHECKSUM, content_checksum_error=1),
    "a missing content checksum": lz4_frame(DATA, flags=_PLAIN | CONTENT_CHECKSUM),
    "content size": lz4_frame(DATA, flags=_PLAIN | CONTENT_SIZE, content_size=len(DATA)),
    "a wrong content size": lz4_frame(DATA, flags=_PLAIN | CONTENT_SIZE, content_size=len(DATA) + 1),
    "a content size of 2^63": lz4_frame(DATA, flags=_PLAIN | CONTENT_SIZE, content_size=1 << 63),
    "linked blocks": lz4_linked(DATA),
    "a dictionary": lz4_frame(DATA, flags=_PLAIN | DICTIONARY, dictionary_id=7),
    "a reserved flag": lz4_frame(DATA, flags=_PLAIN | RESERVED),
    "version 0": lz4_frame(DATA, flags=INDEPENDENT),
    "version 2": lz4_frame(DATA, flags=0x80 | INDEPENDENT),
    "a block size that does not exist": lz4_frame(DATA, descriptor=3 << 4),
    "reserved bits of the block descriptor": lz4_frame(DATA, descriptor=BLOCK_64_KIB << 4 | 1),
    "a wrong header checksum": lz4_frame(DATA, header_checksum_error=1),
    "a legacy frame": struct.pack("<II", LZ4_LEGACY_MAGIC, len(lz4_block(DATA))) + lz4_block(DATA),
    "two frames": lz4_frame(DATA[:CUT]) + lz4_frame(DATA[CUT:]),
    "an empty frame first": lz4_frame() + lz4_frame(DATA),
    "an empty frame last": lz4_frame(DATA) + lz4_frame(),
    "a skippable frame first": skippable() + lz4_frame(DATA),
    "a skippable frame last": lz4_frame(DATA) + skippable(),
    "an empty block first": lz4_frame(b"", DATA),
    "an empty block last": lz4_frame(DATA, b""),
    "a block larger than the frame allows": lz4_frame(b"", stored=True, is_ended=False)[:7]
    + struct.pack("<I", 65_537 | STORED)
    + DATA.ljust(65_537, b"\0")
    + bytes(4),
    "no end mark": lz4_frame(DATA, is_ended=False),
    "bytes after the end": lz4_frame(DATA) + b"\x00",
    "cut off": lz4_frame(DATA)[:-9],
    "nothing": b"",
}

# --- gzip: RFC 1952

FTEXT, FHCRC, FEXTRA, FNAME, FCOMMENT, GZIP_RESERVED = 1, 2, 4, 8, 16, 32


def gzip_member(
    data: bytes,
    *,
    flags: int = 0,
    extra: bytes = b"",
    method: int = 8,
    header_crc_error: int | None = None,
    crc_error: int = 0,
    size_error: int = 0,
) -> bytes:
    header = b"\x1f\x8b" + bytes([method, flags]) + bytes(6) + extra
    if header_crc_error is not None:
        header += struct.pack("<H", (zlib.crc32(header) + header_crc_error) & 0xFFFF)
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = compressor.compress(data) + compressor.flush()
    return header + body + struct.pack("<II", (zlib.crc32(data) + crc_error) & _U32, (len(data) + size_error) & _U32)


GZIP_SECTIONS = {
    "plain": gzip_member(DATA),
    "a name and a comment": gzip_member(DATA, flags=FNAME | FCOMMENT | FTEXT, extra=b"name\0comment\0"),
    "an extra field": gzip_member(DATA, flags=FEXTRA, extra=struct.pack("<H", 6) + b"abcdef"),
    "a header checksum": gzip_member(DATA, flags=FHCRC, header_crc_error=0),
    "a wrong header checksum": gzip_member(DATA, flags=FHCRC, header_crc_error=1),
    "a reserved flag": gzip_member(DATA, flags=GZIP_RESERVED),
    "an unknown method": gzip_member(DATA, method=7),
    "a wrong checksum": gzip_member(DATA, crc_error=1),
    "a wrong size": gzip_member(DATA, size_error=1),
    "two members": gzip_member(DATA[:CUT]) + gzip_member(DATA[CUT:]),
    "an empty member first": gzip_member(b"") + gzip_member(DATA),
    "an empty member last": gzip_member(DATA) + gzip_member(b""),
    "bytes after the end": gzip_member(DATA) + b"\x00",
    "many bytes after the end": gzip_member(DATA) + b"garbage " * 8,
    "no trailer": gzip_member(DATA)[:-8],
    "cut off": gzip_member(DATA)[:-20],
    "zlib instead": zlib.compress(DATA),
    "nothing": b"",
}

# --- snappy: snappy-java's framing, https://github.com/xerial/snappy-java

SNAPPY_FRAME_FORMAT = bytes(cramjam.snappy.compress(DATA))


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def xerial(*blocks: bytes, magic: bytes = XERIAL_MAGIC, size_error: int = 0) -> bytes:
    """Framed blocks, given as they were before compression."""
    framed = magic
    for data in blocks:
        block = raw_snappy(data)
        framed += struct.pack(">I", len(block) + size_error) + block
    return framed


def versions(version: int, compatible: int) -> bytes:
    return XERIAL_MAGIC[:8] + struct.pack(">ii", version, compatible)


SNAPPY_SECTIONS = {
    "plain": xerial(DATA),
    "two blocks": xerial(DATA[:CUT], DATA[CUT:]),
    "raw": raw_snappy(DATA),
    "the frame format": SNAPPY_FRAME_FORMAT,
    "version 2": xerial(DATA, magic=versions(2, 1)),
    "version 2, compatible with 2": xerial(DATA, magic=versions(2, 2)),
    "version 0": xerial(DATA, magic=versions(0, 0)),
    "version 0, compatible with 1": xerial(DATA, magic=versions(0, 1)),
    "version -1": xerial(DATA, magic=versions(-1, -1)),
    "an empty block first": xerial(b"", DATA),
    "an empty block last": xerial(DATA, b""),
    "a block of no bytes first": XERIAL_MAGIC + bytes(4) + xerial(DATA)[16:],
    "a block of no bytes last": xerial(DATA) + bytes(4),
    "two streams": xerial(DATA[:CUT]) + xerial(DATA[CUT:]),
    "two streams, the first one empty": xerial() + xerial(DATA),
    "an empty stream last": xerial(DATA) + xerial(),
    "one byte after the end": xerial(DATA) + b"\x00",
    "four bytes after the end": xerial(DATA) + b"\x00\x00\x00\x07",
    "a block that says it is longer": xerial(DATA, size_error=1),
    "raw with bytes after the end": raw_snappy(DATA) + b"\x00",
    "raw, cut off": raw_snappy(DATA)[:-3],
    "cut off": xerial(DATA)[:-3],
    "a header alone": XERIAL_MAGIC,
    "a magic alone": XERIAL_MAGIC[:8],
    "nothing": b"",
}

# --- zstd: RFC 8878

ZSTD_MAGIC = 0xFD2FB528
ZSTD_CHECKSUM, SINGLE_SEGMENT = 0x04, 0x20
RAW_BLOCK, RUN_BLOCK, COMPRESSED_BLOCK, RESERVED_BLOCK = range(4)


def zstd_block(data: bytes, *, kind: int = RAW_BLOCK, is_last: bool = True, size: int | None = None) -> bytes:
    return ((len(data) if size is None else size) << 3 | kind << 1 | is_last).to_bytes(3, "little") + data


def zstd_frame(*blocks: bytes, window: int | None = 0, content_size: int | None = None, dictionary: int = 0) -> bytes:
    """A frame of blocks that are not compressed; `window` as the format writes it, None for a single segment."""
    descriptor = (0 if content_size is None else 0xC0) | (SINGLE_SEGMENT if window is None else 0) | (dictionary > 0)
    header = struct.pack("<IB", ZSTD_MAGIC, descriptor) + (b"" if window is None else bytes([window]))
    header += bytes([dictionary]) if dictionary else b""
    header += b"" if content_size is None else struct.pack("<Q", content_size)
    return header + b"".join(blocks)


def compressed_zstd(data: bytes = DATA, level: int = 3) -> bytes:
    return bytes(cramjam.zstd.compress(data, level))


def zstd_window(log: int) -> int:
    return log - 10 << 3


_LAST = zstd_block(DATA)
ZSTD_SECTIONS = {
    "plain": compressed_zstd(),
    "no content size": zstd_frame(_LAST),
    "content size": zstd_frame(_LAST, content_size=len(DATA)),
    "a single segment": zstd_frame(_LAST, window=None, content_size=len(DATA)),
    "a wrong content size": zstd_frame(_LAST, content_size=len(DATA) + 1),
    "a content size that is too small": zstd_frame(_LAST, content_size=len(DATA) - 1),
    "a content size of 2^63": zstd_frame(_LAST, content_size=1 << 63),
    "two blocks": zstd_frame(zstd_block(DATA[:CUT], is_last=False), zstd_block(DATA[CUT:])),
    "an empty block first": zstd_frame(zstd_block(b"", is_last=False), _LAST),
    "an empty block last": zstd_frame(zstd_block(DATA, is_last=False), zstd_block(b"")),
    "a reserved block": zstd_frame(zstd_block(DATA, kind=RESERVED_BLOCK)),
    "a window of 128 MiB": zstd_frame(_LAST, window=zstd_window(27)),
    "a window of 256 MiB": zstd_frame(_LAST, window=zstd_window(28)),
    "a window of 2 TiB": zstd_frame(_LAST, window=zstd_window(41)),
    "a dictionary": zstd_frame(_LAST, dictionary=7),
    "a reserved bit": b"\x28\xb5\x2f\xfd\x08\x00" + _LAST,
    "an unused bit": b"\x28\xb5\x2f\xfd\x10\x00" + _LAST,
    "a wrong checksum": b"\x28\xb5\x2f\xfd\x04\x00" + _LAST + b"abcd",
    "no checksum where one is announced": b"\x28\xb5\x2f\xfd\x04\x00" + _LAST,
    "two frames": zstd_frame(zstd_block(DATA[:CUT])) + zstd_frame(zstd_block(DATA[CUT:])),
    "two frames with content sizes": compressed_zstd(DATA[:CUT]) + compressed_zstd(DATA[CUT:]),
    "an empty frame first": compressed_zstd(b"") + compressed_zstd(),
    "an empty frame last": compressed_zstd() + compressed_zstd(b""),
    "a skippable frame first": skippable() + compressed_zstd(),
    "a skippable frame last": compressed_zstd() + skippable(),
    "a skippable frame between": compressed_zstd(DATA[:CUT]) + skippable() + compressed_zstd(DATA[CUT:]),
    "a skippable frame that is cut off": compressed_zstd() + skippable()[:-1],
    "an old format": b"\x27\xb5\x2f\xfd" + compressed_zstd()[4:],
    "without magic": compressed_zstd()[4:],
    "one byte after the end": compressed_zstd() + b"\x00",
    "bytes after the end": compressed_zstd() + b"garbage!",
    "no last block": zstd_frame(zstd_block(DATA, is_last=False)),
    "cut off": compressed_zstd()[:-3],
    "nothing": b"",
}

NONE_SECTIONS = {"plain": DATA, "bytes after the end": DATA + b"\x00", "cut off": DATA[:-1], "nothing": b""}

SECTIONS: dict[str, Section] = {
    f"{name}: {what}": Section(codec, data)
    for name, codec, sections in (
        ("none", NONE, NONE_SECTIONS),
        ("gzip", GZIP, GZIP_SECTIONS),
        ("snappy", SNAPPY, SNAPPY_SECTIONS),
        ("lz4", LZ4, LZ4_SECTIONS),
        ("zstd", ZSTD, ZSTD_SECTIONS),
    )
    for what, data in sections.items()
}

ONLY_FOR_SOME = {
    "gzip: a reserved flag": "librdkafka cannot read it",
    "gzip: two members": "librdkafka reads the first member alone, and drops the records of the second",
    "gzip: an empty member first": "librdkafka's process aborts",
    "gzip: an empty member last": "one member is the rule; librdkafka passes over what follows it",
    "gzip: bytes after the end": "the same",
    "gzip: many bytes after the end": "the same",
    "snappy: two streams": "librdkafka cannot read it",
    "snappy: two streams, the first one empty": "librdkafka cannot read it",
    "snappy: an empty stream last": "librdkafka cannot read it",
    "snappy: one byte after the end": "librdkafka cannot read it",
    "lz4: a wrong content checksum": "Java does not look at it; librdkafka does",
    "lz4: a wrong content size": "Java does not look at it; librdkafka does",
    "lz4: a content size of 2^63": "Java does not look at it; librdkafka does",
    "lz4: an empty block first": "Java's consumer cannot read it, though Java's broker can",
    "lz4: an empty block last": "no block may be empty",
    "lz4: an empty frame last": "librdkafka cannot read it",
    "lz4: a skippable frame last": "librdkafka cannot read it",
    "lz4: bytes after the end": "librdkafka cannot read it",
    "zstd: a skippable frame that is cut off": "librdkafka cannot read it",
}
"""Apache Kafka stores these, since Java reads them; and why oncelog does not."""

FOR_ALL = (
    "none: plain",
    *(f"gzip: {what}" for what in ("plain", "a name and a comment", "an extra field", "a header checksum")),
    *(f"snappy: {what}" for what in ("plain", "two blocks", "raw", "version 2", "version 2, compatible with 2")),
    *(f"snappy: {what}" for what in ("version 0", "version 0, compatible with 1", "version -1")),
    *(f"snappy: {what}" for what in ("an empty block first", "an empty block last")),
    *(f"lz4: {what}" for what in ("plain", "two blocks", "stored blocks", "blocks of 4 MiB", "block checksums")),
    *(f"lz4: {what}" for what in ("content checksum", "content size")),
    *(f"zstd: {what}" for what in ("plain", "no content size", "content size", "a single segment", "two blocks")),
    *(f"zstd: {what}" for what in ("an empty block first", "an empty block last", "a window of 128 MiB")),
    *(f"zstd: {what}" for what in ("an unused bit", "two frames", "two frames with content sizes")),
    *(f"zstd: {what}" for what in ("an empty frame first", "an empty frame last")),
    *(f"zstd: a skippable frame {where}" for where in ("first", "last", "between")),
)
"""What Apache Kafka stores, and librdkafka reads."""

INVALID = frozenset(
    {
        "none: bytes after the end",
        "none: cut off",
        "none: nothing",
        "gzip: two members",
        "gzip: an empty member first",
        "gzip: an empty member last",
        "snappy: two streams",
        "snappy: two streams, the first one empty",
        "snappy: an empty stream last",
        "snappy: a header alone",
        "lz4: linked blocks",
        "lz4: an empty block first",
        "lz4: an empty block last",
        "lz4: a dictionary",
        "lz4: two frames",
        "lz4: an empty frame first",
        "lz4: an empty frame last",
        "lz4: a skippable frame first",
        "lz4: a skippable frame last",
        "lz4: bytes after the end",
        "gzip: bytes after the end",
    }
)
"""oncelog answers INVALID_RECORD: whole, and against a rule. All else that it refuses is broken: CORRUPT_MESSAGE."""
