"""Which offsets a batch covers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from oncelog.client.consumer_records import GroupMetadata, OffsetAndMetadata
from oncelog.processing.batch import batch_of_records, batch_of_table, hint_at_batches
from oncelog.records.arrow import record_schema
from oncelog.records.kernel import ConsumerRecord
from oncelog.types import TimestampType, TopicPartition

ME = GroupMetadata("g", 3, "me")
A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def record(partition: TopicPartition, offset: int) -> ConsumerRecord:
    kind = TimestampType.CREATE_TIME
    return ConsumerRecord(*partition, offset, 0, kind, b"k", b"v", (), leader_epoch=5)


def test_records_in_runs() -> None:
    places = [(A, 7), (A, 9), (B, 0), (A, 10), (C, 4), (C, 5)]
    batch = batch_of_records([record(*place) for place in places], ME)
    assert batch.size == 6
    assert batch.firsts == {A: 7, B: 0, C: 4}
    assert batch.nexts == {place: OffsetAndMetadata(offset, "", 5) for place, offset in ((A, 11), (B, 1), (C, 6))}
    assert [single[0].offset for single in batch.singles()] == [7, 9, 0, 10, 4, 5]


def records(*places: tuple[TopicPartition, int]) -> Any:
    return [record(*place) for place in places]


def table(*places: tuple[TopicPartition, int]) -> Any:
    """A chunk for each place."""
    rows = [
        {"topic": place.topic, "partition": place.partition, "offset": offset, "timestamp": 0, "headers": []}
        for place, offset in places
    ]
    return pa.concat_tables([pa.Table.from_pylist([row], record_schema()) for row in rows])


def test_tables() -> None:
    batch = batch_of_table(table((A, 7), (A, 9), (B, 0), (A, 10)), ME)
    assert (batch.size, batch.firsts) == (4, {A: 7, B: 0})
    assert {place: one.offset for place, one in batch.nexts.items()} == {A: 11, B: 1}
    assert [single["offset"].to_pylist() for single in batch.singles()] == [[7], [9], [0], [10]]


def test_what_is_read_right_after_belongs_to_it() -> None:
    for make, read in ((batch_of_records, records), (batch_of_table, table)):
        early, late = make(read((A, 1), (B, 2)), ME), make(read((A, 2), (C, 3)), ME)
        both = early.joined(late)
        assert (both.size, both.firsts) == (4, {A: 1, B: 2, C: 3})
        assert {place: one.offset for place, one in both.nexts.items()} == {A: 3, B: 3, C: 4}
        assert len(list(both.singles())) == 4


def error_of(function: Any, content: Any) -> AttributeError:
    with pytest.raises(AttributeError) as caught:
        function(content)
    return caught.value


def test_a_function_for_one_record_is_told_that_it_gets_many() -> None:
    records: list[Any] = []
    hint = hint_at_batches(error_of(lambda record: record.key, records), records)
    assert hint == "the function is called with a list of records; write `for record in records: ... record.key`"
    assert hint_at_batches(error_of(lambda record: record.colour, records), records) is None
    assert hint_at_batches(error_of(lambda record: [].value, records), records) is None, "a list of its own"
