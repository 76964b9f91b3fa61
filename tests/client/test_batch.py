"""A batch on its way: what joins it, how it is numbered and split, and that its callbacks run once and in order."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from oncelog.client.batch import ProducerBatch
from oncelog.client.delivery import Delivery, new_future
from oncelog.records import compression
from oncelog.records.batch import decode_records
from oncelog.types import NO_PRODUCER_ID, NO_SEQUENCE
from tests.support.batches import Batch, read_batches

WALL_MS = 1_700_000_000_000
LAST_SEQUENCE = 2**31 - 1


def batch_of(*values: bytes, partition: int = 0) -> ProducerBatch:
    batch = ProducerBatch("orders", partition, 5, 1_000, Delivery("orders", partition, threading.Event))
    for index, value in enumerate(values):
        assert batch.append(WALL_MS + index, None, value, ()) == index
    return batch


def header_of(batch: ProducerBatch) -> Batch:
    (header,) = read_batches(bytes(batch.sealed(compression.NONE, None)))
    return header


def settled(batch: ProducerBatch, base_offset: int = 10) -> None:
    batch.delivery.settle(base_offset, -1)
    batch.run_callbacks(pytest.fail)
    batch.delivery.announce()


class TestRecords:
    def test_join_in_order(self) -> None:
        batch = batch_of(b"a", b"b")
        batch.append(WALL_MS + 2, b"k", None, [("h", b"1")])
        records = decode_records(batch.sealed(compression.NONE, None))
        assert [(record.key, record.value, record.timestamp_ms - WALL_MS) for record in records] == [
            (None, b"a", 0), (None, b"b", 1), (b"k", None, 2),
        ]  # fmt: skip
        assert batch.record_count == 3

    def test_grow_the_batch_by_what_they_take(self) -> None:
        batch = batch_of(b"a" * 100)
        assert len(batch.sealed(compression.NONE, None)) == batch.size_bytes

    @pytest.mark.parametrize("bad", [("text", None, ()), (None, 5, ()), (None, b"", [("h", 5)])])
    def test_that_are_no_bytes_leave_the_batch_as_it_was(self, bad: Any) -> None:
        batch = batch_of(b"a")
        before = batch.size_bytes
        with pytest.raises(TypeError):
            batch.append(WALL_MS, *bad)
        assert (batch.record_count, batch.size_bytes) == (1, before)
        batch.append(WALL_MS, None, b"b", ())
        assert [record.value for record in decode_records(batch.sealed(compression.NONE, None))] == [b"a", b"b"]

    def test_are_sealed_once(self) -> None:
        batch = batch_of(b"a")
        assert batch.sealed(compression.NONE, None) is batch.sealed(compression.NONE, None)


class TestCallbacks:
    def test_run_in_the_order_of_their_records_with_gaps_left_out(self) -> None:
        batch = batch_of(b"a", b"b", b"c", b"d")
        told: list[Any] = []
        for index in (1, 3):
            batch.call_back(index, WALL_MS + index, lambda metadata, error: told.append((metadata, error)))
        settled(batch)
        assert [(metadata.offset, metadata.timestamp_ms - WALL_MS, error) for metadata, error in told] == [
            (11, 1, None), (13, 3, None),
        ]  # fmt: skip

    def test_get_the_error_and_nothing_else(self) -> None:
        batch = batch_of(b"a")
        told: list[Any] = []
        batch.call_back(0, WALL_MS, lambda *outcome: told.append(outcome))
        error = OSError("no")
        batch.delivery.fail(error)
        batch.run_callbacks(pytest.fail)
        assert told == [(None, error)]

    def test_run_once(self) -> None:
        batch = batch_of(b"a")
        told: list[Any] = []
        batch.call_back(0, WALL_MS, lambda *outcome: told.append(outcome))
        settled(batch)
        settled(batch)
        assert len(told) == 1

    @pytest.mark.parametrize("exit_by", [lambda *_: 1 / 0, lambda *_: sys.exit(1)], ids=["raises", "exits"])
    def test_that_raise_do_not_keep_the_others_from_being_told(self, exit_by: Any) -> None:
        batch = batch_of(b"a", b"b", b"c")
        told: list[int] = []
        raised: list[type[BaseException] | None] = []
        batch.call_back(0, WALL_MS, lambda metadata, _: told.append(metadata.offset))
        batch.call_back(1, WALL_MS, exit_by)
        batch.call_back(2, WALL_MS, lambda metadata, _: told.append(metadata.offset))
        batch.delivery.settle(0, -1)
        batch.run_callbacks(lambda: raised.append(sys.exc_info()[0]))
        assert told == [0, 2]
        assert raised in ([ZeroDivisionError], [SystemExit])


class TestNumbers:
    def test_are_absent_until_given(self) -> None:
        header = header_of(batch_of(b"a"))
        assert (header.producer_id, header.base_sequence) == (NO_PRODUCER_ID, NO_SEQUENCE)

    @pytest.mark.parametrize("is_sealed_first", [True, False])
    def test_are_in_the_bytes(self, is_sealed_first: bool) -> None:
        batch = batch_of(b"a")
        if is_sealed_first:
            batch.sealed(compression.NONE, None)
        batch.number(4, 2, 7)
        header = header_of(batch)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 2, 7)
        assert decode_records(batch.sealed(compression.NONE, None))[0].value == b"a"  # with a right CRC

    @pytest.mark.parametrize(("position", "sequence"), [(LAST_SEQUENCE, LAST_SEQUENCE), (2**31, 0), (2**32 + 5, 5)])
    def test_wrap_while_positions_do_not(self, position: int, sequence: int) -> None:
        batch = batch_of(b"a")
        batch.number(1, 0, position)
        assert (batch.position, batch.base_sequence) == (position, sequence)

    def test_are_kept_by_a_batch_that_may_be_written(self) -> None:
        batch = batch_of(b"a")
        batch.number(1, 0, 0)
        batch.may_be_written = True
        with pytest.raises(AssertionError):
            batch.forget_number()

    def test_order_what_was_sent_by_ordinal_and_parts_by_place(self) -> None:
        first, second, unsent = batch_of(b"a"), batch_of(b"b"), batch_of(b"c")
        first.ordinal, second.ordinal = 0, 1
        assert first.was_sent_before(second)
        assert not second.was_sent_before(first)
        assert not unsent.was_sent_before(second)
        first.sealed(compression.NONE, None)
        whole = batch_of(b"a", b"b")
        whole.ordinal = 0
        whole.sealed(compression.NONE, None)
        left, right = whole.split(compression.NONE, None)
        assert left.was_sent_before(right)
        assert not right.was_sent_before(left)
        assert right.was_sent_before(second)


class TestASplit:
    def halves(self, batch: ProducerBatch, codec: int = 0, level: int | None = None) -> list[ProducerBatch]:
        batch.sealed(codec, level)
        return batch.split(codec, level)

    def values(self, batch: ProducerBatch) -> list[bytes | None]:
        return [record.value for record in decode_records(batch.sealed(compression.NONE, None))]

    def test_halves_the_records_in_order(self) -> None:
        left, right = self.halves(batch_of(b"a", b"b", b"c", b"d", b"e"))
        assert (self.values(left), self.values(right)) == ([b"a", b"b"], [b"c", b"d", b"e"])
        assert (left.record_count, right.record_count) == (2, 3)
        assert not left.is_open

    def test_keeps_time_key_and_headers(self) -> None:
        batch = batch_of(b"a")
        batch.append(WALL_MS + 9, b"k", b"b", [("h", b"1"), ("h", None)])
        record = decode_records(self.halves(batch)[1].sealed(compression.NONE, None))[0]
        assert (record.timestamp_ms, record.key) == (WALL_MS + 9, b"k")
        assert list(record.headers) == [("h", b"1"), ("h", None)]

    def test_keeps_the_places_in_the_sequence(self) -> None:
        batch = batch_of(b"a", b"b", b"c")
        batch.number(4, 2, LAST_SEQUENCE)
        left, right = self.halves(batch)
        assert [(half.producer_id, half.producer_epoch, half.base_sequence) for half in (left, right)] == [
            (4, 2, LAST_SEQUENCE), (4, 2, 0),
        ]  # fmt: skip

    def test_shares_what_was_charged(self) -> None:
        batch = batch_of(b"a", b"b", b"c")
        batch.charged_bytes = 1_001
        assert sum(half.charged_bytes for half in self.halves(batch)) == 1_001

    def test_keeps_the_age(self) -> None:
        assert [half.created_ms for half in self.halves(batch_of(b"a", b"b"))] == [5, 5]

    def test_tells_each_callback_where_its_record_is(self) -> None:
        batch = batch_of(b"a", b"b", b"c", b"d")
        told: list[Any] = []
        for index in range(4):
            batch.call_back(index, index, lambda metadata, _: told.append((metadata.offset, metadata.timestamp_ms)))
        futures = [new_future(batch.delivery, index, WALL_MS) for index in range(4)]
        left, right = self.halves(batch)
        settled(left, 10)
        settled(right, 50)
        assert told == [(10, 0), (11, 1), (50, 2), (51, 3)]
        assert [future.result(0).offset for future in futures] == [10, 11, 50, 51]

    def test_can_be_split_again_down_to_single_records(self) -> None:
        batch = batch_of(b"a", b"b", b"c")
        future = new_future(batch.delivery, 2, WALL_MS)
        _, right = self.halves(batch)
        left, right = right.split(compression.NONE, None)
        assert (self.values(left), self.values(right)) == ([b"b"], [b"c"])
        settled(right, 7)
        assert future.result(0).offset == 7

    def test_compresses_as_the_user_said(self) -> None:
        text = b"".join(b"%d apples and %d pears; " % (one * 7919 % 1_000, one * 31 % 100) for one in range(2_000))
        sizes = [len(self.halves(batch_of(text, text), compression.GZIP, level)[0].sealed(0, None)) for level in (1, 9)]
        assert sizes[0] > sizes[1]
