"""A table's rows on their way into batches: every row once, in order, into the right partition, within memory."""

from __future__ import annotations

import random
import threading
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.client.accumulator import Accumulator, RecordTooLarge, TopicQueues
from oncelog.client.partitioner import PartitionerError
from oncelog.client.placement import Placement
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_errors import BufferExhausted
from oncelog.client.table_result import PartitionOffsets, TableFailed, TableFuture
from oncelog.client.table_sending import Step, TableSending
from oncelog.records import arrow_columns
from oncelog.records.arrow_columns import TableColumns
from oncelog.records.batch import decode_records
from oncelog.records.kernel import partition_of
from tests.support.sizes import examples

TOPIC = "orders"
WALL_MS = 1_700_000_000_000
LEADER, NOBODY = 1, -1


class World:
    """A producer's memory without its network: `store` plays the broker that takes the oldest batches."""

    def __init__(self, partitions: int = 3, leaders: tuple[int, ...] = (), **config: Any) -> None:
        self.config = ProducerConfig.of(
            "localhost:9092", **{"max_request_size": 100_000, "batch_size": 50_000, **config}
        )
        self.lock = threading.Lock()
        self.accumulator = Accumulator(
            batch_size=self.config.batch_size,
            buffer_memory=self.config.buffer_memory,
            max_request_size=self.config.max_request_size,
            lock=self.lock,
            new_waiter=threading.Event,
        )
        self.topic: TopicQueues = self.accumulator.learn_partitions(
            TOPIC, ((index, UUID(int=1), (leaders or (LEADER,) * partitions)[index], 0) for index in range(partitions))
        )
        self.placement = Placement(self.config, random.Random(1).randrange)
        self.logs: list[list[Any]] = [[] for _ in range(partitions)]
        self.future = TableFuture(TOPIC, threading.Event)

    def sending(self, table: pa.Table, **names: Any) -> TableSending:
        return TableSending(
            TableColumns.of(table, **names),
            self.topic,
            WALL_MS,
            accumulator=self.accumulator,
            placement=self.placement,
            config=self.config,
            new_waiter=threading.Event,
            future=self.future,
        )

    def send(self, table: pa.Table, **names: Any) -> TableSending:
        """All of the table, with a broker that takes a batch whenever memory is full."""
        sending = self.sending(table, **names)
        before = self.accumulator.used_bytes
        for _ in sending.check():
            assert self.accumulator.used_bytes == before
        while (step := sending.advance(0)) is not Step.ENDED:
            assert self.accumulator.used_bytes <= self.config.buffer_memory
            if step is Step.FULL:
                assert self.store(1), "memory is full of nothing"
        return sending

    def store(self, count: int = 2**31) -> int:
        """The broker stores the oldest batch of up to `count` queues; returns how many."""
        stored = 0
        for queue in [each for each in self.topic.queues for _ in each.batches]:
            if stored < count:
                stored += 1
                batch = self.accumulator.take(queue)
                sealed = batch.sealed(0, None)
                records = decode_records(sealed)
                assert len(records) == batch.record_count
                assert len(sealed) == batch.size_bytes
                log = self.logs[queue.index]
                batch.delivery.settle(len(log), -1)
                log += records
                batch.delivery.announce()
                self.accumulator.finish(queue, batch)
        return stored

    def values(self) -> list[list[bytes | None]]:
        return [[record.value for record in log] for log in self.logs]


def numbered(count: int, size: int = 10) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(count)]


