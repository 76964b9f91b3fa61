from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from oncelog.spark.source.pruning import pruning_of, young_enough
from oncelog.spark.source.ranges import OffsetRange
from oncelog.types import TopicPartition

PLACES = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(3)]


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (EqualTo(("partition",), 1), {"a-1", "b-1"}),
        (In(("partition",), (0, 2)), {"a-0", "a-2", "b-0", "b-2"}),
        (Not(In(("partition",), (0, 2))), {"a-1", "b-1"}),
        (GreaterThan(("partition",), 1), {"a-2", "b-2"}),
        (EqualTo(("topic",), "a"), {"a-0", "a-1", "a-2"}),
        (Not(StringStartsWith(("topic",), "a")), {"b-0", "b-1", "b-2"}),
        (IsNotNull(("topic",)), {str(place) for place in PLACES}),
    ],
)
def test_filters_on_partitions_are_settled(one: Filter, wanted: set[str]) -> None:
    pruning, remaining = pruning_of([one])
    assert remaining == []
    assert {str(place) for place in PLACES if pruning.wants(place)} == wanted


@pytest.mark.parametrize(
    ("one", "start", "end"),
    [
        (EqualTo(("offset",), 15), 15, 16),
        (GreaterThan(("offset",), 15), 16, 20),
        (GreaterThanOrEqual(("offset",), 15), 15, 20),
        (LessThan(("offset",), 15), 10, 15),
        (LessThanOrEqual(("offset",), 15), 10, 16),
        (GreaterThan(("offset",), 50), 20, 20),
        (LessThan(("offset",), 5), 10, 10),
        (LessThan(("offset",), -5), 10, 10),
    ],
)
def test_filters_on_offsets_are_settled(one: Filter, start: int, end: int) -> None:
    pruning, remaining = pruning_of([one])
    assert remaining == []
    assert pruning.cut(OffsetRange(PLACES[0], 10, 20)) == OffsetRange(PLACES[0], start, end)


def test_several_filters_hold_together() -> None:
    pruning, remaining = pruning_of([GreaterThan(("offset",), 11), LessThan(("offset",), 14), EqualTo(("key",), b"k")])
    assert remaining == [EqualTo(("key",), b"k")]
    assert pruning.cut(OffsetRange(PLACES[0], 10, 20)) == OffsetRange(PLACES[0], 12, 14)


def test_a_set_of_offsets_bounds_the_range_and_remains_for_spark() -> None:
    one = In(("offset",), (12, 17))
    pruning, remaining = pruning_of([one])
    assert remaining == [one]
    assert pruning.cut(OffsetRange(PLACES[0], 10, 20)) == OffsetRange(PLACES[0], 12, 18)


def moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(microsecond=microseconds % 1_000_000)


@pytest.mark.parametrize(
    ("one", "first_ms"),
    [
        (GreaterThanOrEqual(("timestamp",), moment(5_000)), 5),
        (GreaterThanOrEqual(("timestamp",), moment(5_001)), 6),
        (GreaterThan(("timestamp",), moment(5_000)), 6),
        (GreaterThan(("timestamp",), moment(5_999)), 6),
        (EqualTo(("timestamp",), moment(7_000)), 7),
        (In(("timestamp",), (moment(9_000), moment(8_000))), 8),
        (LessThan(("timestamp",), moment(5_000)), None),
        (Not(GreaterThan(("timestamp",), moment(5_000))), None),
        (GreaterThan(("timestamp",), datetime(2020, 1, 1)), None),  # a time of day, nobody knows where
        (GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC)), None),
    ],
)
def test_timestamps_bound_only_the_beginning_and_remain_for_spark(one: Filter, first_ms: int | None) -> None:
    pruning, remaining = pruning_of([one])
    assert remaining == [one]
    assert pruning.not_before_ms == first_ms


def test_the_latest_beginning_counts() -> None:
    filters: list[Filter] = [GreaterThan(("timestamp",), moment(5_000)), GreaterThan(("timestamp",), moment(2_000))]
    assert pruning_of(filters)[0].not_before_ms == 6


def test_a_range_begins_with_the_first_record_that_is_young_enough() -> None:
    a, b, c = PLACES[:3]
    ranges = [OffsetRange(a, 10, 20), OffsetRange(b, 10, 20), OffsetRange(c, 10, 20)]
    found = young_enough(ranges, {a: 15, b: None, c: 3})
    assert found == [OffsetRange(a, 15, 20), OffsetRange(b, 20, 20), OffsetRange(c, 10, 20)]


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("value",), b"v"),
        EqualTo(("headers", "key"), "h"),
        Not(EqualTo(("offset",), 3)),
        IsNotNull(("key",)),
        EqualTo(("offset",), 1.5),
        In(("partition",), (1, None)),
    ],
)
def test_everything_else_remains_for_spark(one: Filter) -> None:
    pruning, remaining = pruning_of([one])
    assert remaining == [one]
    assert all(pruning.wants(place) for place in PLACES)
    assert pruning.cut(OffsetRange(PLACES[0], 10, 20)) == OffsetRange(PLACES[0], 10, 20)
