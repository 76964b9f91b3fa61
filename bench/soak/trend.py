"""Whether something rises: a line by least squares through the second half of a run, and what that means. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.soak.samples import Sample

HOUR_S = 3_600.0
LONG_ENOUGH_S = 20 * 60.0
"""A shorter run is no evidence for what an hour brings."""


@dataclass(frozen=True, slots=True)
class Trend:
    """`level` is where the line is in the middle of what it was fitted to."""

    name: str
    unit: str
    per_hour: float
    level: float
    middle_s: float
    allowed_per_hour: float

    @property
    def is_flat(self) -> bool:
        """What falls is not held against the broker."""
        return self.per_hour <= self.allowed_per_hour

    def at(self, at_s: float) -> float:
        return self.level + (at_s - self.middle_s) * self.per_hour / HOUR_S

    def __str__(self) -> str:
        slope = f"{self.per_hour:+.2f} {self.unit} per hour"
        return f"{self.name} {slope} at {self.level:.1f} (allowed: {self.allowed_per_hour:g})"


MEASURES: tuple[tuple[str, str, Callable[[Sample], float], float], ...] = (
    ("memory", "MB", lambda sample: sample.rss_mb, 2.0),
    ("descriptors", "open", lambda sample: sample.descriptors, 5.0),
    ("threads", "running", lambda sample: sample.threads, 1.0),
)
"""Name, unit, where it is, and how much it may rise in an hour."""


def second_half(samples: Sequence[Sample]) -> Sequence[Sample]:
    end_s = samples[-1].at_s
    return [sample for sample in samples if sample.at_s >= end_s / 2]


def trends(samples: Sequence[Sample]) -> list[Trend]:
    """Of a run of at least two samples in its second half; of a shorter one nothing can be said."""
    half = second_half(samples) if samples else []
    if len({sample.at_s for sample in half}) < 2:
        return []
    return [
        fit(name, unit, [(sample.at_s, value(sample)) for sample in half], allowed)
        for name, unit, value, allowed in MEASURES
    ]


def fit(name: str, unit: str, points: Sequence[tuple[float, float]], allowed_per_hour: float) -> Trend:
    middle_s = sum(x for x, _ in points) / len(points)
    level = sum(y for _, y in points) / len(points)
    slope = sum((x - middle_s) * (y - level) for x, y in points) / sum((x - middle_s) ** 2 for x, _ in points)
    return Trend(name, unit, slope * HOUR_S, level, middle_s, allowed_per_hour)