class TestWholeTables:
    @settings(max_examples=examples(60), deadline=None)
    @given(
        st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=4)), st.integers(0, 300)), max_size=120),
        st.integers(1, 7),
        st.sampled_from((1, 500, 5_000)),
        st.sampled_from((5_000, 8_000, 33_554_432)),
        st.sampled_from((3, 50, 65_536)),
    )
    def test_every_row_is_stored_once_where_its_key_says_and_in_order(
        self, rows: list[tuple[bytes | None, int]], partitions: int, batch_size: int, memory: int, piece_rows: int
    ) -> None:
        world = World(partitions, batch_size=batch_size, buffer_memory=memory, max_request_size=5_000)
        values = [b"%d:" % number + bytes(size) for number, (_, size) in enumerate(rows)]
        keys = [key for key, _ in rows]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrow_columns, "PIECE_ROWS", piece_rows)
            world.send(pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}))
        world.store()
        assert sorted(value for log in world.values() for value in log) == sorted(values)
        for partition, log in enumerate(world.logs):
            numbers = [int(record.value.partition(b":")[0]) for record in log]
            assert numbers == sorted(numbers)
            assert [number for number in numbers if keys[number] is not None] == [
                number
                for number, key in enumerate(keys)
                if key is not None and partition_of(key, partitions) == partition
            ]
        metadata = world.future.result(0)
        assert metadata.row_count == len(rows)
        assert metadata.partitions == tuple(
            PartitionOffsets(partition, len(log), ((0, len(log) - 1),))
            for partition, log in enumerate(world.logs)
            if log
        )
        assert world.accumulator.used_bytes == 0
        assert all(queue.queued_bytes == 0 for queue in world.topic.queues)

    def test_all_fields_arrive(self) -> None:
        world = World(1)
        world.send(
            pa.table(
                {
                    "id": ["k", None],
                    "body": ["v", None],
                    "when": pa.array([5, None], pa.timestamp("ms")),
                    "tags": pa.array([[("a", b"1")], None], pa.map_(pa.string(), pa.binary())),
                }
            ),
            key="id",
            value="body",
            timestamp="when",
            headers="tags",
        )
        world.store()
        assert [tuple(record) for record in world.logs[0]] == [
            (0, 5, b"k", b"v", (("a", b"1"),)),
            (1, WALL_MS, None, None, ()),
        ]

    def test_no_rows(self) -> None:
        world = World()
        sending = world.send(pa.table({"value": pa.array([], pa.binary())}))
        assert world.future.result(0).row_count == 0
        assert not sending.has_sent

    def test_a_value_of_the_largest_size(self) -> None:
        world = World(1, batch_size=1_000, max_request_size=100_000)
        values = [b"small", bytes(99_900), b"small too"]
        world.send(pa.table({"value": values}))
        world.store()
        assert world.values() == [values]


class TestBatches:
    def test_rows_join_the_open_batch_of_single_records_and_the_other_way_round(self) -> None:
        world = World(1)
        queue = world.topic.queues[0]
        world.accumulator.append_anew(queue, WALL_MS, None, b"first", (), None, 0)
        world.send(pa.table({"value": [b"second", b"third"]}))
        last = world.accumulator.append(queue, WALL_MS, None, b"fourth", (), None)
        assert len(queue.batches) == 1
        world.store()
        assert world.values() == [[b"first", b"second", b"third", b"fourth"]]
        assert world.future.result(0).partitions == (PartitionOffsets(0, 2, ((1, 2),)),)
        assert last is not None
        assert last.result(0).offset == 3

    def test_full_batches_need_not_linger_but_the_last_one_may_grow(self) -> None:
        world = World(1, batch_size=1_000)
        world.send(pa.table({"value": numbered(200)}))
        batches = world.topic.queues[0].batches
        assert len(batches) > 3
        assert [batch.is_open for batch in batches] == [False] * (len(batches) - 1) + [True]
        assert all(900 < batch.size_bytes <= 1_000 for batch in list(batches)[:-1])

    def test_a_second_table_goes_on_in_the_open_batch(self) -> None:
        world = World(1, batch_size=10_000)
        for _ in range(3):
            world.future = TableFuture(TOPIC, threading.Event)
            world.send(pa.table({"value": numbered(20)}))
        assert len(world.topic.queues[0].batches) == 1

    def test_small_pieces_of_many_partitions_fill_batches(self) -> None:
        world = World(10)
        keys = [b"%d" % (number % 100) for number in range(5_000)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrow_columns, "PIECE_ROWS", 100)
            world.send(pa.table({"key": keys, "value": numbered(5_000)}))
        assert [len(queue.batches) for queue in world.topic.queues] == [1] * 10


