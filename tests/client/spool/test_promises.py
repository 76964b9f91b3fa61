"""Futures and callbacks of records that are decided little by little."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.delivery import NotDeliveredYet
from oncelog.client.spool.promises import Outcome, Promises
from oncelog.types import TopicPartition

PLACE = TopicPartition("orders", 2)
FIRST = 100


class Impatient:
    def set(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        return False


class Scene:
    def __init__(self, count: int) -> None:
        self.promises = Promises(PLACE, FIRST, Impatient)
        self.told: list[Any] = []
        self.futures = [self.give(FIRST + index) for index in range(count)]

    def give(self, entry: int) -> Any:
        return self.promises.give(entry, entry * 10, lambda metadata, error: self.told.append(metadata or error))

    def keep(self, end: int, *outcomes: Outcome) -> None:
        self.promises.keep(self.promises.split(end), list(outcomes))

    def done(self) -> list[bool]:
        return [future.done() for future in self.futures]


def test_each_future_finds_its_batch_and_the_rest_goes_on() -> None:
    scene = Scene(5)
    scene.keep(103, Outcome(100, 102, base_offset=7), Outcome(102, 103, base_offset=50))
    assert scene.done() == [True, True, True, False, False]
    assert [future.result(0).offset for future in scene.futures[:3]] == [7, 8, 50]
    assert scene.told == [future.result(0) for future in scene.futures[:3]]
    assert scene.futures[1].result(0) == (*PLACE, 8, 1010)
    with pytest.raises(NotDeliveredYet):
        scene.futures[3].result(0)
    scene.futures.append(scene.give(105))
    scene.keep(106, Outcome(103, 106, base_offset=60))
    assert [future.result(0).offset for future in scene.futures[3:]] == [60, 61, 62]
    assert len(scene.told) == 6


def test_one_that_fails_fails_alone() -> None:
    scene, error = Scene(3), ValueError("too large")
    scene.keep(103, Outcome(100, 101, base_offset=1), Outcome(101, 102, error=error), Outcome(102, 103, base_offset=2))
    assert [future.exception(0) for future in scene.futures] == [None, error, None]
    assert scene.told[1] is error


def test_a_batch_that_began_in_an_earlier_life() -> None:
    scene = Scene(2)
    scene.keep(101, Outcome(97, 101, base_offset=10))
    assert scene.futures[0].result(0).offset == 13
    assert scene.done() == [True, False]


def test_what_is_settled_without_a_place_is_delivered_without_one() -> None:
    scene = Scene(3)
    scene.keep(103, Outcome(101, 102, base_offset=4))
    assert [future.result(0).offset for future in scene.futures] == [-1, 4, -1]


def test_nothing_new_is_nothing_to_tell() -> None:
    scene = Scene(2)
    assert scene.promises.split(100) == []
    scene.keep(101, Outcome(100, 101, base_offset=0))
    assert scene.promises.split(101) == []


def test_a_callback_that_raises_harms_nobody() -> None:
    promises = Promises(PLACE, FIRST, Impatient)
    future = promises.give(FIRST, 0, lambda metadata, error: 1 / 0)
    promises.keep(promises.split(FIRST + 1), [Outcome(FIRST, FIRST + 1, base_offset=3)])
    assert future.result(0).offset == 3


def test_at_the_end_all_hear_why() -> None:
    scene, error = Scene(2), ValueError("closed")
    scene.keep(101, Outcome(100, 101, base_offset=0))
    scene.promises.break_all(error)
    assert scene.futures[1].exception(0) is error
    assert scene.told[1:] == [error]


def test_an_old_future_keeps_nothing_of_later_records_alive() -> None:
    scene = Scene(1)
    first = scene.futures[0].delivery
    for entry in range(101, 120):
        scene.give(entry)
        scene.keep(entry, Outcome(entry - 1, entry, base_offset=entry))
    assert len(reachable(first)) == 4  # its own, what was given before it was decided, and what became of both


def reachable(delivery: Any) -> list[Any]:
    return [delivery, *(below for part in delivery.parts or () for below in reachable(part))]


@pytest.mark.parametrize("cuts", [(105,), (101, 105), (102, 103, 105), (101, 102, 103, 104, 105)])
def test_however_it_is_cut_each_is_told_once_and_in_order(cuts: tuple[int, ...]) -> None:
    scene = Scene(3)
    scene.promises.keep(scene.promises.split(100), [])
    whole = Outcome(100, 105, base_offset=40)
    scene.futures += [scene.give(103), scene.give(104)]
    for cut in cuts:
        scene.keep(cut, whole)
    assert [one.offset for one in scene.told] == [40, 41, 42, 43, 44]
    assert [future.result(0).offset for future in scene.futures] == [40, 41, 42, 43, 44]
