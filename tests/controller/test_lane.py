"""The lane of metadata writes: one at a time, in turn, in steps, within bounds, to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncelog.controller.lane import MAX_WAITING_WRITES, Lane, Steps
from oncelog.errors import InvalidConfig, KafkaError, RequestTimedOut, UnknownServerError
from tests.broker.support import Threads


class Slices:
    """Steps that are taken when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Steps, Callable[[], None]]] = []

    def in_slices(self, steps: Steps, done: Callable[[], None]) -> None:
        self.waiting.append((steps, done))

    def step(self) -> None:
        steps, done = self.waiting[0]
        try:
            next(steps)
        except StopIteration:
            self.waiting.pop(0)
            done()


class Scene:
    def __init__(self) -> None:
        self.lane, self.threads, self.slices = Lane(), Threads(), Slices()
        self.lane.serve_by(self.threads.run_in_thread, self.slices.in_slices)
        self.events: list[str] = []
        self.ended: dict[str, KafkaError | None] = {}

    def enter(self, name: str, fail: Exception | None = None, fail_effect: Exception | None = None) -> None:
        def work() -> str:
            self.events.append(f"{name} works")
            if fail is not None:
                raise fail
            return name

        def effect(result: str) -> Iterator[None]:
            for part in (1, 2):
                self.events.append(f"{result} {part}")
                yield
            if fail_effect is not None:
                raise fail_effect

        def done(_: Any, error: KafkaError | None) -> None:
            assert name not in self.ended, "ended twice"
            self.events.append(f"{name} done")
            self.ended[name] = error

        self.lane.enter(work, effect, done)

    def finish(self) -> None:
        while self.threads.waiting or self.slices.waiting:
            if self.threads.waiting:
                self.threads.run_next()
            else:
                self.slices.step()


def test_without_a_server_all_of_it_happens_at_once() -> None:
    scene = Scene()
    scene.lane = Lane()
    scene.enter("a")
    assert scene.events == ["a works", "a 1", "a 2", "a done"]
    assert scene.lane.is_idle


def test_the_next_work_begins_when_the_effect_of_the_one_before_is_there() -> None:
    scene = Scene()
    scene.enter("a")
    scene.enter("b")
    assert len(scene.threads.waiting) == 1
    scene.threads.run_next()
    assert not scene.threads.waiting, "the other waits while the first takes effect"
    scene.slices.step()
    scene.slices.step()
    assert scene.events == ["a works", "a 1", "a 2"]
    scene.finish()
    assert scene.events == ["a works", "a 1", "a 2", "a done", "b works", "b 1", "b 2", "b done"]
    assert scene.ended == {"a": None, "b": None}


@pytest.mark.parametrize(("error", "told"), [(InvalidConfig("no"), InvalidConfig), (OSError(5), UnknownServerError)])
def test_work_that_fails_has_no_effect_and_holds_up_nobody(error: Exception, told: type[KafkaError]) -> None:
    scene = Scene()
    scene.enter("a", fail=error)
    scene.enter("b")
    scene.finish()
    assert scene.events == ["a works", "a done", "b works", "b 1", "b 2", "b done"]
    assert isinstance(scene.ended["a"], told)
    assert scene.ended["b"] is None


def test_an_effect_that_fails_is_told_and_holds_up_nobody() -> None:
    scene = Scene()
    scene.enter("a", fail_effect=KeyError("a bug"))
    scene.enter("b")
    scene.finish()
    assert isinstance(scene.ended["a"], UnknownServerError)
    assert scene.ended["b"] is None


def test_who_comes_when_too_many_wait_is_asked_to_try_again() -> None:
    scene = Scene()
    for number in range(1 + MAX_WAITING_WRITES):  # one of them is under way
        scene.enter(str(number))
    scene.enter("one too many")
    assert isinstance(scene.ended["one too many"], RequestTimedOut)
    assert len(scene.ended) == 1
    scene.finish()
    assert list(scene.ended.values()).count(None) == 1 + MAX_WAITING_WRITES
    scene.enter("again")
    scene.finish()
    assert scene.ended["again"] is None


def test_what_the_broker_insists_on_comes_next() -> None:
    scene = Scene()
    scene.enter("a")
    scene.enter("b")
    scene.lane.insist(lambda: scene.events.append("snapshot"), lambda *_: None)
    scene.finish()
    assert scene.events.index("a done") < scene.events.index("snapshot") < scene.events.index("b works")


def test_a_stop_waits_for_what_is_under_way_and_refuses_the_rest() -> None:
    scene = Scene()
    for name in "abc":
        scene.enter(name)
    scene.threads.run_next()
    scene.slices.step()
    scene.lane.stop(lambda: scene.events.append("idle"))
    assert {name: type(error) for name, error in scene.ended.items()} == {"b": RequestTimedOut, "c": RequestTimedOut}
    assert "idle" not in scene.events, "a is under way"
    scene.enter("late")
    assert isinstance(scene.ended["late"], RequestTimedOut)
    scene.finish()
    assert scene.events[-2:] == ["a done", "idle"]
    assert scene.ended["a"] is None
    assert scene.lane.is_idle


def test_a_lane_at_rest_stops_at_once() -> None:
    scene = Scene()
    scene.lane.stop(lambda: scene.events.append("idle"))
    assert scene.events == ["idle"]
