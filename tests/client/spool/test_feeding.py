"""Which way a record goes, and what the journal is told of batches. The long runs are in tests/sim."""

from __future__ import annotations

import gc
import threading
from typing import Any
from uuid import uuid4

import pytest

from oncelog.client.accumulator import Accumulator, PartitionQueue, RecordTooLarge
from oncelog.client.batch import ProducerBatch
from oncelog.client.delivery import RecordFuture
from oncelog.client.producer_errors import ProducerClosed
from oncelog.client.spool.errors import SpoolFull
from oncelog.client.spool.feeding import Feeder, WaitingFuture
from oncelog.client.spool.spool import Spool, SpoolConfig
from oncelog.types import TopicPartition
from tests.client.spool.driver import DIRECTORY, NOW_MS
from tests.support.faulty_storage import FaultyStorage

TOPIC = "orders"
PLACE = TopicPartition(TOPIC, 0)
BIG = b"." * 400


class Scene:
    def __init__(self, *, memory: int = 4_000, loads_at_once: bool = True, spool_bytes: int = 100_000) -> None:
        self.storage = FaultyStorage()
        self.memory = memory
        self.loads_at_once = loads_at_once
        self.spool_config = SpoolConfig(spool_bytes, is_durable=not loads_at_once)
        self.told: list[Any] = []
        self.begin()

    def begin(self) -> None:
        self.spool, self.recovery = Spool.open(self.storage, DIRECTORY, self.spool_config)
        self.accumulator = Accumulator(
            batch_size=1_000,
            buffer_memory=self.memory,
            max_request_size=min(2_000, self.memory),
            lock=threading.Lock(),
            new_waiter=threading.Event,
        )
        self.feeder = Feeder(
            self.spool,
            self.accumulator,
            lock=threading.Lock(),
            new_waiter=threading.Event,
            wall_clock_ms=lambda: NOW_MS,
            loads_at_once=self.loads_at_once,
        )
        self.feeder.is_flowing = True
        self.learn(TOPIC)

    def learn(self, topic: str) -> None:
        self.accumulator.learn_partitions(topic, [(0, uuid4(), 1, 0)])

    def send(self, value: bytes = BIG, topic: str = TOPIC) -> RecordFuture:
        queue = (
            self.accumulator.topics[topic].queues[0] if topic in self.accumulator.topics else PartitionQueue(topic, 0)
        )
        return self.feeder.accept(queue, NOW_MS, None, value, (), lambda *told: self.told.append(told), 0)

    def take(self) -> ProducerBatch:
        """The oldest batch, numbered as the sender does."""
        queue = self.accumulator.topics[TOPIC].queues[0]
        batch = self.accumulator.take(queue)
        batch.number(7, 0, queue.next_position)
        queue.next_position += batch.record_count
        return batch

    def store(self, batch: ProducerBatch, offset: int) -> None:
        batch.delivery.settle(offset, -1)
        self.feeder.settled(batch)
        batch.run_callbacks(lambda: None)
        batch.delivery.announce()
        self.accumulator.finish(self.accumulator.topics[TOPIC].queues[0], batch)

    def open_batches(self) -> list[tuple[int, int, int]]:
        """(first entry, count, base sequence) as the next process would find them."""
        recovery = Spool.open(self.storage.after_kill(), DIRECTORY, self.spool_config)[1]
        batches = [batch.numbers for one in recovery.open_partitions for batch in one.batches]
        return [(one.first, one.count, one.base_sequence) for one in batches]


def test_a_record_that_finds_room_is_in_memory_and_on_disk() -> None:
    scene = Scene()
    future = scene.send()
    assert not isinstance(future, WaitingFuture)
    assert scene.spool.waiting == 0
    scene.store(scene.take(), 41)
    assert future.result(0).offset == 41
    assert scene.told[0][0].offset == 41


def test_records_wait_on_disk_in_order_once_memory_is_full() -> None:
    scene = Scene()
    futures = [scene.send(b"%d" % number * 400) for number in range(10)]
    waiting = [isinstance(future, WaitingFuture) for future in futures]
    assert waiting == sorted(waiting)
    assert True in waiting
    assert not scene.feeder.feed(0), "there is no room yet"
    offset = 0
    while scene.accumulator.incomplete:
        batch = scene.take()
        scene.feeder.numbered([batch])
        scene.store(batch, offset)
        offset += batch.record_count
        scene.feeder.feed(0)
    assert [future.result(0).offset for future in futures] == list(range(10))
    assert [told[0].offset for told in scene.told] == list(range(10))
    assert scene.spool.waiting == 0


def test_a_waiting_result_can_be_waited_for() -> None:
    scene = Scene(memory=2_500)
    for _ in range(3):
        last = scene.send()
    assert isinstance(last, WaitingFuture)
    results: list[int] = []
    waiter = threading.Thread(target=lambda: results.append(last.result(30).offset))
    waiter.start()
    for offset in (0, 2):
        scene.store(scene.take(), offset)
        scene.feeder.feed(0)
        if not scene.accumulator.incomplete:
            break
    while scene.accumulator.incomplete:
        scene.store(scene.take(), 2)
    waiter.join(60)
    assert results == [2]


