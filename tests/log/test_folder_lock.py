"""One process per folder, whatever becomes of the file that tells so."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog.log.folder_lock import LOCK_FILE, FolderInUse, FolderLock

HOLD = """
import sys
from oncelog.log.folder_lock import FolderInUse, FolderLock
try:
    lock = FolderLock(sys.argv[1])
except FolderInUse as error:
    print("in use by", error.owner, flush=True)
else:
    print("held", flush=True)
    sys.stdin.read()
"""
AS_KAFKA = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "a"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("in use")
else:
    print("held")
"""


@contextmanager
def another_process(folder: Path) -> Iterator[str]:
    """What another process says that wants the folder; it keeps what it gets until the end."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


def as_kafka(folder: Path) -> str:
    command = [sys.executable, "-c", AS_KAFKA, str(folder / LOCK_FILE)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("change", ["as it was", "deleted", "replaced", "renamed"])
def test_nobody_else_gets_the_folder_whatever_happens_to_the_file(tmp_path: Path, change: str) -> None:
    lock = FolderLock(str(tmp_path))
    if change == "renamed":
        (tmp_path / LOCK_FILE).rename(tmp_path / "old")
    elif change != "as it was":
        (tmp_path / LOCK_FILE).unlink()
    if change == "replaced":
        (tmp_path / LOCK_FILE).write_text("")
    with another_process(tmp_path) as said:
        assert said.startswith("in use by")
    with pytest.raises(FolderInUse, match=str(os.getpid())):
        FolderLock(str(tmp_path))
    lock.release()
    with another_process(tmp_path) as said:
        assert said == "held"


def test_the_owner_is_told_and_goes_with_its_process(tmp_path: Path) -> None:
    with another_process(tmp_path) as said:
        assert said == "held"
        owner = (tmp_path / LOCK_FILE).read_text()
        with pytest.raises(FolderInUse, match=f"process {owner}"):
            FolderLock(str(tmp_path))
    FolderLock(str(tmp_path)).release()


def test_kafka_is_kept_out_also_after_a_second_try_of_this_process_and_a_deleted_file(tmp_path: Path) -> None:
    """A second try opens nothing that would end `lockf` when it is closed; a deleted file comes back locked."""
    lock = FolderLock(str(tmp_path))
    with pytest.raises(FolderInUse):
        FolderLock(str(tmp_path))
    assert as_kafka(tmp_path) == "in use"
    assert not lock.renew()
    (tmp_path / LOCK_FILE).unlink()
    assert lock.renew()
    assert as_kafka(tmp_path) == "in use"
    assert (tmp_path / LOCK_FILE).read_text() == str(os.getpid())
    lock.release()
    assert as_kafka(tmp_path) == "held"


def test_a_file_that_somebody_else_has_locked_meanwhile_is_told(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    (tmp_path / LOCK_FILE).unlink()
    with open(tmp_path / LOCK_FILE, "w") as theirs:
        theirs.write("4711")
        theirs.flush()
        fcntl.flock(theirs, fcntl.LOCK_EX)
        with pytest.raises(FolderInUse, match="process 4711"):
            lock.renew()
    assert lock.renew(), "once they are gone"
    lock.release()


def test_a_folder_that_cannot_be_written_to_is_not_in_use(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).mkdir()
    with pytest.raises(IsADirectoryError):
        FolderLock(str(tmp_path))
    (tmp_path / LOCK_FILE).rmdir()
    FolderLock(str(tmp_path)).release()


def test_a_folder_that_cannot_be_made_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "a file").write_bytes(b"")
    with pytest.raises(OSError, match=r"^/.*/a file is a file, not a folder$"):
        FolderLock(str(tmp_path / "a file"))
    with pytest.raises(OSError, match=r"^cannot create the folder /.*/a file/data: Not a directory$"):
        FolderLock(str(tmp_path / "a file" / "data"))


def test_who_only_looks_leaves_nothing_behind_and_still_keeps_others_out(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path), only_looks=True)
    with pytest.raises(FolderInUse):
        FolderLock(str(tmp_path))
    lock.release()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / LOCK_FILE).write_text("77")
    FolderLock(str(tmp_path), only_looks=True).release()
    assert (tmp_path / LOCK_FILE).read_text() == "77"
