"""Every operation on files fails, tears or is the last one, in turn: nothing promised is lost, doubled or reordered."""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable

import pytest

from oncelog.client.spool.spool import SpoolConfig
from tests.client.spool.driver import PARTITIONS, SMALL, Driver
from tests.support.faulty_storage import FaultyStorage

Step = Callable[[Driver], None]
A, B, C = PARTITIONS
DURABLE = SpoolConfig(max_bytes=4000, is_durable=True)


def append(*partitions: object) -> Step:
    def step(driver: Driver) -> None:
        for partition in partitions:
            driver.append(partition)  # type: ignore[arg-type]

    return step


SCRIPT: list[Step] = [
    append(A, A, B, A, C),
    lambda driver: driver.load(4),
    lambda driver: driver.send(A, 2, arrives=True),
    append(B, A),
    lambda driver: driver.answer(A),
    Driver.load,
    lambda driver: driver.send(A, 1, arrives=True),
    lambda driver: driver.send(A, 1, arrives=False),
    lambda driver: driver.send(B, 9, arrives=False),
    append(*[A, B, C] * 4),
    lambda driver: driver.answer(B),
    lambda driver: driver.answer(A),
    Driver.load,
    lambda driver: driver.send(C, 3, arrives=True),
    lambda driver: driver.send(A, 9, arrives=True),
    lambda driver: driver.answer(C),
    lambda driver: driver.answer(A),
    lambda driver: driver.answer(A),
    lambda driver: driver.send(B, 9, arrives=True),
    lambda driver: driver.answer(B),
    Driver.close,
    append(A, B),
]


def run(driver: Driver) -> None:
    for step in SCRIPT:
        driver.survive(lambda step=step: step(driver))  # type: ignore[misc]
        driver.audit(complete=False)
    driver.finish()


def operations(config: SpoolConfig) -> int:
    storage = FaultyStorage()
    driver = Driver(storage, config)
    for step in SCRIPT:
        step(driver)
    return storage.operations


def test_the_script_rolls_and_reclaims() -> None:
    storage = FaultyStorage()
    driver = Driver(storage)
    run(driver)
    kinds = {line.split()[1] for line in storage.log}
    assert kinds >= {"open", "append", "rename", "remove", "read", "read_all", "list"}
    assert sum(len(broker.log) for broker in driver.brokers.values()) == 21
    assert any("3.records" in line for line in storage.log), "records rolled"


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("config", [SMALL, DURABLE], ids=["none", "fsync"])
def test_kill_after_every_operation(config: SpoolConfig, torn: bool) -> None:
    for operation in range(operations(config)):
        storage = FaultyStorage()
        storage.crash_at(operation, torn=torn)
        driver = Driver(storage, config)
        run(driver)
        assert driver.accidents == 1


@pytest.mark.parametrize("seed", range(4))
def test_power_loss_after_every_operation(seed: int) -> None:
    for operation in range(operations(DURABLE)):
        storage = FaultyStorage()
        storage.crash_at(operation, torn=True)
        driver = Driver.__new__(Driver)
        driver.power_seed = zlib.crc32(b"%d %d" % (seed, operation))
        driver.__init__(storage, DURABLE)  # type: ignore[misc]
        run(driver)


@pytest.mark.parametrize("config", [SMALL, DURABLE], ids=["none", "fsync"])
@pytest.mark.parametrize(
    ("error", "torn", "sticky"), [(errno.EIO, False, False), (errno.ENOSPC, True, False), (errno.ENOSPC, True, True)]
)
def test_every_operation_fails(config: SpoolConfig, error: int, torn: bool, sticky: bool) -> None:
    for operation in range(operations(config)):
        storage = FaultyStorage()
        storage.fail_at(operation, error, torn=torn, sticky=sticky)
        run(Driver(storage, config))
