"""One result for all rows of a table: put together from batches that are stored, fail or are split, in any order."""

from __future__ import annotations

import random
import threading
from array import array

import pytest

from oncelog.client.delivery import Delivery, NotDeliveredYet
from oncelog.client.producer_errors import BufferExhausted, DeliveryFailed
from oncelog.client.table_result import (
    PartitionOffsets,
    RowNumbers,
    RowsFailed,
    TableFailed,
    TableFuture,
    TableMetadata,
)

TOPIC = "orders"


def delivery_to(partition: int, first_index: int = 0) -> Delivery:
    return Delivery(TOPIC, partition, threading.Event, first_index)


def rows(start: int, stop: int, *, first: int = 0, order: list[int] | None = None) -> RowNumbers:
    return RowNumbers(first, start, stop, None if order is None else array("i", order).tobytes())


def store(delivery: Delivery, base_offset: int) -> None:
    delivery.settle(base_offset, -1)
    delivery.announce()


def fail(delivery: Delivery, error: Exception) -> None:
    delivery.fail(error)
    delivery.announce()


@pytest.fixture
def future() -> TableFuture:
    return TableFuture(TOPIC, threading.Event)


class TestSuccess:
    def test_no_rows_at_all(self, future: TableFuture) -> None:
        future.all_sent()
        assert future.result(0) == TableMetadata(TOPIC, 0, ())

    def test_ranges_of_a_partition_are_joined_where_nobody_sent_in_between(self, future: TableFuture) -> None:
        batches = [delivery_to(partition) for partition in (1, 0, 1, 1)]
        for number, batch in enumerate(batches):
            future.took(batch, 3 * number, rows(10 * number, 10 * number + 10))
        future.all_sent()
        for batch, base_offset in zip(batches, (100, 7, 107, 200), strict=True):
            assert not future.done()
            store(batch, base_offset)
        assert future.result(0) == TableMetadata(
            TOPIC,
            40,
            (PartitionOffsets(0, 10, ((10, 19),)), PartitionOffsets(1, 30, ((100, 109), (113, 122), (209, 218)))),
        )

    def test_neighbours_become_one_range_in_whatever_order_they_come(self, future: TableFuture) -> None:
        batches = [delivery_to(0) for _ in range(5)]
        for batch in batches:
            future.took(batch, 0, rows(0, 10))
        future.all_sent()
        for batch, number in zip(batches, (3, 0, 4, 2, 1), strict=True):
            store(batch, 10 * number)
        assert future.result(0).partitions == (PartitionOffsets(0, 50, ((0, 49),)),)

    def test_offsets_that_no_broker_told_are_left_out(self, future: TableFuture) -> None:
        batch = delivery_to(2)
        future.took(batch, 0, rows(0, 4))
        future.all_sent()
        store(batch, -1)
        assert future.result(0) == TableMetadata(TOPIC, 4, (PartitionOffsets(2, 4, ()),))

    def test_is_not_done_before_all_rows_were_sent(self, future: TableFuture) -> None:
        batch = delivery_to(0)
        future.took(batch, 0, rows(0, 4))
        store(batch, 0)
        assert not future.done()
        assert future.running()
        future.all_sent()
        assert future.done()

    def test_a_batch_whose_fate_is_known_already(self, future: TableFuture) -> None:
        batch = delivery_to(0)
        store(batch, 50)
        future.took(batch, 2, rows(0, 4))
        future.all_sent()
        assert future.result(0).partitions[0].ranges == ((52, 55),)


class TestFailure:
    def test_tells_which_rows_and_where_the_others_are(self, future: TableFuture) -> None:
        good, bad = delivery_to(0), delivery_to(3)
        future.took(good, 0, rows(0, 3))
        future.took(bad, 0, rows(0, 5, first=100, order=[1, 2, 3, 7, 9]))
        future.all_sent()
        error = DeliveryFailed("the broker burned down", may_be_written=True)
        fail(bad, error)
        store(good, 0)
        with pytest.raises(TableFailed) as raised:
            future.result(0)
        failed = raised.value
        assert failed.failures == (RowsFailed(3, (range(101, 104), range(107, 108), range(109, 110)), error),)
        assert failed.delivered == TableMetadata(TOPIC, 3, (PartitionOffsets(0, 3, ((0, 2),)),))
        assert failed.may_be_written
        assert str(failed) == (
            "5 of 8 rows were not delivered: rows 101-103, 107, 109 for orders-3: the broker burned down"
        )
        assert future.exception(0) is failed

    def test_rows_that_were_never_sent(self, future: TableFuture) -> None:
        future.gave_up(-1, (range(5, 9),), BufferExhausted("full"))
        future.all_sent()
        error = future.exception(0)
        assert isinstance(error, TableFailed)
        assert not error.may_be_written
        assert str(error) == "4 of 4 rows were not delivered: rows 5-8 for orders: full"

    def test_many_failures_are_all_there_but_not_all_told(self, future: TableFuture) -> None:
        for number in range(20):
            future.gave_up(number, (range(number, number + 1),), BufferExhausted("full"))
        future.all_sent()
        error = future.exception(0)
        assert isinstance(error, TableFailed)
        assert len(error.failures) == 20
        assert str(error).endswith("rows 2 for orders-2: full; and 17 more")


