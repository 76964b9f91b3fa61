import pytest

from oncelog.report.numbers import exact, full, scale, short
from oncelog.report.values import Unit


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1234567, "1,234,567"), (-5, "-5"), (2.5, "2.5"), (0.12345, "0.123"), (3.0, "3")]
)
def test_exact(value: float, text: str) -> None:
    assert exact(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (40_000, Unit.COUNT, "40k"),
        (1_500_000, Unit.COUNT, "1.5M"),
        (999_999, Unit.COUNT, "1000k"),
        (12, Unit.SECONDS, "12 s"),
        (512, Unit.BYTES, "512 B"),
        (3 * 2**20, Unit.BYTES, "3 MiB"),
        (1_700_000_000_000, Unit.MOMENT, "22:13:20"),
    ],
)
def test_short(value: int, unit: Unit, text: str) -> None:
    assert short(value, unit) == text


def test_full_keeps_every_digit() -> None:
    assert full(1_234_567, Unit.BYTES) == "1,234,567 B"


@pytest.mark.parametrize("high", [0.003, 1, 7, 99, 101, 12_345_678])
def test_a_scale_ends_on_a_tick_and_holds_its_values(high: float) -> None:
    axis = scale([0, high], 100, 0)
    ticks = axis.ticks()
    assert ticks[0] == 0
    assert ticks[-1] == pytest.approx(axis.high)
    assert axis.high >= high
    assert 3 <= len(ticks) <= 8
    assert axis(0) == 100
    assert axis(axis.high) == pytest.approx(0)


def test_one_value_alone_has_a_scale() -> None:
    axis = scale([5, 5], 0, 10, tight=True)
    assert axis(5) == 0
