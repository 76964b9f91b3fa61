"""Kafka's five compression codecs, with decompression that never produces more bytes than it was allowed.

The only module that knows cramjam and zlib, which it imports on first use. It knows nothing of batches: bytes in, bytes
out. `frames` tells it how many bytes can come out, so that nothing is decompressed twice.

- gzip: one or more members. zlib's decompressor is used, since it can be stopped half way.
- snappy: written in the framing of snappy-java ("xerial": magic, two versions, then length-prefixed raw blocks of at
  most 32 KiB), which is what Java and librdkafka read; raw blocks without framing, as some clients send, are read too.
- lz4: the frame format. Java reads only frames of independent blocks, so that is what is written: we put the blocks
  into the frame ourselves, since cramjam's own compressor of such frames keeps the interpreter's lock all the while.
- zstd: one or more frames.

Other threads run while a compressor or a decompressor works.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap

from oncelog.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from oncelog.records import frames
from oncelog.records.model import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = frames.CODECS
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# Kafka's own defaults (`compression.gzip.level`, `compression.zstd.level`); lz4's fast mode is its level 1.
DEFAULT_LEVELS = {GZIP: 6, LZ4: 1, ZSTD: 3}

XERIAL_HEADER = frames.XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2  # version, lowest compatible version
XERIAL_BLOCK_BYTES = 32 * 1024

LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x50\xfb"  # magic, independent blocks and no checksums, 256 KiB, check of these
LZ4_BLOCK_BYTES = 256 * 1024  # a batch is one block: after each, the interpreter's lock must be waited for
LZ4_THOROUGH_BLOCK_BYTES = 64 * 1024  # in the frames that cramjam makes of its thorough blocks
LZ4_STORED = 0x80000000  # in the size of a block: it would not compress, and is as it was
LZ4_END = bytes(4)
LZ4_FIRST_THOROUGH_LEVEL = 2  # below it, lz4 has one fast mode

GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW_BITS = 31  # the largest window, and zlib's sign for gzip's header and trailer
GZIP_STEP_BYTES = 256 * 1024  # read, and written, before the interpreter's lock is asked for again
FIRST_OUTPUT_BYTES = 128 * 1024  # a block of zstd
FIRST_OUTPUT_RATIO = 32  # hardly anything compresses better
MAX_CLEARED_BYTES = 1024 * 1024
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


def decompress(codec: int, data: Buffer, *, max_bytes: int, for_all: bool = False) -> Buffer:
    """The original of `data`: at most `max_bytes`, whatever the data claims, and in one pass. With `for_all`, what some
    of Kafka's readers could not read is refused: see `frames`."""
    if codec == NONE:
        if len(data) > max_bytes:
            raise _bomb(codec, max_bytes)
        return data
    if not NONE < codec <= ZSTD:
        raise _unknown_codec(codec)
    bound = frames.readable_size_bound(codec, data) if for_all else frames.size_bound(codec, data)
    if codec == GZIP:
        return _decompress_gzip(memoryview(data), bound, max_bytes, for_all)
    if codec == SNAPPY:
        return _decompress_snappy(memoryview(data), bound, max_bytes)
    return _decompress_bounded(codec, data, bound, max_bytes)


def _decompress_bounded(codec: int, data: Buffer, bound: int, max_bytes: int) -> memoryview:
    """lz4 and zstd: their frames tell how many bytes there can be. That is far too much for a small batch in a frame of
    large lz4 blocks, so less is tried before it, once."""
    import cramjam

    decompress_into = cramjam.lz4.decompress_into if codec == LZ4 else cramjam.zstd.decompress_into
    most = min(bound, max_bytes)
    capacity = min(most, max(FIRST_OUTPUT_BYTES, FIRST_OUTPUT_RATIO * len(data)))
    while True:
        output = _room_for(capacity)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if OUTPUT_FULL not in str(error):
                raise _garbage(codec) from error
            if capacity == most:
                raise _bomb(codec, max_bytes) if bound > max_bytes else _garbage(codec) from error
            capacity = most
            del output
        else:
            return memoryview(output)[:written]


def _room_for(size_bytes: int) -> bytearray | mmap:
    """Where a decompressor writes. A large one is not cleared beforehand: that would take as long as decompressing, and
    keep the interpreter's lock meanwhile."""
    return bytearray(size_bytes) if size_bytes <= MAX_CLEARED_BYTES else mmap(-1, size_bytes)


def _decompress_gzip(data: memoryview, bound: int, max_bytes: int, for_all: bool) -> bytearray:
    """Member after member. What follows the last one and is none is passed over, as Java does. Who reads `for_all`
    wants a single one, as long as its trailer says, with nothing behind it."""
    if for_all and bound > max_bytes:
        raise _bomb(GZIP, max_bytes)
    output = bytearray()
    position = 0
    while True:
        position = _decompress_member(data, position, output, bound if for_all else max_bytes)
        if for_all and (position < len(data) or len(output) > bound):
            raise InvalidRecord(
                f"gzip records are one member, as long as the last four bytes say ({bound}), with nothing behind it: "
                "librdkafka reads no more than the first"
            )
        if len(output) > max_bytes:
            raise _bomb(GZIP, max_bytes)
        if data[position : position + 2] != GZIP_MAGIC:
            return output


def _decompress_member(data: memoryview, start: int, output: bytearray, max_bytes: int) -> int:
    """Add what the member at `start` holds to `output`, which is left once it has more than `max_bytes`; the position
    behind what was read."""
    import zlib

    decompressor = zlib.decompressobj(GZIP_WINDOW_BITS)
    position = start
    try:
        while not decompressor.eof:
            piece: Buffer = decompressor.unconsumed_tail
            if not piece:
                piece = data[position : position + GZIP_STEP_BYTES]
                position += len(piece)
            before = len(output)
            output += decompressor.decompress(piece, min(GZIP_STEP_BYTES, max_bytes - before + 1))
            if len(output) > max_bytes:
                break
            if not piece and len(output) == before:
                raise CorruptMessage("the records are not valid gzip: they are cut off")
    except zlib.error as error:
        raise _garbage(GZIP) from error
    return position - len(decompressor.unused_data)


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


def _decompress_snappy(data: memoryview, bound: int, max_bytes: int) -> memoryview:
    from cramjam import DecompressionError, snappy

    if bound > max_bytes:
        raise _bomb(SNAPPY, max_bytes)
    output = memoryview(_room_for(bound))
    start = 0
    try:
        for block in _xerial_blocks(data) if frames.is_xerial(data) else [data]:
            size = snappy.decompress_raw_len(block)
            if snappy.decompress_raw_into(block, output[start : start + size]) != size:
                raise CorruptMessage(f"a snappy block does not hold the {size} bytes it announces")
            start += size
    except DecompressionError as error:
        raise _garbage(SNAPPY) from error
    return output[:start]


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    """What `frames` has stepped over already: every block is whole."""
    position = frames.XERIAL_HEADER_BYTES
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        yield data[position + 4 : position + 4 + size]
        position += 4 + size


def _unknown_codec(codec: int) -> UnsupportedCompressionType:
    return UnsupportedCompressionType(f"codec {codec} is unknown; known are 0 to 4: {', '.join(NAMES)}")


def _garbage(codec: int) -> CorruptMessage:
    return CorruptMessage(f"the records are not valid {NAMES[codec]}: they cannot be decompressed")


def _bomb(codec: int, max_bytes: int) -> InvalidRecord:
    return InvalidRecord(f"the {NAMES[codec]} records decompress to more than the {max_bytes} bytes allowed")