class TestSplits:
    def test_parts_decide_for_their_rows(self, future: TableFuture) -> None:
        whole = delivery_to(0)
        future.took(whole, 10, rows(0, 10))  # records 10 to 19 of a batch of 30
        future.all_sent()
        parts = [delivery_to(0, first_index) for first_index in (0, 15)]
        whole.split_into(parts)
        store(parts[0], 1_000)
        assert not future.done()
        quarters = [delivery_to(0, first_index) for first_index in (15, 17)]
        parts[1].split_into(quarters)
        fail(quarters[1], DeliveryFailed("too large", may_be_written=False))
        store(quarters[0], 2_000)
        error = future.exception(0)
        assert isinstance(error, TableFailed)
        assert error.delivered.partitions == (PartitionOffsets(0, 7, ((1_010, 1_014), (2_000, 2_001))),)
        assert [failure.rows for failure in error.failures] == [(range(7, 10),)]

    def test_parts_without_rows_of_the_table_do_not_matter(self, future: TableFuture) -> None:
        whole = delivery_to(0)
        future.took(whole, 2, rows(0, 3))
        future.all_sent()
        parts = [delivery_to(0, first_index) for first_index in (0, 5, 8)]
        whole.split_into(parts)
        store(parts[0], 40)
        assert future.result(0).partitions == (PartitionOffsets(0, 3, ((42, 44),)),)


class TestCallbacks:
    def test_runs_once_before_the_result_is_there(self) -> None:
        told = []
        future = TableFuture(
            TOPIC, threading.Event, lambda metadata, error: told.append((metadata, error, future.done()))
        )
        batch = delivery_to(0)
        future.took(batch, 0, rows(0, 2))
        future.all_sent()
        store(batch, 5)
        assert told == [(TableMetadata(TOPIC, 2, (PartitionOffsets(0, 2, ((5, 6),)),)), None, False)]
        assert future.done()

    def test_exactly_one_argument_is_none(self) -> None:
        told = []
        future = TableFuture(TOPIC, threading.Event, lambda metadata, error: told.append((metadata, error)))
        future.gave_up(0, (range(1),), BufferExhausted("full"))
        future.all_sent()
        assert told == [(None, future.exception(0))]

    @pytest.mark.parametrize("error", [RuntimeError("user's bug"), SystemExit(3)], ids=["raises", "exits"])
    def test_one_that_raises_breaks_nothing(self, error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
        def raises(*_: object) -> None:
            raise error

        future = TableFuture(TOPIC, threading.Event, raises)
        told: list[TableFuture] = []
        future.add_done_callback(raises)
        future.add_done_callback(told.append)
        future.all_sent()
        future.add_done_callback(told.append)
        assert told == [future, future]
        assert future.result(0).row_count == 0
        assert caplog.text.count("a callback of send_table raised") == 2


class TestWaiting:
    @pytest.mark.real
    def test_a_timeout_says_that_the_rows_are_still_on_their_way(self, future: TableFuture) -> None:
        future.took(delivery_to(0), 0, rows(0, 1))
        future.all_sent()
        with pytest.raises(NotDeliveredYet, match="still on their way"):
            future.result(0.001)
        assert not future.cancel()
        assert not future.cancelled()

    @pytest.mark.parametrize("seed", range(20))
    def test_threads_that_send_and_hear_at_once(self, seed: int) -> None:
        """Whatever the interleaving, the result comes once and counts every row."""
        chance = random.Random(seed)
        told: list[object] = []
        future = TableFuture(TOPIC, threading.Event, lambda metadata, error: told.append(metadata))
        batches = [delivery_to(chance.randrange(3)) for _ in range(200)]
        order = chance.sample(batches, len(batches))

        def hear() -> None:
            for number, batch in enumerate(order):
                if number % 10 == 0:
                    parts = [delivery_to(batch.partition, first_index) for first_index in (0, 1)]
                    batch.split_into(parts)
                    for part in parts:
                        store(part, 100 * number + part.first_index)
                else:
                    store(batch, 100 * number)

        hearing = threading.Thread(target=hear)
        hearing.start()
        for batch in batches:
            future.took(batch, 0, rows(0, 2))
        future.all_sent()
        metadata = future.result(10)
        hearing.join()
        assert told == [metadata]
        assert metadata.row_count == 400
        ranges = [each for partition in metadata.partitions for each in partition.ranges]
        assert sorted(ranges) == [(100 * number, 100 * number + 1) for number in range(200)]
