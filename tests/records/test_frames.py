"""What frames tell of themselves: bounds that hold, and which of them everybody can read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import CorruptMessage, InvalidRecord
from oncelog.records import compression, frames
from oncelog.records.compression import compress, decompress
from oncelog.records.frames import GZIP, LZ4, NONE, SNAPPY, ZSTD
from tests.records.strategies import quick
from tests.support.frames import (
    COMPRESSED_BLOCK,
    DATA,
    FOR_ALL,
    INVALID,
    LZ4_SECTIONS,
    ONLY_FOR_SOME,
    RUN_BLOCK,
    SECTIONS,
    compressed_zstd,
    gzip_member,
    lz4_frame,
    skippable,
    xxh32,
    zstd_block,
    zstd_frame,
)

MEBIBYTE = 1 << 20
compressed_codecs = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=compression.NAMES[1:])
OF_NO_RECORDS = "snappy: a header alone"  # a whole stream: the count of records tells
REFUSED = [
    name for name, section in SECTIONS.items() if section.codec != NONE and name not in (*FOR_ALL, OF_NO_RECORDS)
]


@pytest.mark.parametrize("name", FOR_ALL)
def test_what_all_can_read_is_taken(name: str) -> None:
    codec, data = SECTIONS[name]
    assert bytes(decompress(codec, data, max_bytes=MEBIBYTE, for_all=True)) == DATA
    assert bytes(decompress(codec, data, max_bytes=MEBIBYTE)) == DATA


@pytest.mark.parametrize("name", REFUSED)
def test_what_some_cannot_read_is_refused(name: str) -> None:
    codec, data = SECTIONS[name]
    with pytest.raises(InvalidRecord if name in INVALID else CorruptMessage):
        decompress(codec, data, max_bytes=MEBIBYTE, for_all=True)


@pytest.mark.parametrize(
    "name",
    [
        "gzip: two members",
        "gzip: an empty member first",
        "gzip: an empty member last",
        "gzip: bytes after the end",
        "gzip: many bytes after the end",
        "lz4: linked blocks",
        "lz4: two frames",
        "lz4: an empty block first",
        "lz4: an empty block last",
        "lz4: an empty frame first",
        "lz4: an empty frame last",
        "lz4: a skippable frame first",
        "lz4: a skippable frame last",
    ],
)
def test_readers_take_what_exists(name: str) -> None:
    codec, data = SECTIONS[name]
    assert bytes(decompress(codec, data, max_bytes=MEBIBYTE)) == DATA


def test_every_section_is_judged_once() -> None:
    assert not set(FOR_ALL) & (INVALID | ONLY_FOR_SOME.keys())
    assert set(FOR_ALL) | INVALID | ONLY_FOR_SOME.keys() <= SECTIONS.keys()


@quick
@given(st.binary(max_size=3000), st.integers(1, 300))
@compressed_codecs
def test_no_more_comes_out_than_the_bound(codec: int, data: bytes, times: int) -> None:
    original = data * times
    packed = compress(codec, original)
    assert frames.readable_size_bound(codec, packed) >= len(original)
    assert frames.size_bound(codec, packed) >= len(original)


class TestBounds:
    def test_what_a_gzip_member_says_it_holds(self) -> None:
        assert frames.readable_size_bound(GZIP, gzip_member(bytes(5000))) == 5000

    def test_what_gzip_cannot_hold_is_not_believed(self) -> None:
        with pytest.raises(CorruptMessage, match="announce"):
            frames.readable_size_bound(GZIP, gzip_member(DATA, size_error=1 << 30))

    def test_a_gzip_member_that_says_too_little_is_not_decompressed_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """So what a batch costs is known before."""
        outputs: list[bytearray] = []
        decompress_member = compression._decompress_member

        def noted(data: memoryview, start: int, output: bytearray, max_bytes: int) -> int:
            outputs.append(output)
            return decompress_member(data, start, output, max_bytes)

        monkeypatch.setattr(compression, "_decompress_member", noted)
        with pytest.raises(InvalidRecord, match=r"as the last four bytes say \(5\)"):
            decompress(GZIP, gzip_member(bytes(9000), size_error=5 - 9000), max_bytes=MEBIBYTE, for_all=True)
        assert [len(output) for output in outputs] == [6]

    def test_snappy_is_known_exactly(self) -> None:
        assert frames.size_bound(SNAPPY, compress(SNAPPY, bytes(100_000))) == 100_000

    def test_lz4_by_its_blocks(self) -> None:
        assert frames.size_bound(LZ4, lz4_frame(bytes(60_000), bytes(60_000))) <= 2 * 65_536
        assert frames.size_bound(LZ4, lz4_frame(DATA, stored=True)) == len(DATA)
        assert frames.size_bound(LZ4, LZ4_SECTIONS["two frames"]) <= 65_536

    def test_zstd_by_its_blocks(self) -> None:
        assert frames.size_bound(ZSTD, zstd_frame(zstd_block(DATA))) == len(DATA)
        assert frames.size_bound(ZSTD, zstd_frame(zstd_block(b"x", kind=RUN_BLOCK, size=100_000))) == 100_000
        blocks = (zstd_block(b"?", kind=COMPRESSED_BLOCK, is_last=False), zstd_block(b"?", kind=COMPRESSED_BLOCK))
        assert frames.size_bound(ZSTD, zstd_frame(*blocks)) == 2 * 128 * 1024
        assert frames.size_bound(ZSTD, zstd_frame(*blocks, content_size=200_000)) == 200_000
        assert frames.size_bound(ZSTD, zstd_frame(*blocks, content_size=1 << 63)) == 2 * 128 * 1024
        assert frames.size_bound(ZSTD, compressed_zstd(bytes(300))) == 300  # whose size is written in two bytes

    def test_skippable_frames_hold_nothing(self) -> None:
        assert frames.size_bound(ZSTD, skippable(100) + compressed_zstd()) == len(DATA)
        assert frames.size_bound(LZ4, lz4_frame(DATA, stored=True) + skippable(100)) == len(DATA)


@pytest.mark.parametrize("name", [name for name in FOR_ALL if not name.startswith("none")])
def test_every_truncation_is_noticed(name: str) -> None:
    codec, data = SECTIONS[name]
    for cut in range(len(data)):
        try:
            left = decompress(codec, data[:cut], max_bytes=MEBIBYTE, for_all=True)
        except (CorruptMessage, InvalidRecord):
            continue
        # Between blocks of snappy, frames of zstd: the count of records tells that some are missing.
        assert codec in (SNAPPY, ZSTD)
        assert DATA.startswith(bytes(left))


def test_the_checksum_of_the_tests_is_right() -> None:
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"a" * 100) == xxh32(bytes([97]) * 100) != xxh32(b"a" * 99)
