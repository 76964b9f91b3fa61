"""Lag as Spark's own source reports it, from offsets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncelog.spark import lag
from oncelog.spark.watch.lag import OffsetsBehind, offsets_behind, offsets_behind_of_all

SOURCE: dict[str, Any] = {
    "description": "orders",
    "endOffset": {"orders": {"0": 90, "1": 50}},
    "latestOffset": {"orders": {"0": 100, "1": 50, "2": 7}},
}


def test_a_source_is_behind_by_its_partitions() -> None:
    found = offsets_behind(SOURCE)
    assert found == OffsetsBehind(min=0, max=10, avg=17 / 3, total=17)
    assert found.metrics() == {
        "avgOffsetsBehindLatest": str(17 / 3),
        "maxOffsetsBehindLatest": "10",
        "minOffsetsBehindLatest": "0",
    }


def test_texts_are_read_as_spark_writes_them() -> None:
    as_texts = {key: json.dumps(one) if key != "description" else one for key, one in SOURCE.items()}
    assert offsets_behind(as_texts) == offsets_behind(SOURCE)


@pytest.mark.parametrize(
    ("end", "latest"),
    [(None, {"t": {"0": 1}}), ({"t": {"0": 1}}, None), (7, 7), ("0", "7"), ("{", "{"), ({"t": {"0": True}}, {"t": 1})],
)
def test_a_source_that_does_not_tell_has_none(end: Any, latest: Any) -> None:
    assert offsets_behind({"endOffset": end, "latestOffset": latest}) is None


def test_a_log_that_went_backwards_is_not_behind() -> None:
    assert offsets_behind({"endOffset": {"t": {"0": 9}}, "latestOffset": {"t": {"0": 3}}}) == OffsetsBehind(
        0, 0, 0.0, 0
    )


def test_all_sources_of_a_query() -> None:
    other = {"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 4}}}
    silent = {"endOffset": None, "latestOffset": None}
    assert offsets_behind_of_all([SOURCE, silent, other]) == OffsetsBehind(0, 10, 5.0, 20)
    assert offsets_behind_of_all([silent]) is None


def test_lag_of_a_querys_progress() -> None:
    assert lag(None) == {}
    silent = {"description": "rate", "endOffset": 7, "latestOffset": 7}
    found = lag({"sources": [SOURCE, silent, SOURCE]})
    assert {name: one.total for name, one in found.items()} == {"orders": 17, "orders (2)": 17}