def test_results_that_nobody_holds_cost_nothing() -> None:
    scene = Scene(memory=2_500)
    queue = scene.accumulator.topics[TOPIC].queues[0]
    for _ in range(50):
        scene.feeder.accept(queue, NOW_MS, None, BIG, (), None, 0)
    gc.collect()
    assert len(scene.feeder._waiting[PLACE].futures) == 0


def test_with_fsync_nothing_is_loaded_before_it_is_synced() -> None:
    scene = Scene(loads_at_once=False)
    future = scene.send()
    assert isinstance(future, WaitingFuture)
    scene.feeder.feed(0)
    assert not scene.accumulator.incomplete
    request = scene.spool.sync_request()
    assert request is not None
    request.run()
    scene.spool.synced(request)
    scene.feeder.feed(0)
    scene.store(scene.take(), 5)
    assert future.result(0).offset == 5


def test_a_batch_holds_consecutive_entries_only() -> None:
    """A damaged record leaves a gap; numbers are written down for whole ranges."""
    scene = Scene()
    for _ in range(3):
        scene.send(b"x")
    (path,) = scene.storage.paths(".records")
    scene.storage.content(path)[len(scene.storage.content(path).rstrip(b"\0")) // 2] ^= 1
    scene.begin()
    scene.feeder.feed(0)
    first, second = scene.take(), scene.take()
    scene.feeder.numbered([first])
    scene.feeder.numbered([second])
    assert scene.open_batches() == [(0, 1, 0), (2, 1, 1)]


def test_numbers_are_written_once_and_again_when_they_change() -> None:
    scene = Scene()
    scene.send()
    batch = scene.take()
    scene.feeder.numbered([batch])
    written = scene.storage.operations
    scene.feeder.numbered([batch])
    assert scene.storage.operations == written
    batch.number(8, 0, 0)
    scene.feeder.numbered([batch])
    assert scene.storage.operations > written


def test_parts_of_a_split_batch_are_known_by_their_own_entries() -> None:
    scene = Scene(memory=20_000)
    for number in range(5):
        scene.send(b"%d" % number)
    batch = scene.take()
    batch.sealed(0, None)
    scene.feeder.numbered([batch])
    parts = batch.split(0, None)
    scene.feeder.split(batch, parts)
    scene.feeder.numbered(parts)
    first, second = parts
    assert scene.open_batches() == [
        (0, first.record_count, 0),
        (first.record_count, second.record_count, first.record_count),
    ]
    again = second.split(0, None)
    scene.feeder.split(second, again)
    scene.feeder.numbered(again)
    assert [entry for entry, _, _ in scene.open_batches()] == [0, 2, again[1].delivery.first_index]
    scene.feeder.settled(again[0])
    assert len(scene.open_batches()) == 2


def test_what_the_producer_gives_up_as_a_whole_stays_in_the_spool() -> None:
    scene = Scene()
    scene.send()
    batch = scene.take()
    scene.feeder.numbered([batch])
    scene.feeder.keeps_failed = True
    batch.delivery.fail(ProducerClosed("closed"))
    scene.feeder.settled(batch)
    assert scene.open_batches() == [(0, 1, 0)]


def test_a_closed_feeder_tells_all_who_wait_and_takes_nothing() -> None:
    scene = Scene(memory=2_500)
    futures = [scene.send() for _ in range(4)]
    scene.feeder.close(ProducerClosed("kept in the spool"))
    assert isinstance(futures[-1].exception(0), ProducerClosed)
    assert [type(error) for _, error in scene.told] == [ProducerClosed] * len(
        [future for future in futures if isinstance(future, WaitingFuture)]
    )
    size_bytes = scene.spool.size_bytes
    with pytest.raises(ProducerClosed):
        scene.send()
    assert scene.spool.size_bytes == size_bytes


def test_what_is_refused_is_not_on_disk_either() -> None:
    scene = Scene(spool_bytes=3_000)
    with pytest.raises(RecordTooLarge):
        scene.send(b"." * 3_000)
    with pytest.raises(TypeError):
        scene.send("text")  # type: ignore[arg-type]
    assert scene.spool.size_bytes == 0
    with pytest.raises(SpoolFull):
        [scene.send() for _ in range(20)]


def test_records_of_an_unknown_topic_wait_and_others_pass() -> None:
    scene = Scene()
    scene.feeder.is_flowing = False
    scene.send(topic="later")
    scene.send()
    scene.feeder.is_flowing = True
    scene.feeder.feed(0)
    assert scene.feeder.parked == {"later"}
    assert scene.feeder.is_drained
    assert scene.spool.waiting == 1
    scene.learn("later")
    scene.feeder.feed(0)
    assert scene.feeder.parked == set()
    assert scene.spool.waiting == 0


def test_a_revived_batch_is_the_one_that_was_sent() -> None:
    scene = Scene()
    for number in range(3):
        scene.send(b"%d" % number)
    batch = scene.take()
    sent = bytes(batch.sealed(0, None))
    scene.feeder.numbered([batch])
    scene.begin()
    ((left,),) = [one.batches for one in scene.recovery.open_partitions]
    revived = scene.feeder.revive(left, 0)
    assert bytes(revived.sealed(0, None)) == sent
    assert revived.may_be_written
    operations = scene.storage.operations
    scene.feeder.numbered([revived])
    assert scene.storage.operations == operations, "its numbers are written down already"
    scene.feeder.settled(revived)
    assert scene.open_batches() == []
