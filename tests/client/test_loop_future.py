"""A record's result as asyncio's own futures are: everything that takes one of those takes it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from oncelog.client.delivery import Delivery
from oncelog.client.loop_future import LoopFuture, LoopFutures
from oncelog.client.records import RecordMetadata

SENT_MS = 1_700_000_000_000

Run = Callable[[Coroutine[Any, Any, None]], None]


class Waits:
    """Counts who is told of."""

    def __init__(self) -> None:
        self.count = 0

    def tell(self) -> None:
        self.count += 1


WAITS = Waits()


def delivery(first_index: int = 0) -> Delivery:
    return Delivery("orders", 2, lambda: pytest.fail("nothing blocks in a loop"), first_index)


def future_of(batch: Delivery, index: int = 0) -> LoopFuture:
    return LoopFutures(asyncio.get_running_loop(), WAITS.tell).new(batch, index, SENT_MS)


def store(batch: Delivery, base_offset: int = 10) -> None:
    batch.settle(base_offset, -1)
    batch.announce()


def fail(batch: Delivery, error: Exception) -> None:
    batch.fail(error)
    batch.announce()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run(body: Coroutine[Any, Any, None]) -> None:
        complaints: list[Any] = []
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: complaints.append(context))
            runner.run(asyncio.wait_for(body, 30))
            gc.collect()
        assert complaints == []

    return run


class TestAwaiting:
    def test_a_settled_record_does_not_wait(self, run: Run) -> None:
        async def body() -> None:
            batch = delivery()
            futures = [future_of(batch, index) for index in range(3)]
            store(batch)
            assert [await future for future in futures] == [
                RecordMetadata("orders", 2, 10 + index, SENT_MS) for index in range(3)
            ]
            assert type(await futures[0]) is RecordMetadata
            assert (await futures[0]).offset == 10

        run(body())

    def test_a_task_goes_on_when_the_batch_is_settled(self, run: Run) -> None:
        async def body() -> None:
            batch = delivery()
            future = future_of(batch, 4)
            loop = asyncio.get_running_loop()
            assert asyncio.isfuture(future)
            assert future.get_loop() is loop
            assert not future.done()
            loop.call_soon(store, batch)
            assert (await future).offset == 14

        run(body())

    def test_an_error_is_raised_for_each_record(self, run: Run) -> None:
        async def body() -> None:
            batch = delivery()
            futures = [future_of(batch, index) for index in range(3)]
            asyncio.get_running_loop().call_soon(fail, batch, ValueError("no"))
            for future in futures:
                with pytest.raises(ValueError, match="no"):
                    await future
                assert isinstance(future.exception(), ValueError)

        run(body())

    def test_a_record_of_a_split_batch_waits_for_its_part(self, run: Run) -> None:
        async def body() -> None:
            batch, parts = delivery(), [delivery(0), delivery(2)]
            before, after = future_of(batch, 1), future_of(batch, 3)
            waiting = asyncio.gather(before, after)
            await asyncio.sleep(0)
            batch.split_into(parts)
            store(parts[0], 100)
            await asyncio.sleep(0)
            assert before.done()
            assert not after.done()
            store(parts[1], 200)
            assert [one.offset for one in await waiting] == [101, 201]

        run(body())

    def test_another_loop_may_not_await_it(self) -> None:
        other = asyncio.new_event_loop()

        async def body() -> None:
            future = LoopFutures(other, WAITS.tell).new(delivery(), 0, SENT_MS)
            with pytest.raises(RuntimeError, match="attached to a different loop"):
                await future

        asyncio.run(body())
        other.close()

    def test_nobody_need_look_at_a_failure(self, run: Run) -> None:
        async def body() -> None:
            batch = delivery()
            future_of(batch)
            fail(batch, ValueError("no"))

        run(body())


class TestAsyncio:
    @pytest.mark.real
    def test_gathers_waits_and_shields(self, run: Run) -> None:
        async def body() -> None:
            batch, bad = delivery(), delivery()
            good = [future_of(batch, index) for index in range(100)]
            failing = future_of(bad)
            asyncio.get_running_loop().call_later(0.01, store, batch)
            asyncio.get_running_loop().call_later(0.01, fail, bad, ValueError("no"))
            results = await asyncio.gather(*good, failing, return_exceptions=True)
            assert [one.offset for one in results[:-1]] == list(range(10, 110))
            assert isinstance(results[-1], ValueError)
            done, pending = await asyncio.wait(good)
            assert (len(done), len(pending)) == (100, 0)
            assert (await asyncio.shield(good[0])).offset == 10
            assert (await asyncio.wait_for(good[1], 1)).offset == 11
            assert sorted([(await one).offset for one in asyncio.as_completed(good[:3])]) == [10, 11, 12]
            assert asyncio.ensure_future(good[0]) is good[0]

        run(body())

    @pytest.mark.real
    def test_times_out(self, run: Run) -> None:
        async def body() -> None:
            batch = delivery()
            future = future_of(batch)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(future, 0.001)
            assert future.cancelled()
            done, pending = await asyncio.wait([future_of(batch, 1)], timeout=0.001)
            assert (len(done), len(pending)) == (0, 1)
            store(batch)
            assert future.cancelled()

        run(body())

    def test_a_cancelled_task_cancels_only_its_wait(self, run: Run) -> None:
        async def body() -> None:
            batch = delivery()
            first, second = future_of(batch, 0), future_of(batch, 1)

            async def wait_for(future: LoopFuture) -> RecordMetadata:
                return await future

            task = asyncio.create_task(wait_for(first))
            await asyncio.sleep(0)
            task.cancel("enough")
            with pytest.raises(asyncio.CancelledError):
                await task
            assert first.cancelled()
            store(batch)
            assert first.cancelled()
            assert (await second).offset == 11

        run(body())

    def test_a_cancelled_one_is_gathered_as_cancelled(self, run: Run) -> None:
        async def body() -> None:
            batch = delivery()
            first, second = future_of(batch, 0), future_of(batch, 1)
            gathered = asyncio.gather(first, second, return_exceptions=True)
            assert first.cancel("enough")
            assert not first.cancel()
            store(batch)
            cancelled, stored = await gathered
            assert isinstance(cancelled, asyncio.CancelledError)
            assert cancelled.args == ("enough",)
            assert stored.offset == 11
            with pytest.raises(asyncio.CancelledError):
                first.result()
            with pytest.raises(asyncio.CancelledError):
                first.exception()

        run(body())


class TestByHand:
    def test_callbacks_run_once_in_their_context(self, run: Run) -> None:
        mark: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="none")

        async def body() -> None:
            batch = delivery()
            future = future_of(batch)
            heard: list[Any] = []
            unwanted: list[Any] = []
            mark.set("added")
            future.add_done_callback(lambda done: heard.append((done is future, mark.get())))
            future.add_done_callback(unwanted.append)
            future.add_done_callback(unwanted.append)
            mark.set("later")
            assert future.remove_done_callback(unwanted.append) == 2
            assert future.remove_done_callback(unwanted.append) == 0
            store(batch)
            assert heard == []  # the loop calls them
            batch.announce()
            await asyncio.sleep(0)
            future.add_done_callback(lambda done: heard.append((done is future, mark.get())))
            await asyncio.sleep(0)
            assert heard == [(True, "added"), (True, "later")]
            assert unwanted == []

        run(body())

    def test_a_callback_that_raises_keeps_nobody_from_being_told(self, run: Run) -> None:
        def fail(_: Any) -> None:
            raise ValueError("by design")

        def give_up(_: Any) -> None:
            raise asyncio.CancelledError

        async def body() -> None:
            batch = delivery()
            heard: list[Any] = []
            complaints: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
            maker = LoopFutures(asyncio.get_running_loop(), WAITS.tell)
            futures = [maker.new(batch, index, SENT_MS) for index in range(4)]
            for future, function in zip(futures, (heard.append, fail, give_up, heard.append), strict=True):
                future.add_done_callback(function)
            store(batch)
            assert heard == []  # the loop calls them
            await asyncio.sleep(0)
            assert heard == [futures[0], futures[3]]
            assert [type(complaint["exception"]) for complaint in complaints] == [ValueError, asyncio.CancelledError]
            assert "fail" in complaints[0]["message"]

        run(body())

    def test_an_exit_in_a_callback_ends_the_loop_and_loses_no_other_call(self) -> None:
        def leave(_: Any) -> None:
            raise SystemExit(3)

        heard: list[Any] = []

        async def body() -> None:
            batch = delivery()
            maker = LoopFutures(asyncio.get_running_loop(), WAITS.tell)
            for function in (leave, heard.append):
                maker.new(batch, 0, SENT_MS).add_done_callback(function)
            store(batch)
            await asyncio.sleep(0)

        loop = asyncio.new_event_loop()
        with contextlib.closing(loop):
            with pytest.raises(SystemExit):
                loop.run_until_complete(body())
            assert heard == []
            loop.run_until_complete(asyncio.sleep(0))
        assert len(heard) == 1

    def test_what_is_not_known_yet_is_not_told(self, run: Run) -> None:
        async def body() -> None:
            batch = delivery()
            future = future_of(batch)
            for ask in (future.result, future.exception):
                with pytest.raises(asyncio.InvalidStateError):
                    ask()
            for decide in (future.set_result, future.set_exception):
                with pytest.raises(RuntimeError, match="the broker decides"):
                    decide(None)
            assert "pending" in repr(future)
            store(batch)
            assert repr(future) == "<LoopFuture orders-2 delivered>"
            assert not future.cancel()
            assert weakref.ref(future)() is future

        run(body())

    def test_its_maker_is_told_before_somebody_waits_and_only_then(self, run: Run) -> None:
        async def body() -> None:
            batch, waits = delivery(), Waits()
            maker = LoopFutures(asyncio.get_running_loop(), waits.tell)
            first, second = maker.new(batch, 0, SENT_MS), maker.new(batch, 1, SENT_MS)
            asyncio.get_running_loop().call_soon(store, batch)
            assert waits.count == 0
            await first
            await second  # is there already
            assert waits.count == 1

        run(body())

    def test_the_constructor_makes_the_same(self, run: Run) -> None:
        async def body() -> None:
            batch = delivery()
            future = LoopFuture(LoopFutures(asyncio.get_running_loop(), WAITS.tell), batch, 3, SENT_MS)
            store(batch)
            assert await future == RecordMetadata("orders", 2, 13, SENT_MS)

        run(body())
