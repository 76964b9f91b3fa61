from __future__ import annotations

import itertools
from typing import Any

import pytest

from oncelog.coordinator.transactions.effects import TransactionSettings
from oncelog.coordinator.transactions.state import State
from oncelog.coordinator.transactions.transaction import LAST_CLIENT_EPOCH, PROTOCOL_2, Transaction
from oncelog.coordinator.transactions.transaction_coordinator import MAX_DUE_AT_ONCE, TransactionCoordinator
from oncelog.errors import CoordinatorNotAvailable
from tests.coordinator.support import START_MS
from tests.coordinator.transactions.support import BILLS, FIRST_PRODUCER_ID, ID, ORDERS, V1, V2, Rig

PID = FIRST_PRODUCER_ID
TIMEOUT_MS = 60_000
WEEK_MS = 7 * 24 * 3_600_000
HOUR_MS = 3_600_000
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
PRODUCER_FENCED = 90


def opened(version: int = V2) -> Rig:
    rig = Rig()
    rig.init()
    rig.add(PID, 0, ORDERS, BILLS, version=5 if version == V2 else 3)
    return rig


# Markers


def test_a_transaction_is_complete_with_its_last_marker() -> None:
    rig = opened()
    rig.end(PID, 0, commit=True)
    (markers,) = rig.markers
    for _ in range(2):
        rig.apply(rig.coordinator.markers_written(markers, [BILLS], rig.now_ms))
        assert rig.state == "PrepareCommit"
    rig.apply(rig.coordinator.markers_written(markers, [ORDERS], rig.now_ms))
    assert (rig.state, rig.transaction.partitions) == ("CompleteCommit", ())
    written = len(rig.log)
    rig.apply(rig.coordinator.markers_written(markers, [ORDERS], rig.now_ms))
    assert len(rig.log) == written


def test_old_news_of_markers_do_not_end_a_later_transaction() -> None:
    """By protocol 1 both have the same producer id, epoch and partitions."""
    rig = opened(V1)
    rig.end(PID, 0, commit=True, version=V1)
    (first,) = rig.markers
    rig.write_markers()
    rig.add(PID, 0, ORDERS, BILLS)
    rig.end(PID, 0, commit=True, version=V1)
    rig.apply(rig.coordinator.markers_written(first, first.partitions, rig.now_ms))
    assert rig.state == "PrepareCommit"


@pytest.mark.parametrize("commit", [True, False])
def test_after_a_crash_what_was_prepared_gets_its_markers(commit: bool) -> None:
    rig = opened()
    rig.end(PID, 0, commit=commit)
    (before,) = rig.markers
    rig.apply(rig.coordinator.markers_written(before, [BILLS], rig.now_ms))
    rig.crash()
    (after,) = rig.markers
    assert after._replace(serial=before.serial) == before
    rig.write_markers()
    assert rig.state == ("CompleteCommit" if commit else "CompleteAbort")


def test_after_a_crash_what_was_prepared_without_partitions_is_complete() -> None:
    rig = Rig()
    rig.put(Transaction(5, 1, TIMEOUT_MS, State.PREPARE_ABORT, start_ms=1, last_update_ms=1, protocol=PROTOCOL_2))
    rig.crash()
    assert (rig.state, rig.markers) == ("CompleteAbort", [])


def test_an_end_that_could_not_be_written_is_written_later() -> None:
    rig = opened()
    rig.end(PID, 0, commit=True)
    rig.append_fails = True
    rig.write_markers()
    assert rig.state == "PrepareCommit"
    rig.append_fails = False
    rig.pass_time(10_000)
    assert rig.state == "CompleteCommit"


# Time


def test_what_is_open_for_too_long_is_aborted() -> None:
    rig = opened()
    rig.pass_time(TIMEOUT_MS - 1)
    assert rig.state == "Ongoing"
    rig.pass_time(1)
    assert rig.state == "PrepareAbort"
    (markers,) = rig.markers
    assert (markers.producer_epoch, markers.is_commit, markers.transaction_version) == (1, False, 2)
    rig.write_markers()
    assert rig.end(PID, 0, commit=True) == (INVALID_TXN_STATE, -1, -1)
    assert rig.end(PID, 0, commit=False) == (0, PID, 1)


