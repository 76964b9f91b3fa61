"""`oncelog doctor`: what it says of each kind of folder, and that its page runs as printed."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from oncelog.broker.server import data_folder_lock
from oncelog.broker.state import BrokerState
from oncelog.cli.doctor import _agreed
from tests.cli.conftest import Run, Typed
from tests.doctor.test_checkup import flip, folder, open_broker

__all__ = ["folder"]

PAGE = Path(__file__).parent.parent.parent / "docs" / "doctor.md"
LOG = "__cluster_metadata-0/00000000000000000000.log"


def test_a_sound_folder(oncelog: Run, folder: Path) -> None:
    said = oncelog("doctor", str(folder))
    assert said.code == 0
    unread = "the checksums of records were not read (--deep does)"
    assert said.out == f"{folder} is sound, as far as a start looks; {unread}\n"
    assert oncelog("doctor", str(folder), "--deep").out == f"{folder} is sound: nothing is damaged or missing\n"
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
    assert repaired.lines[0].startswith("the metadata is rebuilt, with 2 topics: orders, paid")
    assert repaired.lines[1].startswith("no record of any topic was changed")
    assert repaired.lines[2] == "a broker can start on this folder"
    assert "orders" in open_broker(folder).controller.state.topics


def test_a_folder_in_use(oncelog: Run, folder: Path) -> None:
    with data_folder_lock(str(folder)):
        said = oncelog("doctor", str(folder))
    assert said.code == 1
    assert "is in use by a running broker (process" in said.err
    assert "--data" not in said.err


def test_records_that_only_reading_finds_damaged(oncelog: Run, folder: Path) -> None:
    """The hint leads to the repair, which says what is lost before and after."""
    flip(folder / "paid-0" / "00000000000000000000.log", 0.95)
    assert oncelog("doctor", str(folder)).code == 0
    found = oncelog("doctor", str(folder), "--deep")
    assert found.code == 1
    assert found.lines[-1] == f"`oncelog doctor {folder} --deep --repair` goes through what can be repaired"
    (finding,) = oncelog("doctor", str(folder), "--deep", "--json").json["findings"]
    assert finding["lost"] == [{"first_offset": 0, "last_offset": 0}]
    assert "accept the loss of offset 0 (1 record) in paid-0" in finding["repair"]
    repaired = oncelog("doctor", str(folder), "--deep", "--repair", "--yes")
    assert repaired.code == 0
    assert repaired.lines[-2:] == [
        "paid-0: offset 0 (1 record) lost, as accepted",
        "a broker can start on this folder, and serves what is left",
    ]
    later = oncelog("doctor", str(folder), "--deep")
    assert later.code == 0
    assert "nothing is lost" not in repaired.out + later.out, "something was, and was accepted"
    assert open_broker(folder).partition("paid", 0).log_start_offset == 0


def test_the_loss_of_a_segment_is_told_to_scripts(oncelog: Run, folder: Path) -> None:
    (folder / "paid-0" / "00000000000000000000.log").unlink()
    said = oncelog("doctor", str(folder), "--repair", "--yes", "--json").json
    (repair,) = said["repaired"]
    assert (repair["partition"], repair["lost"]) == ("paid-0", [{"first_offset": 0, "last_offset": 0}])


def test_cut_metadata_is_told_once(oncelog: Run, folder: Path) -> None:
    log = folder / LOG
    log.write_bytes(log.read_bytes()[:-5])
    assert [each["severity"] for each in oncelog("doctor", str(folder), "--json").json["findings"]] == ["loss"]


def test_an_answer_that_is_none_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Typed("maybe\nYes\n"))
    assert _agreed("accept")


def test_folders_of_others(oncelog: Run, tmp_path: Path) -> None:
    assert "is not a folder" in oncelog("doctor", str(tmp_path / "nowhere")).err
    empty = oncelog("doctor", str(tmp_path))
    assert (empty.code, empty.out) == (0, f"{tmp_path} is empty: a broker begins a new cluster here\n")
    (tmp_path / "letter.txt").write_text("dear")
    foreign = oncelog("doctor", str(tmp_path))
    assert foreign.code == 1
    assert "is not a data folder" in foreign.err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"], "nothing was written there"


def test_a_killed_broker_s_folder(oncelog: Run, folder: Path) -> None:
    broker: BrokerState = open_broker(folder)
    broker.controller.next_producer_id(0)
    said = oncelog("doctor", str(folder), "--deep")
    assert said.code == 0, said


@pytest.mark.real
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
