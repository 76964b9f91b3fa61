"""What a consumer reads a fetched partition with. On both kernels."""

from __future__ import annotations

import gc
import pickle
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import CorruptMessage
from oncelog.records import _python
from oncelog.records.batch import Record, build_batch, build_control_batch, decode_records
from oncelog.records.kernel import crc32c
from oncelog.records.model import CHUNK_BYTES, ControlMarker, RecordDeserializationError
from oncelog.types import TimestampType, TopicPartition
from tests.records.strategies import BATCHES_OF_ROWS, damaged, quick

BOUND = 1 << 20
ALL = 1_000_000


def cursor(kernel: ModuleType, data: Any, offset: int = 0, **options: Any) -> Any:
    chosen = {
        "topic": "orders",
        "partition": 3,
        "committed_only": False,
        "aborted": None,
        "check_crcs": True,
        "max_decompressed_bytes": BOUND,
        **options,
    }
    return kernel.RecordCursor(data, fetch_offset=offset, **chosen)


def plain(records: list[Any]) -> list[Record]:
    return [Record(each.offset, each.timestamp_ms, each.key, each.value, each.headers) for each in records]


def all_values(reader: Any) -> list[Any]:
    found = []
    while taken := reader.take(2):
        found += [record.value for record in taken]
    return found


