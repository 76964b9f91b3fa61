"""The rate of `groups describe --watch`."""

from __future__ import annotations

import pytest

from oncelog.cli.group_lag import MAX_LOOKS, GroupLag, PartitionLag, RateWindow


def lag(*committed: int | None) -> GroupLag:
    partitions = [
        PartitionLag("orders", index, offset, 10_000, None, None, None, None) for index, offset in enumerate(committed)
    ]
    return GroupLag("billing", "classic", "Stable", tuple(partitions))


def test_commits_every_five_seconds_are_a_steady_rate() -> None:
    """Between two looks a second apart nothing is committed most of the time, and then 500 at once."""
    window = RateWindow(window_s=30)
    rates = [window.rate(second, lag(second // 5 * 500)) for second in range(60)]
    assert rates[0] is None
    assert all(rate is not None and 75 <= rate <= 125 for rate in rates[35:])


def test_only_the_window_counts() -> None:
    window = RateWindow(window_s=10)
    for second, committed in enumerate([0, 10_000, *[10_000] * 20]):
        rate = window.rate(second, lag(committed))
    assert rate == 0


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [((5, 5), (7, 8), 5), ((5,), (5, 100), 0), ((None, 1), (100, 2), 1), ((9, 9), (0, 10), 1)],
)
def test_what_counts_as_progress(before: tuple[int | None, ...], after: tuple[int | None, ...], moved: int) -> None:
    """Not what was committed for the first time, nor a way back."""
    window = RateWindow()
    window.rate(0.0, lag(*before))
    assert window.rate(2.0, lag(*after)) == moved / 2


def test_a_window_is_bounded_however_often_one_looks() -> None:
    window = RateWindow()
    for number in range(3 * MAX_LOOKS):
        window.rate(number / 1_000_000, lag(number))
    assert len(window._seen) == MAX_LOOKS
