"""Group commit against a log and a disk that the test holds in its hands."""

from __future__ import annotations

from collections.abc import Callable

from oncelog.broker.group_commit import GroupCommit
from oncelog.errors import KafkaError, KafkaStorageError


class Flush:
    def __init__(self, offset: int) -> None:
        self.offset = offset

    def run(self) -> None:
        """Nothing to sync here: the test says when it is over."""


class Log:
    """The few things of a PartitionLog that a flush needs."""

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.recovery_point = 0
        self.failed_with: Exception | None = None

    def flush_request(self) -> Flush | None:
        return Flush(self.log_end_offset) if self.log_end_offset > self.recovery_point else None

    def flushed(self, request: Flush, now_ms: int) -> None:
        self.recovery_point = request.offset

    def flush_failed(self, error: Exception) -> None:
        self.failed_with = error


class Disk:
    """Holds flushes back until the test lets them end."""

    def __init__(self) -> None:
        self.running: list[Callable[[None, Exception | None, int], None]] = []

    def run_in_thread(self, work: Callable[[], None], done: Callable[[None, Exception | None, int], None]) -> None:
        work()
        self.running.append(done)

    def end(self, error: Exception | None = None) -> None:
        self.running.pop(0)(None, error, 0)


def append_and_wait(group: GroupCommit, log: Log, ended: list[tuple[int, KafkaError | None]]) -> None:
    log.log_end_offset += 1
    offset = log.log_end_offset
    group.wait(log, offset, lambda error: ended.append((offset, error)))


def test_nothing_is_answered_before_its_flush_has_ended() -> None:
    disk, log, ended = Disk(), Log(), []
    group = GroupCommit(disk.run_in_thread)
    append_and_wait(group, log, ended)
    assert ended == []
    disk.end()
    assert ended == [(1, None)]


def test_appends_during_a_flush_share_the_next_one() -> None:
    disk, log, ended = Disk(), Log(), []
    group = GroupCommit(disk.run_in_thread)
    for _ in range(4):
        append_and_wait(group, log, ended)
    assert len(disk.running) == 1
    disk.end()
    assert ended == [(1, None)]
    assert len(disk.running) == 1
    disk.end()
    assert ended == [(1, None), (2, None), (3, None), (4, None)]
    assert disk.running == []


def test_a_failed_flush_fails_everyone_who_waits_and_is_not_tried_again() -> None:
    disk, log, ended = Disk(), Log(), []
    group = GroupCommit(disk.run_in_thread)
    append_and_wait(group, log, ended)
    append_and_wait(group, log, ended)
    error = OSError("the disk is gone")
    disk.end(error)
    assert [offset for offset, _ in ended] == [1, 2]
    assert all(isinstance(found, KafkaStorageError) for _, found in ended)
    assert log.failed_with is error
    assert disk.running == []


def test_what_is_durable_already_is_answered_at_once() -> None:
    disk, log, ended = Disk(), Log(), []
    group = GroupCommit(disk.run_in_thread)
    group.wait(log, 0, lambda error: ended.append((0, error)))
    assert ended == [(0, None)]
    assert disk.running == []
