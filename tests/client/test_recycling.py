"""Results of records, whose memory is kept for the next ones and of which the collector hears only if it must."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import pytest

from oncelog.client.delivery import MAX_KEPT_FUTURES, Delivery, RecordFuture, new_future
from oncelog.client.records import recycle
from oncelog.client.spool.feeding import WaitingFuture


def delivery() -> Delivery:
    return Delivery("orders", 0, threading.Event)


@pytest.mark.usefixtures("without_collector")
def test_memory_is_used_again_and_clean() -> None:
    future: Any = new_future(delivery(), 7, 1_000)
    place = id(future)
    del future
    batch = delivery()
    future = RecordFuture(batch, 3, 2_000)
    assert id(future) == place
    assert (future.delivery, future.index) == (batch, 3)


def test_more_at_once_than_are_kept() -> None:
    batch = delivery()
    before = sys.getrefcount(batch)
    for _ in range(3):
        futures = [new_future(batch, index, 0) for index in range(3 * MAX_KEPT_FUTURES)]
        assert [future.index for future in futures] == list(range(3 * MAX_KEPT_FUTURES))
        del futures
    assert sys.getrefcount(batch) == before, "somebody keeps the batch"


def test_the_collector_sees_none_unless_somebody_waits_for_it() -> None:
    future = new_future(delivery(), 0, 0)
    assert not gc.is_tracked(future)
    future.add_done_callback(lambda _: None)
    assert gc.is_tracked(future)


def test_a_cycle_through_one_that_never_gets_a_result_is_collected() -> None:
    class Waiting:
        future: RecordFuture

        def told(self, _: RecordFuture) -> None: ...

    waiting = Waiting()
    waiting.future = new_future(delivery(), 0, 0)
    waiting.future.add_done_callback(waiting.told)
    gone = weakref.ref(waiting)
    del waiting
    gc.collect()
    assert gone() is None


def test_a_subclass_in_python_lives_as_others_do() -> None:
    futures = [WaitingFuture(delivery(), index, 0) for index in range(1_000)]
    assert [future.index for future in futures] == list(range(1_000))
    assert all(gc.is_tracked(future) for future in futures)


def test_only_compiled_classes_are_recycled() -> None:
    class Plain:
        __slots__ = ("field",)

    assert not recycle(Plain, 10)
    with pytest.raises(TypeError, match="no class"):
        recycle(Plain(), 10)  # type: ignore[arg-type]
