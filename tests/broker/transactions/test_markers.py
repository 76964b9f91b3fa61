"""Markers: written where the transaction was, as often as it takes, durable before the transaction is complete."""

from __future__ import annotations

import errno

import pytest

from oncelog.broker.transactions import markers
from oncelog.broker.transactions.markers import FIRST_RETRY_MS, LAST_RETRY_MS
from oncelog.records import kernel
from oncelog.types import TopicPartition
from tests.broker.support import NOW_MS, Desk, FailingStorage, Later, replace_method
from tests.broker.transactions.support import (
    BILLS,
    ID,
    ORDERS,
    V1,
    Producer,
    add,
    add_request,
    end,
    end_request,
    find,
    init,
    markers_in,
    open_desk,
    state_of,
    write,
)
from tests.support.raw import Message
from tests.support.requests import fetch_request

UNKNOWN_TOPIC_OR_PARTITION, STORAGE, INVALID_PRODUCER_EPOCH, FENCED_COORDINATOR = 3, 56, 47, 52
INVALID_REQUEST, CONCURRENT = 42, 51
LONG_MS = 30_000


@pytest.fixture
def storage() -> FailingStorage:
    return FailingStorage()


@pytest.fixture
def desk(storage: FailingStorage) -> Desk:
    return prepare(open_desk(storage))


def prepare(desk: Desk, **configs: str) -> Desk:
    find(desk, ID)
    desk.create("orders", 1, **configs)
    desk.create("bills", 2)
    return desk


def begin(desk: Desk, *partitions: TopicPartition) -> Producer:
    """A transaction that has written to each of these."""
    producer = init(desk)
    assert set(add(desk, producer, *partitions)) == {0}
    for partition in partitions:
        write(desk, producer, partition)
    return producer


def fail_markers(desk: Desk, monkeypatch: pytest.MonkeyPatch, partition: TopicPartition) -> None:
    """The disk is full, as far as this partition's markers are concerned."""
    log = desk.broker.partition(*partition)
    original = log.append_marker

    def full(*args: object, **options: object) -> None:
        storage = log._storage
        assert isinstance(storage, FailingStorage)
        storage.fail_next("append", errno.ENOSPC)
        original(*args, **options)  # type: ignore[arg-type]

    replace_method(monkeypatch, log, "append_marker", full)


# --- trying again ---


def test_on_a_full_disk_the_outcome_is_certain_and_its_marker_comes_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begin(desk, ORDERS, BILLS)
    fail_markers(desk, monkeypatch, ORDERS)
    assert end(desk, producer, commit=True)["error_code"] == 0
    assert state_of(desk) == "PrepareCommit"
    assert (desk.broker.open_transactions, desk.broker.unwritten_markers) == (1, 1)
    assert [markers_in(desk.broker.partition(*each)) for each in (ORDERS, BILLS)] == [[], [(0, 1, True)]]
    assert add(desk, Producer(0, 1), ORDERS) == [CONCURRENT]
    desk.alarms.pass_time(LONG_MS)
    assert state_of(desk) == "PrepareCommit"
    monkeypatch.undo()
    desk.alarms.pass_time(LAST_RETRY_MS)
    assert state_of(desk) == "CompleteCommit"
    assert (desk.broker.open_transactions, desk.broker.unwritten_markers) == (0, 0)
    assert desk.broker.metrics.transactions_ended == {"commit": 1}
    assert [markers_in(desk.broker.partition(*each)) for each in (ORDERS, BILLS)] == [[(0, 1, True)]] * 2
    assert add(desk, Producer(0, 1), ORDERS) == [0]


