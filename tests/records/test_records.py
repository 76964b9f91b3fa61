"""Records inside a batch: round trips, and bytes that only look like records. On both kernels."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import CorruptMessage, InvalidRecord, KafkaError
from oncelog.records import _python, compression
from oncelog.records.batch import (
    RECORDS_AT_ONCE,
    BatchHeader,
    ControlMarker,
    Record,
    build_batch,
    build_control_batch,
    decode_records,
    iter_records,
    read_control_marker,
    rebuild_batch,
    recompress,
    records_payload,
    walk_payload,
)
from tests.records.strategies import BATCHES_OF_ROWS, ROWS, damaged, quick

HUGE = 2**31 - 1


def varint(value: int) -> bytes:
    """Written anew, so that the kernels are not judged by themselves."""
    value = value * 2 if value >= 0 else -value * 2 - 1
    out = b""
    while value > 127:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def framed(body: bytes) -> bytes:
    return varint(len(body)) + body


def header_for(record_count: int, **fields: int) -> BatchHeader:
    base = BatchHeader(0, 100, -1, 2, 0, 0, max(0, record_count - 1), 1_000, 1_000, -1, -1, -1, record_count)
    return base._replace(**fields)


GOOD_BODY = (
    b"\x00" + varint(5) + varint(0) + varint(1) + b"k" + varint(2) + b"vv" + varint(1) + varint(1) + b"h" + b"\x01"
)


class TestRoundTrip:
    @quick
    @given(BATCHES_OF_ROWS, st.integers(0, 4), st.integers(0, 2**62))
    def test_records_come_back_as_they_went(
        self, kernel: ModuleType, rows: list[Any], codec: int, base_offset: int
    ) -> None:
        batch = build_batch(rows, codec=codec, base_offset=base_offset)
        assert [record[1:] for record in iter_records(batch)] == rows
        assert [record.offset for record in decode_records(batch)] == list(range(base_offset, base_offset + len(rows)))
        header = kernel.parse_header(batch)
        timestamps = [timestamp for timestamp, *_ in rows]
        assert header.base_timestamp == timestamps[0]
        assert header.max_timestamp == max(-1, *timestamps)

    @quick
    @given(BATCHES_OF_ROWS, st.integers(0, 4))
    def test_both_kernels_write_the_same_bytes(self, rows: list[Any], codec: int) -> None:
        native = pytest.importorskip("oncelog.records._native")
        built = []
        for builder in (native.BatchBuilder(), _python.BatchBuilder()):
            sizes = [builder.append(*row) for row in rows]
            built.append((sizes, builder.size_bytes, builder.record_count, builder.build(codec=codec, base_sequence=5)))
        assert built[0] == built[1]

    @quick
    @given(BATCHES_OF_ROWS)
    def test_the_size_is_known_while_building(self, kernel: ModuleType, rows: list[Any]) -> None:
        builder = kernel.BatchBuilder()
        assert (builder.size_bytes, builder.record_count) == (61, 0)
        for row in rows:
            size = builder.append(*row)
            assert size == builder.size_bytes == len(builder.build())
        assert builder.record_count == len(rows)

    def test_any_bytes_like_object_is_taken(self, kernel: ModuleType) -> None:
        wanted = build_batch([(1, b"key", b"value", [("h", b"x")])])
        taken = build_batch([(1, bytearray(b"key"), memoryview(b"a value")[2:], [("h", memoryview(b"x"))])])
        assert wanted == taken

    def test_a_header_key_that_is_not_utf8_survives(self, kernel: ModuleType) -> None:
        body = b"\x00\x00\x00\x01\x01" + varint(1) + varint(2) + b"\xff\xfe" + varint(0)
        (record,) = kernel.decode(framed(body), header_for(1))
        (key, value), *_ = record.headers
        assert (key.encode("utf-8", "surrogateescape"), value) == (b"\xff\xfe", b"")
        assert bytes(build_batch([record[1:]]))[61:] == framed(body)

    @pytest.mark.parametrize("bad", [1, "text", object()])
    def test_wrong_types_change_nothing(self, kernel: ModuleType, bad: object) -> None:
        builder = kernel.BatchBuilder()
        builder.append(1, b"k", b"v", ())
        before = builder.build()
        for row in ((2, bad, b"v", ()), (2, b"k", bad, ()), (2, b"k", b"v", [("h", bad)]), (2, b"k", b"v", [bad])):
            with pytest.raises((TypeError, ValueError)):
                builder.append(*row)
        assert builder.build() == before

    def test_an_empty_batch_is_refused(self, kernel: ModuleType) -> None:
        with pytest.raises(ValueError, match="needs a record"):
            kernel.BatchBuilder().build()


class TestRebuild:
    """What the cleaner does: fewer records, everything else as it was."""

    @quick
    @given(st.lists(ROWS, min_size=1, max_size=8), st.data(), st.integers(0, 4))
    def test_kept_records_keep_their_offsets(
        self, kernel: ModuleType, rows: list[Any], data: st.DataObject, codec: int
    ) -> None:
        producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 2**31 - 2}
        batch = build_batch(rows, base_offset=100, leader_epoch=3, codec=codec, transactional=True, **producer)
        header = kernel.parse_header(batch)
        kept = [record for record in decode_records(batch) if data.draw(st.booleans())]
        rebuilt = rebuild_batch(header, kept)
        new = kernel.parse_header(rebuilt)
        assert kernel.crc_matches(rebuilt, 0, len(rebuilt))
        assert decode_records(rebuilt) == kept
        assert new.record_count == len(kept)
        same = ("base_offset", "last_offset", "last_sequence", "producer_id", "leader_epoch", "attributes")
        assert [getattr(new, name) for name in same] == [getattr(header, name) for name in same]

    def test_the_delete_horizon_stays_once_it_is_set(self, kernel: ModuleType) -> None:
        batch = build_batch([(1_000, b"k", None, ()), (1_001, b"l", b"v", ())])
        header = kernel.parse_header(batch)
        marked = rebuild_batch(header, decode_records(batch), delete_horizon_ms=50_000)
        new = kernel.parse_header(marked)
        assert (new.is_delete_horizon_set, new.base_timestamp, new.max_timestamp) == (True, 50_000, 1_001)
        assert decode_records(marked) == decode_records(batch)
        assert rebuild_batch(new, decode_records(marked)) == marked

    def test_offset_deltas_only_grow(self, kernel: ModuleType) -> None:
        builder = kernel.BatchBuilder()
        builder.append(1, None, None, (), 5)
        for delta in (-1, 5, 2**31):
            with pytest.raises(ValueError, match="offset delta"):
                builder.append(1, None, None, (), delta)
        with pytest.raises(ValueError, match="offset range"):
            builder.build(last_offset_delta=4)

    @quick
    @given(BATCHES_OF_ROWS, st.integers(0, 4), st.integers(0, 4))
    def test_another_codec_changes_nothing_else(self, kernel: ModuleType, rows: list[Any], old: int, new: int) -> None:
        batch = build_batch(rows, codec=old, base_offset=5, producer_id=1, producer_epoch=2, base_sequence=3)
        header = kernel.parse_header(batch)
        other = recompress(batch, header, new)
        changed = kernel.parse_header(other)
        assert kernel.crc_matches(other, 0, len(other))
        assert (changed.codec, changed.size_bytes) == (new, len(other))
        assert decode_records(other) == decode_records(batch)
        assert changed._replace(attributes=old, size_bytes=header.size_bytes, crc=header.crc) == header


class TestMarkers:
    @pytest.mark.parametrize("commit", [True, False])
    def test_come_back(self, kernel: ModuleType, commit: bool) -> None:
        marker = ControlMarker(commit, 12)
        batch = build_control_batch(marker, producer_id=9, producer_epoch=4, timestamp_ms=77, base_offset=3)
        header = kernel.parse_header(batch)
        assert read_control_marker(batch) == marker
        assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
        assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (9, 4, 77)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (None, b"\x00\x00\x00\x00\x00\x00"),
            (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00"),
            (b"\x00\x00\x00\x01", None),
            (b"\x00\x00\x00\x01", b"\x00\x00\x00"),
            (b"\x00\x00\x00\x02", b"\x00\x00\x00\x00\x00\x00"),  # KRaft's leader change
            (b"\xff\xff\x00\x01", b"\x00\x00\x00\x00\x00\x00"),
        ],
    )
    def test_other_control_records_are_no_markers(
        self, kernel: ModuleType, key: bytes | None, value: bytes | None
    ) -> None:
        with pytest.raises(InvalidRecord):
            read_control_marker(build_batch([(1, key, value, ())], control=True))

    def test_a_data_batch_is_no_marker(self, kernel: ModuleType) -> None:
        with pytest.raises(InvalidRecord):
            read_control_marker(build_batch([(1, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", ())]))


class TestCheckRecords:
    def test_tells_what_it_saw(self, kernel: ModuleType) -> None:
        rows = [
            (50, None, b"a", ()),
            (90, b"k", b"b", ()),
            (-1, None, b"c", ()),
            (90, b"k", None, ()),
            (20, b"k", b"", ()),
        ]
        batch = build_batch(rows)
        header = kernel.parse_header(batch)
        checked = kernel.check_records(records_payload(batch, header), 5, header.base_timestamp)
        assert checked == (90, 1, 2, 20)

    def test_records_without_timestamps_have_no_greatest(self, kernel: ModuleType) -> None:
        batch = build_batch([(-1, b"k", b"v", ())] * 2)
        assert kernel.check_records(bytes(batch)[61:], 2, -1) == (-1, -1, 0, -1)

    @quick
    @given(BATCHES_OF_ROWS)
    def test_accepts_what_was_built(self, kernel: ModuleType, rows: list[Any]) -> None:
        batch = build_batch(rows)
        checked = kernel.check_records(memoryview(batch)[61:], len(rows), rows[0][0])
        assert checked.max_timestamp == max(-1, *(row[0] for row in rows))
        assert checked.null_keys == sum(row[1] is None for row in rows)

    @pytest.mark.parametrize("count", [-(2**31), -1, 1, 3, HUGE])
    def test_a_wrong_count_is_refused(self, kernel: ModuleType, count: int) -> None:
        payload = bytes(build_batch([(1, b"k", b"v", ())] * 2))[61:]
        with pytest.raises(InvalidRecord):
            kernel.check_records(payload, count, 1)

    @pytest.mark.parametrize("deltas", [(1,), (0, 0), (0, 2), (1, 0), (-1, 0), (0, 1, HUGE)])
    def test_offset_deltas_must_count_up_from_zero(self, kernel: ModuleType, deltas: tuple[int, ...]) -> None:
        payload = b"".join(framed(b"\x00\x00" + varint(delta) + b"\x01\x01\x00") for delta in deltas)
        with pytest.raises(InvalidRecord, match="offset delta"):
            kernel.check_records(payload, len(deltas), 0)


def readers(kernel: ModuleType) -> list[Callable[[bytes, int], object]]:
    return [
        lambda payload, count: kernel.check_records(payload, count, 1_000),
        lambda payload, count: kernel.decode(payload, header_for(count)),
        lambda payload, count: read_by_cursor(kernel, payload, count, "take"),
        lambda payload, count: read_by_cursor(kernel, payload, count, "take_table"),
    ]


def read_by_cursor(kernel: ModuleType, payload: bytes, count: int, method: str) -> None:
    """What a cursor says of a payload, in the words of the others."""
    header = struct.pack(
        ">qiibIhiqqqhii", 0, 49 + len(payload), -1, 2, 0, 0, max(0, count - 1), 0, 0, -1, -1, -1, count
    )
    cursor = kernel.RecordCursor(header + payload, "t", 0, 0, False, None, False, 1 << 20)
    try:
        getattr(cursor, method)(10)
        getattr(cursor, method)(10)
    except CorruptMessage as error:
        raise InvalidRecord(error.message) from error


class TestHostileBytes:
    """Whatever the bytes claim, the answer is INVALID_RECORD: no crash, and nothing allocated for the claim."""

    def refused_by_all(self, kernel: ModuleType, payload: bytes, count: int = 1) -> None:
        for read in readers(kernel):
            with pytest.raises(InvalidRecord):
                read(payload, count)

    def test_the_good_record_is_good(self, kernel: ModuleType) -> None:
        for read in readers(kernel):
            read(framed(GOOD_BODY), 1)

    def test_every_truncation(self, kernel: ModuleType) -> None:
        for cut in range(len(framed(GOOD_BODY))):
            self.refused_by_all(kernel, framed(GOOD_BODY)[:cut])
        for cut in range(len(GOOD_BODY)):
            self.refused_by_all(kernel, framed(GOOD_BODY[:cut]))

    def test_left_over_bytes(self, kernel: ModuleType) -> None:
        self.refused_by_all(kernel, framed(GOOD_BODY) + b"\x00")
        self.refused_by_all(kernel, framed(GOOD_BODY + b"\x00"))
        self.refused_by_all(kernel, framed(b"\x00\x00\x00\x01\x01\x00\x00"))
        self.refused_by_all(kernel, framed(GOOD_BODY) * 2)

    @pytest.mark.parametrize("length", [-HUGE - 1, -1, 0, 8, 2**30, HUGE])
    def test_record_lengths(self, kernel: ModuleType, length: int) -> None:
        self.refused_by_all(kernel, varint(length) + b"\x00\x00\x00\x01\x01\x00" + bytes(2))

    @pytest.mark.parametrize("length", [-HUGE - 1, -2, 200, HUGE])
    def test_field_lengths(self, kernel: ModuleType, length: int) -> None:
        for before, after in ((b"\x00\x00\x00", b"\x01\x00"), (b"\x00\x00\x00\x01", b"\x00")):
            self.refused_by_all(kernel, framed(before + varint(length) + after + bytes(8)))

    @pytest.mark.parametrize("count", [-HUGE - 1, -1, 3, 5, 2**20, HUGE])
    def test_header_counts(self, kernel: ModuleType, count: int) -> None:
        self.refused_by_all(kernel, framed(b"\x00\x00\x00\x01\x01" + varint(count) + bytes(4)))

    @pytest.mark.parametrize("lengths", [(-1, 0), (-2, 0), (0, -2), (HUGE, 0), (0, HUGE), (2, 0)])
    def test_header_lengths(self, kernel: ModuleType, lengths: tuple[int, int]) -> None:
        key, value = lengths
        self.refused_by_all(kernel, framed(b"\x00\x00\x00\x01\x01" + varint(1) + varint(key) + varint(value)))

    @pytest.mark.parametrize(
        "bad", [b"\x80", b"\xff" * 5, b"\x80" * 5 + b"\x00", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x10"]
    )
    def test_overlong_varints(self, kernel: ModuleType, bad: bytes) -> None:
        rest = b"\x01\x01\x00"
        self.refused_by_all(kernel, bad + bytes(60))
        self.refused_by_all(kernel, framed(b"\x00\x00" + bad + rest))
        self.refused_by_all(kernel, framed(b"\x00\x00\x00" + bad + rest))
        self.refused_by_all(kernel, framed(b"\x00\x00\x00\x01" + bad + rest))
        self.refused_by_all(kernel, framed(b"\x00\x00\x00\x01\x01" + bad))

    @pytest.mark.parametrize("bad", [b"\x80" * 10 + b"\x00", b"\xff" * 9 + b"\x02", b"\xff" * 10])
    def test_overlong_timestamps(self, kernel: ModuleType, bad: bytes) -> None:
        self.refused_by_all(kernel, framed(b"\x00" + bad + b"\x00\x01\x01\x00"))

    def test_the_longest_legal_timestamp(self, kernel: ModuleType) -> None:
        payload = framed(b"\x00" + b"\xff" * 9 + b"\x01" + b"\x00\x01\x01\x00")
        (record,) = kernel.decode(payload, header_for(1, base_timestamp=-1))
        assert record.timestamp_ms == 2**63 - 1  # wraps, as in Java

    def test_a_claim_of_two_billion_records_costs_nothing(self, kernel: ModuleType) -> None:
        self.refused_by_all(kernel, framed(GOOD_BODY), HUGE)
        self.refused_by_all(kernel, b"", 1)
        self.refused_by_all(kernel, b"", -1)

    @quick
    @given(BATCHES_OF_ROWS, st.data(), st.integers(-1, 1))
    def test_both_kernels_judge_damaged_records_alike(self, rows: list[Any], data: st.DataObject, off_by: int) -> None:
        payload = data.draw(damaged(bytes(build_batch(rows))[61:]))
        self.judged_alike(payload, len(rows) + off_by)

    @quick
    @given(st.binary(max_size=60), st.integers(0, 5))
    def test_both_kernels_judge_any_bytes_alike(self, payload: bytes, count: int) -> None:
        self.judged_alike(payload, count)

    def judged_alike(self, payload: bytes, count: int) -> None:
        native = pytest.importorskip("oncelog.records._native")
        for ours, twins in zip(readers(native), readers(_python), strict=True):
            assert outcome(ours, payload, count) == outcome(twins, payload, count)


def outcome(read: Callable[[bytes, int], object], payload: bytes, count: int) -> object:
    try:
        return read(payload, count)
    except KafkaError as error:
        return error.code


class TestBatchesCutOff:
    def test_a_batch_that_is_not_whole(self, kernel: ModuleType) -> None:
        batch = bytes(build_batch([(1, b"k", b"v", ())]))
        for cut in range(len(batch)):
            with pytest.raises(CorruptMessage):
                decode_records(batch[:cut])

    def test_another_format(self, kernel: ModuleType) -> None:
        batch = build_batch([(1, b"k", b"v", ())])
        batch[16] = 1
        with pytest.raises(InvalidRecord, match="format 1"):
            decode_records(batch)

    def test_what_follows_the_batch_is_left_alone(self, kernel: ModuleType) -> None:
        batch = build_batch([(1, b"k", b"v", ())])
        assert decode_records(batch + b"more") == [Record(0, 1, b"k", b"v", ())]

    @quick
    @given(BATCHES_OF_ROWS, st.integers(0, 4), st.data())
    def test_damaged_batches_raise_coded_errors_only(
        self, kernel: ModuleType, rows: list[Any], codec: int, data: st.DataObject
    ) -> None:
        batch = data.draw(damaged(bytes(build_batch(rows, codec=codec))))
        answer = outcome(lambda data, limit: decode_records(data, max_decompressed_bytes=limit), batch, 1 << 20)
        assert isinstance(answer, list) or answer in (2, 76, 87)


def test_codecs_are_numbered_as_in_the_attributes() -> None:
    assert [compression.codec_named(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == list(range(5))


def test_a_batch_is_walked_in_steps(kernel: ModuleType) -> None:
    batch = build_batch([(number, b"%d" % number, None, ()) for number in range(2 * RECORDS_AT_ONCE + 1)])
    header = kernel.parse_header(batch)
    payload = records_payload(batch, header)
    some, position = kernel.decode_part(payload, header, 0, 0, 3)
    more, _ = kernel.decode_part(payload, header, position, 3, 2)
    assert [record.offset for record in some + more] == [0, 1, 2, 3, 4]
    assert list(walk_payload(payload, header)) == decode_records(batch)
    with pytest.raises(InvalidRecord):
        list(walk_payload(bytes(payload) + b"x", header))
    with pytest.raises(ValueError, match="within its batch"):
        kernel.decode_part(payload, header, len(payload) + 1, 0, 1)
