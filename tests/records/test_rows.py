"""Rows of columns on their way into batches: encoded as single records would be, stopped at the limit, grouped by
partition, and never read outside their buffers. On both kernels."""

from __future__ import annotations

import struct
import sys
import time
from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import InvalidRecord
from oncelog.records.batch import HEADER_SIZE, decode_records
from oncelog.records.model import BytesBuffers, HeaderBuffers, RowBuffers, TimestampBuffers
from tests.records.onlooker import MAX_ATTEMPTS, Onlooker
from tests.records.strategies import NULLABLE_BYTES, quick

NOW_MS = 1_700_000_000_000
ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 2**63 - 1)),
        NULLABLE_BYTES,
        NULLABLE_BYTES,
        st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=8), NULLABLE_BYTES), max_size=3)),
    ),
    max_size=30,
)


def bitmap(bits: list[bool]) -> bytes:
    made = bytearray((len(bits) + 7) // 8)
    for index, bit in enumerate(bits):
        made[index >> 3] |= bit << (index & 7)
    return bytes(made)


def bytes_column(items: list[bytes | None], first: int = 0, offset_bytes: int = 4) -> BytesBuffers:
    """`items` behind `first` others that are not meant."""
    everything: list[bytes | None] = [b"skipped"] * first + items
    offsets = array("i" if offset_bytes == 4 else "q", [0])
    for item in everything:
        offsets.append(offsets[-1] + len(item or b""))
    validity = bitmap([item is not None for item in everything]) if None in items else None
    data = b"".join(item or b"" for item in everything)
    return BytesBuffers(first, len(items), validity, data, offsets.tobytes(), offset_bytes)


def header_column(rows: list[list[tuple[str, bytes | None]] | None], first: int, offset_bytes: int) -> HeaderBuffers:
    everything: list[Any] = [[("skipped", b"")]] * first + rows
    offsets = array("i" if offset_bytes == 4 else "q", [0])
    for row in everything:
        offsets.append(offsets[-1] + len(row or ()))
    pairs = [pair for row in everything for pair in row or ()]
    return HeaderBuffers(
        first,
        bitmap([row is not None for row in everything]),
        offsets.tobytes(),
        offset_bytes,
        bytes_column([key.encode() for key, _ in pairs], offset_bytes=offset_bytes),
        bytes_column([value for _, value in pairs]),
    )


def source_of(kernel: ModuleType, rows: list[Any], first: int = 0, offset_bytes: int = 4) -> Any:
    times = [None] * first + [time for time, *_ in rows]
    return kernel.RowSource(
        RowBuffers(
            len(rows),
            NOW_MS,
            bytes_column([key for _, key, _, _ in rows], first, offset_bytes),
            bytes_column([value for _, _, value, _ in rows], first, offset_bytes),
            header_column([headers for *_, headers in rows], first, offset_bytes),
            TimestampBuffers(
                first,
                bitmap([time is not None for time in times]),
                array("q", [time or 0 for time in times]).tobytes(),
            ),
        )
    )


def values_source(kernel: ModuleType, values: list[bytes | None], **others: Any) -> Any:
    return kernel.RowSource(RowBuffers(len(values), NOW_MS, None, bytes_column(values), **others))


def one_by_one(kernel: ModuleType, rows: list[Any]) -> Any:
    builder = kernel.BatchBuilder()
    for when, key, value, headers in rows:
        builder.append(NOW_MS if when is None else when, key, value, headers or ())
    return builder


class TestAppendColumns:
    @quick
    @given(ROWS, st.integers(0, 9), st.sampled_from((4, 8)))
    def test_equals_appending_row_by_row(
        self, kernel: ModuleType, rows: list[Any], first: int, offset_bytes: int
    ) -> None:
        builder = kernel.BatchBuilder()
        source = source_of(kernel, rows, first, offset_bytes)
        assert builder.append_columns(source, 0, len(rows), 2**31) == len(rows) == builder.record_count
        expected = one_by_one(kernel, rows)
        assert builder.size_bytes == expected.size_bytes
        if rows:
            assert builder.build() == expected.build()

    @quick
    @given(ROWS, st.data())
    def test_takes_the_rows_that_an_order_names(self, kernel: ModuleType, rows: list[Any], data: st.DataObject) -> None:
        order = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20) if rows else st.just([]))
        start = data.draw(st.integers(0, len(order)))
        stop = data.draw(st.integers(start, len(order)))
        builder = kernel.BatchBuilder()
        assert builder.append_columns(source_of(kernel, rows), start, stop, 2**31, array("i", order).tobytes()) == stop
        expected = one_by_one(kernel, [rows[index] for index in order[start:stop]])
        assert builder.size_bytes == expected.size_bytes
        if stop > start:
            assert builder.build() == expected.build()

    @quick
    @given(ROWS, st.integers(0, 1_000))
    def test_batches_of_any_limit_hold_all_rows_in_order(self, kernel: ModuleType, rows: list[Any], limit: int) -> None:
        source = source_of(kernel, rows)
        at, read = 0, []
        while at < len(rows):
            builder = kernel.BatchBuilder(size_hint=limit)
            ended = builder.append_columns(source, at, len(rows), limit)
            assert ended > at
            assert builder.size_bytes <= limit or builder.record_count == 1
            if ended < len(rows):
                more = one_by_one(kernel, rows[at : ended + 1])
                assert more.size_bytes > limit
            read += decode_records(builder.seal())
            at = ended
        assert [(one.key, one.value) for one in read] == [(key, value) for _, key, value, _ in rows]

    def test_rows_follow_records_and_records_follow_rows(self, kernel: ModuleType) -> None:
        builder = kernel.BatchBuilder()
        builder.append(NOW_MS + 5, b"k", b"first")
        source = values_source(kernel, [b"second", None, b"fourth"])
        assert builder.append_columns(source, 0, 3, 10_000) == 3
        builder.append(NOW_MS + 9, None, b"fifth")
        records = decode_records(builder.seal())
        assert [record.value for record in records] == [b"first", b"second", None, b"fourth", b"fifth"]
        assert [record.offset for record in records] == [0, 1, 2, 3, 4]
        assert [record.timestamp_ms - NOW_MS for record in records] == [5, 0, 0, 0, 9]

    def test_a_full_batch_takes_nothing_more_but_an_empty_one_takes_any_row(self, kernel: ModuleType) -> None:
        source = values_source(kernel, [bytes(500)])
        builder = kernel.BatchBuilder()
        assert builder.append_columns(source, 0, 1, 100) == 1
        assert builder.append_columns(source, 0, 1, 100) == 0
        assert builder.record_count == 1

    def test_fixed_sizes_need_no_offsets(self, kernel: ModuleType) -> None:
        column = BytesBuffers(1, 3, bitmap([True, True, False, True]), b"--abcdef", None, item_bytes=2)
        source = kernel.RowSource(RowBuffers(3, NOW_MS, column, None))
        builder = kernel.BatchBuilder()
        builder.append_columns(source, 0, 3, 10_000)
        assert [(record.key, record.value) for record in decode_records(builder.build())] == [
            (b"ab", None), (None, None), (b"ef", None)
        ]  # fmt: skip

    def test_large_values(self, kernel: ModuleType) -> None:
        values = [bytes([index]) * (index << 18) for index in range(1, 6)]
        builder = kernel.BatchBuilder()
        builder.append_columns(values_source(kernel, values), 0, 5, 2**31)
        assert [record.value for record in decode_records(builder.seal())] == values

    @pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 4)])
    def test_rows_that_are_not_there_are_refused(self, kernel: ModuleType, start: int, stop: int) -> None:
        with pytest.raises(ValueError, match="rows"):
            kernel.BatchBuilder().append_columns(values_source(kernel, [b"1", b"2", b"3"]), start, stop, 1000)

    @pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1])
    def test_an_order_that_names_others_is_refused_at_them(self, kernel: ModuleType, wrong: int) -> None:
        builder = kernel.BatchBuilder()
        order = array("i", [1, wrong, 0]).tobytes()
        with pytest.raises(ValueError, match="not there"):
            builder.append_columns(values_source(kernel, [b"1", b"2", b"3"]), 0, 3, 1000, order)
        assert [record.value for record in decode_records(builder.build())] == [b"2"]

    def test_a_sealed_batch_takes_none(self, kernel: ModuleType) -> None:
        builder = kernel.BatchBuilder()
        builder.append(1, None, b"v")
        builder.seal()
        with pytest.raises(ValueError, match="sealed"):
            builder.append_columns(values_source(kernel, [b"1"]), 0, 1, 1000)

    def test_memory_is_taken_for_what_the_rows_need(self, kernel: ModuleType) -> None:
        source = values_source(kernel, [bytes(100)] * 1_000)
        builder = kernel.BatchBuilder(size_hint=2**20)
        builder.append_columns(source, 0, 10, 2**20)
        assert sys.getsizeof(builder) < 4_000


