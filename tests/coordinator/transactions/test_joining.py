from __future__ import annotations

import pytest

from oncelog.types import TopicPartition
from oncelog.wire.api import ApiKey
from tests.coordinator.transactions.support import BILLS, FIRST_PRODUCER_ID, ID, NOT_AVAILABLE, ORDERS, V1, Rig

PID = FIRST_PRODUCER_ID
INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH = 47
INVALID_PRODUCER_ID_MAPPING = 49
CONCURRENT_TRANSACTIONS = 51
PRODUCER_FENCED = 90
TRANSACTION_ABORTABLE = 120


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.init()
    return rig


@pytest.mark.parametrize("version", range(6))
def test_the_first_partition_begins_the_transaction(rig: Rig, version: int) -> None:
    assert rig.add(PID, 0, ORDERS, BILLS, version=version) == [0, 0]
    assert (rig.state, rig.transaction.partitions) == ("Ongoing", (BILLS, ORDERS))
    assert rig.transaction.start_ms == rig.now_ms
    assert rig.transaction.protocol == (2 if version >= 4 else 0)


def test_what_it_has_is_not_written_again(rig: Rig) -> None:
    rig.add(PID, 0, ORDERS, BILLS)
    written = len(rig.log)
    assert rig.add(PID, 0, BILLS) == [0]
    assert len(rig.log) == written


def test_more_partitions_do_not_begin_it_anew(rig: Rig) -> None:
    rig.add(PID, 0, ORDERS)
    start_ms = rig.now_ms
    rig.pass_time(5)
    rig.add(PID, 0, BILLS)
    assert (rig.transaction.start_ms, rig.transaction.last_update_ms) == (start_ms, start_ms + 5)


def test_offsets_of_a_group_are_a_partition(rig: Rig) -> None:
    assert rig.add_offsets(PID, 0, "third") == 0
    assert rig.transaction.partitions == (TopicPartition("__consumer_offsets", 3),)


@pytest.mark.parametrize("version", range(4))
def test_another_epoch_is_fenced(rig: Rig, version: int) -> None:
    code = INVALID_PRODUCER_EPOCH if version < 2 else PRODUCER_FENCED
    assert rig.add(PID, 3, version=version) == [code]
    assert rig.add_offsets(PID, 3, version=version) == code
    assert rig.state == "Empty"


def test_another_producer_id(rig: Rig) -> None:
    assert rig.add(PID + 1, 0) == [INVALID_PRODUCER_ID_MAPPING]
    assert rig.add_offsets(PID + 1, 0) == INVALID_PRODUCER_ID_MAPPING
    assert rig.add(PID + 1, 0, version=5, verify_only=True) == [INVALID_PRODUCER_ID_MAPPING]


def test_while_the_last_transaction_ends(rig: Rig) -> None:
    rig.add(PID, 0)
    rig.end(PID, 0, commit=True, version=V1)
    assert rig.add(PID, 0) == [CONCURRENT_TRANSACTIONS]
    assert rig.add_offsets(PID, 0) == CONCURRENT_TRANSACTIONS
    assert rig.add(PID, 0, version=5, verify_only=True) == [CONCURRENT_TRANSACTIONS]


def test_verifying_adds_nothing(rig: Rig) -> None:
    rig.add(PID, 0, ORDERS)
    written = len(rig.log)
    codes = rig.add(PID, 0, ORDERS, BILLS, version=5, verify_only=True)
    assert codes == [0, TRANSACTION_ABORTABLE]
    assert rig.add(PID, 1, ORDERS, version=5, verify_only=True) == [PRODUCER_FENCED]
    assert len(rig.log) == written


def test_many_transactions_in_one_request() -> None:
    rig = Rig()
    for name in ("a", "b"):
        rig.init(transactional_id=name)
    topics = [{"name": "orders", "partitions": [0]}]
    parts = [
        {"transactional_id": name, "producer_id": producer_id, "producer_epoch": 0, "topics": topics}
        for name, producer_id in (("a", PID), ("b", PID + 1), ("nobody", 3), ("", 3), ("a", PID))
    ]
    answer = rig.ask(ApiKey.ADD_PARTITIONS_TO_TXN, {"transactions": parts}, 5)
    codes = [
        (each["transactional_id"], each["topic_results"][0]["results_by_partition"][0]["partition_error_code"])
        for each in answer["results_by_transaction"]
    ]
    expected = [("a", 0), ("b", 0), ("nobody", INVALID_PRODUCER_ID_MAPPING), ("", INVALID_REQUEST)]
    assert codes == [*expected, ("a", CONCURRENT_TRANSACTIONS)]
    assert {state.state.label for state in rig.coordinator.hard_state().values()} == {"Ongoing"}


def test_no_partitions_begin_a_transaction_as_well(rig: Rig) -> None:
    part = {"transactional_id": ID, "producer_id": PID, "producer_epoch": 0, "topics": []}
    rig.ask(ApiKey.ADD_PARTITIONS_TO_TXN, {"transactions": [part]}, 5)
    assert rig.state == "Ongoing"
    assert rig.end(PID, 0, commit=True)[0] == 0
    assert rig.state == "CompleteCommit"


@pytest.mark.parametrize("version", [3, 5])
def test_a_log_that_cannot_be_written(rig: Rig, version: int) -> None:
    rig.append_fails = True
    assert rig.add(PID, 0, ORDERS, BILLS, version=version) == [NOT_AVAILABLE, NOT_AVAILABLE]
    assert rig.add_offsets(PID, 0) == NOT_AVAILABLE
    assert rig.state == "Empty"
