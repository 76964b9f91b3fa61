from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.spool.ranges import EntryRanges

SPAN = st.tuples(st.integers(0, 30), st.integers(1, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))
CHANGES = st.lists(st.tuples(st.booleans(), SPAN), max_size=20)


def ranges_of(numbers: set[int]) -> list[tuple[int, int]]:
    firsts = sorted(number for number in numbers if number - 1 not in numbers)
    ends = sorted(number + 1 for number in numbers if number + 1 not in numbers)
    return list(zip(firsts, ends, strict=True))


@given(CHANGES, SPAN)
def test_it_is_a_set_of_numbers(changes: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]) -> None:
    ranges, model = EntryRanges(), set[int]()
    for is_added, (first, end) in changes:
        if is_added:
            ranges.add(first, end)
            model |= set(range(first, end))
        else:
            ranges.remove(first, end)
            model -= set(range(first, end))
        assert list(ranges) == ranges_of(model)
    first, end = asked
    assert ranges.missing(first, end) == ranges_of(set(range(first, end)) - model)
    assert ranges.covers(first, end) == (set(range(first, end)) <= model)
    assert (first in ranges) == (first in model)
    assert ranges.next_missing(first) == next(number for number in range(first, 100) if number not in model)
    assert ranges.end == max(model, default=-1) + 1
    assert bool(ranges) == bool(model)
