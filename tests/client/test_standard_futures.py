"""Results of records where the standard library expects its own futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any

import pytest

from oncelog.client.delivery import Delivery, RecordFuture
from oncelog.client.records import RecordMetadata
from oncelog.errors import InvalidRecord

pytestmark = pytest.mark.real

SHORT_S = 0.01


def pending(count: int = 1) -> tuple[Delivery, list[RecordFuture]]:
    """Records of one batch."""
    delivery = Delivery("t", 0, threading.Event)
    return delivery, [RecordFuture(delivery, index, 7) for index in range(count)]


def settle(delivery: Delivery, base_offset: int = 5) -> None:
    delivery.settle(base_offset, -1)
    delivery.announce()


def fail(delivery: Delivery) -> None:
    delivery.fail(InvalidRecord("no"))
    delivery.announce()


def later(act: Any, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=act, args=arguments)
    thread.start()
    return thread


class TestWait:
    def test_for_all(self) -> None:
        stored, futures = pending(3)
        refused, others = pending(2)
        settle(stored)
        thread = later(fail, refused)
        done, not_done = concurrent.futures.wait([*futures, *others])
        thread.join()
        assert done == {*futures, *others}
        assert not_done == set()

    def test_for_all_of_which_some_are_done(self) -> None:
        """Whoever was done before is not counted twice."""
        stored, futures = pending(3)
        settle(stored)
        _, others = pending(2)
        done, not_done = concurrent.futures.wait([*futures, *others], timeout=SHORT_S)
        assert (done, not_done) == (set(futures), set(others))

    def test_for_the_first(self) -> None:
        first, futures = pending(1)
        _, others = pending(1)
        thread = later(settle, first)
        done, not_done = concurrent.futures.wait([*futures, *others], return_when=concurrent.futures.FIRST_COMPLETED)
        thread.join()
        assert (done, not_done) == (set(futures), set(others))

    def test_for_the_first_that_fails(self) -> None:
        stored, futures = pending(1)
        refused, others = pending(1)
        settle(stored)
        thread = later(fail, refused)
        done, _ = concurrent.futures.wait([*futures, *others], return_when=concurrent.futures.FIRST_EXCEPTION)
        thread.join()
        assert done == {*futures, *others}

    def test_with_futures_of_another_kind(self) -> None:
        stored, futures = pending(1)
        other: concurrent.futures.Future[int] = concurrent.futures.Future()
        thread = later(lambda: (other.set_result(1), settle(stored)))
        done, _ = concurrent.futures.wait([futures[0], other])  # type: ignore[type-var]
        thread.join()
        assert len(done) == 2

    def test_of_two_threads_for_the_same(self) -> None:
        delivery, futures = pending(2)
        found: list[Any] = []
        threads = [later(lambda: found.append(concurrent.futures.wait(futures).done)) for _ in range(4)]
        settle(delivery)
        for thread in threads:
            thread.join()
        assert found == [set(futures)] * 4


def test_as_completed() -> None:
    first, early = pending(2)
    second, late = pending(2)
    settle(first)
    found = []
    thread = None
    for future in concurrent.futures.as_completed([*late, *early]):
        found.append(future)
        if thread is None and len(found) == 2:
            assert set(found) == set(early)
            thread = later(settle, second)
    assert thread is not None
    thread.join()
    assert set(found[2:]) == set(late)


def test_as_completed_in_time() -> None:
    _, futures = pending(1)
    with pytest.raises(TimeoutError):
        list(concurrent.futures.as_completed(futures, timeout=SHORT_S))


class TestAsyncio:
    def test_awaits_it_and_wraps_it(self) -> None:
        delivery, (first, second, third) = pending(3)

        async def use() -> list[RecordMetadata]:
            wrapped = asyncio.wrap_future(first)
            together = asyncio.gather(wrapped, second, _awaited(third))
            later(settle, delivery).join()
            return list(await together)

        assert [one.offset for one in asyncio.run(use())] == [5, 6, 7]

    def test_raises_why_it_failed(self) -> None:
        delivery, (future,) = pending(1)
        fail(delivery)

        async def use() -> RecordMetadata:
            return await future

        with pytest.raises(InvalidRecord):
            asyncio.run(use())

    def test_may_stop_waiting(self) -> None:
        delivery, (future,) = pending(1)

        async def use() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(_awaited(future), SHORT_S)

        asyncio.run(use())
        settle(delivery)
        assert future.result(0).offset == 5


async def _awaited(future: RecordFuture) -> RecordMetadata:
    return await future


def test_it_is_what_it_says() -> None:
    _, (future,) = pending(1)
    assert isinstance(future, concurrent.futures.Future)
    assert isinstance(future, RecordFuture)
    assert type(future) is RecordFuture
    assert repr(future) == "<RecordFuture t-0 pending>"
