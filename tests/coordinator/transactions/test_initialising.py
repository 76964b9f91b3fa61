from __future__ import annotations

import pytest

from oncelog.coordinator.transactions.effects import TransactionSettings
from oncelog.coordinator.transactions.transaction import LAST_CLIENT_EPOCH, Transaction
from tests.coordinator.transactions.support import FIRST_PRODUCER_ID, NOT_AVAILABLE, ORDERS, V1, V2, Rig

INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH = 47
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
PRODUCER_FENCED = 90


def refused(code: int) -> tuple[int, int, int]:
    return code, -1, -1


def exhausted(rig: Rig) -> None:
    rig.put(Transaction(5, LAST_CLIENT_EPOCH, 60_000, last_update_ms=rig.now_ms))


def test_a_new_id_gets_a_new_producer_id() -> None:
    assert Rig().init() == (0, FIRST_PRODUCER_ID, 0)


def test_a_new_id_cares_not_what_the_producer_had() -> None:
    assert Rig().init(77, 3) == (0, FIRST_PRODUCER_ID, 0)


def test_each_successor_has_the_next_epoch() -> None:
    rig = Rig()
    assert [rig.init()[2] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_that_is_not_allowed(timeout_ms: int) -> None:
    rig = Rig()
    assert rig.init(timeout_ms=timeout_ms) == refused(INVALID_TRANSACTION_TIMEOUT)
    assert rig.log == []


def test_the_limit_of_timeouts_is_the_brokers() -> None:
    rig = Rig(TransactionSettings(transaction_max_timeout_ms=5))
    assert rig.init(timeout_ms=5)[0] == 0
    assert rig.init(timeout_ms=6) == refused(INVALID_TRANSACTION_TIMEOUT)


def test_an_empty_id() -> None:
    assert Rig().init(transactional_id="") == refused(INVALID_REQUEST)


@pytest.mark.parametrize("had", [(-1, 3), (3, -1)])
def test_half_an_identity(had: tuple[int, int]) -> None:
    assert Rig().init(*had) == refused(INVALID_REQUEST)


def test_who_names_what_it_has_goes_on_and_may_ask_again() -> None:
    rig = Rig()
    _, producer_id, epoch = rig.init()
    assert rig.init(producer_id, epoch) == (0, producer_id, epoch + 1)
    assert rig.init(producer_id, epoch) == (0, producer_id, epoch + 1)


def test_after_a_crash_the_same_request_is_fenced_as_with_kafka() -> None:
    rig = Rig()
    _, producer_id, epoch = rig.init()
    rig.init(producer_id, epoch)
    rig.crash()
    assert rig.init(producer_id, epoch) == refused(PRODUCER_FENCED)


def test_who_has_a_successor_cannot_go_on() -> None:
    rig = Rig()
    _, producer_id, epoch = rig.init()
    rig.init()
    assert rig.init(producer_id, epoch) == refused(PRODUCER_FENCED)
    assert rig.init(producer_id, epoch, version=3) == refused(INVALID_PRODUCER_EPOCH)


def test_another_producer_id() -> None:
    rig = Rig()
    _, producer_id, epoch = rig.init()
    assert rig.init(producer_id + 1, epoch) == refused(PRODUCER_FENCED)


def test_an_open_transaction_is_aborted_first() -> None:
    rig = Rig()
    _, producer_id, epoch = rig.init()
    rig.add(producer_id, epoch)
    assert rig.init() == refused(CONCURRENT_TRANSACTIONS)
    assert rig.state == "PrepareAbort"
    assert rig.init() == refused(CONCURRENT_TRANSACTIONS)
    (markers,) = rig.markers
    assert (markers.producer_epoch, markers.is_commit, markers.partitions) == (epoch + 1, False, (ORDERS,))
    rig.write_markers()
    assert rig.init() == (0, producer_id, epoch + 2)


def test_a_producer_that_goes_on_aborts_its_own_transaction() -> None:
    rig = Rig()
    _, producer_id, epoch = rig.init()
    rig.add(producer_id, epoch)
    assert rig.init(producer_id, epoch) == refused(CONCURRENT_TRANSACTIONS)
    rig.crash()
    rig.write_markers()
    assert rig.init(producer_id, epoch) == (0, producer_id, epoch + 1)


def test_a_zombie_cannot_abort_the_transaction_of_its_successor() -> None:
    """With Kafka it can."""
    rig = Rig()
    _, producer_id, epoch = rig.init()
    rig.init()
    rig.add(producer_id, epoch + 1)
    assert rig.init(producer_id, epoch) == refused(PRODUCER_FENCED)
    assert rig.state == "Ongoing"


def test_used_up_epochs_bring_another_producer_id() -> None:
    rig = Rig()
    exhausted(rig)
    assert rig.init() == (0, FIRST_PRODUCER_ID, 0)
    assert rig.init(5, LAST_CLIENT_EPOCH) == refused(PRODUCER_FENCED)


def test_who_goes_on_with_a_used_up_epoch_may_ask_again() -> None:
    rig = Rig()
    exhausted(rig)
    assert rig.init(5, LAST_CLIENT_EPOCH - 1) == refused(PRODUCER_FENCED)
    assert rig.init(5, LAST_CLIENT_EPOCH) == (0, FIRST_PRODUCER_ID, 0)
    assert rig.init(5, LAST_CLIENT_EPOCH) == (0, FIRST_PRODUCER_ID, 0)
    assert rig.init(5, LAST_CLIENT_EPOCH - 1) == refused(PRODUCER_FENCED)


def test_the_abort_of_a_used_up_epoch_brings_another_producer_id() -> None:
    rig = Rig()
    exhausted(rig)
    rig.add(5, LAST_CLIENT_EPOCH)
    assert rig.init() == refused(CONCURRENT_TRANSACTIONS)
    assert rig.markers[0].producer_epoch == LAST_CLIENT_EPOCH + 1
    rig.crash()
    rig.write_markers()
    assert rig.init() == (0, FIRST_PRODUCER_ID, 1)


def test_who_was_told_its_next_producer_id_waits_for_the_markers() -> None:
    rig = Rig()
    exhausted(rig)
    rig.add(5, LAST_CLIENT_EPOCH)
    assert rig.end(5, LAST_CLIENT_EPOCH, commit=True) == (0, FIRST_PRODUCER_ID, 0)
    assert rig.init(FIRST_PRODUCER_ID, 0) == refused(CONCURRENT_TRANSACTIONS)
    assert rig.add(FIRST_PRODUCER_ID, 0, version=5) == [CONCURRENT_TRANSACTIONS]
    assert rig.end(FIRST_PRODUCER_ID, 0, commit=False) == refused(CONCURRENT_TRANSACTIONS)
    rig.write_markers()
    assert rig.add(FIRST_PRODUCER_ID, 0, version=5) == [0]


@pytest.mark.parametrize("version", [V1, V2])
def test_a_log_that_cannot_be_written_changes_nothing(version: int) -> None:
    rig = Rig()
    _, producer_id, epoch = rig.init()
    rig.append_fails = True
    assert rig.init() == refused(NOT_AVAILABLE)
    rig.append_fails = False
    rig.add(producer_id, epoch)
    rig.append_fails = True
    assert rig.end(producer_id, epoch, commit=True, version=version)[0] == NOT_AVAILABLE
    rig.append_fails = False
    assert (rig.state, rig.markers) == ("Ongoing", [])
    assert rig.end(producer_id, epoch, commit=True, version=version)[0] == 0