class TestThreads:
    def test_others_run_while_rows_are_encoded_and_cannot_disturb(self) -> None:
        native = pytest.importorskip("oncelog.records._native")
        source = values_source(native, [bytes(1_000)] * 10_000)
        builder = native.BatchBuilder()
        appended, refused = [], []

        def disturb() -> None:
            try:
                builder.append(1, None, b"disturbing")
                appended.append(1)
            except ValueError:
                refused.append(1)

        rounds = 0
        with Onlooker(disturb):
            while not refused and rounds < MAX_ATTEMPTS // 10:
                assert builder.append_columns(source, 0, 10_000, 2**31) == 10_000
                rounds += 1
                time.sleep(0.001)
        assert refused
        assert builder.record_count == 10_000 * rounds + len(appended)
        assert {len(record.value) for record in decode_records(builder.build())} == {10, 1_000}


class TestFindLarger:
    @quick
    @given(ROWS, st.integers(60, 400))
    def test_is_the_first_row_whose_batch_would_be_too_large(
        self, kernel: ModuleType, rows: list[Any], limit: int
    ) -> None:
        sizes = [one_by_one(kernel, [row]).size_bytes for row in rows]
        expected = next((index for index, size in enumerate(sizes) if size > limit), -1)
        assert source_of(kernel, rows).find_larger(limit) == expected


