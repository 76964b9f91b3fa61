"""Coordinators that are dropped and loaded again, as on a full disk, leave nothing behind. Those that cannot be loaded
for want of something are loaded once it is there."""

from __future__ import annotations

import errno
import gc
import weakref

import pytest

from oncelog.broker.coordinated.topic import MAX_RELOAD_DELAY_MS, RELOAD_DELAY_MS
from oncelog.broker.unopened_logs import MAX_RETRY_MS
from oncelog.errors import KafkaStorageError, NotCoordinator
from oncelog.log.partition_log import PartitionLog
from tests.broker.support import NOW_MS, Desk, FailingStorage, ScarceStorage
from tests.broker.transactions.support import ID, ORDERS, add, init, listed

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


LOAD_IN_PROGRESS = 14
GROUPS, TRANSACTIONS = "__consumer_offsets-0", "__transaction_state-0"
ONE_EACH = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
MINUTES_MS = 300_000
MAX_TRIES = 15
"""In that time."""


@pytest.fixture
def storage() -> ScarceStorage:
    """Of a broker that was killed with a committed offset, and in the middle of a transaction."""
    storage = ScarceStorage()
    desk = Desk(storage, "/data", **ONE_EACH)
    desk.create("orders")
    for key_type in (0, 1):
        desk.ask("find_coordinator", 3, {"key": "any", "key_type": key_type})
    assert commit(desk) == 0
    assert add(desk, init(desk, timeout_ms=1_000), ORDERS) == [0]
    return storage


def commit(desk: Desk) -> int:
    ((partition,),) = (topic["partitions"] for topic in desk.ask("offset_commit", 7, COMMIT)["topics"])
    return int(partition["error_code"])


def committed(desk: Desk) -> int:
    asked = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]}
    ((partition,),) = (topic["partitions"] for topic in desk.ask("offset_fetch", 7, asked)["topics"])
    return int(partition["committed_offset"])


def restarted(storage: ScarceStorage) -> Desk:
    desk = Desk(storage, "/data", **ONE_EACH)
    desk.broker.resume_groups()
    desk.broker.resume_transactions()
    return desk


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO])
def test_what_cannot_be_read_for_a_while_is_loaded_afterwards(
    storage: ScarceStorage, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    desk = restarted(storage)
    storage.missing, storage.error = (GROUPS, TRANSACTIONS), error
    assert [commit(desk) for _ in range(3)] == [LOAD_IN_PROGRESS] * 3
    desk.alarms.pass_time(MINUTES_MS)
    assert commit(desk) == LOAD_IN_PROGRESS
    told = [record.getMessage() for record in caplog.records if f"{GROUPS} cannot be loaded" in record.getMessage()]
    assert 3 < len(told) <= MAX_TRIES
    storage.missing = ()
    desk.alarms.pass_time(MAX_RELOAD_DELAY_MS)
    assert committed(desk) == 1
    assert commit(desk) == 0
    assert listed(desk) == [(ID, "CompleteAbort")], "its time was up, and nobody asked"


def test_one_failure_costs_one_pause(storage: ScarceStorage) -> None:
    desk = restarted(storage)
    storage.missing = (GROUPS,)
    assert commit(desk) == LOAD_IN_PROGRESS
    storage.missing = ()
    assert commit(desk) == LOAD_IN_PROGRESS, "it is not read anew for each who asks"
    desk.alarms.pass_time(RELOAD_DELAY_MS)
    assert committed(desk) == 1


def test_what_was_loaded_begins_with_a_short_pause_again(storage: ScarceStorage) -> None:
    desk = restarted(storage)
    storage.missing = (GROUPS,)
    desk.alarms.pass_time(MINUTES_MS)
    storage.missing = ()
    desk.alarms.pass_time(MAX_RELOAD_DELAY_MS)
    assert committed(desk) == 1
    storage.missing = (GROUPS,)
    desk.broker.coordination._drop(0, NotCoordinator("the disk is full"))
    assert commit(desk) == LOAD_IN_PROGRESS
    storage.missing = ()
    desk.alarms.pass_time(RELOAD_DELAY_MS)
    assert committed(desk) == 1


def test_what_cannot_even_be_begun_is_not_tried_without_pause(
    storage: ScarceStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = restarted(storage)
    tries: list[int] = []

    def fail(index: int, log: PartitionLog) -> object:
        tries.append(index)
        assert len(tries) <= MAX_TRIES
        raise KafkaStorageError("not now")

    monkeypatch.setattr(desk.broker.coordination, "_new_partition", fail)
    desk.alarms.pass_time(MINUTES_MS)
    assert len(tries) > 3


def test_a_log_that_is_opened_later_is_loaded_though_nobody_asks(storage: ScarceStorage) -> None:
    storage.missing = (GROUPS, TRANSACTIONS)
    desk = restarted(storage)
    storage.missing = ()
    for _ in range(2):
        desk.alarms.pass_time(MAX_RETRY_MS)
        reopening = desk.broker.next_reopening(NOW_MS)
        assert reopening is not None
        reopening.run()
        desk.broker.log_reopened(reopening, None)
    desk.alarms.pass_time(MAX_RETRY_MS)
    assert desk.broker.coordination._is_loaded(0)
    assert listed(desk) == [(ID, "CompleteAbort")]


def test_a_config_that_changes_while_a_log_is_opened_is_not_missed(storage: ScarceStorage) -> None:
    storage.missing = (GROUPS,)
    desk = restarted(storage)
    storage.missing = ()
    desk.alarms.pass_time(MAX_RETRY_MS)
    reopening = desk.broker.next_reopening(NOW_MS)
    assert reopening is not None
    reopening.run()
    entry = {"name": "segment.bytes", "config_operation": 0, "value": "1048576"}
    resource = {"resource_type": 2, "resource_name": "__consumer_offsets", "configs": [entry]}
    (changed,) = desk.ask("incremental_alter_configs", 1, {"resources": [resource]})["responses"]
    assert changed["error_code"] == 0
    desk.broker.log_reopened(reopening, None)
    assert desk.broker.partition("__consumer_offsets", 0).config.segment_bytes == 1048576
