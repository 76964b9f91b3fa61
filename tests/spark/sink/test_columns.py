"""Rows of an Arrow batch by topic."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from oncelog.spark.sink.columns import tables_by_topic
from oncelog.spark.sink.errors import RowWithoutTopic

BATCH = pa.record_batch({"value": ["1", "2", "3"], "topic": ["b", "a", "b"], "offset": [7, 8, 9]})


def test_one_topic_for_all() -> None:
    ((topic, table),) = tables_by_topic(BATCH, "t", ("value",))
    assert (topic, table.to_pydict()) == ("t", {"value": ["1", "2", "3"]})


def test_a_topic_for_each_row_keeps_the_order_within_a_topic() -> None:
    found = {topic: table.to_pydict() for topic, table in tables_by_topic(BATCH, None, ("value", "topic"))}
    assert found == {"b": {"value": ["1", "3"]}, "a": {"value": ["2"]}}


def test_a_row_without_a_topic_is_refused() -> None:
    batch = pa.record_batch({"value": ["1", "2"], "topic": ["a", None]})
    with pytest.raises(RowWithoutTopic, match="is null"):
        list(tables_by_topic(batch, None, ("value", "topic")))
