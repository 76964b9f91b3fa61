from __future__ import annotations

import pytest

from oncelog.errors import KafkaStorageError
from oncelog.log.flush import FlushRequest, Unsynced
from tests.support.faulty_storage import FaultyStorage


@pytest.fixture
def storage() -> FaultyStorage:
    storage = FaultyStorage()
    storage.make_directory("data")
    for name in ("log", "index", "epochs"):
        storage.open(f"data/{name}", create=True).append(name.encode() * 1000)
    return storage


def request(storage: FaultyStorage, unsynced: Unsynced) -> FlushRequest:
    return FlushRequest.make(storage, 7, [storage.open("data/log")], unsynced.changes(), truncations=0)


def test_a_flush_makes_files_and_names_durable(storage: FaultyStorage) -> None:
    unsynced = Unsynced()
    unsynced.written("data/index", "data/epochs")
    request(storage, unsynced).run()
    for seed in range(10):
        left = storage.after_power_loss(seed)
        assert {name: bytes(left.content(f"data/{name}")) for name in left.list_directory("data")} == {
            name: name.encode() * 1000 for name in ("log", "index", "epochs")
        }


def test_each_file_and_directory_is_synced_once(storage: FaultyStorage) -> None:
    unsynced = Unsynced()
    for _ in range(3):
        unsynced.written("data/index")
    made = request(storage, unsynced)
    assert [repr(file) for file in made.files] == ["FaultyFile('data/log')", "FaultyFile('data/index')"]
    assert made.directories == ("data",)


def test_what_changes_while_a_flush_runs_waits_for_the_next(storage: FaultyStorage) -> None:
    unsynced = Unsynced()
    unsynced.written("data/index")
    first = request(storage, unsynced)
    unsynced.written("data/index")
    unsynced.settle(first.settles)
    second = request(storage, unsynced)
    assert len(second.files) == 2
    unsynced.settle(second.settles)
    assert request(storage, unsynced).directories == ()


def test_files_that_are_gone_need_no_sync(storage: FaultyStorage) -> None:
    unsynced = Unsynced()
    unsynced.written("data/index")
    storage.remove("data/index")
    assert len(request(storage, unsynced).files) == 1


def test_a_failed_sync_is_a_storage_error(storage: FaultyStorage) -> None:
    unsynced = Unsynced()
    unsynced.written("data/index")
    for operation in range(3):
        made = request(storage, unsynced)
        storage.fail_at(storage.operations + operation)
        with pytest.raises(KafkaStorageError, match="cannot sync"):
            made.run()