class TestByPartition:
    @quick
    @given(
        st.lists(st.tuples(NULLABLE_BYTES, st.integers(-1, 6)), max_size=60),
        st.booleans(),
        st.booleans(),
        st.integers(-1, 6),
    )
    def test_groups_rows_in_order(
        self, kernel: ModuleType, rows: list[tuple[bytes | None, int]], is_explicit: bool, use_keys: bool, anywhere: int
    ) -> None:
        source = kernel.RowSource(RowBuffers(len(rows), NOW_MS, bytes_column([key for key, _ in rows]), None))
        partitions = array("i", [partition for _, partition in rows]).tobytes() if is_explicit else None
        expected: dict[int, list[int]] = {}
        for index, (key, partition) in enumerate(rows):
            if not is_explicit or partition < 0:
                partition = kernel.partition_of(key, 7) if key is not None and use_keys else anywhere
            expected.setdefault(partition, []).append(index)
        found = {
            partition: list(range(len(rows))) if order is None else list(memoryview(order).cast("B").cast("i"))
            for partition, order in source.by_partition(7, partitions, use_keys, anywhere)
        }
        assert found == expected
        assert list(found) == sorted(expected)

    def test_without_keys_all_rows_go_anywhere(self, kernel: ModuleType) -> None:
        assert values_source(kernel, [b"1", b"2"]).by_partition(5) == [(-1, None)]
        assert values_source(kernel, []).by_partition(5) == []

    @pytest.mark.parametrize("wrong", [-2, 3, 2**31 - 1])
    def test_a_partition_that_is_not_there_is_named_with_its_row(self, kernel: ModuleType, wrong: int) -> None:
        source = values_source(kernel, [b"1", b"2", b"3"])
        with pytest.raises(ValueError, match=f"row 1 asks for partition {wrong}"):
            source.by_partition(3, array("i", [2, wrong, 0]).tobytes())

    def test_too_few_partitions_are_refused(self, kernel: ModuleType) -> None:
        source = values_source(kernel, [b"1", b"2", b"3"])
        with pytest.raises(ValueError, match="3 rows"):
            source.by_partition(3, array("i", [0, 1]).tobytes())
        with pytest.raises(ValueError, match="to go to partition 3"):
            source.by_partition(3, None, True, 3)
        with pytest.raises(ValueError, match="among 0"):
            source.by_partition(0)


