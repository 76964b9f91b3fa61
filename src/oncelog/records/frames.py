"""What the frames around compressed records tell before anything is decompressed: how many bytes there can be at most,
and whether everybody who reads from Kafka can read them.

Owns the outer shape of each codec's format: headers are looked at and blocks are stepped over, which costs nothing
beside decompressing them. It never decompresses, and leaves checksums and what is inside of blocks to the decoders.

What a broker stores must be readable for all, or a partition is stuck for some. So `readable_size_bound` refuses
(INVALID_RECORD) what Java's reader or librdkafka cannot read, though other decoders can:

- gzip: more than one member, or bytes after it. librdkafka reads the first member only: records would be missing, and
  if that member is empty its process aborts. (Java reads all members, and passes over other bytes.)
- lz4: more than one frame, skippable frames, or bytes after the frame: Java reads the first frame, librdkafka refuses
  the rest. Blocks that depend on each other, and dictionaries: Java refuses both. Blocks of no bytes: Java's consumer
  stumbles over them.
- snappy: more than one stream in snappy-java's framing: librdkafka reads only one.
- zstd: nothing; frames, also skippable ones, may follow each other for Java and librdkafka.

Readers take what exists: for them there is `size_bound`.
"""

from __future__ import annotations

from oncelog.errors import CorruptMessage, InvalidRecord
from oncelog.records.model import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = CODECS = range(5)

GZIP_LEAST_BYTES = 18  # ten of the header, eight of the trailer
GZIP_MAX_RATIO = 1032  # deflate: 258 bytes for two bits
SNAPPY_MAX_RATIO = 64  # a snappy element of two bytes yields at most 64: a larger claim is a lie
LZ4_MAX_RATIO = 255  # a further byte makes a match 255 longer

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16  # the magic, version, lowest compatible version: nobody looks at these two

LZ4_MAGIC = 0x184D2204
LZ4_VERSION_MASK, LZ4_VERSION_1 = 0xC0, 0x40
LZ4_INDEPENDENT, LZ4_BLOCK_CHECKSUM, LZ4_CONTENT_SIZE, LZ4_CONTENT_CHECKSUM, LZ4_DICTIONARY = 0x20, 0x10, 0x08, 0x04, 1
LZ4_STORED = 0x80000000  # in the size of a block: it would not compress, and is as it was
LZ4_LEAST_BLOCK_CODE = 4  # 64 KiB; each next one is four times larger, up to 4 MiB

ZSTD_MAGIC = 0xFD2FB528
ZSTD_SINGLE_SEGMENT, ZSTD_CHECKSUM = 0x20, 0x04
ZSTD_MAX_BLOCK_BYTES = 128 * 1024
ZSTD_RUN_BLOCK, ZSTD_COMPRESSED_BLOCK = 1, 2

SKIPPABLE_MAGIC, SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0  # the same in lz4 and zstd


def size_bound(codec: int, data: Buffer) -> int:
    """At most so many bytes come out of `data`. Raises CorruptMessage if it is cut off, or no such format."""
    return _size_bound(codec, data, False)


def readable_size_bound(codec: int, data: Buffer) -> int:
    """The same, of what Kafka's readers can read; raises InvalidRecord for anything else."""
    return _size_bound(codec, data, True)


def _size_bound(codec: int, data: Buffer, for_all: bool) -> int:
    if codec == ZSTD:
        return zstd_bound(data)
    if codec == LZ4:
        return lz4_bound(data, for_all)
    if codec == SNAPPY:
        return snappy_bound(data, for_all)
    if codec == GZIP:
        return gzip_bound(data, for_all)
    return len(data)


def gzip_bound(data: Buffer, for_all: bool) -> int:
    """The last four bytes say how long the last member is. Where it is the only one, the decoder holds it to that."""
    view = data
    size = len(view)
    if size < GZIP_LEAST_BYTES:
        raise _cut_off("gzip")
    if view[0] != 0x1F or view[1] != 0x8B or view[2] != 8:
        raise _no_frame("gzip")
    if not for_all:
        return GZIP_MAX_RATIO * size
    told = view[size - 4] | view[size - 3] << 8 | view[size - 2] << 16 | view[size - 1] << 24
    if told > GZIP_MAX_RATIO * size:
        raise CorruptMessage(f"the records are not valid gzip: {size} bytes do not hold the {told} that they announce")
    return told


def snappy_bound(data: Buffer, for_all: bool) -> int:
    view = data
    end = len(view)
    if not is_xerial(data):
        return _snappy_block_size(view, 0, end)
    total = 0
    position = XERIAL_HEADER_BYTES
    while position < end:
        if end - position < 4:
            raise CorruptMessage(f"{end - position} bytes are left over after the last snappy block")
        size = view[position] << 24 | view[position + 1] << 16 | view[position + 2] << 8 | view[position + 3]
        position += 4
        if size > end - position:
            if for_all and bytes(data[position - 4 : position + 4]) == XERIAL_MAGIC:
                raise InvalidRecord("one snappy stream in snappy-java's framing is allowed, as librdkafka reads one")
            raise CorruptMessage(f"snappy block of {size} bytes, but only {end - position} bytes follow")
        total += _snappy_block_size(view, position, position + size)
        position += size
    return total


def is_xerial(data: Buffer) -> bool:
    """In snappy-java's framing, not a raw block."""
    return len(data) >= XERIAL_HEADER_BYTES and bytes(data[:8]) == XERIAL_MAGIC


def _snappy_block_size(view: Buffer, start: int, end: int) -> int:
    size = shift = 0
    position = start
    while position < end and shift < 35:
        byte = view[position]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            if size > SNAPPY_MAX_RATIO * (end - start):
                raise CorruptMessage(
                    f"a snappy block of {end - start} bytes announces {size}, more than the format can hold"
                )
            return size
        position += 1
        shift += 7
    raise CorruptMessage("a snappy block does not begin with its size")


