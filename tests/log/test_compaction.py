"""What survives, decided batch by batch without a log."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from oncelog.log.compaction import (
    BatchFilter,
    CleanedTransactions,
    KeyOffsets,
    LastOfProducer,
    Survivor,
    read_marker,
)
from oncelog.log.producer_state import BatchMetadata, ProducerEntry
from oncelog.log.transaction_index import AbortedTransaction
from oncelog.records import compression, kernel
from oncelog.records.batch import ControlMarker, build_batch, build_control_batch, decode_records
from oncelog.types import TimestampType

NOW_MS = 5_000
RETENTION_MS = 100


def new_filter(keys: KeyOffsets, now_ms: int = NOW_MS, **last: LastOfProducer) -> BatchFilter:
    last_of_producers = {int(name.removeprefix("p")): each for name, each in last.items()}
    return BatchFilter(
        keys, CleanedTransactions(()), last_of_producers, now_ms=now_ms, new_horizon_ms=now_ms + RETENTION_MS
    )


def keys_of(*entries: tuple[bytes, int]) -> KeyOffsets:
    keys = KeyOffsets(100, 0)
    for key, offset in entries:
        keys.put(key, offset)
    return keys


class TestKeyOffsets:
    def test_the_newest_offset_wins(self) -> None:
        keys = keys_of((b"a", 1), (b"b", 2), (b"a", 7))
        assert (keys.newest(b"a"), keys.newest(b"b"), keys.newest(b"c")) == (7, 2, -1)
        assert keys.end_offset == 8

    def test_a_full_map_takes_known_keys_only(self) -> None:
        keys = KeyOffsets(2, 0)
        assert keys.put(b"a", 0)
        assert keys.put(b"b", 1)
        assert not keys.put(b"c", 2)
        assert keys.end_offset == 2
        assert keys.put(b"a", 3)
        assert len(keys) == 2

    def test_keys_that_begin_alike_are_told_apart(self) -> None:
        keys = KeyOffsets(200, 0)
        names = [b"k" * 1_000 + b"%d" % number for number in range(200)]
        assert all(keys.put(name, offset) for offset, name in enumerate(names))
        assert [keys.newest(name) for name in names] == list(range(200))
        assert (keys.newest(b"k" * 1_000), keys.put(b"new", 200)) == (-1, False)


class TestData:
    def test_a_batch_beyond_the_known_keys_is_untouched(self) -> None:
        batch = build_batch([(0, b"a", b"1", ())], base_offset=10)
        survivor = new_filter(keys_of((b"a", 3))).survivor(kernel.parse_header(batch), batch, ends_segment=False)
        assert survivor.batch is batch

    def test_a_batch_that_loses_nothing_is_the_same_object(self) -> None:
        batch = build_batch([(0, b"a", b"1", ())], base_offset=3)
        survivor = new_filter(keys_of((b"a", 3))).survivor(kernel.parse_header(batch), batch, ends_segment=False)
        assert survivor.batch is batch

    def test_a_record_without_a_key_goes(self) -> None:
        batch = build_batch([(0, None, b"1", ()), (0, b"a", b"1", ())])
        survivor = new_filter(keys_of((b"a", 1))).survivor(kernel.parse_header(batch), batch, ends_segment=False)
        assert survivor.batch is not None
        assert [record.key for record in decode_records(survivor.batch)] == [b"a"]

    def test_append_time_survives_a_new_horizon(self) -> None:
        batch = build_batch(
            [(1, b"a", None, ()), (2, b"b", b"1", ())],
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            max_timestamp=4_000,
        )
        survivor = new_filter(keys_of((b"a", 0), (b"b", 1))).survivor(
            kernel.parse_header(batch), batch, ends_segment=False
        )
        assert survivor.batch is not None
        header = kernel.parse_header(survivor.batch)
        assert header.is_delete_horizon_set
        assert (header.base_timestamp, header.max_timestamp) == (NOW_MS + RETENTION_MS, 4_000)
        assert [record.timestamp_ms for record in decode_records(survivor.batch)] == [4_000, 4_000]

    def test_an_emptied_batch_keeps_everything_but_its_records(self) -> None:
        batch = build_batch(
            [(9, b"a", b"1", ()), (10, b"a", b"2", ())],
            base_offset=4,
            leader_epoch=3,
            codec=4,
            producer_id=5,
            producer_epoch=2,
            base_sequence=8,
            transactional=True,
        )
        before = kernel.parse_header(batch)
        last = LastOfProducer(5, 2)
        survivor = new_filter(keys_of((b"a", 50)), p5=last).survivor(before, batch, ends_segment=False)
        assert survivor.batch is not None
        after = kernel.parse_header(survivor.batch)
        assert kernel.crc_matches(survivor.batch, 0, len(survivor.batch))
        assert after == before._replace(
            size_bytes=61, crc=after.crc, record_count=0, attributes=0x10, base_timestamp=-1
        )
        again = new_filter(keys_of((b"a", 50)), p5=last).survivor(after, survivor.batch, ends_segment=False)
        assert again.batch is survivor.batch
        gone = new_filter(keys_of((b"a", 50))).survivor(after, survivor.batch, ends_segment=False)
        assert gone.batch is None


class TestLastOfProducer:
    def test_a_producer_with_batches_is_told_by_the_last_of_them(self) -> None:
        entry = ProducerEntry(5, 2, batches=[BatchMetadata(0, 0, 7, 7, 0), BatchMetadata(1, 3, 8, 10, 0)])
        last = LastOfProducer.of(entry)
        assert last.is_in(kernel.parse_header(build_batch([(0, b"a", b"1", ())] * 3, base_offset=8, producer_id=5)))
        assert not last.is_in(kernel.parse_header(build_batch([(0, b"a", b"1", ())], base_offset=7, producer_id=5)))

    @pytest.mark.parametrize(("epoch", "is_last"), [(1, False), (2, True)])
    def test_a_producer_without_batches_is_told_by_a_marker_of_its_epoch(self, epoch: int, is_last: bool) -> None:
        last = LastOfProducer.of(ProducerEntry(5, 2))
        marker = build_control_batch(ControlMarker(True, 0), producer_id=5, producer_epoch=epoch, timestamp_ms=0)
        assert last.is_in(kernel.parse_header(marker)) is is_last


class TestTransactions:
    def data(self, offset: int, producer_id: int = 5) -> bytearray:
        return build_batch(
            [(0, b"a", b"1", ())], base_offset=offset, producer_id=producer_id, base_sequence=0, transactional=True
        )

    def test_a_transaction_is_aborted_from_its_first_offset_to_its_marker(self) -> None:
        aborted = AbortedTransaction(5, 10, 12, 13)
        transactions = CleanedTransactions([aborted])
        assert not transactions.is_aborted(kernel.parse_header(self.data(3)))
        marker = kernel.parse_header(self.data(4))
        assert transactions.end(marker, commit=True) == (True, None)
        assert not transactions.is_aborted(kernel.parse_header(self.data(10, producer_id=6)))
        assert transactions.is_aborted(kernel.parse_header(self.data(10)))
        assert transactions.is_aborted(kernel.parse_header(self.data(11)))
        assert transactions.end(kernel.parse_header(self.data(12)), commit=False) == (True, aborted)
        assert not transactions.is_aborted(kernel.parse_header(self.data(13)))

    def test_a_plain_batch_is_never_aborted(self) -> None:
        transactions = CleanedTransactions([AbortedTransaction(5, 0, 12, 13)])
        plain = build_batch([(0, b"a", b"1", ())], base_offset=3, producer_id=5, base_sequence=0)
        assert not transactions.is_aborted(kernel.parse_header(plain))

    def test_a_control_batch_of_another_kind_is_kept(self) -> None:
        leader_change = build_batch([(0, b"\x00\x00\x00\x02", b"\x00\x00", ())], control=True)
        header = kernel.parse_header(leader_change)
        assert read_marker(header, leader_change) is None
        survivor = new_filter(keys_of((b"a", 9))).survivor(header, leader_change, ends_segment=False)
        assert survivor.batch is leader_change


class TestMemory:
    """A batch of a few compressed kilobytes may hold a hundred thousand records: they are never all objects at once."""

    COUNT = 50_000

    def peak_bytes(self, work: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def test_a_batch_of_tiny_records_is_filtered_in_steps(self) -> None:
        rows = ((0, b"%d" % (number % 10), None, ()) for number in range(self.COUNT))
        batch = build_batch(rows, codec=compression.ZSTD)
        keys = keys_of(*((b"%d" % digit, self.COUNT - 10 + digit) for digit in range(10)))
        cleaning = new_filter(keys)
        kept: list[Survivor] = []

        peak = self.peak_bytes(
            lambda: kept.append(cleaning.survivor(kernel.parse_header(batch), batch, ends_segment=False))
        )

        assert kept[0].batch is not None
        assert len(decode_records(kept[0].batch)) == 10
        assert peak < 3 << 20, "the records as objects take more than 10 MiB"

    def test_a_key_takes_the_same_room_however_long(self) -> None:
        def fill() -> None:
            keys = KeyOffsets(self.COUNT, 0)
            for number in range(self.COUNT):
                assert keys.put(b"%032d" % number, number)

        assert self.peak_bytes(fill) < 40 * self.COUNT