class TestBuffersThatLie:
    """Arrow arrays may be built from any buffers. Whatever they claim, nothing outside them is read."""

    @pytest.mark.parametrize(
        "offsets", [(0, 2, 99), (0, 5, 4), (-1, 2, 3), (0, 2**31 - 1, 3), (-(2**31), 0, 1)], ids=str
    )
    @pytest.mark.parametrize("is_key", [True, False])
    def test_offsets_outside_the_data(self, kernel: ModuleType, offsets: tuple[int, ...], is_key: bool) -> None:
        column = BytesBuffers(0, 2, None, b"abcd", struct.pack("=3i", *offsets))
        source = kernel.RowSource(RowBuffers(2, NOW_MS, column if is_key else None, None if is_key else column))
        builder = kernel.BatchBuilder()
        with pytest.raises(InvalidRecord, match=r"row [01] points outside"):
            builder.append_columns(source, 0, 2, 10_000)
        with pytest.raises(InvalidRecord):
            source.find_larger(10_000)
        if is_key:
            with pytest.raises(InvalidRecord):
                source.by_partition(3)
        assert builder.size_bytes <= HEADER_SIZE + 20

    @pytest.mark.parametrize("offsets", [(0, 9), (1, 0), (-1, 1)], ids=str)
    def test_headers_outside_theirs(self, kernel: ModuleType, offsets: tuple[int, int]) -> None:
        pairs = bytes_column([b"a", b"b"])
        headers = HeaderBuffers(0, None, struct.pack("=2i", *offsets), 4, pairs, pairs)
        source = values_source(kernel, [b"v"], headers=headers)
        with pytest.raises(InvalidRecord, match="row 0"):
            kernel.BatchBuilder().append_columns(source, 0, 1, 10_000)

    def test_a_header_without_a_key(self, kernel: ModuleType) -> None:
        headers = HeaderBuffers(0, None, struct.pack("=2i", 0, 1), 4, bytes_column([None]), bytes_column([b"v"]))
        source = values_source(kernel, [b"v"], headers=headers)
        with pytest.raises(InvalidRecord, match="without a key"):
            kernel.BatchBuilder().append_columns(source, 0, 1, 10_000)

    @pytest.mark.parametrize(
        "column",
        [
            BytesBuffers(0, 4, None, b"", bytes(16)),  # an offset is missing
            BytesBuffers(0, 2, None, b"", bytes(20)),  # fewer items than rows
            BytesBuffers(-1, 4, None, b"", bytes(80)),
            BytesBuffers(2**62, 4, None, b"", bytes(80)),
            BytesBuffers(6, 4, b"\xff", b"", bytes(80)),  # a bitmap for 8 of 10
            BytesBuffers(0, 4, None, b"1234567", None, item_bytes=2),
            BytesBuffers(0, 4, None, b"1234567", None, item_bytes=-2),
            BytesBuffers(0, 4, None, b"", bytes(80), 3),
        ],
        ids=str,
    )
    def test_buffers_too_small_for_their_rows(self, kernel: ModuleType, column: BytesBuffers) -> None:
        with pytest.raises((ValueError, OverflowError)):
            kernel.RowSource(RowBuffers(4, NOW_MS, None, column))
        with pytest.raises((ValueError, OverflowError)):
            kernel.RowSource(RowBuffers(4, NOW_MS, column, None))

    def test_timestamps_and_headers_too_small_for_their_rows(self, kernel: ModuleType) -> None:
        values = bytes_column([b"1", b"2"])
        for timestamps in (
            TimestampBuffers(0, None, bytes(15)),
            TimestampBuffers(1, None, bytes(16)),
            TimestampBuffers(-1, None, bytes(64)),
            TimestampBuffers(7, b"\xff", bytes(99)),
        ):
            with pytest.raises(ValueError, match="column"):
                kernel.RowSource(RowBuffers(2, NOW_MS, None, values, None, timestamps))
        for headers in (
            HeaderBuffers(0, None, bytes(8), 4, values, values),
            HeaderBuffers(0, None, bytes(12), 4, values, bytes_column([b"1"])),
            HeaderBuffers(0, None, bytes(12), 5, values, values),
        ):
            with pytest.raises(ValueError, match=r"column|offsets"):
                kernel.RowSource(RowBuffers(2, NOW_MS, None, values, headers))

    @pytest.mark.parametrize("row_count", [-1, 2**31])
    def test_impossible_numbers_of_rows(self, kernel: ModuleType, row_count: int) -> None:
        with pytest.raises(ValueError, match="rows"):
            kernel.RowSource(RowBuffers(row_count, NOW_MS, None, None))
