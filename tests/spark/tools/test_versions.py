"""The rule of versions against what it says in one line: higher than the maximum of all before."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from oncelog.spark.tools.versions import Arrival, Highest, judge, latest

ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "ключ", None]), st.integers(-5, 5) | st.none()), max_size=40)
Row = tuple[str | None, int | None]


def arrivals(rows: list[Row]) -> list[Arrival]:
    return [Arrival(key, version, 0, number) for number, (key, version) in enumerate(rows)]


def expected_news(rows: list[Row]) -> list[int]:
    return [
        number
        for number, (key, version) in enumerate(rows)
        if key is not None
        and version is not None
        and all(version > earlier for other, earlier in rows[:number] if other == key and earlier is not None)
    ]


@given(ROWS, st.lists(st.integers(0, 40)))
def test_news_are_the_same_however_rows_are_cut_into_batches(rows: list[Row], cuts: list[int]) -> None:
    state: str | None = None
    news = []
    bounds = [0, *sorted(cuts), len(rows)]
    numbered = arrivals(rows)
    for start, end in itertools.pairwise(bounds):
        highest = Highest.parse(state)
        news += [row for row, is_news in judge(numbered[start:end], highest) if is_news]
        state = highest.dump()
    assert news == expected_news(rows)


@given(ROWS)
def test_the_latest_is_one_row_for_each_key_and_the_first_of_equals(rows: list[Row]) -> None:
    found = list(latest(arrivals(rows), Highest.parse(None)))
    whole = [(key, version, number) for number, (key, version) in enumerate(rows) if None not in (key, version)]
    best = {
        key: min((-version, number) for other, version, number in whole if other == key)[1]  # type: ignore[operator]
        for key, _, _ in whole
    }
    assert sorted(found) == sorted(best.values())


def test_nothing_changes_when_nothing_is_new() -> None:
    highest = Highest.parse('{"a":[3,0]}')
    assert not highest.admit("a", 3)
    assert not highest.changed
    assert highest.admit("a", 4)
    assert highest.changed


def test_old_keys_are_forgotten_and_those_with_news_are_not() -> None:
    highest = Highest.parse(None)
    highest.admit("old", 1, 1_000)
    highest.admit("fresh", 1, 1_000)
    highest.admit("fresh", 2, 5_000)
    highest.forget_before(5_000)
    assert len(highest) == 1
    assert highest.admit("old", 1, 6_000)
    assert not highest.admit("fresh", 2, 6_000)
