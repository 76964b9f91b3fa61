"""Producers that only a `.snapshot` still knows, since retention has removed what they wrote: with their snapshots lost
the partition is offline and says so, rather than store their repeats again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.log.inspection import Severity, accept_loss, inspect_data_folder
from oncelog.log.manager import LogManager
from tests.log.damaging import CONFIG, DAMAGED, FOLDER, PRODUCER, TOPIC_IDS, flush_sealed, open_manager
from tests.log.driver import START_MS, append, make_batch
from tests.support.faulty_storage import FaultyStorage

WITHOUT_ID = -1
PARTITION_FOLDER = f"{FOLDER}/{DAMAGED}"


def make_folder(*, is_killed: bool, producer_id: int = PRODUCER) -> FaultyStorage:
    """One producer writes, then others without an id, until nothing of the first is left in the log."""
    disk = FaultyStorage()
    manager = open_manager(disk)
    log = manager.create(DAMAGED, TOPIC_IDS[DAMAGED], CONFIG, START_MS)
    append(log, first_batch(producer_id))
    for _ in range(4):
        log.roll(START_MS)
        append(log, make_batch([b"plain"]))
    log.advance_high_watermark(log.log_end_offset)
    log.delete_records(3)
    log.apply_retention(START_MS)
    flush_sealed(log)
    manager.checkpoint()
    if not is_killed:
        manager.stop(START_MS)
    return disk.copy()


def first_batch(producer_id: int = PRODUCER) -> bytearray:
    return make_batch([b"once"], producer_id=producer_id, sequence=0 if producer_id != WITHOUT_ID else -1)


def snapshots(disk: FaultyStorage) -> list[str]:
    return [path for path in disk.paths("") if path.startswith(PARTITION_FOLDER) and path.endswith(".snapshot")]


def delete(disk: FaultyStorage, path: str) -> None:
    disk.remove(path)


def empty(disk: FaultyStorage, path: str) -> None:
    disk.content(path)[:] = b""


def flip(disk: FaultyStorage, path: str) -> None:
    disk.content(path)[len(disk.content(path)) // 2] ^= 1


every_damage = pytest.mark.parametrize("damage", [delete, empty, flip])
stopped_or_killed = pytest.mark.parametrize("is_killed", [False, True])
Damage = Callable[[FaultyStorage, str], None]


def is_repeat_known(manager: LogManager) -> bool:
    return append(manager.logs[DAMAGED], first_batch()).duplicate


@stopped_or_killed
def test_a_snapshot_is_enough(is_killed: bool) -> None:
    disk = make_folder(is_killed=is_killed)
    assert inspect_data_folder(disk, FOLDER, [DAMAGED]) == []
    manager = open_manager(disk)
    assert manager.logs[DAMAGED].log_start_offset == 3
    assert is_repeat_known(manager)


@stopped_or_killed
@every_damage
def test_without_any_the_partition_is_offline_until_the_loss_is_accepted(is_killed: bool, damage: Damage) -> None:
    disk = make_folder(is_killed=is_killed)
    for path in snapshots(disk):
        damage(disk, path)
    (finding,) = inspect_data_folder(disk, FOLDER, [DAMAGED])
    assert (finding.path, finding.severity, finding.can_repair) == (PARTITION_FOLDER, Severity.LOSS, True)
    assert "the memory of its producers is lost" in finding.problem
    before = {path: bytes(disk.content(path)) for path in snapshots(disk)}
    for _ in range(2):
        error = open_manager(disk).report.failed[DAMAGED]
        assert "the memory of its producers is lost" in str(error)
    assert {path: bytes(disk.content(path)) for path in snapshots(disk)} == before, "what is damaged is left as it is"
    accept_loss(disk, FOLDER, DAMAGED)
    assert [each for each in inspect_data_folder(disk, FOLDER, [DAMAGED]) if each.severity is Severity.LOSS] == []
    manager = open_manager(disk)
    assert (manager.logs[DAMAGED].log_start_offset, manager.logs[DAMAGED].log_end_offset) == (3, 5)
    assert not is_repeat_known(manager)


@stopped_or_killed
@every_damage
def test_one_damaged_snapshot_forgets_nobody(is_killed: bool, damage: Damage) -> None:
    for path in snapshots(make_folder(is_killed=is_killed)):
        disk = make_folder(is_killed=is_killed)
        damage(disk, path)
        manager = open_manager(disk)
        assert DAMAGED in manager.report.failed or is_repeat_known(manager)


@stopped_or_killed
def test_where_nobody_had_an_id_nothing_is_lost(is_killed: bool) -> None:
    disk = make_folder(is_killed=is_killed, producer_id=WITHOUT_ID)
    for path in snapshots(disk):
        disk.remove(path)
    assert open_manager(disk).report.failed == {}
