"""Deadlines that move."""

from __future__ import annotations

from oncelog.coordinator.classic.timers import Timers


def test_the_earliest_first_and_only_once() -> None:
    timers: Timers[str] = Timers()
    timers.set("late", 30)
    timers.set("early", 10)
    assert timers.next_ms() == 10
    assert timers.take_due(9) == []
    assert timers.take_due(30) == ["early", "late"]
    assert timers.take_due(1_000) == []
    assert timers.next_ms() is None


def test_a_deadline_moves_later_and_earlier() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.set("a", 50)
    assert timers.take_due(49) == []
    timers.set("a", 20)
    assert timers.take_due(20) == ["a"]
    assert timers.take_due(100) == []


def test_a_cancelled_one_never_comes() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.cancel("a")
    timers.cancel("unknown")
    assert timers.take_due(100) == []
    timers.set("a", 200)
    assert timers.take_due(200) == ["a"]


def test_moving_a_deadline_a_million_times_keeps_the_heap_small() -> None:
    timers: Timers[str] = Timers()
    for now_ms in range(10_000):
        timers.set("a", now_ms + 10_000)
    assert len(timers._heap) == 1