def test_the_pauses_between_attempts_grow_and_are_short_again_after_a_success(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        producer = begin(desk, ORDERS)
        fail_markers(desk, monkeypatch, ORDERS)
        end(desk, producer, commit=False)
        pauses = []
        for _ in range(8):
            (due_ms,) = [at for at, step in desk.alarms.due if getattr(step, "__name__", "") == "retry"]
            pauses.append(due_ms - desk.alarms.time_ms)
            desk.alarms.pass_time(pauses[-1])
        assert pauses[:3] == [FIRST_RETRY_MS, 2 * FIRST_RETRY_MS, 4 * FIRST_RETRY_MS]
        assert pauses[-2:] == [LAST_RETRY_MS] * 2
        monkeypatch.undo()
        desk.alarms.pass_time(LAST_RETRY_MS)
        assert state_of(desk) == "CompleteAbort"


def test_a_marker_that_fails_in_a_way_of_its_own_does_not_stop_the_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begin(desk, ORDERS, BILLS)

    def fail(*args: object, **options: object) -> None:
        raise ZeroDivisionError

    replace_method(monkeypatch, desk.broker.partition(*ORDERS), "append_marker", fail)
    assert end(desk, producer, commit=True)["error_code"] == 0
    assert markers_in(desk.broker.partition(*BILLS)) == [(0, 1, True)]
    monkeypatch.undo()
    desk.alarms.pass_time(FIRST_RETRY_MS)
    assert state_of(desk) == "CompleteCommit"


def test_a_topic_deleted_under_a_transaction_needs_no_marker(desk: Desk) -> None:
    producer = begin(desk, ORDERS, BILLS)
    delete(desk, "orders")
    assert end(desk, producer, commit=True)["error_code"] == 0
    assert state_of(desk) == "CompleteCommit"
    assert markers_in(desk.broker.partition(*BILLS)) == [(0, 1, True)]


def test_a_topic_deleted_while_its_marker_waits_is_not_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = begin(desk, ORDERS)
    fail_markers(desk, monkeypatch, ORDERS)
    end(desk, producer, commit=True)
    delete(desk, "orders")
    assert state_of(desk) == "CompleteCommit"


def delete(desk: Desk, topic: str) -> None:
    named = {"topics": [{"name": topic, "topic_id": None}], "timeout": 1000}
    (deleted,) = desk.ask("delete_topics", 6, named)["responses"]
    assert deleted["error_code"] == 0


def test_an_offline_partition_gets_its_marker_after_a_restart(desk: Desk, storage: FailingStorage) -> None:
    producer = begin(desk, ORDERS, BILLS)
    desk.broker.partition(*ORDERS).offline = True
    assert end(desk, producer, commit=True)["error_code"] == 0
    desk.alarms.pass_time(LONG_MS)
    assert state_of(desk) == "PrepareCommit"
    again = open_desk(storage)
    again.broker.resume_transactions()
    again.alarms.pass_time(0)
    assert markers_in(again.broker.partition(*ORDERS)) == [(0, 1, True)]
    assert state_of(again) == "CompleteCommit"


def test_where_a_later_epoch_has_written_the_marker_is_not_waited_for(desk: Desk) -> None:
    """Somebody has used WriteTxnMarkers: its coordinator must not stand still for that."""
    producer = begin(desk, ORDERS)
    assert write_markers(desk, marker(producer.producer_id, 9, ORDERS)) == [0]
    assert end(desk, producer, commit=True)["error_code"] == 0
    assert state_of(desk) == "CompleteCommit"


def test_many_markers_let_clients_through(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "MAX_MARKERS_AT_ONCE", 2)
    desk.create("wide", 7)
    producer = begin(desk, *(TopicPartition("wide", index) for index in range(7)))
    end(desk, producer, commit=True)
    marked = [bool(markers_in(desk.broker.partition("wide", index))) for index in range(7)]
    assert marked == [True, True, False, False, False, False, False]
    desk.alarms.pass_time(0)
    assert state_of(desk) == "CompleteCommit"


# --- durable ---


def test_where_the_disk_is_promised_each_step_waits_for_it(storage: FailingStorage) -> None:
    desk = open_desk(storage, log_flush_interval_messages="1")
    found = find(desk, ID)
    assert found[0]["error_code"] == 0
    desk.create("orders")
    begun = desk.ask_later("init_producer_id", 5, {"transactional_id": ID, "transaction_timeout": 60_000})
    desk.threads.run_all()
    producer = Producer(answered(begun)["producer_id"], 0)
    refused: list[object] = []
    desk.broker.transactions.join(ID, *producer, [ORDERS], verify_only=False, done=refused.append)
    assert refused == []
    desk.threads.run_all()
    assert refused == [{}]
    write(desk, producer, ORDERS)
    log = desk.broker.partition(*ORDERS)
    ended = desk.ask_later("end_txn", 5, end_request(producer, commit=True))
    assert markers_in(log) == []
    desk.threads.run_next()
    assert answered(ended)["error_code"] == 0
    assert markers_in(log) == [(producer.producer_id, 1, True)]
    assert state_of(desk) == "PrepareCommit"
    desk.threads.run_next()
    assert log.recovery_point == log.log_end_offset
    later = desk.ask_later("describe_transactions", 0, {"transactional_ids": [ID]})
    desk.threads.run_all()
    assert answered(later)["transaction_states"][0]["transaction_state"] == "CompleteCommit"


def test_who_verifies_is_answered_at_once_even_then(storage: FailingStorage) -> None:
    """By protocol 1 an end that came between the question and the batch could not be told from none."""
    desk = open_desk(storage, log_flush_interval_messages="1")
    find(desk, ID)
    desk.create("orders")
    begun = desk.ask_later("init_producer_id", 5, {"transactional_id": ID, "transaction_timeout": 60_000})
    desk.threads.run_all()
    producer = Producer(answered(begun)["producer_id"], 0)
    desk.ask_later("add_partitions_to_txn", 3, add_request(producer, ORDERS))
    refused: list[object] = []
    desk.broker.transactions.join(ID, *producer, [ORDERS], verify_only=True, done=refused.append)
    assert refused == [{}]


def answered(later: Later) -> Message:
    assert later.message is not None
    return later.message


# --- readers ---


def test_a_committed_reader_is_woken_by_the_end_and_not_by_what_it_may_not_see(desk: Desk) -> None:
    request = fetch_request("orders", 0, max_wait=LONG_MS, isolation_level=1)
    waiting = desk.ask_later("fetch", 12, request)
    producer = begin(desk, ORDERS)
    desk.broker.purgatory.appended(ORDERS, 100)
    assert waiting.message is None
    end(desk, producer, commit=True)
    assert waiting.message is not None
    (partition,) = waiting.message["responses"][0]["partitions"]
    assert (partition["error_code"], partition["last_stable_offset"]) == (0, 2)
    assert partition["records"]


# --- WriteTxnMarkers ---


def marker(
    producer_id: int, epoch: int, *partitions: TopicPartition, coordinator_epoch: int = 0, version: int = 0
) -> Message:
    topics = [{"name": topic, "partition_indexes": [index]} for topic, index in partitions]
    return {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": False,
        "topics": topics,
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": version,
    }


def write_markers(desk: Desk, *many: Message, version: int = 2) -> list[int]:
    answer = desk.ask("write_txn_markers", version, {"markers": many})
    return [
        partition["error_code"]
        for each in answer["markers"]
        for topic in each["topics"]
        for partition in topic["partitions"]
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_a_hanging_transaction_can_be_ended_by_hand(desk: Desk, version: int) -> None:
    producer = begin(desk, ORDERS)
    unknown = TopicPartition("orders", 7)
    codes = write_markers(desk, marker(producer.producer_id, producer.epoch, ORDERS, unknown), version=version)
    assert codes == [0, UNKNOWN_TOPIC_OR_PARTITION]
    log = desk.broker.partition(*ORDERS)
    assert markers_in(log) == [(producer.producer_id, producer.epoch, False)]
    assert log.last_stable_offset == log.log_end_offset


def test_markers_that_are_refused(desk: Desk, storage: FailingStorage) -> None:
    producer = begin(desk, ORDERS)
    by_protocol_2 = marker(producer.producer_id, producer.epoch, ORDERS, version=2)
    assert write_markers(desk, by_protocol_2) == [INVALID_PRODUCER_EPOCH]
    assert write_markers(desk, marker(producer.producer_id, 3, ORDERS, coordinator_epoch=5)) == [0]
    older = marker(producer.producer_id, 3, ORDERS, coordinator_epoch=4)
    lower = marker(producer.producer_id, 2, ORDERS, coordinator_epoch=5)
    assert write_markers(desk, older, lower) == [FENCED_COORDINATOR, INVALID_PRODUCER_EPOCH]
    assert write_markers(desk, marker(-1, 3, ORDERS), marker(5, -1, ORDERS)) == [INVALID_REQUEST] * 2
    storage.fail_next("append", errno.ENOSPC)
    assert write_markers(desk, marker(producer.producer_id, 3, ORDERS, coordinator_epoch=5)) == [STORAGE]


def test_markers_are_answered_when_they_are_durable(storage: FailingStorage) -> None:
    desk = prepare(open_desk(storage), flush_messages="1")
    later = desk.ask_later("write_txn_markers", 1, {"markers": [marker(5, 0, ORDERS, BILLS)]})
    desk.threads.run_all()
    assert [topic["partitions"][0]["error_code"] for topic in answered(later)["markers"][0]["topics"]] == [0, 0]


def test_the_markers_of_protocol_1_have_the_epoch_of_the_transaction(desk: Desk) -> None:
    producer = begin(desk, ORDERS)
    end(desk, producer, commit=False, version=V1)
    assert markers_in(desk.broker.partition(*ORDERS)) == [(*producer, False)]


# --- what they say of the time ---


def test_a_marker_is_stamped_with_the_time_of_day(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the records around it are: by a clock that was a year ahead when the broker started, and was corrected since,
    retention would keep the segment for that year."""
    wall_ms = NOW_MS - 365 * 86_400_000
    monkeypatch.setattr(desk.alarms, "wall_ms", lambda: wall_ms)
    end(desk, begin(desk, ORDERS), commit=True, version=V1)
    log = desk.broker.partition(*ORDERS)
    stored = log.read(1, 1 << 20, upper_bound=log.log_end_offset).read_all()
    marker = kernel.parse_header(stored)
    assert (marker.is_control, marker.max_timestamp) == (True, wall_ms)