def test_a_producer_of_protocol_1_that_took_too_long_is_fenced() -> None:
    rig = opened(V1)
    rig.pass_time(TIMEOUT_MS)
    rig.write_markers()
    assert rig.add(PID, 0) == [PRODUCER_FENCED]
    assert rig.end(PID, 0, commit=False, version=V1)[0] == PRODUCER_FENCED
    assert rig.init(PID, 0) == (0, PID, 1)


def test_a_crash_gives_no_more_time() -> None:
    rig = opened()
    rig.pass_time(TIMEOUT_MS - 1)
    rig.crash()
    assert rig.state == "Ongoing"
    rig.pass_time(1)
    assert rig.state == "PrepareAbort"


def test_an_abort_that_could_not_be_written_is_tried_again() -> None:
    rig = opened()
    rig.append_fails = True
    rig.pass_time(TIMEOUT_MS)
    rig.append_fails = False
    assert (rig.state, rig.markers) == ("Ongoing", [])
    rig.pass_time(10_000)
    assert rig.state == "PrepareAbort"


def test_without_producer_ids_the_abort_of_a_used_up_epoch_waits() -> None:
    ids: list[int] = []

    def new_producer_id() -> int:
        if not ids:
            raise CoordinatorNotAvailable
        return ids.pop()

    rig = Rig()
    rig.coordinator = TransactionCoordinator(TransactionSettings(), 0, new_producer_id, len)
    rig.coordinator.loaded(rig.now_ms)
    assert rig.init()[0] == CoordinatorNotAvailable.code
    rig.put(Transaction(5, LAST_CLIENT_EPOCH, TIMEOUT_MS, last_update_ms=rig.now_ms))
    rig.add(5, LAST_CLIENT_EPOCH)
    rig.pass_time(TIMEOUT_MS)
    assert rig.state == "Ongoing"
    ids.append(9)
    rig.pass_time(10_000)
    assert (rig.state, rig.transaction.next_producer_id) == ("PrepareAbort", 9)


def test_only_so_many_are_aborted_at_once() -> None:
    rig = Rig()
    for index in range(MAX_DUE_AT_ONCE + 1):
        open_one = Transaction(index, 0, 1, State.ONGOING, (ORDERS,), rig.now_ms, rig.now_ms)
        rig.put(open_one, f"id{index}")
    rig.now_ms += 1
    effects = rig.coordinator.expire(rig.now_ms)
    assert len(effects.records) == MAX_DUE_AT_ONCE
    rig.apply(effects)
    assert rig.coordinator.next_deadline_ms() == rig.now_ms
    assert len(rig.coordinator.expire(rig.now_ms).records) == 1


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_an_id_that_nobody_uses_expires(state: State) -> None:
    rig = Rig()
    rig.put(Transaction(5, 1, TIMEOUT_MS, state, last_update_ms=START_MS))
    rig.pass_time(WEEK_MS - HOUR_MS)
    assert rig.state == state.label
    rig.pass_time(HOUR_MS)
    assert rig.coordinator.hard_state() == {}
    assert rig.replayed().hard_state() == {}
    assert rig.add(5, 1) == [INVALID_PRODUCER_ID_MAPPING]
    assert rig.init() == (0, PID, 0)


@pytest.mark.parametrize("stopped_ms", [-3 * WEEK_MS, 0, 52 * WEEK_MS])
def test_the_time_while_the_broker_was_stopped_makes_no_id_older(stopped_ms: int) -> None:
    """However long that was, or a clock that was set meanwhile says it was."""
    rig = Rig()
    rig.put(Transaction(5, 1, TIMEOUT_MS, State.EMPTY, last_update_ms=START_MS - WEEK_MS + 10 * HOUR_MS), "old")
    rig.put(Transaction(6, 1, TIMEOUT_MS, State.EMPTY, last_update_ms=START_MS), "newer")
    rig.now_ms += stopped_ms
    rig.crash()
    rig.pass_time(9 * HOUR_MS)
    assert rig.coordinator.hard_state().keys() == {"old", "newer"}
    if stopped_ms >= 0:  # else its stamp is yet to come, and it goes late
        rig.pass_time(2 * HOUR_MS)
        assert rig.coordinator.hard_state().keys() == {"newer"}
        rig.pass_time(WEEK_MS)
        assert rig.coordinator.hard_state() == {}


