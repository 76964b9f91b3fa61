"""Every operation on files fails, tears or is the last one, in turn: nothing acknowledged may be lost or doubled."""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable

import pytest

from tests.log.driver import Driver
from tests.support.faulty_storage import FaultyStorage

SCRIPT: list[Callable[[Driver], None]] = [
    lambda driver: driver.append(3),
    Driver.flush,
    lambda driver: driver.append(12),
    Driver.marker,
    Driver.delete_records,
    Driver.retention,
    lambda driver: driver.append(4),
    Driver.flush,
    lambda driver: driver.append(5),
    Driver.reopen_cleanly,
    lambda driver: driver.append(6),
    Driver.retention_by_size,
    lambda driver: driver.append(3),
    Driver.reopen_cleanly,
]


def script_operations() -> range:
    """The numbers of the operations that the script does; those before create the log."""
    storage = FaultyStorage()
    driver = Driver(storage)
    first = storage.operations
    for step in SCRIPT:
        step(driver)
    return range(first, storage.operations)


OPERATIONS = script_operations()


def test_the_script_touches_every_kind_of_operation() -> None:
    storage = FaultyStorage()
    driver = Driver(storage)
    driver.run(SCRIPT)
    kinds = {line.split()[1] for line in storage.log}
    assert kinds >= {"open", "append", "truncate", "sync", "rename", "remove", "sync_directory", "read", "read_all"}
    assert len(driver.log.segments) > 1
    assert driver.log.log_start_offset > 0


@pytest.mark.parametrize("torn", [False, True])
def test_kill_after_every_operation(torn: bool) -> None:
    for operation in OPERATIONS:
        storage = FaultyStorage()
        driver = Driver(storage)
        storage.crash_at(operation, torn=torn)
        driver.run(SCRIPT)
        assert driver.storage is not storage, "it crashed"


@pytest.mark.parametrize("seed", range(3))
def test_power_loss_after_every_operation(seed: int) -> None:
    for operation in OPERATIONS:
        storage = FaultyStorage()
        driver = Driver(storage)
        storage.crash_at(operation, torn=True)
        driver.run(SCRIPT, seed=zlib.crc32(b"%d %d" % (seed, operation)))


@pytest.mark.parametrize(
    ("error", "torn", "sticky"),
    [
        (errno.EIO, False, False),
        (errno.ENOSPC, True, False),
        (errno.EIO, True, True),
    ],
)
def test_every_operation_fails_once(error: int, torn: bool, sticky: bool) -> None:
    for operation in OPERATIONS:
        storage = FaultyStorage()
        driver = Driver(storage)
        storage.fail_at(operation, error, torn=torn, sticky=sticky)
        driver.run(SCRIPT)
