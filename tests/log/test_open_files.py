"""Descriptors of growing segments: a bound on how many are open, and nothing is lost when one is closed."""

from __future__ import annotations

import errno
from pathlib import Path
from uuid import UUID

import pytest

from oncelog.errors import KafkaStorageError
from oncelog.log.config import LogConfig
from oncelog.log.manager import LogManager
from oncelog.log.open_files import MAX_CHANCES, OpenFiles
from oncelog.log.storage import FileStorage
from oncelog.types import TopicPartition
from tests.log.compacting import START_MS, append, read_records
from tests.support.faulty_storage import FaultyStorage

CONFIG = LogConfig()
TOPIC = UUID(int=1)


def open_manager(folder: Path, open_files: OpenFiles) -> LogManager:
    return LogManager.open(
        FileStorage(),
        str(folder),
        config_of=lambda partition, topic_id: CONFIG,
        now_ms=START_MS,
        open_files=open_files,
    )


def test_no_more_files_are_held_open_than_allowed(tmp_path: Path) -> None:
    open_files = OpenFiles(3)
    manager = open_manager(tmp_path, open_files)
    logs = [manager.create(TopicPartition("orders", index), TOPIC, CONFIG, START_MS) for index in range(10)]
    for number in range(3):
        for log in logs:
            append(log, (b"key", b"%d" % number))
            assert len(open_files) <= 3
    for log in logs:
        assert [record.value for record in read_records(log)] == [b"0", b"1", b"2"]
    again = OpenFiles(3)
    reopened = open_manager(tmp_path, again)
    assert len(again) == 0, "a start holds nothing open"
    assert {log.log_end_offset for log in reopened.logs.values()} == {3}


def test_a_reader_and_a_flush_keep_their_file_when_the_log_lets_go_of_it(tmp_path: Path) -> None:
    open_files = OpenFiles(1)
    manager = open_manager(tmp_path, open_files)
    first, second = (manager.create(TopicPartition("orders", index), TOPIC, CONFIG, START_MS) for index in range(2))
    append(first, (b"key", b"value"))
    promised, flush = first.read(0, 1_000, upper_bound=1), first.flush_request()
    append(second, (b"key", b"value"))
    assert len(open_files) == 1
    assert len(promised.read_all()) == promised.size_bytes
    assert flush is not None
    flush.run()
    first.flushed(flush, START_MS)
    assert first.recovery_point == 1


class Segment:
    """As far as it matters who is closed."""

    def __init__(self) -> None:
        self.modified_ms = 0
        self.is_open = True

    def release(self) -> None:
        self.is_open = False


def test_who_was_written_to_meanwhile_stays_open() -> None:
    open_files = OpenFiles(2)
    busy, idle, new = Segment(), Segment(), Segment()
    open_files.entered(busy)
    open_files.entered(idle)
    busy.modified_ms = 1
    open_files.entered(new)
    assert (busy.is_open, idle.is_open, new.is_open) == (True, False, True)


def test_one_goes_even_if_all_are_busy() -> None:
    open_files = OpenFiles(30)
    segments = [Segment() for _ in range(31)]
    for number, segment in enumerate(segments):
        open_files.entered(segment)
        segment.modified_ms = number + 1
    assert sum(segment.is_open for segment in segments) == len(open_files) == 30


@pytest.mark.parametrize("limit", [1, 2, 8, MAX_CHANCES, MAX_CHANCES + 8])
def test_who_enters_stays_even_if_all_others_are_busy(limit: int) -> None:
    open_files = OpenFiles(limit)
    others = [Segment() for _ in range(limit)]
    for number, segment in enumerate(others, 1):
        open_files.entered(segment)
        segment.modified_ms = number
    new = Segment()
    open_files.entered(new)
    open_files.entered(new)
    assert new.is_open
    assert sum(segment.is_open for segment in others) == limit - 1
    assert len(open_files) == limit


@pytest.mark.parametrize("limit", [1, 2, 8])
def test_a_torn_write_is_cut_off_where_all_files_are_busy(limit: int) -> None:
    storage = FaultyStorage()
    manager = LogManager.open(
        storage, "data", config_of=lambda *_: CONFIG, now_ms=START_MS, open_files=OpenFiles(limit)
    )
    logs = [manager.create(TopicPartition("orders", index), TOPIC, CONFIG, START_MS) for index in range(limit + 1)]
    for number, log in enumerate([*logs, *logs[1:], *logs[1:]]):
        append(log, (b"key", b"first"), now_ms=START_MS + number)
    storage.fail_at(storage.operations + 1, errno.ENOSPC, torn=True)  # first it is opened
    with pytest.raises(KafkaStorageError, match="nothing was written"):
        append(logs[0], (b"key", b"torn"))
    append(logs[0], (b"key", b"second"))
    assert [record.value for record in read_records(logs[0])] == [b"first", b"second"]


def test_who_lets_go_of_its_file_is_not_counted() -> None:
    open_files = OpenFiles(1)
    first, second = Segment(), Segment()
    open_files.entered(first)
    open_files.left(first)
    open_files.entered(second)
    assert first.is_open
    assert second.is_open
