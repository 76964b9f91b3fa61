"""`Reader`: positions move with what is handed out, and data that is no longer wanted is thrown away."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.client.consumer_config import ConsumerConfig
from oncelog.client.consumer_counters import ConsumerCounters
from oncelog.client.consumer_reader import Reader
from oncelog.client.fetch.inbox import FetchedData, Frame, Inbox
from oncelog.client.fetch.partitions import PartitionState
from oncelog.errors import CorruptMessage
from oncelog.records.model import RecordDeserializationError
from oncelog.types import TopicPartition
from tests.support.batches import make_batch


def batch(first: int, count: int, **fields: Any) -> bytes:
    values = [b"%d" % offset for offset in range(first, first + count)]
    return make_batch(values, base_offset=first, leader_epoch=3, **fields)


class Scene:
    def __init__(self, **settings: Any) -> None:
        config = ConsumerConfig.of("127.0.0.1:9092", **settings)
        self.inbox = Inbox(1 << 20, lambda: None)
        self.counters = ConsumerCounters()
        self.states: dict[int, PartitionState] = {}
        value = config.value_deserializer if callable(config.value_deserializer) else None
        self.reader = Reader(self.inbox, config, lambda topic: None, lambda topic: value, self.counters)

    def state(self, index: int = 0, position: int = 0) -> PartitionState:
        state = self.states[index] = PartitionState(TopicPartition("orders", index), position)
        return state

    def arrive(self, state: PartitionState, data: bytes, offset: int = 0) -> None:
        view = memoryview(data)
        frame = Frame(len(data), 1)
        self.inbox.put([FetchedData(state, state.seek_count, offset, view, [], frame)])


def offsets(records: list[Any]) -> list[int]:
    return [record.offset for record in records]


def test_positions_follow_what_is_taken() -> None:
    scene = Scene()
    state = scene.state()
    scene.arrive(state, batch(0, 10) + batch(10, 10))
    assert offsets(scene.reader.take(4)) == [0, 1, 2, 3]
    assert (state.position, state.position_epoch) == (4, 3)
    assert scene.reader.touched == {state}
    assert offsets(scene.reader.take(100)) == list(range(4, 20))
    assert state.position == 20
    assert scene.reader.take(1) == []
    assert scene.counters.records_consumed == 20
    assert scene.inbox.buffered_bytes == 0, "what was read is freed"


def test_a_take_goes_through_partitions_and_a_chunk_does_not() -> None:
    scene = Scene()
    for index in range(2):
        scene.arrive(scene.state(index), batch(0, 5))
    assert [(one.partition, one.offset) for one in scene.reader.take(7)] == [
        *((0, offset) for offset in range(5)), (1, 0), (1, 1),
    ]  # fmt: skip
    assert offsets(scene.reader.take_chunk(100)) == [2, 3, 4]


def test_reading_begins_at_the_position_even_in_the_middle_of_a_batch() -> None:
    scene = Scene()
    scene.arrive(scene.state(position=7), batch(0, 10))
    assert offsets(scene.reader.take(100)) == [7, 8, 9]


def test_after_a_jump_nothing_of_the_old_place_comes() -> None:
    scene = Scene()
    state = scene.state()
    scene.arrive(state, batch(0, 10))
    scene.reader.take(3)
    state.jump(50)
    assert scene.reader.take(3) == []
    assert state.position == 50
    scene.arrive(state, batch(50, 2), 50)
    assert offsets(scene.reader.take(3)) == [50, 51]


def test_half_read_data_of_a_paused_partition_comes_again_where_it_was_left() -> None:
    scene = Scene()
    first, second = scene.state(0), scene.state(1)
    scene.arrive(first, batch(0, 10))
    scene.arrive(second, batch(0, 2))
    scene.reader.take(3)
    first.is_paused = True
    assert [one.partition for one in scene.reader.take(100)] == [1, 1]
    first.is_paused = False
    assert offsets(scene.reader.take(100)) == list(range(3, 10))


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_is_given_back_comes_again(is_closed: bool) -> None:
    scene = Scene()
    state = scene.state()
    scene.arrive(state, batch(0, 10))
    assert len(scene.reader.take_chunk(6)) == 6
    if is_closed:
        scene.reader.close()
    scene.reader.give_back(2)
    assert state.position == 2
    assert offsets(scene.reader.take(100)) == list(range(2, 10))


def test_what_is_given_back_after_a_jump_is_not_wanted() -> None:
    scene = Scene()
    state = scene.state()
    scene.arrive(state, batch(0, 10))
    scene.reader.take_chunk(6)
    state.jump(90)
    scene.reader.give_back(2)
    assert state.position == 90


def test_a_record_that_cannot_be_read_keeps_its_place() -> None:
    scene = Scene(value_deserializer=lambda data: int(data) // (3 - int(data)))
    state = scene.state()
    scene.arrive(state, batch(0, 6))
    assert offsets(scene.reader.take(100)) == [0, 1, 2], "what came before it is handed out"
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as raised:
            scene.reader.take(100)
        assert (raised.value.offset, state.position) == (3, 3)
    state.jump(4)
    scene.arrive(state, batch(0, 6), 4)
    assert offsets(scene.reader.take(100)) == [4, 5]


def test_an_error_waits_for_the_records_before_it() -> None:
    scene = Scene()
    scene.arrive(scene.state(0), batch(0, 3))
    scene.arrive(scene.state(1), batch(0, 3, crc=1))
    assert len(scene.reader.take(100)) == 3
    with pytest.raises(CorruptMessage):
        scene.reader.take(100)


def test_checksums_are_not_looked_at_if_that_is_wished() -> None:
    scene = Scene(check_crcs=False)
    scene.arrive(scene.state(), batch(0, 3, crc=1))
    assert len(scene.reader.take(100)) == 3


def test_columns() -> None:
    scene = Scene()
    for index in range(2):
        scene.arrive(scene.state(index), batch(0, 5))
    taken = scene.reader.take_columns(7)
    assert [(one.partition, one.columns.record_count) for one in taken] == [(0, 5), (1, 2)]
    assert [one.columns.record_count for one in scene.reader.take_columns(None)] == [3]
    assert scene.reader.take_columns(None) == []
    assert {index: state.position for index, state in scene.states.items()} == {0: 5, 1: 5}
