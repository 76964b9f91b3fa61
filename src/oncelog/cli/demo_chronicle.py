"""What happened in the demo and when: who ran, who was killed, and how far the orders were. For the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import pairwise

from oncelog.report import Event, Lane, Series, Span, Tone

SAMPLE_S = 1.0
"""One point of a plot."""


class Who(StrEnum):
    PRODUCER = "producer"
    BROKER = "broker"
    PROCESSORS = "processors"
    CONSUMERS = "consumers"
    DRIVER = "Spark driver"
    WORKERS = "Spark workers"


class Chronicle:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = clock()
        self._running: dict[Who, float] = {}
        self._spans: dict[Who, list[Span]] = {}
        self._events: dict[Who, list[Event]] = {}
        self._samples: dict[str, list[tuple[float, int]]] = {}

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._begun

    def begins(self, who: Who) -> None:
        self._running[who] = self.elapsed_s

    def ends(self, who: Who) -> None:
        """Of who does not run, this says nothing."""
        since = self._running.pop(who, None)
        if since is not None:
            self._spans.setdefault(who, []).append(Span(since, self.elapsed_s, "runs from"))

    def note(self, who: Who, label: str, tone: Tone = Tone.PLAIN) -> None:
        self._events.setdefault(who, []).append(Event(self.elapsed_s, label, tone))

    def sample(self, counts: Mapping[str, int]) -> None:
        """How many orders are where; once in a while is enough."""
        now = self.elapsed_s
        for name, count in counts.items():
            samples = self._samples.setdefault(name, [])
            if not samples or now - samples[-1][0] >= SAMPLE_S:
                samples.append((now, count))

    def lanes(self) -> tuple[Lane, ...]:
        for who in list(self._running):
            self.ends(who)
        return tuple(
            Lane(who, tuple(self._spans.get(who, ())), tuple(self._events.get(who, ())))
            for who in Who
            if who in self._spans or who in self._events
        )

    def rates(self) -> tuple[Series, ...]:
        """Orders per second, between neighbouring samples."""
        return tuple(Series(name, _rates(samples)) for name, samples in self._samples.items())


def _rates(samples: list[tuple[float, int]]) -> tuple[tuple[float, float], ...]:
    pairs = pairwise(samples)
    return tuple((round(at, 1), round((count - before) / (at - since))) for (since, before), (at, count) in pairs)
