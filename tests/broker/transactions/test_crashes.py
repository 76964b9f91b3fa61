"""A transaction whose broker dies at any moment has one outcome, in all of its partitions: the one that was told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.broker.transactions.loading import Loading
from oncelog.coordinator.groups import coordinator_for
from oncelog.coordinator.transactions.records import TransactionRecord, encode_record
from oncelog.coordinator.transactions.state import State
from oncelog.coordinator.transactions.transaction import Transaction
from oncelog.log.producer_state import AppendOrigin
from oncelog.records import kernel
from oncelog.records.batch import build_batch, build_control_batch
from oncelog.records.model import ControlMarker
from oncelog.types import TopicPartition
from tests.broker.support import NOW_MS, Desk, Later
from tests.broker.transactions.support import (
    BILLS,
    DATA,
    ID,
    ORDERS,
    PARTITIONS,
    TRANSACTIONS,
    Producer,
    add_request,
    end,
    end_request,
    find,
    init_request,
    listed,
    markers_in,
    open_desk,
    state_of,
    write,
)
from tests.support.faulty_storage import FaultyStorage, SimulatedCrash
from tests.support.raw import Message

COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE = 14, 15
TIMEOUT_MS = 60_000
SEEDS = range(3)


def durable_desk(storage: FaultyStorage) -> Desk:
    """Everything that is told is on the disk."""
    return open_desk(storage, log_flush_interval_messages="1")


def settle(desk: Desk) -> None:
    """All flushes end, and what they let happen happens."""
    while desk.threads.waiting or any(due_ms <= desk.alarms.time_ms for due_ms, _ in desk.alarms.due):
        desk.threads.run_all()
        desk.alarms.pass_time(0)


def answer_of(desk: Desk, later: Later) -> Message:
    desk.threads.run_all()
    assert later.message is not None
    return later.message


def begin(storage: FaultyStorage) -> tuple[Desk, Producer]:
    """A transaction with a durable batch in each of two partitions."""
    desk = durable_desk(storage)
    find(desk, ID)
    desk.create("orders")
    desk.create("bills", 2)
    begun = answer_of(desk, desk.ask_later("init_producer_id", 5, init_request(timeout_ms=TIMEOUT_MS)))
    producer = Producer(begun["producer_id"], begun["producer_epoch"])
    answer_of(desk, desk.ask_later("add_partitions_to_txn", 3, add_request(producer, ORDERS, BILLS)))
    for partition in (ORDERS, BILLS):
        write(desk, producer, partition)
        log = desk.broker.partition(*partition)
        desk.broker.group_commit.wait(log, log.log_end_offset, lambda error: None)
    settle(desk)
    return desk, producer


def end_until_it_dies(desk: Desk, producer: Producer) -> bool:
    """Whether the client was told of the commit."""
    later = None
    try:
        later = desk.ask_later("end_txn", 5, end_request(producer, commit=True))
        settle(desk)
    except SimulatedCrash:
        pass
    return later is not None and later.message is not None and later.message["error_code"] == 0


def one_outcome_in_all_partitions(desk: Desk) -> bool:
    """Whether it is a commit."""
    outcomes: set[bool] = set()
    for partition in (ORDERS, BILLS):
        log = desk.broker.partition(*partition)
        assert log.last_stable_offset == log.log_end_offset, f"{partition} is held up"
        outcomes.update(commit for _, _, commit in markers_in(log))
    (is_commit,) = outcomes
    return is_commit


def resume(storage: FaultyStorage) -> Desk:
    desk = durable_desk(storage)
    desk.broker.resume_transactions()
    settle(desk)
    if markers_in(desk.broker.partition(*ORDERS)) == []:
        desk.alarms.pass_time(TIMEOUT_MS)  # the end was never decided: the transaction is open, and times out
        settle(desk)
    return desk


def crash_points() -> range:
    """The storage operations between EndTxn and the end."""
    storage = FaultyStorage()
    desk, producer = begin(storage)
    first = storage.operations
    assert end_until_it_dies(desk, producer)
    return range(first, storage.operations)


def survivors(storage: FaultyStorage) -> Iterator[FaultyStorage]:
    yield storage.after_kill()
    for seed in SEEDS:
        yield storage.after_power_loss(seed)


def test_a_crash_at_any_moment_of_the_end() -> None:
    told = []
    for operation in crash_points():
        storage = FaultyStorage()
        desk, producer = begin(storage)
        storage.crash_at(operation, torn=operation % 2 == 1)
        is_told = end_until_it_dies(desk, producer)
        told.append(is_told)
        for survivor in survivors(storage):
            again = resume(survivor)
            is_commit = one_outcome_in_all_partitions(again)
            assert is_commit or not is_told, f"operation {operation}: {storage.log[operation]}"
    assert {True, False} == set(told), "some crashes come before the answer, some after it"


# --- loading ---


def append(desk: Desk, batch: bytearray) -> None:
    """Straight into the coordinator's log, as another broker may have written it."""
    log = desk.broker.partition(TRANSACTIONS, coordinator_for(ID, PARTITIONS))
    log.append(batch, kernel.parse_header(batch), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.REPLICATION)
    log.advance_high_watermark(log.log_end_offset)


