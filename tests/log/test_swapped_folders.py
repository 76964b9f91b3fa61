"""Folders of one topic under each other's names: their topic id is the same, only their manifests tell them apart."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from oncelog.log.config import LogConfig
from oncelog.log.inspection import Severity, inspect_data_folder
from oncelog.log.manager import LogManager
from oncelog.log.storage import FileStorage
from oncelog.types import TopicPartition
from tests.log.driver import START_MS, append, make_batch, read_records

PARTITIONS = [TopicPartition("orders", index) for index in range(3)]
TOPIC_ID = UUID(int=11)


def open_manager(folder: Path) -> LogManager:
    return LogManager.open(FileStorage(), str(folder), config_of=lambda *_: LogConfig(), now_ms=START_MS)


@pytest.fixture(params=["stopped", "killed"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    data = tmp_path / "data"
    manager = open_manager(data)
    for partition in PARTITIONS:
        append(manager.create(partition, TOPIC_ID, LogConfig(), START_MS), make_batch([str(partition).encode()]))
    if request.param == "stopped":
        manager.stop(START_MS)
    return data


def swap(folder: Path) -> None:
    (folder / "orders-0").rename(folder / "between")
    (folder / "orders-1").rename(folder / "orders-0")
    (folder / "between").rename(folder / "orders-1")


def served(manager: LogManager) -> dict[TopicPartition, bytes | None]:
    return {partition: read_records(log)[0].value for partition, log in manager.logs.items()}


def test_they_are_not_served_until_they_have_their_names_back(folder: Path) -> None:
    swap(folder)
    losses = [
        found
        for found in inspect_data_folder(FileStorage(), str(folder), PARTITIONS)
        if found.severity is Severity.LOSS
    ]
    assert [found.path for found in losses] == [str(folder / "orders-0"), str(folder / "orders-1")]
    manager = open_manager(folder)
    assert set(manager.report.failed) == set(PARTITIONS[:2])
    assert "should be called orders-1 again" in str(manager.report.failed[PARTITIONS[0]])
    assert served(manager) == {PARTITIONS[2]: b"orders-2"}
    swap(folder)
    assert served(open_manager(folder)) == {partition: str(partition).encode() for partition in PARTITIONS}


def test_a_data_folder_may_move_as_a_whole(folder: Path) -> None:
    moved = folder.rename(folder.parent / "elsewhere")
    assert served(open_manager(moved)) == {partition: str(partition).encode() for partition in PARTITIONS}
