"""Every codec: round trips, other writers' framings, garbage, and bombs that must not go off."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import struct
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from oncelog.records import compression
from oncelog.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from tests.records.strategies import quick

MEBIBYTE = 1 << 20
compressed_codecs = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=compression.NAMES[1:])


class TestRoundTrip:
    @quick
    @given(st.binary(max_size=2000), st.integers(1, 200))
    @compressed_codecs
    def test_comes_back(self, codec: int, data: bytes, times: int) -> None:
        original = data * times
        assert bytes(decompress(codec, compress(codec, original), max_bytes=len(original))) == original

    @compressed_codecs
    @pytest.mark.parametrize("level", [None, 9])
    @pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, 64 * 1024 + 1, 256 * 1024 + 1, 3 * MEBIBYTE + 5])
    def test_sizes_around_the_block_sizes(self, codec: int, size: int, level: int | None) -> None:
        random = os.urandom(size // 2) + bytes(size - size // 2)
        assert bytes(decompress(codec, compress(codec, random, level), max_bytes=size)) == random

    @compressed_codecs
    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_bytes_like_object_is_taken(self, codec: int, kind: type) -> None:
        data = b"some bytes " * 50
        packed = compress(codec, kind(data))
        assert bytes(decompress(codec, kind(packed), max_bytes=1000)) == data

    def test_none_is_the_data_itself(self) -> None:
        assert compress(NONE, b"data") == b"data"
        assert decompress(NONE, b"data", max_bytes=4) == b"data"
        with pytest.raises(InvalidRecord):
            decompress(NONE, b"data", max_bytes=3)

    @pytest.mark.parametrize(("codec", "fast", "thorough"), [(GZIP, 1, 9), (ZSTD, 1, 19), (LZ4, 1, 12)])
    def test_the_level_is_obeyed(self, codec: int, fast: int, thorough: int) -> None:
        words = [hashlib.sha256(b"%d" % n).hexdigest()[: n % 11 + 2].encode() for n in range(500)]
        text = b" ".join(words[n * n * 7919 % 499] for n in range(8_000))
        assert len(compress(codec, text, thorough)) < len(compress(codec, text, fast))

    @pytest.mark.parametrize(
        ("codec", "level"),
        [(GZIP, 0), (GZIP, 9), (ZSTD, -131_072), (ZSTD, 0), (ZSTD, 22), (LZ4, 1), (LZ4, 2), (LZ4, 17)],
    )
    def test_the_last_levels_that_kafka_allows(self, codec: int, level: int) -> None:
        text = b"some words, and more of them, " * 5_000
        assert bytes(decompress(codec, compress(codec, text, level), max_bytes=len(text))) == text


class TestOtherWriters:
    def test_snappy_blocks_without_framing(self) -> None:
        raw = bytes(cramjam.snappy.compress_raw(b"as older clients send it " * 9))
        assert bytes(decompress(SNAPPY, raw, max_bytes=1000)) == b"as older clients send it " * 9

    def test_snappy_is_written_in_javas_framing(self) -> None:
        framed = compress(SNAPPY, bytes(100_000))
        assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
        (size,) = struct.unpack_from(">i", framed, 16)
        assert cramjam.snappy.decompress_raw_len(framed[20 : 20 + size]) == 32 * 1024

    def test_lz4_blocks_are_independent_as_java_demands(self) -> None:
        frame = compress(LZ4, bytes(200_000))
        assert frame[:4] == b"\x04\x22\x4d\x18"
        version, independent = frame[4] >> 6, frame[4] >> 5 & 1
        assert (version, independent) == (1, 1)

    @pytest.mark.parametrize(("level", "blocks"), [(1, 2), (9, 5)])
    def test_lz4_blocks_that_do_not_compress_are_stored(self, level: int, blocks: int) -> None:
        noise = os.urandom(270_000)
        frame = compress(LZ4, noise, level)
        assert len(frame) == len(noise) + 7 + blocks * 4 + 4
        assert bytes(cramjam.lz4.decompress(frame)) == noise

    def test_gzip_of_several_members(self) -> None:
        assert bytes(decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), max_bytes=100)) == b"one two"


class TestGarbage:
    @compressed_codecs
    @pytest.mark.parametrize("data", [b"", b"\x01", b"garbage that is no codec at all", bytes(100), b"\xff" * 100])
    def test_is_corrupt(self, codec: int, data: bytes) -> None:
        with pytest.raises(CorruptMessage):
            decompress(codec, data, max_bytes=MEBIBYTE)

    @pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
    def test_every_truncation_is_corrupt(self, codec: int) -> None:
        packed = compress(codec, bytes(range(256)) * 4)
        for cut in range(len(packed)):
            with pytest.raises(CorruptMessage):
                decompress(codec, packed[:cut], max_bytes=MEBIBYTE)

    def test_every_truncation_of_snappy_but_those_between_blocks_is_corrupt(self) -> None:
        packed = compress(SNAPPY, os.urandom(40_000))
        (first,) = struct.unpack_from(">i", packed, 16)
        for cut in (*range(16), 17, 19, 20, 100, 20 + first - 1, 20 + first + 3, len(packed) - 1):
            with pytest.raises(CorruptMessage):
                decompress(SNAPPY, packed[:cut], max_bytes=MEBIBYTE)

    @quick
    @given(st.binary(max_size=200))
    @compressed_codecs
    def test_any_bytes_at_all_raise_coded_errors_only(self, codec: int, data: bytes) -> None:
        with contextlib.suppress(CorruptMessage, InvalidRecord):
            assert len(decompress(codec, data, max_bytes=4096)) <= 4096

    @pytest.mark.parametrize("codec", [-1, 5, 7, 100])
    def test_unknown_codecs(self, codec: int) -> None:
        with pytest.raises(UnsupportedCompressionType):
            decompress(codec, b"", max_bytes=10)
        with pytest.raises(UnsupportedCompressionType):
            compress(codec, b"")

    def test_unknown_names(self) -> None:
        with pytest.raises(UnsupportedCompressionType, match="brotli"):
            compression.codec_named("brotli")


class TestBombs:
    @compressed_codecs
    def test_one_byte_too_many_is_refused(self, codec: int) -> None:
        packed = compress(codec, bytes(100_000))
        assert len(decompress(codec, packed, max_bytes=100_000)) == 100_000
        with pytest.raises(InvalidRecord, match="99999 bytes allowed"):
            decompress(codec, packed, max_bytes=99_999)

    @compressed_codecs
    def test_no_more_than_the_bound_is_ever_held(self, codec: int) -> None:
        bomb = compress(codec, bytes(64 * MEBIBYTE))
        tracemalloc.start()
        try:
            with pytest.raises(InvalidRecord):
                decompress(codec, bomb, max_bytes=MEBIBYTE)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2 * MEBIBYTE

    def test_what_a_snappy_block_claims_is_not_believed(self) -> None:
        claim = b"\xff\xff\xff\xff\x0f"  # 4 GiB, in five bytes
        framed = compression.XERIAL_HEADER + struct.pack(">i", len(claim)) + claim
        for data in (claim, framed):
            with pytest.raises(CorruptMessage, match="more than the format can hold"):
                decompress(SNAPPY, data, max_bytes=2**33)

    @pytest.mark.parametrize("size", [-1, 0x7FFFFFFF])
    def test_what_a_snappy_frame_claims_is_not_believed(self, size: int) -> None:
        framed = compression.XERIAL_HEADER + struct.pack(">i", size) + b"xx"
        with pytest.raises(CorruptMessage):
            decompress(SNAPPY, framed, max_bytes=2**33)
