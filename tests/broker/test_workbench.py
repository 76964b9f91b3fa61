from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.broker.workbench import Workbench


class Loop:
    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for call in due:
            call()


def test_what_comes_of_a_step_is_next() -> None:
    loop, done = Loop(), []
    bench = Workbench(loop.call_soon)

    def first() -> bool:
        bench.add(lambda: bool(done.append("its work")), goes_on=True)
        done.append("first")
        return False

    bench.add(first)
    bench.add(lambda: bool(done.append("other")))
    while loop.soon:
        loop.turn()
    assert done == ["first", "its work", "other"]
    bench.add(lambda: bool(done.append("alone")), goes_on=True)
    loop.turn()
    assert done[-1] == "alone"


def test_one_step_in_each_turn_of_the_loop_and_one_work_after_the_other() -> None:
    loop, done = Loop(), []
    bench = Workbench(loop.call_soon)

    def work(name: str, steps: int) -> Callable[[], bool]:
        left = iter(range(steps - 1, -1, -1))

        def step() -> bool:
            done.append(name)
            return next(left) > 0

        return step

    bench.add(work("a", 3))
    bench.add(work("b", 1))
    assert (done, len(loop.soon)) == ([], 1)
    for expected in (["a"], ["a", "a"], ["a", "a", "a"], ["a", "a", "a", "b"]):
        loop.turn()
        assert done == expected
    assert (len(bench), loop.soon) == (0, [])
    bench.add(work("c", 1))
    loop.turn()
    assert done[-1] == "c"


def test_a_step_that_fails_is_over_and_the_next_one_has_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    loop, done = Loop(), []
    bench = Workbench(loop.call_soon)

    def failing() -> bool:
        raise ZeroDivisionError

    def working() -> bool:
        done.append("work")
        return False

    bench.add(failing)
    bench.add(working)
    loop.turn()
    loop.turn()
    assert (done, len(bench), loop.soon) == (["work"], 0, [])
    assert "bug: a step at the workbench failed" in caplog.text