def batch(
    base_offset: int, *values: bytes, producer_id: int = -1, transactional: bool = False, **options: Any
) -> bytes:
    numbered = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    rows = [(1000, None, value, ()) for value in values]
    return bytes(build_batch(rows, base_offset=base_offset, transactional=transactional, **numbered, **options))


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return bytes(
        build_control_batch(
            ControlMarker(commit, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=1000, base_offset=offset
        )
    )


def patched(data: bytes, at: int, layout: str, value: int) -> bytearray:
    """With another value in a batch's header, and the CRC mended."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return changed


@pytest.fixture(params=["take", "take_table"])
def rest_of(request: pytest.FixtureRequest) -> Callable[[Any], list[Record]]:
    """All that a cursor has left, by either method."""

    def by_take(reader: Any) -> list[Record]:
        return plain([record for taken in iter(lambda: reader.take(3), []) for record in taken])

    def by_table(reader: Any) -> list[Record]:
        tables = iter(lambda: as_records(reader.take_table(3)), [])
        return [record for table in tables for record in table]

    return by_take if request.param == "take" else by_table


# --- records ----------------------------------------------------------------------------------------------------------


class TestConsumerRecord:
    def test_says_everything_about_itself(self, kernel: ModuleType) -> None:
        rows = [(5, b"k", b"v", [("h", b"x"), ("n", None)]), (7, None, None, ())]
        data = build_batch(rows, base_offset=10, leader_epoch=4)
        first, second = cursor(kernel, data).take(10)
        assert (first.topic, first.partition, first.offset, first.leader_epoch) == ("orders", 3, 10, 4)
        assert (first.timestamp_ms, first.timestamp_type) == (5, TimestampType.CREATE_TIME)
        assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", b"x"), ("n", None)))
        assert (second.offset, second.key, second.value, second.headers) == (11, None, None, ())
        assert repr(second) == (
            "ConsumerRecord(topic='orders', partition=3, offset=11, timestamp_ms=7,"
            " timestamp_type=<TimestampType.CREATE_TIME: 0>, key=None, value=None, headers=(), leader_epoch=4)"
        )

    def test_append_time_stands_for_every_record(self, kernel: ModuleType) -> None:
        data = build_batch([(1, b"k", b"v", ())] * 3, timestamp_type=1, max_timestamp=99)
        for record in cursor(kernel, data).take(3):
            assert (record.timestamp_ms, record.timestamp_type) == (99, TimestampType.LOG_APPEND_TIME)
        assert [record.timestamp_ms for record in as_records(cursor(kernel, data).take_table())] == [99] * 3

    def test_is_a_value(self, kernel: ModuleType) -> None:
        make = kernel.ConsumerRecord
        fields = ("t", 1, 2, 3, TimestampType.CREATE_TIME, b"k", b"v", (("h", b"x"),), 5)
        record = make(*fields)
        assert record == make(*fields)
        assert hash(record) == hash(make(*fields))
        assert pickle.loads(pickle.dumps(record)) == record
        assert record != fields
        for place, other in enumerate(("u", 9, 9, 9, TimestampType.LOG_APPEND_TIME, b"x", None, (), 9)):
            assert record != make(*fields[:place], other, *fields[place + 1 :])
        with pytest.raises(AttributeError):
            record.offset = 7
        with pytest.raises(TypeError, match="unhashable"):
            hash(record.replace(value={}))

    def test_can_be_made_anew_with_other_fields(self, kernel: ModuleType) -> None:
        record = kernel.ConsumerRecord("t", 1, 2, 3, TimestampType.CREATE_TIME, b"k", b"v")
        changed = record.replace(value="text", headers=(("h", None),))
        assert (changed.value, changed.headers, changed.key, changed.offset) == ("text", (("h", None),), b"k", 2)
        assert record.value == b"v"
        with pytest.raises(TypeError):
            record.replace(vaule=1)


# --- what is taken ----------------------------------------------------------------------------------------------------


@quick
@given(
    many=st.lists(st.tuples(BATCHES_OF_ROWS, st.integers(0, 4), st.integers(0, 5)), max_size=5),
    fetch_offset=st.integers(0, 30),
    sizes=st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1),
)
def test_every_record_comes_once_and_in_order(
    kernel: ModuleType, many: list[Any], fetch_offset: int, sizes: list[tuple[int, bool]]
) -> None:
    data, wanted, next_offset = b"", [], fetch_offset
    for epoch, (rows, codec, gap) in enumerate(many):
        base_offset = (wanted[-1].offset + 1 if wanted else 0) + gap
        built = build_batch(rows, base_offset=base_offset, codec=codec, leader_epoch=epoch)
        wanted += decode_records(built)
        data += built
        next_offset = max(next_offset, wanted[-1].offset + 1)
    reader = cursor(kernel, data, fetch_offset)
    found: list[Record] = []
    while not reader.is_exhausted:
        for size, as_table in sizes:
            taken = as_records(reader.take_table(size)) if as_table else plain(reader.take(size))
            assert len(taken) == size or reader.is_exhausted
            found += taken
            if taken:
                assert reader.next_offset == taken[-1].offset + 1
    assert found == [record for record in wanted if record.offset >= fetch_offset]
    assert reader.next_offset == next_offset
    assert reader.take(5) == []
    assert reader.take_table().record_count == 0


def test_position_and_epoch_move_with_what_is_taken(kernel: ModuleType) -> None:
    data = batch(5, b"5", b"6", leader_epoch=1) + batch(9, b"9", b"10", leader_epoch=4)
    reader = cursor(kernel, data, 6)
    assert (reader.next_offset, reader.leader_epoch, reader.bytes_taken, reader.is_exhausted) == (6, -1, 0, False)
    assert [record.offset for record in reader.take(1)] == [6]
    assert (reader.next_offset, reader.leader_epoch, reader.bytes_taken, reader.is_exhausted) == (7, 1, 8, False)
    assert [record.offset for record in reader.take(1)] == [9]
    assert (reader.next_offset, reader.leader_epoch, reader.is_exhausted) == (10, 4, False)
    assert [record.offset for record in reader.take(1)] == [10]
    assert (reader.next_offset, reader.leader_epoch, reader.bytes_taken, reader.is_exhausted) == (11, 4, 25, True)


def test_nothing_fetched_is_nothing_to_read(kernel: ModuleType) -> None:
    reader = cursor(kernel, memoryview(b""), 5)
    assert reader.is_exhausted
    assert (reader.take(1), reader.next_offset, reader.leader_epoch) == ([], 5, -1)


@pytest.mark.parametrize("missing", [1, 3, 40, 68])
def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(
    kernel: ModuleType, rest_of: Callable[[Any], list[Record]], missing: int
) -> None:
    data = batch(0, b"0") + batch(1, b"1")[:-missing]
    reader = cursor(kernel, data)
    assert [record.value for record in rest_of(reader)] == [b"0"]
    assert (reader.next_offset, reader.is_exhausted) == (1, True)


def test_a_fetch_without_one_whole_batch_is_an_error(kernel: ModuleType) -> None:
    """It would be asked for again for ever."""
    for size in (1, 60, 61, 68):
        with pytest.raises(CorruptMessage, match=r"orders-3 at offset 7.*whole batch"):
            cursor(kernel, batch(0, b"0")[:size], 7).take(1)


def test_batches_that_compaction_emptied_are_passed(kernel: ModuleType) -> None:
    empty = kernel.BatchBuilder(1).build(base_offset=3, last_offset_delta=6, leader_epoch=2)
    reader = cursor(kernel, batch(0, b"0") + empty)
    assert [record.offset for record in reader.take(1)] == [0]
    assert (reader.next_offset, reader.leader_epoch, reader.is_exhausted) == (10, 2, True)


def test_tables_end_before_they_are_too_large(kernel: ModuleType) -> None:
    size = CHUNK_BYTES // 4
    data = bytes(build_batch([(1, None, bytes([65 + n]) * size, ()) for n in range(6)]))
    reader = cursor(kernel, data)
    tables = [reader.take_table(), reader.take_table()]
    assert [table.record_count for table in tables] == [4, 2]
    assert [value[:1] for table in tables for value in items(table.values) if value] == [b"%c" % c for c in b"ABCDEF"]
    assert reader.is_exhausted


def test_columns_outlive_their_cursor(kernel: ModuleType) -> None:
    """Also when they are large enough for their memory to be used again."""
    held = []
    for letter in b"ABA":
        data = build_batch([(1, b"key", bytes([letter]) * 100_000, ())] * 3)
        held.append(memoryview(cursor(kernel, data).take_table().values.data))
    assert [bytes(view[:1]) + bytes(view[-1:]) for view in held] == [b"AA", b"BB", b"AA"]


def test_the_data_is_let_go_with_the_cursor(kernel: ModuleType) -> None:
    """Also by the collector, if the cursor is part of a cycle."""
    data = bytearray(batch(0, b"0", b"1", codec=4))
    reader = cursor(kernel, data)
    reader.take(1)
    del reader
    data.append(0)
    cycle: list[Any] = []
    cycle += [cycle, cursor(kernel, memoryview(data)[:-1], read_value=cycle.count)]
    assert len(cycle[1].take(1)) == 1
    del cycle
    gc.collect()
    data.append(0)


# --- transactions -----------------------------------------------------------------------------------------------------

INTERLEAVED = (
    batch(0, b"a0", producer_id=1, transactional=True)
    + batch(1, b"b1", producer_id=2, transactional=True)
    + batch(2, b"plain2")
    + marker(3, 1, commit=False)
    + batch(4, b"a4", producer_id=1, transactional=True)
    + marker(5, 2, commit=True)
    + marker(6, 1, commit=True)
)
ABORTED = [(1, 0)]


class TestIsolation:
    def test_uncommitted_readers_see_everything_but_markers(self, kernel: ModuleType) -> None:
        assert all_values(cursor(kernel, INTERLEAVED, aborted=ABORTED)) == [b"a0", b"b1", b"plain2", b"a4"]

    def test_committed_readers_see_nothing_of_an_aborted_transaction_and_all_of_the_next(
        self, kernel: ModuleType, rest_of: Callable[[Any], list[Record]]
    ) -> None:
        reader = cursor(kernel, INTERLEAVED, committed_only=True, aborted=ABORTED)
        assert [record.value for record in rest_of(reader)] == [b"b1", b"plain2", b"a4"]

    def test_a_transaction_that_aborts_later_does_not_hide_an_earlier_one(self, kernel: ModuleType) -> None:
        data = (
            batch(0, b"first", producer_id=1, transactional=True)
            + marker(1, 1, commit=True)
            + batch(2, b"second", producer_id=1, transactional=True)
            + marker(3, 1, commit=False)
        )
        assert all_values(cursor(kernel, data, committed_only=True, aborted=[(1, 2)])) == [b"first"]

    def test_each_aborted_transaction_of_a_producer_is_hidden(self, kernel: ModuleType) -> None:
        data = b"".join(
            batch(3 * n, b"%d" % n, producer_id=1, transactional=True) + marker(3 * n + 2, 1, commit=n == 1)
            for n in range(4)
        )
        aborted = [(1, 9), (1, 0), (1, 6)]
        assert all_values(cursor(kernel, data, committed_only=True, aborted=aborted)) == [b"1"]

    def test_plain_records_of_a_producer_whose_transaction_aborts_are_shown(self, kernel: ModuleType) -> None:
        data = batch(0, b"plain", producer_id=1) + batch(1, b"hidden", producer_id=1, transactional=True)
        assert all_values(cursor(kernel, data, committed_only=True, aborted=[(1, 0)])) == [b"plain"]

    def test_the_position_passes_what_is_not_shown_as_soon_as_it_can(self, kernel: ModuleType) -> None:
        reader = cursor(kernel, INTERLEAVED, committed_only=True, aborted=ABORTED)
        assert (reader.next_offset, reader.is_exhausted) == (1, False)
        assert len(reader.take(2)) == 2
        assert reader.next_offset == 4
        assert len(reader.take(1)) == 1
        assert (reader.next_offset, reader.is_exhausted) == (7, True)

    def test_a_marker_that_makes_no_sense_is_an_error(self, kernel: ModuleType) -> None:
        data = marker(0, 1, commit=False)
        bad = patched(data, 61, ">b", 2)
        with pytest.raises(CorruptMessage):
            cursor(kernel, bad, committed_only=True, aborted=ABORTED).take(1)


# --- deserializers ----------------------------------------------------------------------------------------------------


class TestDeserializers:
    def test_read_what_is_not_none(self, kernel: ModuleType) -> None:
        data = build_batch([(1, b"7", b"v", ()), (1, None, None, ()), (1, b"", b"", ())])
        reader = cursor(kernel, data, read_key=lambda key: int(key or b"0"), read_value=bytes.decode)
        assert [(record.key, record.value) for record in reader.take(3)] == [(7, "v"), (None, None), (0, "")]

    @pytest.mark.parametrize("field", ["key", "value"])
    def test_one_that_raises_stops_at_the_record(self, kernel: ModuleType, field: str) -> None:
        rows = [(1, text, text, ()) for text in (b"0", b"1", b"x", b"3")]
        reader = cursor(kernel, build_batch(rows, base_offset=20), **{f"read_{field}": int})
        assert [getattr(record, field) for record in reader.take(10)] == [0, 1]
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match="orders-3 at offset 22") as caught:
                reader.take(10)
        assert (caught.value.partition, caught.value.offset) == (TopicPartition("orders", 3), 22)
        assert caught.value.field == field
        assert isinstance(caught.value.cause, ValueError)
        assert caught.value.__cause__ is caught.value.cause
        assert (reader.next_offset, reader.is_exhausted) == (22, False)

    def test_one_that_recovers_goes_on_where_it_stopped(self, kernel: ModuleType) -> None:
        troubles = [OSError("registry is down")]

        def read(data: bytes) -> bytes:
            if data == b"2" and troubles:
                raise troubles.pop()
            return data

        data = batch(0, b"0", b"1", codec=2) + batch(2, b"2", b"3", codec=2)
        reader = cursor(kernel, data, read_value=read)
        assert [record.value for record in reader.take(10)] == [b"0", b"1"]
        assert [record.value for record in reader.take(10)] == [b"2", b"3"]

    def test_an_interrupted_take_has_not_happened(self, kernel: ModuleType) -> None:
        interrupts = [KeyboardInterrupt()]

        def read(data: bytes) -> bytes:
            if data == b"a4" and interrupts:
                raise interrupts.pop()
            return data

        reader = cursor(kernel, INTERLEAVED, committed_only=True, aborted=ABORTED, read_value=read)
        assert [record.value for record in reader.take(1)] == [b"b1"]
        with pytest.raises(KeyboardInterrupt):
            reader.take(10)
        assert (reader.next_offset, reader.is_exhausted) == (2, False)
        assert [record.value for record in reader.take(10)] == [b"plain2", b"a4"]
        assert (reader.next_offset, reader.is_exhausted) == (7, True)

    def test_one_that_reads_its_own_cursor_is_stopped(self, kernel: ModuleType) -> None:
        def read(data: bytes) -> Any:
            return reader.take(1)

        reader = cursor(kernel, batch(0, b"0"), read_value=read)
        with pytest.raises(RecordDeserializationError, match="read already"):
            reader.take(1)

    def test_tables_are_bytes(self, kernel: ModuleType) -> None:
        reader = cursor(kernel, batch(0, b"0"), read_value=int)
        assert items(reader.take_table().values) == [b"0"]


# --- bytes that only look like batches --------------------------------------------------------------------------------


class TestDamage:
    def test_sound_records_come_first_and_the_error_stays(
        self, kernel: ModuleType, rest_of: Callable[[Any], list[Record]]
    ) -> None:
        bad = bytearray(batch(3, b"0123456789"))
        bad[-2] ^= 1
        reader = cursor(kernel, batch(0, b"0") + bad + batch(4, b"4"))
        assert [record.value for record in reader.take(5)] == [b"0"]
        assert (reader.next_offset, reader.is_exhausted) == (1, False)
        for _ in range(2):
            with pytest.raises(CorruptMessage, match=r"orders-3 at offset 1 .*CRC32C.*seek\(\) past it"):
                rest_of(reader)

    def test_the_crc_may_be_left_unchecked(self, kernel: ModuleType) -> None:
        bad = bytearray(batch(0, b"0123456789"))
        bad[-2] ^= 1
        assert [len(record.value) for record in cursor(kernel, bad, check_crcs=False).take(1)] == [10]

    def test_a_malformed_record_is_told_apart_from_those_before_it(
        self, kernel: ModuleType, rest_of: Callable[[Any], list[Record]]
    ) -> None:
        good = build_batch([(1, b"k", b"%d" % n, [("h", b"x")] * 2) for n in range(3)])
        bad = patched(bytes(good), len(good) - 4, ">b", 1)  # the last header's key becomes null
        reader = cursor(kernel, bad)
        assert [record.value for record in plain(reader.take(10))] == [b"0", b"1"]
        with pytest.raises(CorruptMessage, match="at offset 2"):
            rest_of(reader)
        assert reader.next_offset == 2
        columns = cursor(kernel, bad).take_table()
        assert [record.value for record in as_records(columns)] == [b"0", b"1"]

    @pytest.mark.parametrize(
        ("at", "layout", "value"),
        [
            (0, ">q", -1),
            (0, ">q", 2**63 - 1),
            (8, ">i", -1),
            (8, ">i", 48),
            (16, ">b", 1),
            (21, ">h", 5),
            (23, ">i", -1),
            (23, ">i", 1),
            (57, ">i", -1),
            (57, ">i", 2),
            (57, ">i", 4),
            (57, ">i", 2**31 - 1),
        ],
    )
    def test_a_header_that_lies_is_an_error(
        self, kernel: ModuleType, rest_of: Callable[[Any], list[Record]], at: int, layout: str, value: int
    ) -> None:
        lie = patched(batch(0, b"0", b"1", b"2"), at, layout, value)
        with pytest.raises(CorruptMessage):
            rest_of(cursor(kernel, lie))

    def test_offsets_never_go_back(self, kernel: ModuleType, rest_of: Callable[[Any], list[Record]]) -> None:
        data = batch(5, b"5", b"6") + batch(0, b"0", b"1") + batch(6, b"old", b"7")
        reader = cursor(kernel, data)
        assert [record.value for record in rest_of(reader)] == [b"5", b"6", b"7"]
        assert reader.next_offset == 8

    @pytest.mark.parametrize("codec", [1, 2, 3, 4])
    def test_a_bomb_is_not_let_off(self, kernel: ModuleType, codec: int) -> None:
        bomb = batch(0, bytes(64 * BOUND), codec=codec)
        tracemalloc.start()
        try:
            with pytest.raises(CorruptMessage, match=f"more than the {BOUND} bytes allowed"):
                cursor(kernel, bomb).take(1)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 8 * BOUND

    @quick
    @given(
        st.lists(st.tuples(BATCHES_OF_ROWS, st.integers(0, 4)), min_size=1, max_size=3),
        st.booleans(),
        st.booleans(),
        st.data(),
    )
    def test_both_kernels_say_the_same_of_damaged_data(
        self, kernel: ModuleType, many: list[Any], check_crcs: bool, as_table: bool, data: st.DataObject
    ) -> None:
        whole = bytearray()
        for number, (rows, codec) in enumerate(many):
            numbered = {"producer_id": number, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
            whole += build_batch(rows, base_offset=20 * number, codec=codec, **numbered)
        whole += marker(20 * len(many), 0, commit=False)
        bad = data.draw(damaged(bytes(whole)))
        options = {"check_crcs": check_crcs, "committed_only": True, "aborted": [(0, 0), (1, 25)]}
        mine = list(story(cursor(kernel, bad, **options), as_table))
        assert mine == list(story(cursor(_python, bad, **options), as_table))


def story(reader: Any, as_table: bool) -> Iterator[object]:
    """All that happens until the cursor is exhausted or in trouble; offsets must go up."""
    last = -1
    try:
        while not reader.is_exhausted:
            taken = as_records(reader.take_table(3)) if as_table else plain(reader.take(3))
            for record in taken:
                assert record.offset > last
                last = record.offset
            yield taken, reader.next_offset, reader.leader_epoch, reader.bytes_taken
    except CorruptMessage as error:
        yield error.message.split(":")[0]


# --- Arrow's layout, read by hand -------------------------------------------------------------------------------------


def as_records(buffers: Any) -> list[Record]:
    offsets = memoryview(buffers.offsets).cast("B").cast("q")
    timestamps = memoryview(buffers.timestamps).cast("B").cast("q")
    bounds = memoryview(buffers.header_offsets).cast("B").cast("i")
    keys, values = items(buffers.keys), items(buffers.values)
    header_keys = [str(key, "utf-8", "surrogateescape") for key in items(buffers.header_keys) if key is not None]
    headers = list(zip(header_keys, items(buffers.header_values), strict=True))
    return [
        Record(offsets[i], timestamps[i], keys[i], values[i], tuple(headers[bounds[i] : bounds[i + 1]]))
        for i in range(buffers.record_count)
    ]


def items(column: Any) -> list[bytes | None]:
    starts = struct.unpack(f"={column.length + 1}i", column.offsets)
    validity, data = memoryview(column.validity), memoryview(column.data)
    found = [
        bytes(data[starts[i] : starts[i + 1]]) if validity[i // 8] >> i % 8 & 1 else None for i in range(column.length)
    ]
    assert found.count(None) == column.null_count
    return found
