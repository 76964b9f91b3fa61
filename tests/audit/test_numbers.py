from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from oncelog.audit.numbers import NumberSet

numbers = st.lists(st.integers(0, 60), max_size=80)


def filled(values: list[int]) -> NumberSet:
    held = NumberSet()
    for value in values:
        held.add(value)
    return held


def expand(ranges: Iterable[tuple[int, int]]) -> list[int]:
    return [number for first, last in ranges for number in range(first, last + 1)]


@given(numbers)
def test_behaves_as_a_set(values: list[int]) -> None:
    held, model = NumberSet(), set()
    for value in values:
        assert held.add(value) is (value not in model)
        model.add(value)
    assert expand(held.ranges()) == sorted(model)
    assert len(held) == len(model)
    assert held.first == min(model, default=None)
    assert held.last == max(model, default=None)
    assert [number for number in range(62) if number in held] == sorted(model)


@given(numbers)
def test_ranges_never_touch(values: list[int]) -> None:
    ranges = list(filled(values).ranges())
    assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))


@given(numbers, st.integers(0, 70))
def test_gaps_are_what_is_missing_below_the_highest(values: list[int], first: int) -> None:
    expected = [number for number in range(first, max(values, default=-1)) if number not in set(values)]
    assert expand(filled(values).gaps(first=first)) == expected


@given(numbers, numbers)
def test_missing_from_is_the_difference(left: list[int], right: list[int]) -> None:
    ranges = list(filled(left).missing_from(filled(right)))
    assert [n for first, last in ranges for n in range(first, last + 1)] == sorted(set(left) - set(right))
    assert ranges == list(filled(sorted(set(left) - set(right))).ranges())
