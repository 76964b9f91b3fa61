"""What a batch query's filters say about ranges: which partitions, offsets and times need not be read at all.

A filter on topic or partition is decided for each partition as a whole, one on offsets for each range: these are
settled here. A filter on timestamps only moves the beginning of a range. Timestamps need not grow with offsets, so the
first record that is young enough bounds the range from below (all before it are older), and nothing bounds it from
above. Such filters, and all others, remain for Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from oncelog.spark.source.ranges import OffsetRange
from oncelog.types import TopicPartition

MAX_OFFSET = 2**63 - 1
_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_COMPARISONS: Mapping[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, value: bool(found == value),
    EqualNullSafe: lambda found, value: bool(found == value),
    LessThan: lambda found, value: bool(found < value),
    LessThanOrEqual: lambda found, value: bool(found <= value),
    GreaterThan: lambda found, value: bool(found > value),
    GreaterThanOrEqual: lambda found, value: bool(found >= value),
    In: lambda found, value: found in value,
    StringStartsWith: lambda found, value: found.startswith(value),
    StringEndsWith: lambda found, value: found.endswith(value),
    StringContains: lambda found, value: value in found,
}


@dataclass(frozen=True, slots=True)
class Pruning:
    """What is left of the ranges."""

    by_partition: tuple[Filter, ...] = ()
    """On topic and partition: each holds for a whole partition, or for none of it."""
    first_offset: int = 0
    last_offset: int = MAX_OFFSET
    not_before_ms: int | None = None
    """Records that are older are not wanted."""

    def wants(self, partition: TopicPartition) -> bool:
        return all(_holds(one, partition) for one in self.by_partition)

    def cut(self, one: OffsetRange) -> OffsetRange:
        start = min(max(one.start, self.first_offset), one.end)
        return OffsetRange(one.partition, start, max(start, min(one.end, self.last_offset + 1)))


def pruning_of(filters: Iterable[Filter]) -> tuple[Pruning, list[Filter]]:
    """What is pruned, and the filters that Spark must still apply."""
    pruning = Pruning()
    remaining: list[Filter] = []
    for one in filters:
        pruning, is_settled = _with(pruning, one)
        if not is_settled:
            remaining.append(one)
    return pruning, remaining


def young_enough(ranges: Sequence[OffsetRange], first_young: Mapping[TopicPartition, int | None]) -> list[OffsetRange]:
    """Without what is older than the first record that is young enough; without all of it where there is none."""
    return [replace(one, start=_begun(one, first_young[one.partition])) for one in ranges]


def _begun(one: OffsetRange, first: int | None) -> int:
    return one.end if first is None else min(max(one.start, first), one.end)


def _with(pruning: Pruning, one: Filter) -> tuple[Pruning, bool]:
    column = _column(one)
    if isinstance(one, IsNotNull) and column in _NEVER_NULL:
        return pruning, True
    if column in ("topic", "partition"):
        if _can_decide(one):
            return replace(pruning, by_partition=(*pruning.by_partition, one)), True
    elif column == "offset":
        return _with_offsets(pruning, one)
    elif column == "timestamp":
        return _with_time(pruning, one), False
    return pruning, False


def _column(one: Filter) -> str | None:
    if isinstance(one, Not):
        return _column(one.child)
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _can_decide(one: Filter) -> bool:
    if isinstance(one, Not):
        return _can_decide(one.child)
    if isinstance(one, (IsNull, IsNotNull)):
        return True
    values = one.value if isinstance(one, In) else (getattr(one, "value", None),)
    return type(one) in _COMPARISONS and all(isinstance(value, (int, str)) for value in values)


def _holds(one: Filter, partition: TopicPartition) -> bool:
    if isinstance(one, Not):
        return not _holds(one.child, partition)
    if isinstance(one, (IsNull, IsNotNull)):
        return isinstance(one, IsNotNull)
    found = partition.topic if _column(one) == "topic" else partition.partition
    return _COMPARISONS[type(one)](found, one.value)  # type: ignore[attr-defined]


def _with_offsets(pruning: Pruning, one: Filter) -> tuple[Pruning, bool]:
    value = getattr(one, "value", None)
    if isinstance(one, In) and one.value and all(isinstance(each, int) for each in one.value):
        return _between(pruning, min(one.value), max(one.value)), False
    if not isinstance(value, int):
        return pruning, False
    bounds = {
        EqualTo: (value, value),
        EqualNullSafe: (value, value),
        GreaterThan: (value + 1, MAX_OFFSET),
        GreaterThanOrEqual: (value, MAX_OFFSET),
        LessThan: (0, value - 1),
        LessThanOrEqual: (0, value),
    }.get(type(one))
    return (pruning, False) if bounds is None else (_between(pruning, *bounds), True)


def _between(pruning: Pruning, first: int, last: int) -> Pruning:
    return replace(
        pruning,
        first_offset=max(pruning.first_offset, first),
        last_offset=min(pruning.last_offset, last),
    )


def _with_time(pruning: Pruning, one: Filter) -> Pruning:
    values = one.value if isinstance(one, In) else (getattr(one, "value", None),)
    if not values or not all(isinstance(value, datetime) and value.tzinfo is not None for value in values):
        return pruning
    since_epoch = min(values) - _EPOCH
    match one:
        case EqualTo() | EqualNullSafe() | GreaterThanOrEqual() | In():
            first_ms = -(-since_epoch // _MILLISECOND)
        case GreaterThan():
            first_ms = since_epoch // _MILLISECOND + 1
        case _:
            return pruning
    if first_ms < 0:
        return pruning
    return replace(pruning, not_before_ms=max(first_ms, pruning.not_before_ms or 0))
