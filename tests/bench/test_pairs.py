"""When something counts as slower."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from bench.against.pairs import (
    ALLOWED,
    DOUBT,
    FEWEST_ROUNDS,
    NO_INTERVAL,
    Measure,
    Pairs,
    signed_rank_interval,
)

TIME = Measure("time", "a time", "ms", "lower")
RATE = Measure("rate", "a rate", "records/s", "higher")


def pairs_of(measure: Measure, then: list[float], now: list[float]) -> Pairs:
    pairs = Pairs(measure)
    for one, other in zip(then, now, strict=True):
        pairs.add(one, other)
    return pairs


def with_noise(measure: Measure, ratio: float, share: float, rounds: int = 10) -> Pairs:
    """Rounds whose ratios are so far apart, half of them above and half below."""
    then = [100.0 * (1 + number) for number in range(rounds)]  # the machine gets slower, for both
    now = [
        value * ratio * (1 + share * (1 if number % 2 else -1) * (1 + number // 2) / rounds)
        for number, value in enumerate(then)
    ]
    return pairs_of(measure, then, now)


def test_few_rounds_say_nothing() -> None:
    pairs = pairs_of(TIME, [1.0] * (FEWEST_ROUNDS - 1), [2.0] * (FEWEST_ROUNDS - 1))
    assert pairs.interval == NO_INTERVAL
    assert pairs.spread == math.inf
    assert not pairs.is_slower
    assert not pairs.is_settled


def test_twice_the_time_is_slower_as_soon_as_there_are_enough_rounds() -> None:
    pairs = pairs_of(TIME, [1.0] * FEWEST_ROUNDS, [2.0] * FEWEST_ROUNDS)
    assert pairs.ratio == 2.0
    assert pairs.spread == pytest.approx(0.0)
    assert pairs.verdict == "SLOWER"


@pytest.mark.parametrize(
    ("measure", "ratio", "verdict"),
    [
        (TIME, 1 + ALLOWED + 0.01, "SLOWER"),
        (TIME, 1 + ALLOWED - 0.01, "same"),
        (TIME, 1 - ALLOWED - 0.01, "faster"),
        (RATE, 1 - ALLOWED - 0.01, "SLOWER"),
        (RATE, 1 - ALLOWED + 0.01, "same"),
        (RATE, 1 + ALLOWED + 0.01, "faster"),
    ],
)
def test_worse_means_more_time_or_a_lower_rate(measure: Measure, ratio: float, verdict: str) -> None:
    assert pairs_of(measure, [100.0] * 8, [100.0 * ratio] * 8).verdict == verdict


def test_a_difference_within_the_spread_is_none() -> None:
    """Seven per cent worse, but the rounds do not agree."""
    noisy = pairs_of(TIME, [100.0] * 8, [107.0, 80.0, 106.0, 140.0, 107.0, 75.0, 108.0, 150.0])
    assert noisy.worse_by > ALLOWED
    assert noisy.spread > noisy.worse_by
    assert not noisy.is_slower
    assert noisy.verdict == "no difference seen"


def test_weather_that_both_sides_meet_is_not_in_the_spread() -> None:
    """From round to round the times grow tenfold, for both alike."""
    assert with_noise(TIME, 1.07, share=0.0).spread == pytest.approx(0.0)


def test_a_single_bad_round_decides_nothing() -> None:
    pairs = pairs_of(TIME, [100.0] * 12, [100.0] * 11 + [1_000.0])
    assert pairs.ratio == 1.0
    assert pairs.verdict == "same"


def test_settled_is_what_is_good_enough_even_at_its_worst() -> None:
    better = with_noise(TIME, 0.5, share=0.3)
    assert better.spread > 0.025
    assert better.is_settled
    assert not with_noise(RATE, 0.5, share=0.3).is_settled


def test_the_spread_grows_where_the_medians_and_the_pairs_disagree() -> None:
    """Every round says 1.1, but both medians come from rounds of other weather."""
    pairs = pairs_of(TIME, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.1, 2.2, 3.3, 4.4, 5.5, 6.6])
    assert pairs.spread == pytest.approx(0.0)
    pairs.add(0.5, 9.0)
    low, high = pairs.interval
    assert pairs.spread == pytest.approx(max(high - pairs.ratio, pairs.ratio - low))
    assert pairs.spread > 1.0


@pytest.mark.parametrize(("rounds", "left_out"), [(6, 0), (7, 2), (8, 3), (10, 8), (12, 13), (20, 52)])
def test_as_many_means_are_left_out_as_the_tables_of_the_test_say(rounds: int, left_out: int) -> None:
    ratios = [math.exp(number) for number in range(rounds)]
    means = sorted((one + other) / 2 for one in range(rounds) for other in range(one, rounds))
    low, high = signed_rank_interval(ratios)
    assert (math.log(low), math.log(high)) == pytest.approx((means[left_out], means[-1 - left_out]))


@pytest.mark.parametrize("rounds", [6, 7, 8, 10, 12])
def test_the_interval_is_as_sure_as_it_says(rounds: int) -> None:
    """By counting: of all ways in which so many ratios may lie above or below 1, the interval misses 1 in at most
    DOUBT."""
    sizes = [0.01 * 1.7**number for number in range(rounds)]  # no two sums of ranks stand for the same order of means
    missed = 0
    for signs in itertools.product((-1, 1), repeat=rounds):
        low, high = signed_rank_interval([math.exp(sign * size) for sign, size in zip(signs, sizes, strict=True)])
        missed += not low <= 1.0 <= high
    assert missed / 2**rounds <= DOUBT


def test_more_rounds_make_the_interval_narrower() -> None:
    chance = random.Random(7)
    ratios = [math.exp(chance.gauss(0.0, 0.1)) for _ in range(24)]
    widths = [high - low for low, high in (signed_rank_interval(ratios[:count]) for count in (6, 12, 24))]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.12


def test_what_has_no_ratio_is_refused() -> None:
    with pytest.raises(AssertionError):
        Pairs(TIME).add(0.0, 1.0)
