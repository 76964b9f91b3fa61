"""Kafka's five compression codecs, with decompression that never produces more bytes than it was allowed.

The only module that knows cramjam, which it imports on first use. It knows nothing of batches: bytes in, bytes out.

- gzip: one or more members.
- snappy: written in the framing of snappy-java ("xerial": magic, two versions, then length-prefixed raw blocks of at
  most 32 KiB), which is what Java and librdkafka read; raw blocks without framing, as some clients send, are read too.
- lz4: the frame format. Java reads only frames of independent blocks, so that is what is written: we put the blocks
  into the frame ourselves, since cramjam's own compressor of such frames keeps the interpreter's lock all the while.
- zstd: one or more frames.

Other threads run while a compressor works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from oncelog.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from oncelog.records.model import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# Kafka's own defaults (`compression.gzip.level`, `compression.zstd.level`); lz4's fast mode is its level 1.
DEFAULT_LEVELS = {GZIP: 6, LZ4: 1, ZSTD: 3}

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2  # version, lowest compatible version
XERIAL_BLOCK_BYTES = 32 * 1024
SNAPPY_MAX_RATIO = 64  # a snappy element of two bytes yields at most 64: a larger claim is a lie

LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x50\xfb"  # magic, independent blocks and no checksums, 256 KiB, check of these
LZ4_BLOCK_BYTES = 256 * 1024  # a batch is one block: after each, the interpreter's lock must be waited for
LZ4_THOROUGH_BLOCK_BYTES = 64 * 1024  # in the frames that cramjam makes of its thorough blocks
LZ4_STORED = 0x80000000  # in the size of a block: it would not compress, and is as it was
LZ4_END = bytes(4)
LZ4_FIRST_THOROUGH_LEVEL = 2  # below it, lz4 has one fast mode

FIRST_OUTPUT_BYTES = 64 * 1024
FIRST_OUTPUT_RATIO = 8  # text compresses to a fifth: a first output that is too small means to do it all again
OUTPUT_GROWTH = 4
OUTPUT_FULL = "failed to write whole buffer"  # cramjam's words when the output does not fit


# What Kafka's settings say by default. Its lz4 level of 9 does not mean the ninth: Kafka takes the fast mode for it.
_SETTINGS_THAT_MEAN_DEFAULT = {GZIP: -1, LZ4: 9}


def level_set(codec: int, setting: int | None) -> int | None:
    """What `compression.CODEC.level` means for `compress`: None leaves the level to the codec."""
    return None if setting == _SETTINGS_THAT_MEAN_DEFAULT.get(codec) else setting


def codec_named(name: str) -> int:
    """The codec that `compression.type` calls `name`."""
    if name not in NAMES:
        raise UnsupportedCompressionType(f"codec {name!r} is unknown; known are {', '.join(NAMES)}")
    return NAMES.index(name)


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """`data` in the format of `codec`, as Kafka's own clients read it."""
    if codec == NONE:
        return data
    if codec == SNAPPY:
        return _compress_snappy(data)
    if codec not in DEFAULT_LEVELS:
        raise _unknown_codec(codec)
    import cramjam

    level = DEFAULT_LEVELS[codec] if level is None else level
    if codec == GZIP:
        return memoryview(cramjam.gzip.compress(data, level))
    if codec == ZSTD:
        return memoryview(cramjam.zstd.compress(data, level))
    return _compress_lz4(data, level)


def decompress(codec: int, data: Buffer, *, max_bytes: int) -> Buffer:
    """The original of `data`: at most `max_bytes`, whatever the data claims; the output grows as bytes appear."""
    if codec == NONE:
        if len(data) > max_bytes:
            raise _bomb(codec, max_bytes)
        return data
    if codec == SNAPPY:
        return _decompress_snappy(memoryview(data), max_bytes)
    if codec not in DEFAULT_LEVELS:
        raise _unknown_codec(codec)
    import cramjam

    module = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}[codec]
    return _decompress_growing(codec, module.decompress_into, data, max_bytes)


