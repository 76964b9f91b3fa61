"""A folder or a pipe in the place of a file: the doctor names it, and asks nobody to accept a loss for it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from oncelog.cli.main import main
from oncelog.log.inspection import Severity
from tests.doctor.test_checkup import contents, findings, folder

__all__ = ["folder"]

METADATA = "__cluster_metadata-0"
FIRST = "0" * 20
BESIDES = (
    ".kafka_cleanshutdown",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint.tmp",
    f"{METADATA}/quorum-state",
    f"{METADATA}/{FIRST}-0000000001.checkpoint",
    f"paid-0/{FIRST}.snapshot",
    f"paid-0/{FIRST}.txnindex",
    f"paid-0/{FIRST}.log.cleaned",
    f"paid-0/{FIRST}.log.deleted",
    f"paid-0/{FIRST}.log.swap",
    "paid-0/leader-epoch-checkpoint.tmp",
)
"""Names of files that a stopped broker need not have."""


@pytest.mark.parametrize("deep", [False, True])
def test_every_kind_of_file(folder: Path, tmp_path_factory: pytest.TempPathFactory, deep: bool) -> None:
    wrong = {}
    for name in sorted({each for each in contents(folder) if "-delete/" not in each}.union(BESIDES)):
        copy = tmp_path_factory.mktemp("copy") / "data"
        shutil.copytree(folder, copy)
        (copy / name).unlink(missing_ok=True)
        (copy / name).mkdir()
        found = [
            (each.finding.path, each.finding.problem, each.finding.severity, each.finding.can_repair, each.repair)
            for each in findings(copy, deep=deep)
        ]
        if found != [(str(copy / name), "it is not a regular file", Severity.LOSS, False, None)]:
            wrong[name] = found
    assert wrong == {}


def test_a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "cleaner-offset-checkpoint")
    (found,) = findings(folder)
    assert found.finding.path == str(folder / "cleaner-offset-checkpoint")


def test_what_no_broker_opens_is_left_alone(folder: Path) -> None:
    (folder / "lost+found").mkdir()
    (folder / "paid-0" / "backup").mkdir()
    (folder / "paid-0" / f"{FIRST}.timeindex").unlink()
    (folder / "paid-0" / f"{FIRST}.timeindex").symlink_to("nowhere")
    assert [each for each in findings(folder) if each.finding.problem == "it is not a regular file"] == []


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is repaired, nothing is lost: whoever moves it away has all that was there."""
    index = folder / "paid-0" / f"{FIRST}.timeindex"
    index.unlink()
    index.mkdir()
    for options in ([], ["--deep"], ["--repair", "--yes"]):
        assert main(["doctor", str(folder), *options]) == 1
        said = capsys.readouterr().out
        assert f"loss: paid-0/{index.name}" in said
        assert "move it away" in said
        assert "accept" not in said
        assert index.is_dir()
    index.rmdir()
    assert main(["doctor", str(folder)]) == 0
