"""What a row of the table says: samples of a peer and of oncelog, their medians, the ratio, and whether it will do."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

OURS = "oncelog"
KINDS = ("kafka", OURS)
NAMES = {"kafka": "Apache Kafka", OURS: "oncelog"}
"""How the brokers are called in the table."""

Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Bounds:
    """What the ratio oncelog / peer must reach, and what would be splendid. `at_most` suits times and memory."""

    direction: Literal["at_most", "at_least"]
    must: float
    goal: float | None = None

    def met(self, ratio: float, bound: float) -> bool:
        return ratio <= bound if self.direction == "at_most" else ratio >= bound

    def text(self, bound: float | None) -> str:
        sign = "≤" if self.direction == "at_most" else "≥"
        return "" if bound is None else f"{sign} {bound:g}x"


def at_most(must: float, goal: float | None = None) -> Bounds:
    return Bounds("at_most", must, goal)


def at_least(must: float, goal: float | None = None) -> Bounds:
    return Bounds("at_least", must, goal)


@dataclass(frozen=True)
class Figure:
    what: str
    unit: str
    samples: Samples
    bounds: Bounds | None = None
    note: str = ""
    peer: str = "kafka"
    """Whom or what oncelog is compared with: the other key of `samples`."""

    def median(self, side: str) -> float | None:
        return statistics.median(self.samples[side]) if self.samples.get(side) else None

    @property
    def ratio(self) -> float | None:
        ours, theirs = self.median(OURS), self.median(self.peer)
        return ours / theirs if ours is not None and theirs is not None and theirs > 0 else None

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return "not measured" if self.bounds else ""
        if self.bounds is None:
            return ""
        if not self.bounds.met(self.ratio, self.bounds.must):
            return "MISSED"
        reached_goal = self.bounds.goal is not None and self.bounds.met(self.ratio, self.bounds.goal)
        return "goal" if reached_goal else "met"


@dataclass
class Recorder:
    """Collects samples while the brokers take turns."""

    samples: dict[str, Samples] = field(default_factory=dict)

    def add(self, what: str, kind: str, value: float) -> None:
        self.samples.setdefault(what, {name: [] for name in KINDS})[kind].append(value)

    def figure(self, what: str, unit: str, bounds: Bounds | None = None, note: str = "") -> Figure:
        return Figure(what, unit, self.samples.get(what, {}), bounds, note)


def turns(rounds: int) -> Iterator[str]:
    """Which broker goes next: both in every round, and each as often first as second."""
    for index in range(rounds):
        yield from KINDS if index % 2 == 0 else reversed(KINDS)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


Progress = Callable[[str], None]
