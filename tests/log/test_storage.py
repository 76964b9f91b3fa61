from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.log.storage import FileStorage, NotAFile, Storage
from tests.support.faulty_storage import FaultyStorage, SimulatedCrash


@pytest.fixture(params=["os", "folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, str]:
    """All storages keep the same promises, so that what tests learn on one holds on the others."""
    if request.param == "memory":
        return FaultyStorage(), "data"
    return FileStorage(str(tmp_path) if request.param == "folder" else None), str(tmp_path)


def test_appends_and_reads_at_positions(place: tuple[Storage, str]) -> None:
    storage, directory = place
    storage.make_directory(directory)
    file = storage.open(f"{directory}/a", create=True)
    file.append(b"hello ")
    file.append(memoryview(bytearray(b"world")))
    assert file.size == 11
    assert file.read(6, 5) == b"world"
    assert file.read(6, 50) == b"world", "fewer bytes only where the file ends"
    assert file.read(11, 1) == b""
    buffer = bytearray(20)
    assert file.read_into(3, buffer) == 8
    assert buffer[:8] == b"lo world"
    assert storage.open(f"{directory}/a").size == 11
    assert storage.read_all(f"{directory}/a") == b"hello world"
    assert storage.status(f"{directory}/a").size_bytes == 11


def test_truncates(place: tuple[Storage, str]) -> None:
    storage, directory = place
    storage.make_directory(directory)
    file = storage.open(f"{directory}/a", create=True)
    file.append(b"0123456789")
    file.truncate(4)
    file.append(b"x")
    file.sync()
    assert storage.read_all(f"{directory}/a") == b"0123x"


def test_opening_what_is_not_there_is_an_error(place: tuple[Storage, str]) -> None:
    storage, directory = place
    storage.make_directory(directory)
    with pytest.raises(FileNotFoundError):
        storage.open(f"{directory}/a")
    with pytest.raises(FileNotFoundError):
        storage.status(f"{directory}/a")
    assert not storage.exists(f"{directory}/a")
    storage.remove(f"{directory}/a")


def test_names(place: tuple[Storage, str]) -> None:
    storage, directory = place
    storage.make_directory(f"{directory}/sub")
    for name in ("b", "a"):
        storage.open(f"{directory}/sub/{name}", create=True).append(name.encode())
    assert storage.list_directory(f"{directory}/sub") == ["a", "b"]
    storage.rename(f"{directory}/sub/a", f"{directory}/sub/b")
    assert storage.list_directory(f"{directory}/sub") == ["b"]
    assert storage.read_all(f"{directory}/sub/b") == b"a"
    storage.remove_directory(f"{directory}/sub")
    assert not storage.exists(f"{directory}/sub/b")
    assert storage.free_bytes(directory) > 0


def test_an_open_file_survives_its_removal(place: tuple[Storage, str]) -> None:
    storage, directory = place
    storage.make_directory(directory)
    file = storage.open(f"{directory}/a", create=True)
    file.append(b"still here")
    storage.remove(f"{directory}/a")
    assert file.read(0, 10) == b"still here"


def test_write_atomically_replaces_and_leaves_nothing_behind(place: tuple[Storage, str]) -> None:
    storage, directory = place
    storage.make_directory(directory)
    storage.write_atomically(f"{directory}/a", b"a longer first content")
    storage.write_atomically(f"{directory}/a", b"second")
    assert storage.read_all(f"{directory}/a") == b"second"
    assert storage.list_directory(directory) == ["a"]


def test_a_dropped_file_closes_its_descriptor(tmp_path: Path) -> None:
    file = FileStorage().open(str(tmp_path / "a"), create=True)
    descriptor = file.fileno()
    os.fstat(descriptor)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FileStorage().open(str(tmp_path / "a"), create=True)
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, memoryview(data)[:3], at))
    file.append(b"0123456789")
    assert file.read(0, 20) == b"0123456789"
    assert file.size == 10


def test_a_write_that_gets_nowhere_fails_and_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FileStorage().open(str(tmp_path / "a"), create=True)
    file.append(b"good")
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="wrote nothing"):
        file.append(b"bad")
    assert file.size == 4