@pytest.mark.parametrize("turned_ms", [0, 10 * HOUR_MS])
def test_a_clock_that_was_set_back_gives_an_open_transaction_no_more_than_its_time(turned_ms: int) -> None:
    rig = opened()
    rig.now_ms -= turned_ms
    rig.crash()
    rig.pass_time(TIMEOUT_MS - 1)
    assert rig.state == "Ongoing"
    rig.pass_time(1)
    assert rig.state == "PrepareAbort"


def test_what_is_being_ended_does_not_expire() -> None:
    rig = opened()
    rig.end(PID, 0, commit=True)
    rig.pass_time(WEEK_MS + HOUR_MS)
    assert rig.state == "PrepareCommit"


def test_only_so_many_expire_at_once() -> None:
    rig = Rig()
    for index in range(MAX_DUE_AT_ONCE + 1):
        rig.put(Transaction(index, 0, 1, last_update_ms=START_MS), f"id{index}")
    rig.now_ms += WEEK_MS
    effects = rig.coordinator.expire(rig.now_ms)
    assert len(effects.records) == MAX_DUE_AT_ONCE
    rig.apply(effects)
    assert rig.coordinator.next_deadline_ms() == 0
    rig.apply(rig.coordinator.expire(rig.now_ms))
    assert rig.coordinator.hard_state() == {}


# Views


def test_what_is_described() -> None:
    rig = opened()
    topics = [{"topic": "orders", "partitions": [0]}, {"topic": "bills", "partitions": [1]}]
    assert rig.described() == {
        "error_code": 0,
        "transactional_id": ID,
        "transaction_state": "Ongoing",
        "transaction_timeout_ms": TIMEOUT_MS,
        "transaction_start_time_ms": START_MS,
        "producer_id": PID,
        "producer_epoch": 0,
        "topics": topics,
    }
    assert rig.described("nobody")["error_code"] == 105
    assert rig.described("")["error_code"] == 42


def test_what_is_listed() -> None:
    rig = Rig()
    for name in ("a-1", "a-2", "b"):
        rig.init(transactional_id=name)
    rig.put(Transaction(7, 0, TIMEOUT_MS, State.ONGOING, (ORDERS,), rig.now_ms - 500, rig.now_ms), "open")

    def names(**filters: Any) -> list[str]:
        return [each["transactional_id"] for each in rig.listed(**filters)["transaction_states"]]

    assert names() == ["a-1", "a-2", "b", "open"]
    assert names(version=0) == ["a-1", "a-2", "b", "open"]
    assert names(state_filters=["Ongoing"]) == ["open"]
    assert names(producer_id_filters=[7, PID]) == ["a-1", "open"]
    assert names(transactional_id_pattern="a-.") == ["a-1", "a-2"]
    assert names(state_filters=["Ongoing"], duration_filter=499) == ["open"]
    assert names(state_filters=["Ongoing"], duration_filter=500) == []
    assert rig.listed(state_filters=["Nonsense"])["unknown_state_filters"] == ["Nonsense"]
    assert names(state_filters=["Nonsense"]) == []
    assert rig.listed(transactional_id_pattern="(")["error_code"] == 128
    assert rig.listed(transactional_id_pattern="(.*a.{245}|" + ".*" * 900 + "zz)")["error_code"] == 128


def test_how_many_are_open() -> None:
    rig = opened()
    assert rig.coordinator.open_count == 1
    rig.end(PID, 0, commit=True)
    assert rig.coordinator.open_count == 1
    rig.write_markers()
    assert rig.coordinator.open_count == 0


def test_a_coordinator_without_ids_waits_for_its_cleaning_alone() -> None:
    ids = itertools.count()
    coordinator = TransactionCoordinator(TransactionSettings(), 0, lambda: next(ids), len)
    assert coordinator.next_deadline_ms() is None
    assert coordinator.loaded(START_MS) == ([], [], [])
    assert coordinator.next_deadline_ms() == START_MS + HOUR_MS
