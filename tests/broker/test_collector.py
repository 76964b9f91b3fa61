from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.broker.collector import LOOKS_PER_SECOND, MAX_KEPT, MIN_BLOCKS, OVERDUE, Collector

NEW = 16_000
"""Python begins a full pass when so many new objects live, with the broker's threshold and its own ones."""
GROWN = MAX_KEPT + NEW


class FakeHeap:
    def __init__(self) -> None:
        self.old = 0
        self.frozen = 0
        self.garbage = 0
        """Of the frozen ones, in circles."""
        self.walked: list[int] = []
        self.passes = 0

    def get_threshold(self) -> tuple[int, int, int]:
        return 700, 10, 10

    def set_threshold(self, young: int, middle: int, oldest: int, /) -> None:
        assert (young, middle) == (700, 10)

    def freeze(self) -> None:
        self.frozen, self.old = self.frozen + self.old, 0

    def unfreeze(self) -> None:
        self.frozen, self.old = 0, self.frozen + self.old

    def collect(self) -> int:
        self.pass_through()
        freed, self.garbage = self.garbage, 0
        self.old -= freed
        return freed

    def pass_through(self) -> None:
        self.passes += 1
        self.walked.append(self.old)

    def get_stats(self) -> list[dict[str, int]]:
        return [{"collections": 1_000_000}, {"collections": 10_000}, {"collections": self.passes}]

    def blocks(self) -> int:
        """As if every object were one."""
        return self.frozen + self.old

    def get_objects(self, generation: int | None = None) -> list[Any]:
        assert generation == 2
        return [None] * self.old


busy = itertools.count(1)


def grow(heap: FakeHeap, collector: Collector, count: int) -> None:
    """So many more objects live, while requests are served."""
    while count > 0:
        step = min(count, NEW)
        heap.old += step
        count -= step
        heap.pass_through()
        collector.look(next(busy))


def second(collector: Collector, served: int) -> None:
    for _ in range(LOOKS_PER_SECOND):
        collector.look(served)


def test_no_pass_walks_through_more_than_a_bound_however_much_lives() -> None:
    heap = FakeHeap()
    collector = Collector(heap, heap.blocks)
    collector.begin()
    grow(heap, collector, 900_000)
    assert max(heap.walked) <= GROWN
    assert heap.frozen > 800_000


def test_nothing_is_frozen_without_a_full_pass() -> None:
    heap = FakeHeap()
    collector = Collector(heap, heap.blocks)
    collector.begin()
    heap.old = 2 * MAX_KEPT
    collector.look(served=1)
    assert heap.frozen == 0
    heap.pass_through()
    collector.look(served=1)
    assert heap.frozen == 2 * MAX_KEPT


def test_garbage_is_not_frozen() -> None:
    heap = FakeHeap()
    collector = Collector(heap, heap.blocks)
    collector.begin()
    heap.old = 2 * MAX_KEPT
    heap.pass_through()
    heap.garbage = 100
    collector.look(served=1)
    assert heap.garbage == 0
    assert heap.frozen == 2 * MAX_KEPT - 100


def test_frozen_garbage_is_found_in_a_quiet_moment_once_it_may_be_much() -> None:
    heap = FakeHeap()
    collector = Collector(heap, heap.blocks)
    collector.begin()
    grow(heap, collector, MIN_BLOCKS // 2)
    passes = len(heap.walked)
    second(collector, served=1)
    second(collector, served=1)
    assert len(heap.walked) == passes  # not yet
    grow(heap, collector, MIN_BLOCKS)
    heap.garbage = MIN_BLOCKS
    second(collector, served=-2)
    assert heap.garbage  # somebody was served just now
    second(collector, served=-2)
    assert not heap.garbage
    assert heap.blocks() == MIN_BLOCKS // 2


def test_where_no_quiet_moment_comes_it_is_found_all_the_same() -> None:
    heap = FakeHeap()
    collector = Collector(heap, heap.blocks)
    collector.begin()
    grow(heap, collector, OVERDUE * MIN_BLOCKS)
    heap.garbage = MIN_BLOCKS
    second(collector, served=-2)
    assert heap.garbage
    grow(heap, collector, 1)
    second(collector, served=-3)
    assert not heap.garbage


def test_what_lives_is_not_looked_at_again_before_there_is_twice_as_much() -> None:
    heap = FakeHeap()
    collector = Collector(heap, heap.blocks)
    grow(heap, collector, 2 * MIN_BLOCKS)
    collector.begin()
    grow(heap, collector, 2 * MIN_BLOCKS)
    passes = len(heap.walked)
    for _ in range(100):
        second(collector, served=0)
    assert len(heap.walked) == passes


@pytest.fixture
def thawed() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()  # nothing of this test stays; what was collected before all tests does
    gc.collect()
    gc.freeze()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="its collector walks through a part at a time by itself")
def test_the_collector_of_python_takes_part(thawed: None) -> None:
    collector = Collector(gc, sys.getallocatedblocks)
    walked: list[int] = []

    def passes(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            walked.append(sum(len(gc.get_objects(generation=each)) for each in range(3)))

    gc.set_threshold(700, 10, 10)
    collector.begin()
    gc.callbacks.append(passes)
    alive: list[list[list[int]]] = []
    try:
        for served in range(200):
            alive += [[[]] for _ in range(1_000)]
            collector.look(served)
    finally:
        gc.callbacks.remove(passes)
    assert len(alive) == 200_000
    assert len(walked) > 3
    assert max(walked) <= GROWN + 10_000  # what is young comes on top
