"""A batch's fate and its records' futures: known once, told to everyone, through every split."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.client.arguments import FOREVER_S
from oncelog.client.delivery import Delivery, NotDeliveredYet, RecordErrors, RecordFuture, new_future
from oncelog.client.records import RecordMetadata

WALL_MS = 1_700_000_000_000
BROKER_MS = WALL_MS + 77


def delivery(first_index: int = 0) -> Delivery:
    return Delivery("orders", 3, threading.Event, first_index)


def stored(one: Delivery, base_offset: int = 100, append_time_ms: int = -1) -> Delivery:
    one.settle(base_offset, append_time_ms)
    one.announce()
    return one


def failed(one: Delivery, error: Exception) -> Delivery:
    one.fail(error)
    one.announce()
    return one


class TestAFuture:
    def test_tells_where_its_record_is(self) -> None:
        future = new_future(stored(delivery()), 7, WALL_MS)
        assert future.result(0) == RecordMetadata("orders", 3, 107, WALL_MS)
        assert future.exception(0) is None

    def test_has_the_brokers_time_where_the_topic_says_so(self) -> None:
        assert new_future(stored(delivery(), 0, BROKER_MS), 0, WALL_MS).result(0).timestamp_ms == BROKER_MS

    def test_has_no_offset_where_no_broker_tells_one(self) -> None:
        assert new_future(stored(delivery(), -1), 7, WALL_MS).result(0).offset == -1

    def test_raises_why_its_record_was_not_stored(self) -> None:
        error = OSError("no")
        future = new_future(failed(delivery(), error), 0, WALL_MS)
        assert future.exception(0) is error
        for _ in range(3):  # the same error for every record of a batch: its traceback must not grow
            with pytest.raises(OSError, match="no") as caught:
                future.result(0)
            assert len(caught.traceback) < 5

    def test_is_pending_until_the_fate_is_announced(self) -> None:
        one = delivery()
        future = RecordFuture(one, 0, WALL_MS)
        one.settle(5, -1)  # callbacks run between this and the announcement
        assert (future.done(), future.running()) == (False, True)
        one.announce()
        assert (future.done(), future.running()) == (True, False)

    @pytest.mark.real
    def test_that_waited_in_vain_says_so_and_can_be_asked_again(self) -> None:
        one = delivery()
        future = new_future(one, 0, WALL_MS)
        for ask in (future.result, future.exception):
            with pytest.raises(NotDeliveredYet, match=r"orders-3 within 0\.01 s; it is still on its way"):
                ask(0.01)
        stored(one)
        assert future.result(0).offset == 100

    def test_takes_the_times_that_every_call_takes(self) -> None:
        """-1 is without end, as in every other call; what is no time is refused."""
        waited: list[float | None] = []

        class Watch(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                waited.append(timeout)
                return stored(one).is_done

        for given in (None, -1, 3.5, -7):
            one = Delivery("orders", 3, Watch)
            assert new_future(one, 0, WALL_MS).result(given).offset == 100
        assert waited == [None, FOREVER_S, 3.5, 0]
        with pytest.raises(TypeError, match="timeout is a number of seconds"):
            new_future(delivery(), 0, WALL_MS).result("5")  # type: ignore[arg-type]

    def test_times_out_as_other_futures_do(self) -> None:
        with pytest.raises(TimeoutError):
            new_future(delivery(), 0, WALL_MS).result(0)

    def test_cannot_be_cancelled_since_its_record_was_accepted(self) -> None:
        future = new_future(delivery(), 0, WALL_MS)
        assert not future.cancel()
        assert not future.cancelled()

    def test_wakes_whoever_waits(self) -> None:
        one = delivery()
        futures = [new_future(one, index, WALL_MS) for index in range(5)]
        results: list[int] = []
        threads = [threading.Thread(target=lambda f=f: results.append(f.result(30).offset)) for f in futures]
        for thread in threads:
            thread.start()
        stored(one)
        for thread in threads:
            thread.join(30)
        assert sorted(results) == [100, 101, 102, 103, 104]

    def test_shows_its_state(self) -> None:
        one = delivery()
        future = new_future(one, 0, WALL_MS)
        assert repr(future) == "<RecordFuture orders-3 pending>"
        stored(one)
        assert repr(future) == "<RecordFuture orders-3 delivered>"
        assert "failed" in repr(new_future(failed(delivery(), OSError()), 0, WALL_MS))


class TestDoneCallbacks:
    @pytest.mark.parametrize("is_early", [True, False])
    def test_are_called_once_with_the_future(self, is_early: bool) -> None:
        one = delivery()
        future = new_future(one, 0, WALL_MS)
        calls: list[RecordFuture] = []
        if is_early:
            future.add_done_callback(calls.append)
            assert calls == []
        stored(one)
        if not is_early:
            future.add_done_callback(calls.append)
        one.announce()
        assert calls == [future]

    def test_added_while_the_fate_is_announced_are_called_once(self) -> None:
        for _ in range(200):
            one = delivery()
            future = new_future(one, 0, WALL_MS)
            calls: list[RecordFuture] = []
            threads = [
                threading.Thread(target=stored, args=(one,)),
                threading.Thread(target=future.add_done_callback, args=(calls.append,)),
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert calls == [future]

    def test_can_be_waited_for_before_and_while_they_run(self) -> None:
        for _ in range(200):
            one = delivery()
            calls: list[RecordFuture] = []
            new_future(one, 0, WALL_MS).add_done_callback(calls.append)
            counts: list[int] = []

            def wait(one: Delivery = one, calls: list[RecordFuture] = calls, counts: list[int] = counts) -> None:
                assert one.wait_until_told(30)
                counts.append(len(calls))

            threads = [threading.Thread(target=wait), threading.Thread(target=stored, args=(one,))]
            threads += [threading.Thread(target=wait) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert counts == [1] * 4

    @pytest.mark.real
    def test_are_waited_for_by_who_comes_while_one_runs(self) -> None:
        one = delivery()
        waiters: list[bool] = []
        new_future(one, 0, WALL_MS).add_done_callback(lambda _: waiters.append(one.wait_until_told(0.01)))
        stored(one)
        assert waiters == [False]
        assert one.wait_until_told(0)

    @pytest.mark.parametrize("exit_by", [lambda _: 1 / 0, lambda _: sys.exit(3)], ids=["raises", "exits"])
    def test_that_raise_are_logged_and_harm_nobody(
        self, exit_by: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        one = delivery()
        future = new_future(one, 0, WALL_MS)
        calls: list[RecordFuture] = []
        future.add_done_callback(exit_by)
        future.add_done_callback(calls.append)
        with caplog.at_level(logging.ERROR):
            stored(one)
            future.add_done_callback(exit_by)
        assert calls == [future]
        assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


class TestASplitBatch:
    def test_leads_each_future_to_its_part(self) -> None:
        one = delivery()
        futures = [new_future(one, index, WALL_MS) for index in range(6)]
        parts = [delivery(0), delivery(3)]
        one.split_into(parts)
        assert not any(future.done() for future in futures)
        stored(parts[0], 50)
        failed(parts[1], OSError("late"))
        assert [future.result(0).offset for future in futures[:3]] == [50, 51, 52]
        assert all(isinstance(future.exception(0), OSError) for future in futures[3:])

    def test_may_be_split_again(self) -> None:
        one = delivery()
        future = new_future(one, 2, WALL_MS)
        halves, quarters = [delivery(0), delivery(2)], [delivery(2), delivery(3)]
        one.split_into(halves)
        halves[1].split_into(quarters)
        stored(quarters[0], 9)
        assert future.result(0).offset == 9

    def test_keeps_waiters_waiting_for_their_part(self) -> None:
        one = delivery()
        future = new_future(one, 1, WALL_MS)
        results: list[int] = []
        waiter = threading.Thread(target=lambda: results.append(future.result(30).offset))
        waiter.start()
        parts = [delivery(0), delivery(1)]
        one.split_into(parts)
        stored(parts[0], 1)
        stored(parts[1], 2)
        waiter.join(30)
        assert results == [2]

    def test_is_waited_for_by_one_waiter_which_knows_how_much_time_is_left(self) -> None:
        """However often it is split."""
        made: list[Watch] = []

        class Watch:
            def __init__(self) -> None:
                self.log: list[str] = []
                made.append(self)

            def set(self) -> None:
                self.log.append("set")

            def clear(self) -> None:
                self.log.append("clear")

            def wait(self, timeout: float | None = None) -> bool:
                self.log.append(f"wait {timeout}")
                return happen.pop(0)()

        def split(one: Delivery, *parts: Delivery) -> bool:
            one.split_into(list(parts))
            return True

        one, half, quarter = (Delivery("orders", 3, Watch, first) for first in (0, 2, 3))
        happen: list[Callable[[], bool]] = [lambda: split(one, half), lambda: split(half, quarter), lambda: False]
        with pytest.raises(NotDeliveredYet):
            new_future(one, 3, WALL_MS).result(5)
        (watch,) = made
        assert watch.log == ["wait 5", "set", "clear", "wait 5", "set", "clear", "wait 5"]

    def test_calls_done_callbacks_when_the_part_is_decided(self) -> None:
        one = delivery()
        future = new_future(one, 1, WALL_MS)
        calls: list[int] = []
        future.add_done_callback(lambda done: calls.append(done.result(0).offset))
        parts = [delivery(0), delivery(1)]
        one.split_into(parts)
        stored(parts[0], 1)
        assert calls == []
        stored(parts[1], 2)
        assert calls == [2]


def test_records_at_fault_and_the_others_are_told_apart() -> None:
    one = delivery(10)
    wrong, others = ValueError("no key"), ValueError("beside it")
    one.fail(ValueError("the batch"), RecordErrors({1: wrong, 2: wrong}, others))
    one.announce()
    told = [new_future(one, 10 + index, 0).exception(0) for index in range(4)]
    assert told == [others, wrong, wrong, others]
    assert list(one.errors_within(10, 14)) == [(10, 11, others), (11, 13, wrong), (13, 14, others)]


def test_a_batch_that_fails_as_one_is_one_run() -> None:
    one = delivery()
    error = ValueError("the batch")
    one.fail(error)
    assert list(one.errors_within(3, 9)) == [(3, 9, error)]


@pytest.mark.parametrize("name", ["get", "add_callback", "add_errback", "succeeded", "failed"])
def test_what_kafka_python_calls_a_result_s_calls_says_what_to_use(name: str) -> None:
    future = RecordFuture.__new__(RecordFuture)
    with pytest.raises(AttributeError, match=rf"^RecordFuture has no {name}\(\): use "):
        getattr(future, name)
    assert not hasattr(future, name)
