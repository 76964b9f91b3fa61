"""The time of day that a record gets when it has none of its own."""

from __future__ import annotations

import time

from oncelog.client.records import read_ms
from tests.support.patience import PATIENCE_S

LOOK_FOR_S = 0.3
NS_PER_MS = 1_000_000


def test_it_is_the_wall_clock_to_the_millisecond() -> None:
    """At any moment, however often it is asked: the time is remembered within a millisecond, never beyond."""
    seen = set()
    began = time.monotonic()
    while (looked_s := time.monotonic() - began) < LOOK_FOR_S or len(seen) < 2:
        assert looked_s < PATIENCE_S, "it stands still"
        before_ms = time.time_ns() // NS_PER_MS
        moment_ms = read_ms(time.time)
        assert before_ms <= moment_ms <= time.time_ns() // NS_PER_MS
        seen.add(moment_ms)


def test_another_clock_is_asked_each_time() -> None:
    moments = iter([1.0, 1.5])
    assert read_ms(lambda: next(moments)) == 1_000
    assert read_ms(lambda: next(moments)) == 1_500
