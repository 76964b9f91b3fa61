"""Is it slower? What pairs of samples say, each pair from one round in which both sides had their turns. Pure.

**The ratio** is the median of the present side's samples over the median of the older side's.

**The spread** says how far that ratio may be off. Each round has a ratio of its own, now / then, and in it both sides
met the same weather. Wilcoxon's signed ranks give an interval that holds the typical ratio of a round with a confidence
of 95 %, whatever the distribution (it only takes ratios that are as likely too high as too low). The spread is the
distance from the ratio to the farther end of that interval. With fewer than `FEWEST_ROUNDS` rounds there is no such
interval, and the spread is infinite.

**Slower** is what is worse by more than `ALLOWED` and by more than the spread.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

ALLOWED = 0.05
"""How much worse something may be."""
CLOSE = 0.025
"""A spread that leaves no doubt about `ALLOWED`."""
DOUBT = 0.05
"""The chance that the interval does not hold the typical ratio."""
FEWEST_ROUNDS = 6
"""With five, even the lowest and the highest of all ratios are an interval of less confidence."""

Interval = tuple[float, float]
NO_INTERVAL: Interval = (0.0, math.inf)


@dataclass(frozen=True)
class Measure:
    """One figure of a row."""

    key: str
    """Its name in what a turn returns."""
    what: str
    unit: str
    better: Literal["lower", "higher"]


@dataclass
class Pairs:
    """The samples of one measure: one of either side for each round."""

    measure: Measure
    then: list[float] = field(default_factory=list)
    now: list[float] = field(default_factory=list)

    def add(self, then: float, now: float) -> None:
        assert then > 0, f"{self.measure.what}: {then}"
        assert now > 0, f"{self.measure.what}: {now}"
        self.then.append(then)
        self.now.append(now)

    @property
    def ratio(self) -> float:
        return statistics.median(self.now) / statistics.median(self.then)

    @property
    def interval(self) -> Interval:
        return signed_rank_interval([now / then for now, then in zip(self.now, self.then, strict=True)])

    @property
    def spread(self) -> float:
        low, high = self.interval
        return max(high - self.ratio, self.ratio - low)

    @property
    def worse_by(self) -> float:
        """Negative where it is better."""
        return self.ratio - 1 if self.measure.better == "lower" else 1 - self.ratio

    @property
    def is_slower(self) -> bool:
        return self.worse_by > ALLOWED and self.worse_by > self.spread

    @property
    def is_settled(self) -> bool:
        """Whether more rounds would change nothing: the ratio is known, or at its worst still good enough."""
        if len(self.now) < FEWEST_ROUNDS:
            return False
        low, high = self.interval
        at_worst = high - 1 if self.measure.better == "lower" else 1 - low
        return self.spread <= CLOSE or at_worst <= ALLOWED

    @property
    def verdict(self) -> str:
        if self.is_slower:
            return "SLOWER"
        if -self.worse_by > ALLOWED and -self.worse_by > self.spread:
            return "faster"
        return "same" if self.is_settled else "no difference seen"


def signed_rank_interval(ratios: Sequence[float]) -> Interval:
    """Where the typical ratio is, by Wilcoxon's signed ranks: from the means of all pairs of (logarithms of) ratios,
    each with itself as well, the lowest and highest are left out, as many as `DOUBT` allows."""
    left_out = _left_out(len(ratios))
    if left_out is None:
        return NO_INTERVAL
    logs = [math.log(ratio) for ratio in ratios]
    means = sorted((one + other) / 2 for index, one in enumerate(logs) for other in logs[index:])
    return math.exp(means[left_out]), math.exp(means[-1 - left_out])


def _left_out(count: int) -> int | None:
    """How many means may be left out at either end; None if the interval of all of them is not sure enough."""
    sums = _rank_sums(count)
    chance, left_out = 0.0, -1
    while True:
        chance += sums[left_out + 1] / 2**count
        if chance > DOUBT / 2:
            return left_out if left_out >= 0 else None
        left_out += 1


def _rank_sums(count: int) -> list[int]:
    """In how many ways a choice among the ranks 1..count has the sum 0, 1, 2, ..."""
    ways = [1]
    for rank in range(1, count + 1):
        longer = ways + [0] * rank
        for total, number in enumerate(ways):
            longer[total + rank] += number
        ways = longer
    return ways
