"""`oncelog doctor`: what it says of each kind of folder, and that its page runs as printed."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from oncelog.broker.server import data_folder_lock
from oncelog.broker.state import BrokerState
from tests.cli.conftest import Run
from tests.doctor.test_checkup import flip, folder, open_broker

__all__ = ["folder"]

PAGE = Path(__file__).parent.parent.parent / "docs" / "doctor.md"
LOG = "__cluster_metadata-0/00000000000000000000.log"


def test_a_sound_folder(oncelog: Run, folder: Path) -> None:
    said = oncelog("doctor", str(folder))
    assert said.code == 0
    assert said.out == f"{folder} is sound: nothing is damaged or missing\n"
    assert oncelog("doctor", str(folder), "--json").json == {"folder": str(folder), "sound": True, "findings": []}


def test_a_damaged_folder(oncelog: Run, folder: Path) -> None:
    flip(folder / LOG, 0.3)
    said = oncelog("doctor", str(folder))
    assert said.code == 1
    assert said.lines[0] == "loss: __cluster_metadata-0"
    (found,) = oncelog("doctor", str(folder), "--json").json["findings"]
    assert found["severity"] == "loss"
    assert "accept the loss" in found["repair"]
    asked = oncelog("doctor", str(folder), "--repair")
    assert asked.code == 1
    assert "add --yes" in asked.err
    repaired = oncelog("doctor", str(folder), "--repair", "--yes")
    assert repaired.code == 0
    assert "orders" in open_broker(folder).controller.state.topics


def test_a_folder_in_use(oncelog: Run, folder: Path) -> None:
    with data_folder_lock(str(folder)):
        said = oncelog("doctor", str(folder))
    assert said.code == 1
    assert "is in use by another broker" in said.err


def test_folders_of_others(oncelog: Run, tmp_path: Path) -> None:
    assert "is not a folder" in oncelog("doctor", str(tmp_path / "nowhere")).err
    empty = oncelog("doctor", str(tmp_path))
    assert (empty.code, empty.out) == (0, f"{tmp_path} is empty: a broker begins a new cluster here\n")
    (tmp_path / "letter.txt").write_text("dear")
    foreign = oncelog("doctor", str(tmp_path))
    assert foreign.code == 1
    assert "is no data folder" in foreign.err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"], "nothing was written there"


def test_a_killed_broker_s_folder(oncelog: Run, folder: Path) -> None:
    broker: BrokerState = open_broker(folder)
    broker.controller.next_producer_id(0)
    said = oncelog("doctor", str(folder), "--deep")
    assert said.code == 0, said


def test_the_page_runs_as_printed(oncelog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for language, block in re.findall(r"^```(python|console)\n(.*?)^```$", PAGE.read_text(), re.M | re.S):
        if language == "python":
            exec(compile(block, "doctor.md", "exec"), {})
            continue
        for command, printed in re.findall(r"^\$ oncelog (.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
            said = oncelog(*command.split())
            lines = (said.err + said.out).splitlines()
            for line, pattern in zip(lines, printed.splitlines(), strict=True):
                assert fnmatchcase(line, pattern), f"{line}\nis not\n{pattern}"
