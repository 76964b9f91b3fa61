"""Who waits in line, for what, and how each leaves it: a topic's records in order, and no topic for another."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from oncelog.client.partitioner import PartitionerError
from oncelog.client.producer_config import ProducerConfig
from oncelog.client.producer_errors import BufferExhausted, ProducerClosed
from oncelog.errors import TopicAuthorizationFailed, UnknownTopicOrPartition
from oncelog.producer import async_line
from oncelog.producer.assembly import Serialized, assemble
from oncelog.producer.async_line import Lines

NOW_MS, BLOCK_MS = 1_000, 500


class Future:
    """As much of asyncio's as a line needs."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.is_accepted = False

    def done(self) -> bool:
        return self.error is not None

    def set_exception(self, error: Exception) -> None:
        self.error = error

    def exception(self) -> Exception | None:
        return self.error


class NoLock:
    def acquire(self) -> None: ...
    def release(self) -> None: ...


class Scene:
    def __init__(self, **settings: Any) -> None:
        config = ProducerConfig.of("localhost:9092", **{"max_block_ms": BLOCK_MS, **settings})
        self.parts = assemble(config, NoLock(), pytest.fail, lambda batch: None, lambda: None)
        self.room = 100
        self.accepted: list[Serialized] = []
        self.lines = Lines(self.parts, self._attempt)

    def _attempt(self, record: Serialized, future: Any) -> bool:
        topic = self.parts.accumulator.topics.get(record.topic)
        if topic is None or not self.room:
            return False
        if record.partition is not None and record.partition >= len(topic.queues):
            raise PartitionerError("no such partition")
        self.room -= 1
        self.accepted.append(record)
        future.is_accepted = True
        return True

    def send(self, topic: str = "a", value: bytes = b"", partition: int | None = None) -> Future:
        future = Future()
        self.lines.send(Serialized(topic, partition, None, value, (), 0), future, NOW_MS)
        return future

    def learn(self, topic: str = "a", partitions: int = 1) -> None:
        metadata = self.parts.core.metadata
        metadata.asked += 1
        metadata.answered = metadata.asked
        self.parts.accumulator.learn_partitions(topic, ((index, UUID(int=1), 1, 0) for index in range(partitions)))

    @property
    def asked(self) -> tuple[set[str], int]:
        """Topics, and for how many lines memory."""
        return set(self.parts.core.awaited_topics), self.parts.accumulator.are_waiting_for_memory


def test_what_can_go_does_not_wait() -> None:
    scene = Scene()
    scene.learn()
    assert scene.send().is_accepted
    assert scene.lines.count == 0
    assert scene.asked == (set(), 0)


def test_a_topic_is_waited_for_in_order() -> None:
    scene = Scene()
    for value in (b"1", b"2", b"3"):
        scene.send(value=value)
    assert scene.asked == ({"a"}, 0)
    scene.lines.move()
    assert scene.lines.count == 3
    scene.learn()
    scene.lines.move()
    assert [record.value for record in scene.accepted] == [b"1", b"2", b"3"]
    assert scene.asked == (set(), 0)


def test_memory_is_waited_for_in_order_and_nobody_overtakes() -> None:
    scene = Scene()
    scene.learn()
    scene.room = 0
    scene.send(value=b"1")
    scene.room = 1
    scene.send(value=b"2")
    assert scene.accepted == []
    assert scene.asked == (set(), 1)
    scene.lines.move()
    assert [record.value for record in scene.accepted] == [b"1"]
    scene.room = 5
    scene.lines.move()
    assert [record.value for record in scene.accepted] == [b"1", b"2"]


def test_an_unknown_topic_holds_up_no_other() -> None:
    scene = Scene()
    scene.learn("known")
    waiting = scene.send("unknown")
    assert scene.send("known").is_accepted
    assert not waiting.is_accepted


@pytest.mark.parametrize("buffer_full", ["fail", "drop"])
def test_memory_is_not_waited_for_if_the_user_wants_that(buffer_full: str) -> None:
    scene = Scene(buffer_full=buffer_full)
    early = scene.send()  # waits for its topic, not for memory
    scene.learn()
    scene.room = 0
    scene.lines.move()
    assert isinstance(early.error, BufferExhausted)
    if buffer_full == "fail":
        with pytest.raises(BufferExhausted):
            scene.send()
    else:
        assert isinstance(scene.send().error, BufferExhausted)
    assert scene.lines.count == 0
    assert scene.parts.counters.buffer_exhausted == 2
    assert scene.parts.counters.records_dropped == (2 if buffer_full == "drop" else 0)


def test_the_line_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_line, "MAX_WAITING_SENDS", 2)
    scene = Scene()
    scene.send("a")
    scene.send("b")
    with pytest.raises(BufferExhausted):
        scene.send("c")
    assert scene.lines.count == 2


def test_who_waited_too_long_is_told_for_what() -> None:
    scene = Scene()
    scene.learn("full")
    scene.room = 0
    for_memory, for_topic = scene.send("full"), scene.send("missing")
    scene.parts.core.metadata.topic_errors["missing"] = UnknownTopicOrPartition.code
    scene.lines.expire(NOW_MS + BLOCK_MS - 1)
    assert not for_memory.done()
    scene.lines.expire(NOW_MS + BLOCK_MS)
    assert isinstance(for_memory.error, BufferExhausted)
    assert isinstance(for_topic.error, UnknownTopicOrPartition)
    assert scene.asked == (set(), 0)


def test_a_refused_topic_fails_at_once_and_may_be_tried_again() -> None:
    scene = Scene()
    first = scene.send()
    scene.parts.core.metadata.topic_errors["a"] = TopicAuthorizationFailed.code
    scene.lines.move()
    assert isinstance(first.error, TopicAuthorizationFailed)
    second = scene.send()
    scene.lines.move()
    assert not second.done()


def test_a_partition_that_may_exist_by_now_is_asked_for_once() -> None:
    scene = Scene()
    scene.learn()
    scene.parts.core.metadata.asked += 1
    missing = scene.send(partition=4)
    assert scene.asked == ({"a"}, 0)
    scene.lines.move()
    assert not missing.done()
    scene.parts.core.metadata.answered += 1
    scene.lines.move()
    assert not missing.done(), "that was asked for earlier"
    scene.learn()
    scene.lines.move()
    assert isinstance(missing.error, PartitionerError)
    grown = scene.send(partition=4)
    scene.learn(partitions=5)
    scene.lines.move()
    assert grown.is_accepted


def test_a_producer_that_gave_up_empties_the_line() -> None:
    scene = Scene()
    futures = [scene.send("a"), scene.send("b")]
    scene.parts.core.give_up(OSError("gone"))
    scene.lines.move()
    assert all(isinstance(future.error, ProducerClosed) for future in futures)


def test_all_can_be_sent_away() -> None:
    scene = Scene()
    futures = [scene.send("a"), scene.send("b"), scene.send("a")]
    error = ProducerClosed("closed")
    scene.lines.fail_all(error)
    assert [future.error for future in futures] == [error] * 3
    assert scene.lines.count == 0


def test_numbers_tell_who_came_before() -> None:
    scene = Scene()
    assert scene.lines.first_number > scene.lines.last_number
    scene.send("a")
    scene.send("b")
    assert (scene.lines.first_number, scene.lines.last_number) == (1, 2)
    scene.learn("a")
    scene.lines.move()
    assert scene.lines.first_number == 2
