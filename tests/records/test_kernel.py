"""Batches as a kernel sees them: headers, CRCs, walks over many batches, stamps. On both kernels."""

from __future__ import annotations

import struct
from types import ModuleType

import crc32c as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import CorruptMessage
from oncelog.records.batch import HEADER_SIZE, build_batch, decode_records
from oncelog.types import MAX_SEQUENCE, TimestampType
from tests.records.strategies import INT32, INT64, quick

ROWS = [(1_000, b"key", b"value", ()), (1_007, None, None, (("h", b"x"), ("n", None)))]


def three_batches() -> bytes:
    return b"".join(bytes(build_batch(ROWS, base_offset=offset)) for offset in (0, 2, 4))


class TestCrc:
    def test_known_value(self, kernel: ModuleType) -> None:
        assert kernel.crc32c(b"123456789") == 0xE3069283

    @pytest.mark.parametrize(
        "size", [0, 1, 7, 8, 9, 255, 767, 768, 769, 3 * 4096 - 1, 3 * 4096, 3 * 4096 + 777, 1 << 20]
    )
    def test_agrees_with_another_implementation_around_block_sizes(self, kernel: ModuleType, size: int) -> None:
        data = bytes((index * 31 + index // 251) % 256 for index in range(size))
        assert kernel.crc32c(data) == reference.crc32c(data)

    @quick
    @given(st.binary(max_size=3000), st.integers(0, 3000), st.integers(0, 8))
    def test_continues_where_it_stopped_at_any_alignment(
        self, kernel: ModuleType, data: bytes, cut: int, skipped: int
    ) -> None:
        view = memoryview(data)[skipped:]
        assert kernel.crc32c(view[cut:], kernel.crc32c(view[:cut])) == reference.crc32c(bytes(view))

    @quick
    @given(st.binary(max_size=2000))
    def test_tables_agree_with_the_instruction(self, data: bytes) -> None:
        native = pytest.importorskip("oncelog.records._native")
        assert native.crc32c_by_tables(data) == native.crc32c(data)


class TestHeader:
    @quick
    @given(
        st.fixed_dictionaries(
            {
                "base_offset": INT64,
                "leader_epoch": INT32,
                "producer_id": INT64,
                "producer_epoch": st.integers(-(2**15), 2**15 - 1),
                "base_sequence": INT32,
            }
        )
    )
    def test_every_field_survives(self, kernel: ModuleType, fields: dict[str, int]) -> None:
        batch = build_batch(ROWS, **fields)
        header = kernel.parse_header(batch)
        assert {name: getattr(header, name) for name in fields} == fields
        assert (header.record_count, header.last_offset_delta, header.magic) == (2, 1, 2)
        assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_007)
        assert header.size_bytes == len(batch)
        assert kernel.crc_matches(batch, 0, len(batch))

    def test_flags(self, kernel: ModuleType) -> None:
        plain = kernel.parse_header(build_batch(ROWS))
        flags = (plain.is_transactional, plain.is_control, plain.has_producer_id, plain.is_delete_horizon_set)
        assert flags == (False, False, False, False)
        assert (plain.codec, plain.timestamp_type) == (0, TimestampType.CREATE_TIME)
        special = kernel.parse_header(
            build_batch(
                ROWS, codec=4, producer_id=0, transactional=True, control=True, timestamp_type=1, max_timestamp=5
            )
        )
        assert special.is_transactional
        assert special.is_control
        assert special.has_producer_id
        assert (special.codec, special.timestamp_type) == (4, TimestampType.LOG_APPEND_TIME)
        assert special.max_timestamp == 5

    def test_sequences_wrap_inside_a_batch(self, kernel: ModuleType) -> None:
        header = kernel.parse_header(build_batch(ROWS, producer_id=1, producer_epoch=0, base_sequence=MAX_SEQUENCE))
        assert header.last_sequence == 0
        assert kernel.parse_header(build_batch(ROWS)).last_sequence == -1

    def test_offsets(self, kernel: ModuleType) -> None:
        header = kernel.parse_header(build_batch(ROWS, base_offset=40))
        assert (header.last_offset, header.next_offset) == (41, 42)

    @pytest.mark.parametrize("position", [0, 5])
    def test_is_found_at_a_position(self, kernel: ModuleType, position: int) -> None:
        batch = build_batch(ROWS, base_offset=9)
        assert kernel.parse_header(bytes(position) + bytes(batch), position) == kernel.parse_header(memoryview(batch))

    @pytest.mark.parametrize("size", [0, 1, HEADER_SIZE - 1])
    def test_too_few_bytes_are_refused(self, kernel: ModuleType, size: int) -> None:
        with pytest.raises(CorruptMessage):
            kernel.parse_header(bytes(build_batch(ROWS))[:size])

    @pytest.mark.parametrize("position", [-1, 40, 2**40])
    def test_a_position_outside_the_buffer_is_refused(self, kernel: ModuleType, position: int) -> None:
        with pytest.raises(CorruptMessage):
            kernel.parse_header(build_batch(ROWS), position)

    @pytest.mark.parametrize("length", [-(2**31), -1, 0, HEADER_SIZE - 12 - 1, 2**31 - 1, 2**31 - 12])
    def test_an_impossible_length_is_refused(self, kernel: ModuleType, length: int) -> None:
        batch = build_batch(ROWS)
        struct.pack_into(">i", batch, 8, length)
        with pytest.raises(CorruptMessage, match="length"):
            kernel.parse_header(batch)


class TestScan:
    @pytest.mark.parametrize("verify", [True, False])
    def test_finds_every_batch(self, kernel: ModuleType, verify: bool) -> None:
        data = three_batches()
        headers, good_bytes = kernel.scan(data, 0, len(data), verify)
        assert [header.base_offset for header in headers] == [0, 2, 4]
        assert good_bytes == len(data)

    def test_looks_only_between_start_and_end(self, kernel: ModuleType) -> None:
        data = three_batches()
        size = len(data) // 3
        headers, good_bytes = kernel.scan(data, size, 3 * size - 1, True)
        assert ([header.base_offset for header in headers], good_bytes) == ([2], size)

    @pytest.mark.parametrize(("start", "end"), [(0, 0), (50, 10), (0, -1), (10**9, 10**9), (-5, 10)])
    def test_an_empty_range_has_no_batches(self, kernel: ModuleType, start: int, end: int) -> None:
        assert kernel.scan(three_batches(), start, end, True) == ([], 0)

    def test_an_end_beyond_the_buffer_is_the_buffers_end(self, kernel: ModuleType) -> None:
        data = three_batches()
        assert kernel.scan(data, 0, 2**62, True)[1] == len(data)

    def test_every_truncation_keeps_the_whole_batches(self, kernel: ModuleType) -> None:
        data = three_batches()
        size = len(data) // 3
        for cut in range(len(data)):
            headers, good_bytes = kernel.scan(data[:cut], 0, cut, True)
            assert len(headers) == cut // size
            assert good_bytes == cut // size * size

    def test_every_flipped_bit_under_the_crc_is_seen(self, kernel: ModuleType) -> None:
        data = three_batches()
        size = len(data) // 3
        for at in range(size + 16, 2 * size):
            broken = bytearray(data)
            broken[at] ^= 1 << at % 8
            headers, good_bytes = kernel.scan(broken, 0, len(broken), True)
            assert (len(headers), good_bytes) == (1, size), at

    @pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
    def test_stops_at_a_bad_length(self, kernel: ModuleType, length: int) -> None:
        data = bytearray(three_batches())
        size = len(data) // 3
        struct.pack_into(">i", data, size + 8, length)
        for verify in (True, False):
            assert kernel.scan(data, 0, len(data), verify)[1] == size

    def test_stops_at_another_format(self, kernel: ModuleType) -> None:
        data = bytearray(three_batches())
        data[len(data) // 3 + 16] = 1
        assert len(kernel.scan(data, 0, len(data), False)[0]) == 1

    def test_large_ranges_give_the_same_answer(self, kernel: ModuleType) -> None:
        """Above a size the native kernel lets other threads run meanwhile."""
        data = bytearray(three_batches() * 2_000)
        data[-10] ^= 1
        headers, good_bytes = kernel.scan(data, 0, len(data), True)
        assert len(headers) == 5_999
        assert good_bytes == len(data) // 6_000 * 5_999

    @quick
    @given(st.binary(max_size=300))
    def test_any_bytes_at_all(self, kernel: ModuleType, data: bytes) -> None:
        headers, good_bytes = kernel.scan(data, 0, len(data), False)
        assert sum(header.size_bytes for header in headers) == good_bytes <= len(data)


class TestFindBatch:
    @pytest.mark.parametrize(("offset", "index"), [(-5, 0), (0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
    def test_finds_the_batch_that_holds_the_offset(self, kernel: ModuleType, offset: int, index: int) -> None:
        data = three_batches()
        assert kernel.find_batch(data, 0, len(data), offset) == index * (len(data) // 3)

    def test_offsets_behind_the_last_batch_are_not_found(self, kernel: ModuleType) -> None:
        data = three_batches()
        assert kernel.find_batch(data, 0, len(data), 6) == -1
        assert kernel.find_batch(data, 0, len(data) // 3, 2) == -1
        assert kernel.find_batch(b"", 0, 0, 0) == -1

    def test_needs_only_the_header_of_the_batch_it_finds(self, kernel: ModuleType) -> None:
        data = three_batches()
        size = len(data) // 3
        assert kernel.find_batch(data, 0, size + HEADER_SIZE, 3) == size
        assert kernel.find_batch(data, 0, size + HEADER_SIZE - 1, 3) == -1

    @quick
    @given(st.binary(min_size=61, max_size=300), INT64)
    def test_any_bytes_at_all(self, kernel: ModuleType, data: bytes, offset: int) -> None:
        assert -1 <= kernel.find_batch(data, 0, len(data), offset) < len(data)


class TestStamps:
    def test_offset_and_epoch_leave_the_crc_alone(self, kernel: ModuleType) -> None:
        data = bytearray(b"before" + bytes(build_batch(ROWS)))
        kernel.stamp(data, 6, 2**40, 7)
        header = kernel.parse_header(data, 6)
        assert (header.base_offset, header.leader_epoch) == (2**40, 7)
        assert kernel.crc_matches(data, 6, header.size_bytes)
        assert data[:6] == b"before"

    def test_append_time_and_back(self, kernel: ModuleType) -> None:
        batch = build_batch(ROWS, codec=1, producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
        original = bytes(batch)
        kernel.stamp_append_time(memoryview(batch), 0, len(batch), 9_999)
        header = kernel.parse_header(batch)
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert header.max_timestamp == 9_999
        assert kernel.crc_matches(batch, 0, len(batch))
        assert {record.timestamp_ms for record in decode_records(batch)} == {9_999}
        kernel.stamp_create_time(batch, 0, len(batch), 1_007)
        assert batch == original

    def test_outside_the_buffer_nothing_is_written(self, kernel: ModuleType) -> None:
        batch = build_batch(ROWS)
        original = bytes(batch)
        for position, size in ((1, len(batch)), (-1, len(batch)), (0, 60), (0, len(batch) + 1), (2**40, 61)):
            with pytest.raises(CorruptMessage):
                kernel.stamp_append_time(batch, position, size, 5)
            assert not kernel.crc_matches(batch, position, size)
        with pytest.raises(CorruptMessage):
            kernel.stamp(batch, len(batch) - 60, 1, 1)
        assert batch == original

    def test_read_only_bytes_are_refused(self, kernel: ModuleType) -> None:
        with pytest.raises((BufferError, TypeError)):
            kernel.stamp(bytes(build_batch(ROWS)), 0, 1, 1)