@pytest.mark.parametrize("operation", range(8))
def test_atomic_replacement_survives_a_power_loss_at_any_moment(operation: int) -> None:
    for seed in range(20):
        storage = FaultyStorage()
        storage.make_directory("data")
        storage.write_atomically("data/a", b"old" * 1000)
        storage.crash_at(storage.operations + operation, torn=True)
        try:
            storage.write_atomically("data/a", b"new" * 2000)
            expected = {b"new" * 2000}
        except SimulatedCrash:
            expected = {b"old" * 1000, b"new" * 2000}
        assert storage.after_power_loss(seed).read_all("data/a") in expected


# --- the faulty storage itself ---


def test_unsynced_bytes_may_be_lost_and_synced_ones_never() -> None:
    storage = FaultyStorage()
    storage.make_directory("data")
    file = storage.open("data/a", create=True)
    file.append(b"s" * 2000)
    file.sync()
    storage.sync_directory("data")
    file.append(b"u" * 5000)
    outcomes = {bytes(storage.after_power_loss(seed).content("data/a")) for seed in range(20)}
    assert len(outcomes) > 5
    assert all(outcome.startswith(b"s" * 2000) for outcome in outcomes)
    assert storage.after_kill().read_all("data/a") == b"s" * 2000 + b"u" * 5000


def test_unsynced_names_may_be_lost() -> None:
    storage = FaultyStorage()
    storage.make_directory("data")
    storage.open("data/a", create=True)
    assert {storage.after_power_loss(seed).exists("data/a") for seed in range(20)} == {True, False}
    storage.sync_directory("data")
    assert all(storage.after_power_loss(seed).exists("data/a") for seed in range(20))


def test_fails_the_chosen_operation_once_and_tears_a_write() -> None:
    storage = FaultyStorage()
    file = storage.open("a", create=True)
    storage.fail_at(storage.operations, errno.ENOSPC, torn=True)
    with pytest.raises(OSError, match="torn") as caught:
        file.append(b"12345678")
    assert caught.value.errno == errno.ENOSPC
    assert file.size == 0
    assert storage.content("a") == b"1234"
    file.append(b"ab")
    assert storage.content("a") == b"ab34", "the next write lands on what the torn one left: callers must truncate"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path, make: Callable[[str], None]) -> None:
    path = str(tmp_path / "x.log")
    make(path)
    storage = FileStorage()
    for attempt in (storage.open, storage.read_all):
        with pytest.raises(NotAFile, match="not a regular file; move it away"):
            attempt(path)


def test_a_folder_that_is_renamed_keeps_what_belongs_into_it(tmp_path: Path) -> None:
    """Also where another folder has its name by now."""
    data = tmp_path / "data"
    data.mkdir()
    storage = FileStorage(str(data))
    data.rename(tmp_path / "aside")
    data.mkdir()
    storage.make_directory(f"{data}/orders-0")
    storage.open(f"{data}/orders-0/a", create=True).append(b"kept")
    storage.write_atomically(f"{data}/b", b"too")
    storage.rename(f"{data}/b", f"{data}/orders-0/b")
    assert storage.list_directory(f"{data}/orders-0") == ["a", "b"]
    assert (tmp_path / "aside" / "orders-0" / "a").read_bytes() == b"kept"
    assert list(data.iterdir()) == []
    storage.remove_directory(f"{data}/orders-0")
    assert storage.list_directory(str(data)) == []


def test_what_only_begins_like_the_folder_is_not_in_it(tmp_path: Path) -> None:
    for name in ("data", "data-2"):
        (tmp_path / name).mkdir()
    storage = FileStorage(str(tmp_path / "data"))
    storage.open(f"{tmp_path}/data-2/a", create=True)
    assert (tmp_path / "data-2" / "a").exists()


def test_errors_tell_the_whole_path(tmp_path: Path) -> None:
    storage = FileStorage(str(tmp_path))
    with pytest.raises(FileNotFoundError) as caught:
        storage.open(f"{tmp_path}/none")
    assert caught.value.filename == f"{tmp_path}/none"
