"""Numbers as people read them: exact in tables, short on axes; and the ticks of an axis. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from oncelog.report.values import Number, Unit

SHORT = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
NICE_STEPS = (1, 2, 5, 10)
WANTED_TICKS = 5


def exact(value: Number) -> str:
    """As given, with thousands set apart; of a fraction, three digits behind the point."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def short(value: Number, unit: Unit) -> str:
    """For the ticks of an axis."""
    match unit:
        case Unit.MOMENT:
            return datetime.fromtimestamp(value / 1000, UTC).strftime("%H:%M:%S")
        case Unit.SECONDS:
            return f"{exact(value)} s"
        case Unit.BYTES:
            return _scaled(value, BYTES, " ") + ("" if abs(value) >= 2**10 else " B")
    return _scaled(value, SHORT, "")


def full(value: Number, unit: Unit) -> str:
    """For tables and tooltips."""
    match unit:
        case Unit.MOMENT:
            return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        case Unit.SECONDS:
            return f"{exact(value)} s"
        case Unit.BYTES:
            return f"{exact(value)} B"
    return exact(value)


def _scaled(value: Number, scale: Iterable[tuple[Number, str]], space: str) -> str:
    for size, name in scale:
        if abs(value) >= size:
            return f"{value / size:.4g}{space}{name}"
    return exact(value)


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values from `low` to `high` onto pixels, and says where the ticks go."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: Number) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, wanted: int = WANTED_TICKS) -> list[float]:
        step = _step(self.high - self.low, wanted)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


def scale(values: Iterable[Number], start: float, end: float, *, from_zero: bool = False, tight: bool = False) -> Scale:
    """One that holds all values; unless `tight`, it ends on a tick."""
    held = [float(value) for value in values]
    if not all(map(math.isfinite, held)):
        raise ValueError(f"a plot needs finite numbers, found {next(v for v in held if not math.isfinite(v))}")
    low, high = min(held, default=0.0), max(held, default=1.0)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high <= low:
        high = low + 1
    if not tight:
        step = _step(high - low, WANTED_TICKS)
        low, high = math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step
    return Scale(low, high, start, end)


def _step(width: float, wanted: int) -> float:
    size = 10.0 ** math.floor(math.log10(width / wanted))
    return next(nice * size for nice in NICE_STEPS if nice * size * wanted >= width * (1 - 1e-9))
