"""Group commit against a log and a disk that the test holds in its hands."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from oncelog.broker.group_commit import Done, GroupCommit
from oncelog.errors import KafkaError, KafkaStorageError
from oncelog.log.partition_log import PartitionLog
from oncelog.types import TopicPartition

NOW_MS = 7


class Flush:
    def __init__(self, offset: int) -> None:
        self.offset = offset

    def run(self) -> None:
        """Nothing to sync here: the test says when it is over."""


class Log:
    """The few things of a PartitionLog that a flush needs."""

    def __init__(self) -> None:
        self.topic_partition = TopicPartition("orders", 0)
        self.log_end_offset = 0
        self.recovery_point = 0
        self.offline = False
        self.unprepared: KafkaStorageError | None = None
        self.failed_with: Exception | None = None

    def flush_request(self) -> Flush | None:
        if self.unprepared is not None:
            raise self.unprepared
        is_due = self.log_end_offset > self.recovery_point and not self.offline
        return Flush(self.log_end_offset) if is_due else None

    def flushed(self, request: Flush, now_ms: int) -> None:
        assert now_ms == NOW_MS
        self.recovery_point = request.offset

    def flush_failed(self, error: Exception) -> None:
        self.offline = True
        self.failed_with = error


class Disk:
    """Holds flushes back until the test lets them end."""

    def __init__(self) -> None:
        self.running: list[Done] = []

    def run_in_thread(self, work: Callable[[], None], done: Done) -> None:
        work()
        self.running.append(done)

    def end(self, error: Exception | None = None) -> None:
        self.running.pop(0)(None, error, NOW_MS)


class Scene:
    def __init__(self) -> None:
        self.disk = Disk()
        self.log = Log()
        self.group = GroupCommit(self.disk.run_in_thread)
        self.answers: list[tuple[int, KafkaError | None]] = []

    @property
    def partition_log(self) -> PartitionLog:
        return cast(PartitionLog, self.log)

    @property
    def answered(self) -> list[int]:
        return [offset for offset, _ in self.answers]

    def append_and_wait(self, then: Callable[[], None] = lambda: None) -> None:
        self.log.log_end_offset += 1
        offset = self.log.log_end_offset

        def answer(error: KafkaError | None) -> None:
            self.answers.append((offset, error))
            then()

        self.group.wait(self.partition_log, offset, answer)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_nothing_is_answered_before_its_flush_has_ended(scene: Scene) -> None:
    scene.append_and_wait()
    assert scene.answers == []
    scene.disk.end()
    assert scene.answers == [(1, None)]


def test_appends_during_a_flush_share_the_next_one(scene: Scene) -> None:
    for _ in range(4):
        scene.append_and_wait()
    assert len(scene.disk.running) == 1
    scene.disk.end()
    assert scene.answers == [(1, None)]
    assert len(scene.disk.running) == 1
    scene.disk.end()
    assert scene.answers == [(1, None), (2, None), (3, None), (4, None)]
    assert scene.disk.running == []


def test_an_answer_that_leads_to_another_append_loses_nobody(scene: Scene) -> None:
    """As when an answer makes room on a connection, whose next request is a Produce that waits as well."""
    scene.append_and_wait(then=scene.append_and_wait)
    scene.append_and_wait()
    while scene.disk.running:
        scene.disk.end()
    assert scene.answered == [1, 2, 3]


def test_a_failed_flush_fails_everyone_who_waits_and_is_not_tried_again(scene: Scene) -> None:
    scene.append_and_wait()
    scene.append_and_wait()
    error = OSError("the disk is gone")
    scene.disk.end(error)
    assert scene.answered == [1, 2]
    assert all(isinstance(found, KafkaStorageError) for _, found in scene.answers)
    assert scene.log.failed_with is error
    assert scene.disk.running == []


def test_what_is_durable_already_is_answered_at_once(scene: Scene) -> None:
    scene.group.wait(scene.partition_log, 0, lambda error: scene.answers.append((0, error)))
    assert scene.answers == [(0, None)]
    assert scene.disk.running == []


def test_waiting_for_a_log_that_is_offline_ends_with_an_error(scene: Scene) -> None:
    scene.log.offline = True
    scene.append_and_wait()
    ((_, error),) = scene.answers
    assert isinstance(error, KafkaStorageError)


def test_a_flush_that_cannot_begin_is_an_error_and_may_be_tried_again(scene: Scene) -> None:
    scene.log.unprepared = KafkaStorageError("too many open files")
    scene.append_and_wait()
    assert scene.answers == [(1, scene.log.unprepared)]
    scene.log.unprepared = None
    scene.append_and_wait()
    scene.disk.end()
    assert scene.answers[1:] == [(2, None)]


def test_a_log_has_one_flush_at_a_time_whoever_asks(scene: Scene) -> None:
    done: list[str] = []
    scene.append_and_wait()
    scene.group.run(scene.partition_log, lambda: None, lambda *_: done.append("housekeeping"))
    scene.append_and_wait()
    assert len(scene.disk.running) == 1
    scene.disk.end()
    assert (scene.answered, done) == ([1], [])
    assert len(scene.disk.running) == 1
    scene.disk.end()
    assert (scene.answered, done) == ([1], ["housekeeping"])
    scene.disk.end()
    assert scene.answered == [1, 2]


def test_logs_do_not_wait_for_each_other(scene: Scene) -> None:
    other = Log()
    scene.append_and_wait()
    scene.group.run(cast(PartitionLog, other), lambda: None, lambda *_: None)
    assert len(scene.disk.running) == 2


def test_no_flush_begins_after_a_failed_one(scene: Scene) -> None:
    """The kernel reports an error once: the next sync of the same file would claim success."""
    errors: list[Exception | None] = []
    scene.append_and_wait()
    scene.group.run(scene.partition_log, lambda: None, lambda _, error, now_ms: errors.append(error))
    scene.disk.end(OSError("the disk is gone"))
    assert scene.disk.running == []
    assert isinstance(errors[0], KafkaStorageError)


def test_somebody_elses_flush_that_fails_fails_everyone_who_waits(scene: Scene) -> None:
    def done(_: None, error: Exception | None, now_ms: int) -> None:
        assert error is not None
        scene.log.flush_failed(error)

    scene.group.run(scene.partition_log, lambda: None, done)
    scene.append_and_wait()
    scene.disk.end(OSError("the disk is gone"))
    ((_, error),) = scene.answers
    assert isinstance(error, KafkaStorageError)
    assert scene.disk.running == []


def test_a_waiter_that_fails_leaves_the_others_theirs() -> None:
    scene = Scene()
    scene.log.log_end_offset = 1
    heard: list[KafkaError | None] = []

    def failing(_: KafkaError | None) -> None:
        raise ZeroDivisionError

    scene.group.wait(scene.partition_log, 1, failing)
    scene.group.wait(scene.partition_log, 1, heard.append)
    with pytest.raises(ZeroDivisionError):
        scene.disk.end()
    assert heard == [None]
