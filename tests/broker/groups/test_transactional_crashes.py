"""Records and offsets of a transaction, on a broker that dies at any moment: both count, or neither does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from oncelog.types import TopicPartition
from tests.broker.groups.test_transactional_commits import GROUP, UNSTABLE, committed, log_of, request
from tests.broker.handlers.test_transactional_produce import batch
from tests.broker.handlers.test_transactional_produce import request as produce_request
from tests.broker.support import Desk, Later
from tests.broker.transactions.support import ID, Producer, end_request, find, init_request, markers_in
from tests.support.faulty_storage import FaultyStorage, SimulatedCrash
from tests.support.raw import Message

ORDERS = TopicPartition("orders", 0)
TIMEOUT_MS = 60_000
OFFSET = 7


def open_desk(storage: FaultyStorage) -> Desk:
    """Everything that is told is on the disk."""
    return Desk(
        storage,
        "/data",
        offsets_topic_num_partitions="4",
        transaction_state_log_num_partitions="1",
        log_flush_interval_messages="1",
    )


def settle(desk: Desk) -> None:
    """All flushes end, and what they let happen happens."""
    while desk.threads.waiting or any(due_ms <= desk.alarms.time_ms for due_ms, _ in desk.alarms.due):
        desk.threads.run_all()
        desk.alarms.pass_time(0)


def answer_of(desk: Desk, later: Later) -> Message:
    settle(desk)
    assert later.message is not None
    return later.message


def begin(storage: FaultyStorage) -> tuple[Desk, Producer]:
    desk = open_desk(storage)
    desk.create("orders")
    desk.ask("find_coordinator", 4, {"key_type": 0, "coordinator_keys": [GROUP]})
    find(desk, ID)
    begun = answer_of(desk, desk.ask_later("init_producer_id", 5, init_request(timeout_ms=TIMEOUT_MS)))
    return desk, Producer(begun["producer_id"], begun["producer_epoch"])


def transact_until_it_dies(desk: Desk, producer: Producer) -> bool:
    """A record, an offset and the commit, one after the other. Whether the client was told of the commit."""
    try:
        answer_of(desk, desk.ask_later("produce", 12, produce_request(desk, {0: batch(producer)})))
        answer_of(desk, desk.ask_later("txn_offset_commit", 5, request(producer, OFFSET)))
        ended = desk.ask_later("end_txn", 5, end_request(producer, commit=True))
    except SimulatedCrash:
        return False
    with suppress(SimulatedCrash):
        settle(desk)
    return ended.message is not None and ended.message["error_code"] == 0


def crash_points() -> range:
    """The storage operations from the first record to the end."""
    storage = FaultyStorage()
    desk, producer = begin(storage)
    first = storage.operations
    assert transact_until_it_dies(desk, producer)
    assert committed(desk) == OFFSET
    return range(first, storage.operations)


def resume(storage: FaultyStorage) -> Desk:
    desk = open_desk(storage)
    desk.broker.resume_groups()
    desk.broker.resume_transactions()
    settle(desk)
    desk.alarms.pass_time(TIMEOUT_MS)  # what was never decided is aborted
    settle(desk)
    flush(desk)
    return desk


def flush(desk: Desk) -> None:
    """What a crash has left is not known to be on the disk, and who asks about it would wait."""
    log = log_of(desk)
    desk.broker.group_commit.wait(log, log.log_end_offset, lambda error: None)
    settle(desk)


def survivors(storage: FaultyStorage, seed: int) -> Iterator[FaultyStorage]:
    yield storage.after_kill()
    yield storage.after_power_loss(seed)


def records_and_offsets_have_one_outcome(desk: Desk) -> bool:
    """Whether it is a commit."""
    log = desk.broker.partition(*ORDERS)
    assert log.last_stable_offset == log.log_end_offset, "readers of committed records are held up"
    is_commit = any(commit for _, _, commit in markers_in(log))
    assert committed(desk) == (OFFSET if is_commit else -1)
    markers = markers_in(log_of(desk))
    assert {commit for _, _, commit in markers} <= {is_commit}
    return is_commit


def test_a_crash_at_any_moment_of_a_transaction() -> None:
    told = []
    for operation in crash_points():
        storage = FaultyStorage()
        desk, producer = begin(storage)
        storage.crash_at(operation, torn=operation % 2 == 1)
        is_told = transact_until_it_dies(desk, producer)
        told.append(is_told)
        for survivor in survivors(storage, operation):
            is_commit = records_and_offsets_have_one_outcome(resume(survivor))
            assert is_commit or not is_told, f"operation {operation}: {storage.log[operation]}"
    assert {True, False} == set(told), "some crashes come before the answer, some after it"


def test_an_open_transaction_is_what_makes_an_offset_unstable() -> None:
    """So that the test above could fail."""
    storage = FaultyStorage()
    desk, producer = begin(storage)
    answer_of(desk, desk.ask_later("txn_offset_commit", 5, request(producer, OFFSET)))
    again = open_desk(storage.after_kill())
    again.broker.resume_groups()
    flush(again)
    assert committed(again) == UNSTABLE
