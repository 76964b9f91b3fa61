"""A batch from its first record to its bytes: built, sealed, renumbered, and how much memory it takes. Both kernels."""

from __future__ import annotations

import random
import struct
import sys
import time
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import CorruptMessage, UnsupportedCompressionType
from oncelog.records.batch import build_batch, decode_records
from oncelog.records.compression import GZIP, LZ4, NAMES, SNAPPY, ZSTD
from oncelog.types import MAX_SEQUENCE
from tests.records.onlooker import MAX_ATTEMPTS, Onlooker
from tests.records.strategies import BATCHES_OF_ROWS, quick

ROWS = [(1_000, b"key", b"value", ()), (1_007, None, None, (("h", b"x"), ("n", None)))]
IDENTITY = {"producer_id": 2**40, "producer_epoch": 7, "base_sequence": MAX_SEQUENCE}


def builder_of(kernel: ModuleType, rows: list[Any], **settings: Any) -> Any:
    builder = kernel.BatchBuilder(**settings)
    for row in rows:
        builder.append(*row)
    return builder


class TestSeal:
    @quick
    @given(BATCHES_OF_ROWS, st.sampled_from(range(5)))
    def test_gives_what_build_gives(self, kernel: ModuleType, rows: list[Any], codec: int) -> None:
        fields = {"codec": codec, "base_offset": 5, "leader_epoch": 3, "transactional": True, **IDENTITY}
        built = builder_of(kernel, rows).build(**fields)
        sealed = builder_of(kernel, rows).seal(**fields)
        assert bytes(sealed) == bytes(built)
        assert kernel.crc_matches(sealed, 0, len(sealed))

    @pytest.mark.parametrize("codec", range(5))
    def test_the_batch_is_writable_and_outlives_its_builder(self, kernel: ModuleType, codec: int) -> None:
        sealed = builder_of(kernel, ROWS).seal(codec=codec)
        kernel.stamp(sealed, 0, 99, 1)
        assert [record.offset for record in decode_records(sealed)] == [99, 100]

    @pytest.mark.parametrize("codec", [0, ZSTD])
    def test_the_builder_is_spent(self, kernel: ModuleType, codec: int) -> None:
        builder = builder_of(kernel, ROWS)
        size_bytes = builder.size_bytes
        sealed = bytes(builder.seal(codec=codec))
        for use in (lambda: builder.append(1, b"k", b"v"), builder.build, builder.seal):
            with pytest.raises(ValueError, match="sealed"):
                use()
        assert (builder.record_count, builder.size_bytes) == (2, size_bytes)
        assert bytes(build_batch(ROWS, codec=codec)) == sealed

    def test_a_refused_seal_spends_nothing(self, kernel: ModuleType) -> None:
        builder = kernel.BatchBuilder()
        with pytest.raises(ValueError, match="needs a record"):
            builder.seal()
        builder.append(*ROWS[0])
        with pytest.raises(TypeError):
            builder.seal(unheard_of=1)
        assert bytes(builder.seal()) == bytes(build_batch(ROWS[:1]))

    def test_an_unknown_codec_is_refused(self, kernel: ModuleType) -> None:
        with pytest.raises(UnsupportedCompressionType):
            builder_of(kernel, ROWS).seal(codec=5)

    def test_large_batches_move_as_they_grow_and_stay_right(self, kernel: ModuleType) -> None:
        rows = [(index, None, bytes([index % 256]) * (37 * index), ()) for index in range(300)]
        sealed = builder_of(kernel, rows, size_hint=100_000).seal()
        assert [record.value for record in decode_records(sealed)] == [value for _, _, value, _ in rows]


class TestMemory:
    def test_many_batches_of_any_size_in_memory_that_others_have_left(self, kernel: ModuleType) -> None:
        """Blocks go from batch to batch, and no batch finds anything of another in its own."""
        chance = random.Random(4)
        open_batches: list[tuple[Any, list[Any]]] = []
        for number in range(3_000):
            if not open_batches or (len(open_batches) < 40 and chance.random() < 0.2):
                expected = chance.choice([0, 3_000, 9_000, 17_000, 40_000])
                open_batches.append((kernel.BatchBuilder(None, 70_000, expected), []))
            builder, rows = chance.choice(open_batches)
            rows.append((number, b"%d" % number, bytes([number % 256]) * chance.choice([10, 500, 4_000]), ()))
            builder.append(*rows[-1])
            if builder.size_bytes > 60_000 or chance.random() < 0.02:
                open_batches.remove((builder, rows))
                assert bytes(builder.seal()) == bytes(build_batch(rows))
        for builder, rows in [one for one in open_batches if one[1]]:
            assert bytes(builder.seal()) == bytes(build_batch(rows))

    def test_a_batch_below_its_hint_takes_no_more_than_that(self, kernel: ModuleType) -> None:
        hint = 100_000
        builder = kernel.BatchBuilder(size_hint=hint)
        for _ in range(900):
            builder.append(1, None, bytes(100))
            assert sys.getsizeof(builder) <= hint * 9 // 8 + 1_000
        assert builder.size_bytes > hint * 9 // 10

    def test_a_small_batch_takes_little_whatever_the_hint(self, kernel: ModuleType) -> None:
        assert sys.getsizeof(builder_of(kernel, ROWS, size_hint=2**24)) < 2_000

    def test_a_sealed_builder_holds_nothing(self, kernel: ModuleType) -> None:
        builder = builder_of(kernel, [(1, None, bytes(100_000), ())])
        assert sys.getsizeof(builder) > 100_000
        sealed = builder.seal()
        assert sys.getsizeof(builder) < 2_000
        assert len(sealed) == builder.size_bytes > 100_000


