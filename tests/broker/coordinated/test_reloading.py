"""Coordinators that are dropped and loaded again, as on a full disk, leave nothing behind."""

from __future__ import annotations

import gc
import weakref

from oncelog.errors import NotCoordinator
from tests.broker.support import Desk, FailingStorage

RELOADS = 4
COMMIT = {
    "group_id": "g",
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "topics": [
        {"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
    ],
}


def test_what_was_dropped_is_freed_but_for_the_first() -> None:
    desk = Desk(FailingStorage(), "/data")
    desk.create("orders")
    desk.ask("find_coordinator", 3, {"key": "g", "key_type": 0})
    desk.alarms.pass_time(10)
    desk.ask("offset_commit", 7, COMMIT)
    coordination = desk.broker.coordination
    (index,) = coordination._partitions
    dropped = []
    for _ in range(RELOADS):
        dropped.append(weakref.ref(coordination._partitions[index].coordinator))
        coordination._drop(index, NotCoordinator("the disk is full"))
        desk.alarms.pass_time(2_000)
        assert coordination._partitions[index].loading is None
    gc.collect()
    alive = sum(each() is not None for each in dropped)
    gc.unfreeze()  # nothing of this test stays; what was collected before all tests does
    gc.collect()
    gc.freeze()
    assert alive <= 1
