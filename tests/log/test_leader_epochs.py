from __future__ import annotations

import errno

import pytest

from oncelog.log.checkpoints import CorruptCheckpoint
from oncelog.log.leader_epochs import UNDEFINED, EpochEndOffset, EpochEntry, LeaderEpochCache
from tests.support.faulty_storage import FaultyStorage

FILE = "data/leader-epoch-checkpoint"


@pytest.fixture
def storage() -> FaultyStorage:
    storage = FaultyStorage()
    storage.make_directory("data")
    return storage


def cache(storage: FaultyStorage, *entries: tuple[int, int]) -> LeaderEpochCache:
    epochs = LeaderEpochCache(storage, "data")
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    return epochs


def test_the_file_is_kafkas(storage: FaultyStorage) -> None:
    epochs = cache(storage, (0, 0), (3, 1042))
    assert not storage.exists(FILE), "an epoch costs no file before somebody relies on it"
    assert epochs.write_out()
    assert storage.content(FILE) == b"0\n2\n0 0\n3 1042\n"
    assert not epochs.write_out()


def test_loads_what_it_wrote(storage: FaultyStorage) -> None:
    cache(storage, (0, 0), (3, 1042)).write_out()
    again = LeaderEpochCache(storage, "data")
    again.load()
    assert again.entries == (EpochEntry(0, 0), EpochEntry(3, 1042))
    assert again.latest_epoch == 3


@pytest.mark.parametrize(
    "content",
    [b"", b"0\n2\n0 0\n", b"1\n0\n", b"0\n1\nx y\n", b"0\n1\n1 2 3\n", b"0\n2\n3 0\n3 9\n", b"0\n2\n0 9\n1 3\n"],
)
def test_a_damaged_file_is_refused(storage: FaultyStorage, content: bytes) -> None:
    storage.open(FILE, create=True).append(content)
    with pytest.raises(CorruptCheckpoint):
        LeaderEpochCache(storage, "data").load()


def test_assigning_the_latest_epoch_again_writes_nothing(storage: FaultyStorage) -> None:
    epochs = cache(storage, (5, 10))
    operations = storage.operations
    epochs.assign(5, 20)
    epochs.assign(-1, 20)
    assert storage.operations == operations
    assert epochs.entries == (EpochEntry(5, 10),)


def test_an_epoch_that_never_got_a_record_gives_way(storage: FaultyStorage) -> None:
    assert cache(storage, (1, 0), (2, 10), (4, 10)).entries == (EpochEntry(1, 0), EpochEntry(4, 10))


def test_a_failed_write_is_tried_again(storage: FaultyStorage) -> None:
    epochs = cache(storage, (1, 0))
    epochs.write_out()
    epochs.assign(2, 10)
    storage.fail_at(storage.operations + 2, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        epochs.write_out()
    assert storage.content(FILE) == b"0\n1\n1 0\n"
    assert epochs.write_out()
    assert storage.content(FILE) == b"0\n2\n1 0\n2 10\n"


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, UNDEFINED),
        (0, EpochEndOffset(0, 5)),  # before the first: Kafka answers with the epoch asked for
        (1, EpochEndOffset(1, 10)),
        (2, EpochEndOffset(1, 10)),
        (3, EpochEndOffset(3, 20)),
        (4, EpochEndOffset(3, 20)),
        (5, EpochEndOffset(5, 33)),
        (6, UNDEFINED),
    ],
)
def test_end_offset_for_epoch(storage: FaultyStorage, epoch: int, expected: EpochEndOffset) -> None:
    assert cache(storage, (1, 5), (3, 10), (5, 20)).end_offset_for(epoch, 33) == expected


def test_epoch_for_offset(storage: FaultyStorage) -> None:
    epochs = cache(storage, (1, 5), (3, 10))
    assert [epochs.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 3, 3]


@pytest.mark.parametrize(
    ("end_offset", "kept"), [(0, ()), (5, ()), (6, (1,)), (10, (1,)), (11, (1, 3)), (99, (1, 3, 5))]
)
def test_truncate_from_end(storage: FaultyStorage, end_offset: int, kept: tuple[int, ...]) -> None:
    epochs = cache(storage, (1, 5), (3, 10), (5, 20))
    epochs.truncate_from_end(end_offset)
    assert tuple(entry.epoch for entry in epochs.entries) == kept
    assert epochs.latest_epoch == (kept[-1] if kept else -1)


@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (0, ((1, 5), (3, 10), (5, 20))),
        (5, ((1, 5), (3, 10), (5, 20))),
        (7, ((1, 7), (3, 10), (5, 20))),
        (10, ((3, 10), (5, 20))),
        (15, ((3, 15), (5, 20))),
        (50, ((5, 50),)),
    ],
)
def test_truncate_from_start(storage: FaultyStorage, start_offset: int, expected: tuple[tuple[int, int], ...]) -> None:
    epochs = cache(storage, (1, 5), (3, 10), (5, 20))
    epochs.truncate_from_start(start_offset)
    assert epochs.entries == expected


def test_what_recovery_finds_is_written_when_somebody_relies_on_it(storage: FaultyStorage) -> None:
    epochs = cache(storage, (1, 0))
    epochs.write_out()
    operations = storage.operations
    epochs.take([EpochEntry(1, 0)])
    assert not epochs.write_out(), "nothing is new"
    epochs.take([EpochEntry(1, 0), EpochEntry(2, 5)])
    assert storage.operations == operations
    assert epochs.write_out()
    assert storage.content(FILE) == b"0\n2\n1 0\n2 5\n"
    epochs.restore([EpochEntry(3, 7)])
    assert storage.content(FILE) == b"0\n1\n3 7\n"