def record_batch(*records: TransactionRecord) -> bytearray:
    return build_batch([(NOW_MS, *encode_record(record), ()) for record in records])


def prepared(*partitions: TopicPartition, epoch: int = 1) -> Transaction:
    return Transaction(7, epoch, TIMEOUT_MS, State.PREPARE_COMMIT, partitions, NOW_MS, NOW_MS, 2, 7)


def restarted(storage: FaultyStorage) -> Desk:
    desk = open_desk(storage)
    desk.broker.resume_transactions()
    return desk


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage()


@pytest.fixture
def desk(storage: FaultyStorage) -> Desk:
    desk = open_desk(storage)
    find(desk, ID)
    desk.create("orders")
    return desk


def test_what_was_decided_is_carried_out_after_a_restart(desk: Desk, storage: FaultyStorage) -> None:
    append(desk, record_batch(TransactionRecord(ID, prepared(ORDERS, TopicPartition("gone", 3)))))
    again = restarted(storage)
    assert markers_in(again.broker.partition(*ORDERS)) == [], "in the background, once the broker is ready"
    again.alarms.pass_time(0)
    assert markers_in(again.broker.partition(*ORDERS)) == [(7, 1, True)]
    assert state_of(again) == "CompleteCommit"


def test_the_newest_record_counts_wherever_it_is(desk: Desk, storage: FaultyStorage) -> None:
    open_one = prepared(ORDERS)._replace(state=State.ONGOING)
    append(desk, record_batch(TransactionRecord(ID, open_one), TransactionRecord(ID, prepared(ORDERS))))
    append(desk, build_control_batch(ControlMarker(True, 0), producer_id=7, producer_epoch=1, timestamp_ms=NOW_MS))
    append(desk, record_batch(TransactionRecord(ID, prepared(ORDERS).completed(NOW_MS))))
    again = restarted(storage)
    again.alarms.pass_time(0)
    assert listed(again) == [(ID, "CompleteCommit")]
    assert markers_in(again.broker.partition(*ORDERS)) == []


def test_a_long_log_is_loaded_in_steps(desk: Desk, storage: FaultyStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.broker.coordinated.reading.STEP_BYTES", 500)
    monkeypatch.setattr("oncelog.broker.coordinated.reading.SHORT_BYTES", 500)
    at_rest = Transaction(7, 1, TIMEOUT_MS, State.COMPLETE_COMMIT, (), NOW_MS, NOW_MS, 2, 7)
    for number in range(20):
        append(desk, record_batch(TransactionRecord(f"id-{number}", at_rest)))
    steps = []
    step = Loading.step

    def counted(loading: Loading) -> bool:
        steps.append(loading)
        return step(loading)

    monkeypatch.setattr(Loading, "step", counted)
    again = restarted(storage)
    answer = again.ask("init_producer_id", 5, init_request())
    assert answer["error_code"] == COORDINATOR_LOAD_IN_PROGRESS
    assert again.ask("list_transactions", 0, {})["error_code"] == COORDINATOR_LOAD_IN_PROGRESS
    assert end(again, Producer(7, 1), commit=True)["error_code"] == COORDINATOR_LOAD_IN_PROGRESS
    again.alarms.pass_time(0)
    assert len(steps) > 3
    assert len(listed(again)) == 20


@pytest.mark.parametrize("value", [b"", b"\x00\x01\x02", b"\x00\x63" + bytes(40)])
def test_a_record_that_cannot_be_read_ends_the_service_of_its_partition(
    desk: Desk, storage: FaultyStorage, value: bytes
) -> None:
    """What became of a transaction is never guessed."""
    key, _ = encode_record(TransactionRecord(ID, None))
    append(desk, build_batch([(NOW_MS, key, value, ())]))
    again = restarted(storage)
    again.alarms.pass_time(0)
    assert again.ask("init_producer_id", 5, init_request())["error_code"] == COORDINATOR_NOT_AVAILABLE
    assert [each["error_code"] for each in find(again, ID)] == [COORDINATOR_NOT_AVAILABLE]


def test_a_record_of_a_kind_that_is_not_known_is_left_out(desk: Desk, storage: FaultyStorage) -> None:
    append(desk, build_batch([(NOW_MS, b"\x00\x09new", b"x", ())]))
    again = restarted(storage)
    again.alarms.pass_time(0)
    assert again.ask("init_producer_id", 5, init_request())["error_code"] == 0


def test_a_broker_without_transactions_makes_no_coordinator(storage: FaultyStorage) -> None:
    desk = Desk(storage, DATA)
    desk.broker.resume_transactions()
    desk.alarms.pass_time(1_000)
    assert desk.broker._transactions is None
