"""Time for deadlines: it goes on whatever is done to the wall clock."""

from __future__ import annotations

from oncelog.broker.steady_time import SteadyTime


class Clocks:
    wall_ms = 1_000_000
    elapsed_ms = 500

    def pass_time(self, elapsed_ms: int) -> None:
        self.wall_ms += elapsed_ms
        self.elapsed_ms += elapsed_ms


def steady(clocks: Clocks) -> SteadyTime:
    return SteadyTime(lambda: clocks.wall_ms, lambda: clocks.elapsed_ms)


def test_it_is_the_time_of_day() -> None:
    clocks = Clocks()
    time = steady(clocks)
    clocks.pass_time(70)
    assert time.now_ms() == clocks.wall_ms


def test_a_clock_turned_back_does_not_stop_it() -> None:
    clocks = Clocks()
    time = steady(clocks)
    before = time.now_ms()
    clocks.wall_ms -= 3_600_000
    assert time.now_ms() == before
    clocks.pass_time(40)
    assert time.now_ms() == before + 40


def test_a_clock_turned_forward_is_followed() -> None:
    clocks = Clocks()
    time = steady(clocks)
    clocks.wall_ms += 3_600_000
    assert time.now_ms() == clocks.wall_ms
    clocks.pass_time(40)
    assert time.now_ms() == clocks.wall_ms
