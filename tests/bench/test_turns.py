"""Who goes when, when it is enough, and what is measured twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bench.against.pairs import FEWEST_ROUNDS, Measure
from bench.against.turns import Limits, Side, SideError, Trial, Turn, compare, order

TIME = Measure("time", "a time", "ms", "lower")
OTHER = Measure("other", "another time", "ms", "lower")
UNSURE = (6.0, 14.0, 9.5, 10.5)
MANY = Limits(rounds=20, seconds=1_000.0)


class Stage:
    """A trial whose turns return what a function of (side, how many turns it had) says, and take a second each."""

    def __init__(self, value: Callable[[Side, int], float], **options: bool | int) -> None:
        self.set_up = self.taken_down = 0
        self.taken: list[Side] = []
        self.now_s = 0.0
        self._value = value
        self.trial = Trial([TIME], self._stage, **options)  # type: ignore[arg-type]

    @contextmanager
    def _stage(self) -> Iterator[Turn]:
        self.set_up += 1
        try:
            yield self._turn
        finally:
            self.taken_down += 1

    def _turn(self, side: Side) -> dict[str, float]:
        self.now_s += 1.0
        number = self.taken.count(side)
        self.taken.append(side)
        return {"time": self._value(side, number)}

    def compare(self, limits: Limits = MANY) -> list[str]:
        result = compare(self.trial, limits, lambda: self.now_s, lambda line: None)
        return [result.verdict(pairs) for pairs in result.first]


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_both_sides_are_as_often_first_as_second(turns: int) -> None:
    rounds = [order(number, turns) for number in range(10)]
    assert all(Counter(sides) == {"then": turns, "now": turns} for sides in rounds)
    for place in range(2 * turns):
        assert Counter(sides[place] for sides in rounds) == {"then": 5, "now": 5}


def test_the_order_is_a_b_b_a() -> None:
    assert order(0, 2) == ["then", "now", "now", "then"]
    assert order(1, 2) == ["now", "then", "then", "now"]


def test_what_is_the_same_is_known_after_the_fewest_rounds() -> None:
    stage = Stage(lambda side, number: 10.0)
    assert stage.compare() == ["same"]
    assert len(stage.taken) == 2 * FEWEST_ROUNDS


def test_rounds_go_on_while_the_ratio_is_unsure() -> None:
    stage = Stage(lambda side, number: 10.0 if side == "then" else UNSURE[number % 4])
    assert stage.compare() == ["no difference seen"]
    assert len(stage.taken) == 2 * MANY.rounds


def test_time_is_a_bound_too() -> None:
    stage = Stage(lambda side, number: 10.0 if side == "then" else UNSURE[number % 4])
    stage.compare(Limits(rounds=100, seconds=15.0))
    assert len(stage.taken) == 16


def test_slower_is_measured_once_more_from_the_beginning() -> None:
    stage = Stage(lambda side, number: 10.0 if side == "then" else 11.0)
    assert stage.compare() == ["SLOWER"]
    assert len(stage.taken) == 2 * 2 * FEWEST_ROUNDS


def test_slower_only_once_is_not_slower() -> None:
    stage = Stage(lambda side, number: 11.0 if side == "now" and number < FEWEST_ROUNDS else 10.0)
    result = compare(stage.trial, MANY, lambda: stage.now_s, lambda line: None)
    assert result.first[0].is_slower
    assert not result.slower()
    assert result.verdict(result.first[0]) == "not confirmed"


def test_only_what_came_out_slower_is_looked_at_again() -> None:
    stage = Stage(lambda side, number: 10.0)

    @contextmanager
    def both() -> Iterator[Turn]:
        yield lambda side: {"time": 10.0, "other": 10.0 if side == "then" else 12.0}

    result = compare(Trial([TIME, OTHER], both), MANY, lambda: stage.now_s, lambda line: None)
    assert [pairs.measure for pairs in result.again] == [OTHER]
    assert [pairs.measure for pairs in result.slower()] == [OTHER]


def test_a_side_has_the_median_of_its_turns() -> None:
    stage = Stage(lambda side, number: (1.0, 5.0, 100.0)[number % 3], turns=3)
    result = compare(stage.trial, MANY, lambda: stage.now_s, lambda line: None)
    assert set(result.first[0].now) == set(result.first[0].then) == {5.0}


@pytest.mark.parametrize(("anew", "times"), [(True, FEWEST_ROUNDS), (False, 1)])
def test_the_stage_is_set_up_for_every_round_or_once(anew: bool, times: int) -> None:
    stage = Stage(lambda side, number: 10.0, is_set_up_anew=anew)
    stage.compare()
    assert stage.set_up == stage.taken_down == times


def test_who_cannot_is_named_and_the_stage_taken_down() -> None:
    def value(side: Side, number: int) -> float:
        if side == "then":
            raise RuntimeError("no such option")
        return 10.0

    stage = Stage(value)
    with pytest.raises(SideError) as caught:
        stage.compare()
    assert caught.value.side == "then"
    assert str(caught.value.reason) == "no such option"
    assert stage.taken_down == 1
