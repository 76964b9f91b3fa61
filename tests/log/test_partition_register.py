from __future__ import annotations

import contextlib
import errno
from uuid import UUID

import pytest

from oncelog.log.partition_register import PartitionRegister, Registered
from oncelog.types import TopicPartition
from tests.support.faulty_storage import FaultyStorage

FIRST, SECOND = (Registered(TopicPartition("orders", index), UUID(int=7)) for index in range(2))
PATH = "data/oncelog-partitions"


def test_what_was_added_is_there_and_a_damaged_line_is_not_believed() -> None:
    storage = FaultyStorage()
    register = PartitionRegister(storage, "data")
    assert register.load() is None
    register.add(FIRST)
    register.add(SECOND)
    assert PartitionRegister(storage, "data").load() == {FIRST, SECOND}
    storage.content(PATH)[7] ^= 1
    damaged = PartitionRegister(storage, "data")
    found = damaged.load()
    assert found == {SECOND}
    damaged.replace(found, {FIRST, SECOND})
    assert PartitionRegister(storage, "data").load() == {FIRST, SECOND}


def test_a_line_that_a_kill_cut_off_is_written_again() -> None:
    storage = FaultyStorage()
    PartitionRegister(storage, "data").add(FIRST)
    del storage.content(PATH)[-9:]
    register = PartitionRegister(storage, "data")
    register.replace(register.load(), {FIRST})
    register.add(SECOND)
    assert register.load() == {FIRST, SECOND}


@pytest.mark.parametrize("is_cut_back", [True, False])
@pytest.mark.parametrize("operation", range(3))
def test_a_line_that_a_full_disk_cut_off_is_no_part_of_the_next(operation: int, is_cut_back: bool) -> None:
    storage = FaultyStorage()
    register = PartitionRegister(storage, "data")
    register.add(FIRST)
    storage.fail_at(storage.operations + operation, errno.ENOSPC, torn=True, sticky=not is_cut_back)
    with contextlib.suppress(OSError):
        register.add(SECOND)
    storage.heal()
    register.add(SECOND)
    assert PartitionRegister(storage, "data").load() == {FIRST, SECOND}