class TestPlacement:
    def test_a_column_says_where_and_the_key_where_it_does_not(self) -> None:
        world = World(4)
        keys = [b"a", b"b", None, b"d"]
        partitions = pa.array([3, None, 2, 0], pa.int16())
        world.send(pa.table({"key": keys, "value": [b"0", b"1", b"2", b"3"], "partition": partitions}))
        world.store()
        expected: list[list[bytes | None]] = [[b"3"], [], [b"2"], [b"0"]]
        expected[partition_of(b"b", 4)].append(b"1")
        assert [sorted(log, key=str) for log in world.values()] == [sorted(log) for log in expected]  # type: ignore[type-var]

    def test_one_partition_for_all(self) -> None:
        world = World(3)
        world.send(pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"]}), partition=2)
        world.store()
        assert world.values() == [[], [], [b"1", b"2"]]

    def test_without_keys_whole_batches_go_to_one_partition_after_the_other(self) -> None:
        world = World(4, batch_size=1_000)
        world.send(pa.table({"value": numbered(2_000)}))
        assert all(queue.batches for queue in world.topic.queues)
        full = [batch for queue in world.topic.queues for batch in queue.batches if batch.size_bytes > 900]
        assert len(full) > 30
        world.store()
        assert sorted(value for log in world.values() for value in log) == numbered(2_000)

    def test_keys_may_be_ignored(self) -> None:
        world = World(8, partitioner_ignore_keys=True)
        world.send(pa.table({"key": [b"%d" % number for number in range(100)], "value": numbered(100)}))
        assert sum(bool(queue.batches) for queue in world.topic.queues) == 1

    @pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 300])
    def test_round_robin_deals_out_row_by_row_and_goes_on_where_it_was(self, rows: int) -> None:
        world = World(4, leaders=(LEADER, NOBODY, LEADER, LEADER), partitioner="round_robin")
        before = world.placement.queue_for(world.topic, None, None, None).index
        world.send(pa.table({"value": numbered(rows)}))
        after = world.placement.queue_for(world.topic, None, None, None).index
        world.store()
        served = [0, 2, 3]
        turns = [served[(served.index(before) + 1 + number) % 3] for number in range(rows + 1)]
        expected: list[list[bytes]] = [[], [], [], []]
        for value, turn in zip(numbered(rows), turns, strict=False):
            expected[turn].append(value)
        assert world.values() == expected
        assert after == turns[rows]

    def test_round_robin_is_for_rows_without_a_key(self) -> None:
        world = World(3, partitioner="round_robin")
        keys = [b"a", None, b"a", None, None]
        world.send(pa.table({"key": keys, "value": numbered(5)}))
        world.store()
        keyed = [record.value for record in world.logs[partition_of(b"a", 3)] if record.key]
        assert keyed == [numbered(5)[0], numbered(5)[2]]
        assert [sum(record.key is None for record in log) for log in world.logs] == [1, 1, 1]

    def test_a_partitioner_of_the_users_own(self) -> None:
        seen = []

        def by_length(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
            seen.append((topic, key, value, partitions))
            return len(value or b"")

        world = World(4, partitioner=by_length)
        partitions = pa.array([None, None, 0, None])
        world.send(
            pa.table({"key": ["k", None, None, "m"], "value": ["a", "bb", "ccc", None], "partition": partitions})
        )
        world.store()
        assert world.values() == [[b"ccc", None], [b"a"], [b"bb"], []]
        assert seen == [(TOPIC, b"k", b"a", 4), (TOPIC, None, b"bb", 4), (TOPIC, b"m", None, 4)]

    def test_a_users_partitioner_that_errs_at_the_end_sends_nothing(self) -> None:
        world = World(2, partitioner=lambda topic, key, value, partitions: int(value))
        with pytest.raises(PartitionerError):
            world.send(pa.table({"value": ["0", "1", "2"]}))
        assert not world.accumulator.incomplete


class TestMemory:
    def test_a_full_memory_stops_and_goes_on_without_a_gap(self) -> None:
        world = World(1, batch_size=1_000, buffer_memory=8_000, max_request_size=5_000)
        sending = world.sending(pa.table({"value": numbered(2_000)}))
        assert list(sending.check()) == [None]
        steps = [sending.advance(0)]
        while steps[-1] is Step.MOVED:
            steps.append(sending.advance(0))
        assert steps[-1] is Step.FULL
        assert sending.advance(0) is Step.FULL
        assert 6_000 < world.accumulator.used_bytes <= 8_000
        world.store(1)
        assert sending.advance(0) is Step.MOVED
        assert not world.future.done()

    def test_memory_that_is_left_is_used_by_the_open_batch_before_it_stops(self) -> None:
        world = World(1, batch_size=8_000, buffer_memory=8_000, max_request_size=8_000)
        sending = world.sending(pa.table({"value": numbered(2_000)}))
        world.accumulator.append_anew(world.topic.queues[0], WALL_MS, None, b"first", (), None, 0)
        assert sending.advance(0) is Step.MOVED
        assert 7_900 < world.accumulator.used_bytes <= 8_000
        assert not world.topic.queues[0].batches[0].is_open  # so that it is sent, and makes room

    @pytest.mark.parametrize("moves", [0, 1, 4])
    def test_giving_up_fails_exactly_the_rows_that_no_batch_took(self, moves: int) -> None:
        world = World(3, batch_size=1_000, buffer_memory=8_000, max_request_size=5_000)
        keys = [b"%d" % (number % 7) for number in range(500)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrow_columns, "PIECE_ROWS", 200)
            sending = world.sending(pa.table({"key": keys, "value": numbered(500)}))
            for _ in range(moves):
                assert sending.advance(0) is Step.MOVED
            while moves and sending.advance(0) is not Step.FULL:
                pass
            error = BufferExhausted("full")
            left = sending.give_up(error)
        world.store()
        failed = world.future.exception(0)
        assert isinstance(failed, TableFailed)
        unsent = sorted(row for failure in failed.failures for run in failure.rows for row in run)
        stored = sorted(int(value) for log in world.values() for value in log)
        assert sorted(unsent + stored) == list(range(500))
        assert (len(unsent), failed.delivered.row_count) == (left, len(stored))
        assert bool(stored) == sending.has_sent == (moves > 0)
        assert {failure.error for failure in failed.failures} == {error}


class TestRefusals:
    @pytest.mark.parametrize(("key", "size"), [(b"k", 100_001), (bytes(50_000), 50_001)])
    def test_a_row_that_is_too_large_is_named_before_anything_is_sent(self, key: bytes, size: int) -> None:
        world = World(2)
        table = pa.table({"key": [b"a", b"b", key], "value": [b"1", b"2", bytes(size)]})
        with pytest.raises(RecordTooLarge, match=r"row 2 for orders is larger than max\.request\.size \(100000\)"):
            world.send(pa.concat_tables([table]))
        assert not world.accumulator.incomplete

    def test_rows_are_numbered_through_all_chunks(self) -> None:
        world = World(2)
        table = pa.table({"value": pa.chunked_array([[b"x"] * 5, [b"y"] * 3, [bytes(100_001)]])})
        with pytest.raises(RecordTooLarge, match="row 8 "):
            world.send(table)


def test_users_code_never_runs_under_the_lock() -> None:
    world = World(2, batch_size=500)
    held: list[bool] = []
    world.future = TableFuture(TOPIC, threading.Event, lambda *_: held.append(world.lock.locked()))
    world.send(pa.table({"value": numbered(100)}))
    world.store()
    assert held == [False]
