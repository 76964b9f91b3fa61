from __future__ import annotations

import logging

import pytest

from oncelog.log.producer_state import BatchMetadata, ProducerEntry
from oncelog.log.snapshot_files import SnapshotFiles
from tests.support.faulty_storage import FaultyStorage


def entries(producer_id: int) -> list[ProducerEntry]:
    return [ProducerEntry(producer_id, 0, batches=[BatchMetadata(0, 3, 10, 13, 99)], last_timestamp=99)]


def snapshots(*offsets: int) -> tuple[FaultyStorage, SnapshotFiles]:
    """Snapshots at these offsets, each with a producer of that id."""
    storage = FaultyStorage()
    storage.make_directory("data")
    files = SnapshotFiles(storage, "data", [])
    for offset in offsets:
        files.write(offset, entries(offset), 0)
    return storage, files


def test_finds_the_newest_at_or_below_an_offset_even_in_another_life() -> None:
    storage, _ = snapshots(5, 100, 20)
    again = SnapshotFiles(storage, "data", storage.list_directory("data"))
    assert again.offsets == [5, 20, 100]
    for at_most, expected in ((4, None), (5, 5), (19, 5), (99, 20), (100, 100), (10**12, 100)):
        found = again.newest(at_most, 0)
        assert (found.offset if found else None) == expected
        assert found is None or [entry.producer_id for entry in found.entries] == [expected]


def test_other_files_are_not_snapshots() -> None:
    names = ["00000000000000000005.log", "5.snapshot", "00000000000000000007.snapshot.tmp", "x.snapshot"]
    assert SnapshotFiles(FaultyStorage(), "data", names).offsets == []


def test_a_broken_one_is_passed_over_with_a_warning_and_the_one_before_it_is_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage, files = snapshots(5, 20)
    storage.content(files.path(20))[9] ^= 4
    with caplog.at_level(logging.WARNING):
        found = files.newest(50, 0)
    assert found is not None
    assert found.offset == 5
    assert (files.broken, files.offsets) == ([20], [5])
    files.remove_broken()
    assert storage.list_directory("data") == ["00000000000000000005.snapshot"]
    assert "00000000000000000020.snapshot" in caplog.text


def test_removing() -> None:
    storage, files = snapshots(*range(0, 100, 10))
    files.remove_below(20)
    files.remove_above(70)
    assert files.offsets == [20, 30, 40, 50, 60, 70]
    files.remove_stray({30, 50})
    assert files.offsets == [30, 50, 70], "those of segments, and the newest"
    assert len(storage.list_directory("data")) == 3


def test_a_snapshot_is_replaced_whole() -> None:
    for operation in range(4):
        storage, files = snapshots(5)
        storage.fail_at(storage.operations + operation, torn=True)
        with pytest.raises(OSError, match=r"torn|error"):
            files.write(5, [*entries(6), *entries(7)], 0)
        found = files.newest(5, 0)
        assert found is not None
        assert [entry.producer_id for entry in found.entries] == [5]
