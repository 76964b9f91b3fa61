from __future__ import annotations

import pytest

from oncelog.coordinator.transactions.transaction import LAST_CLIENT_EPOCH, Transaction
from tests.coordinator.transactions.support import BILLS, COORDINATOR_EPOCH, FIRST_PRODUCER_ID, ORDERS, V1, V2, Rig

INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
CONCURRENT_TRANSACTIONS = 51
PRODUCER_FENCED = 90

PID = FIRST_PRODUCER_ID


def opened(version: int = V2) -> Rig:
    """A rig with an open transaction of epoch 0 in two partitions."""
    rig = Rig()
    rig.init()
    rig.add(PID, 0, ORDERS, BILLS, version=5 if version == V2 else 3)
    return rig


def refused(code: int) -> tuple[int, int, int]:
    return code, -1, -1


def test_protocol_1_keeps_the_epoch() -> None:
    rig = opened(V1)
    assert rig.end(PID, 0, commit=True, version=V1)[0] == 0
    (markers,) = rig.markers
    assert (markers.producer_id, markers.producer_epoch, markers.transaction_version) == (PID, 0, 0)
    assert (markers.coordinator_epoch, markers.is_commit) == (COORDINATOR_EPOCH, True)
    rig.write_markers()
    assert (rig.state, rig.transaction.epoch) == ("CompleteCommit", 0)


def test_protocol_2_raises_the_epoch_and_tells_it() -> None:
    rig = opened()
    assert rig.end(PID, 0, commit=True) == (0, PID, 1)
    (markers,) = rig.markers
    assert (markers.producer_epoch, markers.transaction_version, markers.partitions) == (1, 2, (ORDERS, BILLS))
    rig.write_markers()
    assert (rig.state, rig.transaction.epoch) == ("CompleteCommit", 1)


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("commit", [True, False])
def test_the_same_request_again_and_the_other_outcome(version: int, commit: bool) -> None:
    rig = opened(version)
    told = rig.end(PID, 0, commit=commit, version=version)
    assert rig.end(PID, 0, commit=commit, version=version) == refused(CONCURRENT_TRANSACTIONS)
    assert rig.end(PID, 0, commit=not commit, version=version) == refused(INVALID_TXN_STATE)
    rig.crash()
    rig.write_markers()
    written = list(rig.log)
    assert rig.end(PID, 0, commit=commit, version=version) == told
    assert rig.end(PID, 0, commit=not commit, version=version) == refused(INVALID_TXN_STATE)
    assert rig.log == written


def test_the_next_transaction_waits_for_the_end_of_the_last() -> None:
    rig = opened()
    rig.end(PID, 0, commit=True)
    assert rig.add(PID, 1, version=5) == [CONCURRENT_TRANSACTIONS]
    assert rig.end(PID, 1, commit=False) == refused(CONCURRENT_TRANSACTIONS)
    rig.write_markers()
    assert rig.add(PID, 1, version=5) == [0]


def test_a_delayed_end_cannot_end_a_later_transaction() -> None:
    rig = opened()
    rig.end(PID, 0, commit=False)
    rig.write_markers()
    rig.add(PID, 1, version=5)
    assert rig.end(PID, 0, commit=False) == refused(PRODUCER_FENCED)
    assert rig.end(PID, 0, commit=True) == refused(PRODUCER_FENCED)
    assert rig.state == "Ongoing"


def test_with_protocol_1_it_can() -> None:
    """The hazard that protocol 2 was made for."""
    rig = opened(V1)
    rig.end(PID, 0, commit=False, version=V1)
    rig.write_markers()
    rig.add(PID, 0)
    assert rig.end(PID, 0, commit=False, version=V1)[0] == 0
    assert rig.state == "PrepareAbort"


def test_an_abort_of_nothing_is_legal_in_protocol_2_alone() -> None:
    rig = Rig()
    rig.init()
    assert rig.end(PID, 0, commit=False, version=V1) == refused(INVALID_TXN_STATE)
    assert rig.end(PID, 0, commit=True) == refused(INVALID_TXN_STATE)
    assert rig.end(PID, 0, commit=False) == (0, PID, 1)
    assert (rig.state, rig.markers) == ("CompleteAbort", [])
    assert rig.end(PID, 0, commit=False) == (0, PID, 1)
    assert rig.end(PID, 1, commit=True) == refused(INVALID_TXN_STATE)


def test_who_is_not_known() -> None:
    rig = Rig()
    for version in (V1, V2):
        assert rig.end(PID, 0, commit=True, version=version) == refused(INVALID_PRODUCER_ID_MAPPING)
    rig.init()
    for version in (V1, V2):
        assert rig.end(PID + 1, 0, commit=True, version=version) == refused(INVALID_PRODUCER_ID_MAPPING)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("epoch", [0, 2])
def test_another_epoch_is_fenced(version: int, epoch: int) -> None:
    rig = Rig()
    rig.init()
    rig.init()
    rig.add(PID, 1)
    code = INVALID_PRODUCER_EPOCH if version < 2 else PRODUCER_FENCED
    assert rig.end(PID, epoch, commit=True, version=version) == refused(code)
    assert rig.state == "Ongoing"


def test_a_zombie_of_protocol_2_is_not_taken_for_its_successor_of_protocol_1() -> None:
    rig = Rig()
    rig.init()
    rig.init()
    rig.add(PID, 1)
    rig.end(PID, 1, commit=True, version=V1)
    assert rig.end(PID, 0, commit=True) == refused(PRODUCER_FENCED)
    rig.write_markers()
    assert rig.end(PID, 0, commit=True) == refused(PRODUCER_FENCED)


@pytest.mark.parametrize("crash", [False, True])
def test_used_up_epochs_bring_another_producer_id(crash: bool) -> None:
    rig = Rig()
    rig.put(Transaction(5, LAST_CLIENT_EPOCH, 60_000, last_update_ms=rig.now_ms))
    rig.add(5, LAST_CLIENT_EPOCH, version=5)
    assert rig.end(5, LAST_CLIENT_EPOCH, commit=True) == (0, PID, 0)
    if crash:
        rig.crash()
    (markers,) = rig.markers
    assert (markers.producer_id, markers.producer_epoch) == (5, LAST_CLIENT_EPOCH + 1)
    assert rig.end(5, LAST_CLIENT_EPOCH, commit=True) == refused(CONCURRENT_TRANSACTIONS)
    rig.write_markers()
    if crash:
        rig.crash()
    assert rig.end(5, LAST_CLIENT_EPOCH, commit=True) == (0, PID, 0)
    assert rig.end(5, LAST_CLIENT_EPOCH, commit=False) == refused(INVALID_TXN_STATE)
    assert rig.add(PID, 0, version=5) == [0]
    assert rig.end(PID, 0, commit=True) == (0, PID, 1)
