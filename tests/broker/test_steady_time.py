"""Time for deadlines: it goes on whatever is done to the wall clock."""

from __future__ import annotations

import pytest

from oncelog.broker.steady_time import SteadyTime


class Clocks:
    wall_ms = 1_000_000
    elapsed_ms = 500

    def pass_time(self, elapsed_ms: int) -> None:
        self.wall_ms += elapsed_ms
        self.elapsed_ms += elapsed_ms


def steady(clocks: Clocks) -> SteadyTime:
    return SteadyTime(lambda: clocks.wall_ms, lambda: clocks.elapsed_ms * 1_000_000)


def test_it_is_the_time_of_day() -> None:
    clocks = Clocks()
    time = steady(clocks)
    clocks.pass_time(70)
    assert time.now_ms() == clocks.wall_ms


@pytest.mark.parametrize("turned_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_turned_does_not_matter(turned_ms: int) -> None:
    clocks = Clocks()
    time = steady(clocks)
    before = time.now_ms()
    clocks.wall_ms += turned_ms
    assert time.now_ms() == before
    clocks.pass_time(40)
    assert time.now_ms() == before + 40
