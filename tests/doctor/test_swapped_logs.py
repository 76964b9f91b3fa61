"""The log of one partition in the place of another one's: every checksum is right, and what it holds was not written by
whoever reads it at a start. The doctor says so, and the broker, with the same file and what to do."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from oncelog.controller.records import FRAME_VERSION
from oncelog.errors import OncelogError
from oncelog.records.batch import build_batch
from tests.broker.support import NOW_MS, Desk
from tests.broker.transactions.support import init
from tests.doctor.test_checkup import contents, findings, flip, losses, repair_all
from tests.faults.damage import GROUP, METADATA, OFFSETS, ORDERS, PRICES, STOCK, TRANSACTIONS, Writers, open_desk
from tests.support.groups import commit_request

LOG = "00000000000000000000.log"
MORE_THAN_ANY_OTHER = 60
SOURCES = {"without keys": "prices-0", "with keys": "stock-0", "of transactions": "orders-0"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    desk = open_desk(folder)
    for name in ("orders", "prices", "stock"):
        desk.create(name)
    for key_type, key in enumerate((GROUP, "mover")):
        desk.ask("find_coordinator", 4, {"key_type": key_type, "coordinator_keys": [key]})
    writers = Writers(desk)
    for number in range(4):
        writers.transaction(number, commit=True)
    for partition, key in ((PRICES, None), (STOCK, b"key"), (ORDERS, b"key")):
        rows = [(NOW_MS, key, b"plain %050d" % number, ()) for number in range(MORE_THAN_ANY_OTHER)]
        writers.append(partition, build_batch(rows))
    assert commit(desk) == 0
    desk.broker.stop(NOW_MS)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "data"))


def commit(desk: Desk) -> int:
    answer = desk.ask("offset_commit", 8, commit_request(GROUP, ("orders", 0, 1)))
    return int(answer["topics"][0]["partitions"][0]["error_code"])


@pytest.mark.parametrize("source", SOURCES)
def test_a_false_metadata_log_is_refused_as_it_is(folder: Path, source: str) -> None:
    path = folder / METADATA / LOG
    shutil.copy(folder / SOURCES[source] / LOG, path)
    before = contents(folder)
    (found,) = losses(folder)
    assert f"{path}, offset " in found.finding.problem
    with pytest.raises(OncelogError, match="Nothing was changed; `oncelog doctor") as refused:
        open_desk(folder)
    assert str(refused.value).startswith(f"{path}, offset ")
    assert "newer" not in str(refused.value)
    assert contents(folder) == before
    done = repair_all(folder)
    assert len([line for line in done if line.startswith("lost: ")]) == 1, "not a line for each record"
    assert losses(folder) == []
    assert set(open_desk(folder).broker.controller.state.topics) >= {"orders", "prices", "stock"}


def test_metadata_of_a_newer_version_is_not_repaired(folder: Path) -> None:
    rows = [(NOW_MS, None, bytes([FRAME_VERSION, 120, 0]), ())] * MORE_THAN_ANY_OTHER
    (folder / METADATA / LOG).write_bytes(build_batch(rows, leader_epoch=9))
    (found,) = losses(folder)
    assert "newer version" in found.finding.problem
    assert found.repair is None
    with pytest.raises(OncelogError, match=f"{LOG}, offset .*newer version.* Nothing was changed; start it with"):
        open_desk(folder)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert not [record for record in caplog.records if record.exc_info and record.levelno > logging.DEBUG]
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", [OFFSETS, TRANSACTIONS], ids=str)
def test_a_false_log_of_a_coordinator_is_not_believed(
    folder: Path, source: str, target: object, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / str(target) / LOG
    shutil.copy(folder / SOURCES[source] / LOG, path)
    before = contents(folder)
    (found,) = losses(folder)
    assert found.finding.path == str(path)
    assert "offset 0 cannot be understood" in found.finding.problem
    assert "coordinator" in found.finding.consequence
    assert len(found.finding.problem) < 1000
    assert [each.finding.path for each in findings(folder, deep=False)] == [
        each.finding.path for each in findings(folder)
    ]
    assert contents(folder) == before
    desk = open_desk(folder)
    desk.alarms.pass_time(10)
    (told,) = errors(caplog)
    assert f"{path}, offset " in told
    assert told.count("`oncelog doctor") == told.count("cannot be understood") == 1
    desk.broker.stop(NOW_MS)
    repair_all(folder)
    assert losses(folder) == []
    desk = open_desk(folder)
    desk.alarms.pass_time(10)
    assert commit(desk) == 0
    assert init(desk, "mover").producer_id >= 0


def test_a_flipped_bit_in_the_log_of_a_coordinator_is_told_without_a_traceback(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / str(TRANSACTIONS) / LOG
    flip(path)
    assert losses(folder)[0].finding.path == str(path)
    desk = open_desk(folder)
    desk.alarms.pass_time(10)
    told = errors(caplog)
    assert [str(path) in line and "`oncelog doctor" in line for line in told] == [True, False]
