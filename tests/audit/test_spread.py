import pytest

from oncelog.audit.account import Found
from oncelog.audit.spread import MAX_BINS, Bins, Spread, SpreadCounter


@pytest.mark.parametrize(("first", "end"), [(0, 0), (0, 1), (7, 7), (0, 49), (0, 50), (0, 51), (5, 1_000_003)])
def test_bins_hold_every_offset_and_are_few(first: int, end: int) -> None:
    bins = Bins.over(first, end)
    assert 1 <= bins.count <= MAX_BINS
    assert len(bins.edges) == bins.count + 1
    assert bins.edges[0] == first
    assert bins.edges[-1] >= end
    for offset in {first, (first + end) // 2, max(end - 1, first)}:
        low, high = bins.edges[bins.index(offset)], bins.edges[bins.index(offset) + 1]
        assert low <= offset < high


def test_a_counter_and_cells_say_the_same() -> None:
    bins = Bins.over(0, 100)
    counter = SpreadCounter(bins)
    for offset, found in [(0, Found.FRESH), (1, Found.DUPLICATED), (2, Found.OUT_OF_ORDER), (99, Found.UNNUMBERED)]:
        counter.add(offset, found)
    assert counter.spread() == Spread.of(bins, [(0, 1, 0, 0), (0, 1, 1, 0), (1, 1, 0, 1)])
    assert sum(counter.spread().stored) == 3