def _decompress_growing(codec: int, decompress_into: Callable[..., int], data: Buffer, max_bytes: int) -> memoryview:
    from cramjam import DecompressionError

    capacity = min(max_bytes, max(FIRST_OUTPUT_BYTES, FIRST_OUTPUT_RATIO * len(data)))
    while True:
        output = bytearray(capacity)
        try:
            written = decompress_into(data, output)
        except DecompressionError as error:
            if OUTPUT_FULL not in str(error):
                raise _garbage(codec, error) from error
            if capacity == max_bytes:
                raise _bomb(codec, max_bytes) from error
            capacity = min(max_bytes, capacity * OUTPUT_GROWTH)
        else:
            return memoryview(output)[:written]


def _compress_lz4(data: Buffer, level: int) -> bytearray:
    view = memoryview(data)
    frame = bytearray(LZ4_HEADER)
    block_bytes = LZ4_BLOCK_BYTES if level < LZ4_FIRST_THOROUGH_LEVEL else LZ4_THOROUGH_BLOCK_BYTES
    for start in range(0, len(view), block_bytes):
        raw = view[start : start + block_bytes]
        block = _lz4_block(raw, level)
        is_smaller = len(block) < len(raw)
        frame += (len(block) if is_smaller else len(raw) | LZ4_STORED).to_bytes(4, "little")
        frame += block if is_smaller else raw
    frame += LZ4_END
    return frame


def _lz4_block(raw: memoryview, level: int) -> memoryview:
    """One block, not smaller than `raw` if that would not compress."""
    from cramjam import lz4

    if level < LZ4_FIRST_THOROUGH_LEVEL:
        return memoryview(lz4.compress_block(raw, store_size=False))
    # cramjam makes single blocks only in the fast mode. Its frame around so few bytes, though, has just one.
    frame = memoryview(lz4.compress(raw, level))
    start = len(LZ4_HEADER) + 4
    size = int.from_bytes(frame[len(LZ4_HEADER) : start], "little")
    return frame[start : start + (size & ~LZ4_STORED)]


def _compress_snappy(data: Buffer) -> bytearray:
    from cramjam import snappy

    view = memoryview(data)
    framed = bytearray(XERIAL_HEADER)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES])
        framed += len(block).to_bytes(4, "big")
        framed += memoryview(block)
    return framed


def _decompress_snappy(data: memoryview, max_bytes: int) -> memoryview:
    from cramjam import DecompressionError, snappy

    is_framed = len(data) >= len(XERIAL_HEADER) and data[: len(XERIAL_MAGIC)] == XERIAL_MAGIC
    blocks = list(_xerial_blocks(data)) if is_framed else [data]
    try:
        sizes = [_snappy_size(snappy, block) for block in blocks]
        if sum(sizes) > max_bytes:
            raise _bomb(SNAPPY, max_bytes)
        output = memoryview(bytearray(sum(sizes)))
        start = 0
        for block, size in zip(blocks, sizes, strict=True):
            if snappy.decompress_raw_into(block, output[start : start + size]) != size:
                raise CorruptMessage(f"a snappy block does not hold the {size} bytes it announces")
            start += size
    except DecompressionError as error:
        raise _garbage(SNAPPY, error) from error
    return output


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    position = len(XERIAL_HEADER)
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        start = position + 4
        if start > len(data) or size > len(data) - start:
            raise CorruptMessage(f"snappy block of {size} bytes, but only {max(0, len(data) - start)} bytes follow")
        yield data[start : start + size]
        position = start + size


def _snappy_size(snappy: Any, block: memoryview) -> int:
    size = int(snappy.decompress_raw_len(block))
    if size > SNAPPY_MAX_RATIO * len(block):
        raise CorruptMessage(f"a snappy block of {len(block)} bytes announces {size}, more than the format can hold")
    return size


def _unknown_codec(codec: int) -> UnsupportedCompressionType:
    return UnsupportedCompressionType(f"codec {codec} is unknown; known are 0 to 4: {', '.join(NAMES)}")


def _garbage(codec: int, error: Exception) -> CorruptMessage:
    return CorruptMessage(f"the records are not valid {NAMES[codec]}: {error}")


def _bomb(codec: int, max_bytes: int) -> InvalidRecord:
    return InvalidRecord(f"the {NAMES[codec]} records decompress to more than the {max_bytes} bytes allowed")
