"""The arithmetic of a sliding window, with a clock that the test turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncelog.broker.quota.window import Window, WindowedRate

KAFKAS = Window(samples=11, sample_ms=1000)
T0 = 1_000_000


def rate_after(*events: tuple[int, float], window: Window = KAFKAS) -> WindowedRate:
    rate = WindowedRate(window, T0)
    for after_ms, amount in events:
        rate.record(amount, T0 + after_ms)
    return rate


def test_a_burst_after_silence_is_spread_over_the_full_samples() -> None:
    rate = rate_after((0, 10_000))
    assert rate.per_second(T0) == 1000
    assert rate.throttle_ms(1000, T0) == 0
    assert rate.throttle_ms(999, T0) == 10  # 10,000 / 999 = 10.01 s


def test_the_time_of_the_sample_that_fills_counts_as_well() -> None:
    assert rate_after((0, 10_500), (500, 0)).per_second(T0 + 500) == 1000


def test_the_pause_spreads_what_was_used_over_time_enough() -> None:
    rate = rate_after((0, 15_000))
    assert rate.throttle_ms(1000, T0) == 5000  # ten seconds and five
    assert rate.throttle_ms(1000, T0 + 10_500) == 4500
    assert rate.throttle_ms(1000, T0 + 11_000) == 0


def test_what_would_come_on_top_is_not_remembered() -> None:
    rate = rate_after((0, 10_000))
    assert rate.throttle_ms(1000, T0, more=2000) == 2000
    assert rate.throttle_ms(1000, T0) == 0


def test_a_steady_rate_is_measured_as_it_is() -> None:
    rate = rate_after(*((100 * n, 100) for n in range(300)))
    assert 990 <= rate.per_second(T0 + 29_900) <= 1010


def test_samples_end_by_their_first_event_and_count_by_their_last() -> None:
    rate = rate_after((0, 500), (999, 500))
    assert rate.per_second(T0 + 11_998) > 0
    assert rate.per_second(T0 + 11_999) == 0
    assert rate.is_empty(T0 + 11_999)
    rate = rate_after((0, 500), (1000, 500))
    assert rate.per_second(T0 + 11_000) == 500 / 10  # the first is gone, and with it its time


def test_no_pause_is_longer_than_the_window() -> None:
    rate = rate_after((0, 1e12))
    assert rate.throttle_ms(1, T0) == 11_000
    assert rate.throttle_ms(1, T0 + 11_000) == 0


def test_one_sample_alone() -> None:
    """`quota.window.num=1`: nothing but what is measured, and a millisecond at least."""
    rate = rate_after((0, 5), window=Window(1, 1000))
    assert rate.per_second(T0) == 5000
    assert rate.throttle_ms(10, T0 + 100) == 400
    assert rate.throttle_ms(5, T0 + 100) == 900


def test_nothing_recorded() -> None:
    rate = rate_after()
    assert rate.is_empty(T0)
    assert (rate.per_second(T0), rate.throttle_ms(1, T0)) == (0, 0)


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 10_000)), max_size=60),
    st.integers(1, 5),
    st.integers(1, 2000),
)
def test_memory_and_pauses_are_bounded(steps: list[tuple[int, int]], samples: int, limit: int) -> None:
    window = Window(samples, 1000)
    rate = WindowedRate(window, T0)
    now_ms = T0
    for wait_ms, amount in steps:
        now_ms += wait_ms
        rate.record(amount, now_ms)
        assert len(rate._samples) <= samples + 1
        is_above = rate.per_second(now_ms) > limit
        pause_ms = rate.throttle_ms(limit, now_ms)
        assert 0 <= pause_ms <= window.span_ms
        assert is_above or pause_ms == 0
    assert rate.throttle_ms(limit, now_ms + window.span_ms) == 0