class TestOtherThreads:
    @pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=NAMES[1:])
    def test_run_while_a_batch_is_compressed(self, codec: int) -> None:
        native = pytest.importorskip("oncelog.records._native")
        builder_of(native, ROWS).seal(codec=codec)  # importing the compressor is not what is looked at
        noise = random.Random(1).randbytes(1 << 10)
        rows = [(1, None, noise * 1_000, ())] * 4  # compresses to little, so that the CRC keeps the lock
        with Onlooker() as onlooker:
            for _ in range(MAX_ATTEMPTS):  # a busy machine may not give it a turn at once
                builder = builder_of(native, rows)
                before = onlooker.turns
                builder.seal(codec=codec)
                if onlooker.turns > before:
                    return
                time.sleep(0.001)
        pytest.fail("nobody else had a turn")


class TestRenumber:
    @pytest.mark.parametrize("codec", [0, LZ4])
    def test_equals_a_batch_built_with_those_numbers(self, kernel: ModuleType, codec: int) -> None:
        batch = bytearray(b"before") + build_batch(ROWS, codec=codec, producer_id=1, producer_epoch=0, base_sequence=0)
        kernel.renumber(batch, 6, *IDENTITY.values())
        assert batch[6:] == build_batch(ROWS, codec=codec, **IDENTITY)
        assert batch[:6] == b"before"
        kernel.renumber(memoryview(batch), 6, -1, -1, -1)
        assert batch[6:] == build_batch(ROWS, codec=codec)

    @pytest.mark.parametrize("position", [-1, 1, 2**40])
    def test_outside_the_buffer_nothing_is_written(self, kernel: ModuleType, position: int) -> None:
        batch = build_batch(ROWS)
        with pytest.raises(CorruptMessage):
            kernel.renumber(batch, position, 1, 2, 3)
        assert batch == build_batch(ROWS)

    @pytest.mark.parametrize("length", [-1, 48, 2**31 - 1])
    def test_a_batch_with_a_bad_length_is_left_alone(self, kernel: ModuleType, length: int) -> None:
        batch = build_batch(ROWS)
        struct.pack_into(">i", batch, 8, length)
        broken = bytes(batch)
        with pytest.raises(CorruptMessage):
            kernel.renumber(batch, 0, 1, 2, 3)
        assert batch == broken

    def test_read_only_bytes_are_refused(self, kernel: ModuleType) -> None:
        with pytest.raises((BufferError, TypeError)):
            kernel.renumber(bytes(build_batch(ROWS)), 0, 1, 1, 1)


class TestPartitions:
    @pytest.mark.parametrize(
        ("key", "signed"),
        [
            (b"21", -973932308),
            (b"foobar", -790332482),
            (b"a-little-bit-long-string", -985981536),
            (b"a-little-bit-longer-string", -1486304829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
            (b"abc", 479470107),
        ],
    )
    def test_values_that_kafka_itself_is_tested_with(self, kernel: ModuleType, key: bytes, signed: int) -> None:
        assert kernel.murmur2(key) == signed % 2**32
        assert kernel.murmur2(memoryview(b"x" + key)[1:]) == signed % 2**32
        assert kernel.partition_of(key, 7) == (signed & 0x7FFFFFFF) % 7

    @quick
    @given(st.binary(max_size=50), st.integers(1, 2**31 - 1))
    def test_both_kernels_agree(self, kernel: ModuleType, key: bytes, partition_count: int) -> None:
        native = pytest.importorskip("oncelog.records._native")
        assert kernel.murmur2(bytearray(key)) == native.murmur2(key)
        assert 0 <= kernel.partition_of(key, partition_count) < partition_count
        assert kernel.partition_of(key, partition_count) == native.partition_of(key, partition_count)

    @pytest.mark.parametrize("partition_count", [0, -1])
    def test_no_partitions_no_place(self, kernel: ModuleType, partition_count: int) -> None:
        with pytest.raises(ValueError, match="among"):
            kernel.partition_of(b"key", partition_count)