def lz4_bound(data: Buffer, for_all: bool) -> int:
    view = data
    end = len(view)
    total = position = 0
    while True:
        if end - position < 7:
            raise _cut_off("lz4")
        magic = view[position] | view[position + 1] << 8 | view[position + 2] << 16 | view[position + 3] << 24
        if magic & SKIPPABLE_MASK == SKIPPABLE_MAGIC:
            if for_all:
                raise InvalidRecord("the lz4 records are in one frame, without skippable ones, as Java reads them")
            position = _after_skippable(view, position, end)
        elif magic == LZ4_MAGIC:
            if for_all:
                _check_lz4_flags(view[position + 4])
            bound, position = _lz4_frame(view, position + 4, end, for_all)
            total += bound
        else:
            raise _no_frame("lz4")
        if position == end:
            return total
        if for_all:
            raise InvalidRecord(
                f"the lz4 records are in one frame; {end - position} bytes follow it that Java passes over"
            )


def _check_lz4_flags(flags: int) -> None:
    if not flags & LZ4_INDEPENDENT:
        raise InvalidRecord(
            "the lz4 blocks depend on each other, which Java cannot read: set the compressor to independent blocks"
        )
    if flags & LZ4_DICTIONARY:
        raise InvalidRecord("the lz4 frame names a dictionary, which Java cannot read")


def _lz4_frame(view: Buffer, position: int, end: int, for_all: bool) -> tuple[int, int]:
    """How many bytes the frame can have, and where it ends. It begins, after its magic, at `position`."""
    flags, code = view[position], view[position + 1] >> 4
    if flags & LZ4_VERSION_MASK != LZ4_VERSION_1 or not LZ4_LEAST_BLOCK_CODE <= code <= 7:
        raise CorruptMessage(f"the records are not valid lz4: a frame of flags {flags:#04x}, block size code {code}")
    max_block_bytes = 1 << (8 + 2 * code)
    after_block = 4 if flags & LZ4_BLOCK_CHECKSUM else 0
    position += 3 + (8 if flags & LZ4_CONTENT_SIZE else 0) + (4 if flags & LZ4_DICTIONARY else 0)
    total = 0
    while True:
        if end - position < 4:
            raise _cut_off("lz4")
        size = view[position] | view[position + 1] << 8 | view[position + 2] << 16 | view[position + 3] << 24
        position += 4
        is_stored = size & LZ4_STORED
        size &= LZ4_STORED - 1
        if size == 0:
            break
        if size > end - position:
            raise _cut_off("lz4")
        if for_all and size == 1 and not is_stored:  # a token that announces nothing
            raise InvalidRecord("an lz4 block is empty, which Java's consumer cannot read")
        total += size if is_stored else min(max_block_bytes, LZ4_MAX_RATIO * size)
        position += size + after_block
    position += 4 if flags & LZ4_CONTENT_CHECKSUM else 0
    if position > end:
        raise _cut_off("lz4")
    return total, position


def zstd_bound(data: Buffer) -> int:
    view = data
    end = len(view)
    total = position = 0
    while position < end:
        if end - position < 6:
            raise _cut_off("zstd")
        magic = view[position] | view[position + 1] << 8 | view[position + 2] << 16 | view[position + 3] << 24
        if magic & SKIPPABLE_MASK == SKIPPABLE_MAGIC:
            position = _after_skippable(view, position, end)
        elif magic == ZSTD_MAGIC:
            bound, position = _zstd_frame(view, position + 4, end)
            total += bound
        else:
            raise _no_frame("zstd")
    return total


def _zstd_frame(view: Buffer, position: int, end: int) -> tuple[int, int]:
    """How many bytes the frame can have, and where it ends. It begins, after its magic, at `position`."""
    descriptor = view[position]
    is_single = descriptor & ZSTD_SINGLE_SEGMENT
    size_code, dictionary_code = descriptor >> 6, descriptor & 3
    size_bytes = 1 << size_code if size_code or is_single else 0
    position += 1 + (0 if is_single else 1) + (4 if dictionary_code == 3 else dictionary_code) + size_bytes
    if position > end:
        raise _cut_off("zstd")
    told = 256 if size_code == 1 else 0
    for index in range(min(size_bytes, 7)):  # what the eighth byte could add is more than any blocks hold
        told += view[position - size_bytes + index] << 8 * index
    if size_bytes == 8 and view[position - 1]:
        size_bytes = 0
    total = 0
    is_last = 0
    while not is_last:
        if end - position < 3:
            raise _cut_off("zstd")
        block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        position += 3
        is_last, kind, size = block & 1, block >> 1 & 3, block >> 3
        total += ZSTD_MAX_BLOCK_BYTES if kind == ZSTD_COMPRESSED_BLOCK else size
        position += 1 if kind == ZSTD_RUN_BLOCK else size
    position += 4 if descriptor & ZSTD_CHECKSUM else 0
    if position > end:
        raise _cut_off("zstd")
    return (min(total, told) if size_bytes else total), position


def _after_skippable(view: Buffer, position: int, end: int) -> int:
    if end - position < 8:
        raise CorruptMessage("a skippable frame is cut off")
    size = view[position + 4] | view[position + 5] << 8 | view[position + 6] << 16 | view[position + 7] << 24
    position += 8 + size
    if position > end:
        raise CorruptMessage(f"a skippable frame of {size} bytes is cut off")
    return position


def _cut_off(name: str) -> CorruptMessage:
    return CorruptMessage(f"the records are not valid {name}: they are cut off")


def _no_frame(name: str) -> CorruptMessage:
    return CorruptMessage(f"the records are not valid {name}: no frame begins where one should")
