"""The runtime of the transaction coordinators: where an id lives, records before answers, leaders that ask, failing,
time."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from oncelog.broker.coordinated.topic import RELOAD_DELAY_MS
from oncelog.coordinator.groups import coordinator_for
from oncelog.coordinator.transactions.transaction_coordinator import COMPLETION_RETRY_MS
from oncelog.errors import KafkaError
from oncelog.log.storage import FileStorage
from oncelog.types import TopicPartition
from tests.broker.support import Desk, FailingStorage, replace_method
from tests.broker.transactions.support import (
    BILLS,
    EVERYTHING,
    ID,
    ORDERS,
    PARTITIONS,
    TRANSACTIONS,
    V1,
    V2,
    Producer,
    add,
    add_request,
    end,
    end_request,
    find,
    init,
    init_request,
    listed,
    markers_in,
    open_desk,
    state_of,
    write,
)
from tests.support.raw import Message

UNKNOWN_TOPIC_OR_PARTITION = 3
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_MAPPING, INVALID_TIMEOUT = 47, 48, 49, 50
CONCURRENT = 51
NOT_ATTEMPTED = 55
FENCED = 90
NOT_FOUND = 105
ABORTABLE = 120
MINUTE_MS = 60_000


@pytest.fixture
def storage() -> FailingStorage:
    return FailingStorage()


@pytest.fixture
def desk(storage: FailingStorage) -> Desk:
    desk = open_desk(storage)
    find(desk, ID)
    desk.create("orders")
    desk.create("bills", 2)
    return desk


def ids_apart(count: int) -> list[str]:
    """Transactional ids, each of another partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < count:
        found.setdefault(coordinator_for(f"id-{number}", PARTITIONS), f"id-{number}")
        number += 1
    return list(found.values())


def ask_to_join(
    desk: Desk, producer: Producer, *partitions: TopicPartition, verify_only: bool = False, transactional_id: str = ID
) -> dict[TopicPartition, int]:
    """The codes of those that are refused; the answer must come at once."""
    answers: list[dict[TopicPartition, KafkaError]] = []
    desk.broker.transactions.join(
        transactional_id,
        *producer,
        partitions,
        verify_only=verify_only,
        done=lambda refused: answers.append(dict(refused)),
    )
    (refused,) = answers
    return {partition: error.code for partition, error in refused.items()}


# --- who coordinates ---


def test_the_first_one_asked_for_creates_the_topic_as_kafka_does(storage: FailingStorage) -> None:
    desk = Desk(storage, "/data")
    (found,) = find(desk, ID)
    assert (found["error_code"], found["node_id"], found["host"], found["port"]) == (0, 1, "broker.example", 9092)
    topic = desk.broker.controller.state.topic(TRANSACTIONS)
    assert topic is not None
    assert len(topic.partitions) == 50
    config = desk.broker.log_config(TRANSACTIONS)
    assert (config.compacts, config.deletes, config.segment_bytes) == (True, False, 100 << 20)
    (listed,) = desk.ask("metadata", 12, {"topics": [{"name": TRANSACTIONS}]})["topics"]
    assert listed["is_internal"]


def test_more_replicas_than_nodes_cannot_be_had(storage: FailingStorage) -> None:
    desk = open_desk(storage, transaction_state_log_replication_factor="3")
    assert [each["error_code"] for each in find(desk, "a", "b")] == [COORDINATOR_NOT_AVAILABLE] * 2
    assert desk.broker.controller.state.topic(TRANSACTIONS) is None


def test_before_anybody_asked_there_is_no_coordinator(storage: FailingStorage) -> None:
    desk = open_desk(storage)
    desk.create("orders")
    nobody = Producer(0, 0)
    assert desk.ask("init_producer_id", 5, init_request())["error_code"] == NOT_COORDINATOR
    assert add(desk, nobody, ORDERS) == [NOT_COORDINATOR]
    assert end(desk, nobody, commit=True)["error_code"] == NOT_COORDINATOR
    assert ask_to_join(desk, nobody, ORDERS) == {ORDERS: NOT_COORDINATOR}
    (described,) = desk.ask("describe_transactions", 0, {"transactional_ids": [ID]})["transaction_states"]
    assert described["error_code"] == NOT_COORDINATOR
    assert listed(desk) == []
    assert desk.broker.controller.state.topic(TRANSACTIONS) is None


# --- requests ---


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_in_every_partition(desk: Desk, version: int, commit: bool) -> None:
    producer = init(desk)
    assert add(desk, producer, ORDERS, BILLS) == [0, 0]
    write(desk, producer, ORDERS)
    log = desk.broker.partition(*ORDERS)
    assert log.last_stable_offset == 0
    answer = end(desk, producer, commit=commit, version=version)
    assert answer["error_code"] == 0
    epoch = producer.epoch + (version == V2)
    assert markers_in(log) == markers_in(desk.broker.partition(*BILLS)) == [(producer.producer_id, epoch, commit)]
    assert log.last_stable_offset == 2
    assert state_of(desk) == ("CompleteCommit" if commit else "CompleteAbort")


def test_the_answer_to_an_end_by_protocol_2_brings_the_next_epoch(desk: Desk) -> None:
    producer = init(desk)
    add(desk, producer, ORDERS)
    answer = end(desk, producer, commit=True)
    assert (answer["producer_id"], answer["producer_epoch"]) == (producer.producer_id, 1)
    assert end(desk, producer, commit=True)["error_code"] == 0, "the same request again"
    assert end(desk, producer, commit=False)["error_code"] == INVALID_TXN_STATE, "the opposite"


def test_init_that_is_refused(desk: Desk) -> None:
    codes = [
        desk.ask("init_producer_id", 5, init_request(**wrong))["error_code"]
        for wrong in ({"timeout_ms": 900_001}, {"timeout_ms": 0}, {"transactional_id": ""}, {"had": Producer(7, -1)})
    ]
    assert codes == [INVALID_TIMEOUT, INVALID_TIMEOUT, INVALID_REQUEST, INVALID_REQUEST]
    assert listed(desk) == []


def test_a_second_producer_fences_the_first_and_ends_its_transaction(desk: Desk) -> None:
    first = init(desk)
    add(desk, first, ORDERS)
    write(desk, first, ORDERS)
    assert desk.ask("init_producer_id", 5, init_request())["error_code"] == CONCURRENT
    second = init(desk)
    assert second == (first.producer_id, first.epoch + 2)
    assert markers_in(desk.broker.partition(*ORDERS)) == [(first.producer_id, first.epoch + 1, False)]
    assert add(desk, first, ORDERS) == [FENCED]
    old = [desk.ask("add_partitions_to_txn", version, add_request(first, ORDERS)) for version in (0, 1)]
    results = [each["results_by_topic_v3_and_below"][0]["results_by_partition"][0] for each in old]
    assert [each["partition_error_code"] for each in results] == [INVALID_PRODUCER_EPOCH] * 2
    ended = [end(desk, first, commit=True, version=version)["error_code"] for version in range(6)]
    assert ended == [INVALID_PRODUCER_EPOCH] * 2 + [FENCED] * 4


def test_a_partition_that_does_not_exist_spoils_the_others(desk: Desk) -> None:
    producer = init(desk)
    missing = (TopicPartition("orders", 1), TopicPartition("nowhere", 0))
    assert add(desk, producer, ORDERS, *missing) == [NOT_ATTEMPTED] + [UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert state_of(desk) == "Empty"


def test_offsets_are_added_as_the_partition_that_keeps_the_group(desk: Desk) -> None:
    producer = init(desk)
    body = {"transactional_id": ID, **producer_fields(producer), "group_id": "billing"}
    for version in range(5):
        assert desk.ask("add_offsets_to_txn", version, body)["error_code"] == 0
    (described,) = desk.ask("describe_transactions", 0, {"transactional_ids": [ID]})["transaction_states"]
    (topic,) = described["topics"]
    assert (topic["topic"], topic["partitions"]) == ("__consumer_offsets", [coordinator_for("billing", 50)])
    assert end(desk, producer, commit=True)["error_code"] == 0
    assert state_of(desk) == "CompleteCommit", "nobody ever asked for that group: there is nothing to mark"


def producer_fields(producer: Producer) -> Message:
    return {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}


def test_brokers_add_and_verify_for_many_transactions_at_once(desk: Desk) -> None:
    ids = ids_apart(3)
    producers = [init(desk, each) for each in ids]
    topics = [{"name": "orders", "partitions": [0]}]

    def part(number: int, *, verify_only: bool, topics: list[Message] = topics) -> Message:
        fields = producer_fields(producers[number])
        return {"transactional_id": ids[number], **fields, "verify_only": verify_only, "topics": topics}

    nowhere = [{"name": "nowhere", "partitions": [0]}]
    parts = [part(0, verify_only=False), part(1, verify_only=True), part(2, verify_only=False, topics=nowhere)]
    answer = desk.ask("add_partitions_to_txn", 5, {"transactions": parts})
    codes = {
        each["transactional_id"]: each["topic_results"][0]["results_by_partition"][0]["partition_error_code"]
        for each in answer["results_by_transaction"]
    }
    assert codes == {ids[0]: 0, ids[1]: ABORTABLE, ids[2]: UNKNOWN_TOPIC_OR_PARTITION}
    verified = desk.ask("add_partitions_to_txn", 4, {"transactions": [part(0, verify_only=True)]})
    (result,) = verified["results_by_transaction"][0]["topic_results"][0]["results_by_partition"]
    assert result["partition_error_code"] == 0


# --- leaders of partitions ---


def test_the_first_batch_adds_its_partition(desk: Desk) -> None:
    producer = init(desk)
    log = desk.broker.partition(TRANSACTIONS, coordinator_for(ID, PARTITIONS))
    before = log.log_end_offset
    assert ask_to_join(desk, producer, ORDERS) == {}
    assert ask_to_join(desk, producer, ORDERS) == {}
    assert log.log_end_offset == before + 1, "what is there already is not written again"
    assert ask_to_join(desk, producer, ORDERS, BILLS) == {}
    assert log.log_end_offset == before + 2
    assert end(desk, producer, commit=True)["error_code"] == 0
    assert markers_in(desk.broker.partition(*BILLS)) == [(producer.producer_id, 1, True)]


def test_who_only_verifies_adds_nothing(desk: Desk) -> None:
    producer = init(desk)
    assert ask_to_join(desk, producer, ORDERS, verify_only=True) == {ORDERS: ABORTABLE}
    add(desk, producer, ORDERS)
    assert ask_to_join(desk, producer, ORDERS, BILLS, verify_only=True) == {BILLS: ABORTABLE}
    assert ask_to_join(desk, producer, ORDERS, verify_only=True) == {}


@pytest.mark.parametrize("verify_only", [True, False])
def test_producers_that_may_not_write(desk: Desk, verify_only: bool) -> None:
    producer = init(desk)
    late, unknown = Producer(producer.producer_id, -1), Producer(99, 0)
    codes = [
        ask_to_join(desk, producer, ORDERS, verify_only=verify_only, transactional_id="nobody"),
        ask_to_join(desk, late, ORDERS, verify_only=verify_only),
        ask_to_join(desk, unknown, ORDERS, verify_only=verify_only),
    ]
    assert codes == [{ORDERS: INVALID_MAPPING}, {ORDERS: FENCED}, {ORDERS: INVALID_MAPPING}]


# --- looking ---


def test_transactions_of_all_partitions_are_listed_and_described(desk: Desk) -> None:
    first, second, third = ids_apart(3)
    producers = {each: init(desk, each) for each in (first, second, third)}
    add(desk, producers[second], BILLS, transactional_id=second)
    assert listed(desk) == sorted([(first, "Empty"), (second, "Ongoing"), (third, "Empty")])
    assert listed(desk, state_filters=["Ongoing"]) == [(second, "Ongoing")]
    add(desk, producers[third], ORDERS, transactional_id=third)
    described = desk.ask("describe_transactions", 0, {"transactional_ids": [third, "x", second]})["transaction_states"]
    found = [(each["error_code"], each["transactional_id"]) for each in described]
    assert found == [(0, third), (NOT_FOUND, "x"), (0, second)]
    assert described[2]["topics"] == [{"topic": "bills", "partitions": [1]}]


def test_filters_are_judged_even_if_there_is_nothing_to_list(storage: FailingStorage) -> None:
    desk = open_desk(storage)
    body = {**EVERYTHING, "state_filters": ["Ongoing", "Odd"]}
    assert desk.ask("list_transactions", 2, body)["unknown_state_filters"] == ["Odd"]
    body["transactional_id_pattern"] = "("
    assert desk.ask("list_transactions", 2, body)["error_code"] == 128


# --- failing ---


def test_what_cannot_be_written_has_not_happened(desk: Desk, storage: FailingStorage) -> None:
    producer = init(desk)
    storage.fail_next("append", errno.ENOSPC)
    assert add(desk, producer, ORDERS) == [NOT_COORDINATOR]
    assert state_of(desk) == "Empty"
    storage.fail_next("append", errno.ENOSPC)
    assert ask_to_join(desk, producer, ORDERS) == {ORDERS: NOT_COORDINATOR}
    assert add(desk, producer, ORDERS) == [0]
    storage.fail_next("append", errno.ENOSPC)
    assert end(desk, producer, commit=True)["error_code"] == NOT_COORDINATOR
    assert state_of(desk) == "Ongoing"
    assert markers_in(desk.broker.partition(*ORDERS)) == []
    assert end(desk, producer, commit=True)["error_code"] == 0


def test_without_room_for_a_new_producer_id_producers_try_again(desk: Desk, storage: FailingStorage) -> None:
    storage.fail_next("append", errno.ENOSPC)
    assert desk.ask("init_producer_id", 5, init_request())["error_code"] == COORDINATOR_LOAD_IN_PROGRESS
    assert init(desk).epoch == 0


def test_an_end_that_cannot_be_written_is_written_later(
    desk: Desk, storage: FailingStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = init(desk)
    add(desk, producer, ORDERS)
    log = desk.broker.partition(*ORDERS)
    original = log.append_marker

    def then_full(*args: object, **options: object) -> object:
        appended = original(*args, **options)  # type: ignore[arg-type]
        storage.fail_next("append", errno.ENOSPC)
        return appended

    replace_method(monkeypatch, log, "append_marker", then_full)
    assert end(desk, producer, commit=True)["error_code"] == 0
    assert state_of(desk) == "PrepareCommit"
    desk.alarms.pass_time(COMPLETION_RETRY_MS)
    assert state_of(desk) == "CompleteCommit"
    assert len(markers_in(log)) == 1


def test_an_offline_partition_of_the_coordinator(desk: Desk) -> None:
    producer = init(desk)
    partition = TopicPartition(TRANSACTIONS, coordinator_for(ID, PARTITIONS))
    desk.broker.partition(*partition).offline = True
    desk.broker.log_failed(partition)
    assert end(desk, producer, commit=True)["error_code"] == NOT_COORDINATOR
    assert ask_to_join(desk, producer, ORDERS) == {ORDERS: NOT_COORDINATOR}
    assert [each["error_code"] for each in find(desk, ID)] == [COORDINATOR_NOT_AVAILABLE]
    others = [each for each in ids_apart(PARTITIONS) if coordinator_for(each, PARTITIONS) != partition.partition]
    assert [init(desk, each).epoch for each in others] == [0] * (PARTITIONS - 1)


def test_a_flush_that_fails_gives_the_coordinator_up(storage: FailingStorage) -> None:
    desk = open_desk(storage, log_flush_interval_messages="1")
    find(desk, ID)
    begun = desk.ask_later("init_producer_id", 5, init_request())
    refused: list[dict[TopicPartition, KafkaError]] = []
    storage.fail_next("sync")
    desk.broker.transactions.join(ID, 0, 0, [ORDERS], verify_only=False, done=lambda each: refused.append(dict(each)))
    desk.threads.run_all()
    assert begun.message is not None
    assert begun.message["error_code"] == NOT_COORDINATOR
    assert [error.code for each in refused for error in each.values()] == [NOT_COORDINATOR]
    assert [each["error_code"] for each in find(desk, ID)] == [COORDINATOR_NOT_AVAILABLE]
    desk.alarms.pass_time(RELOAD_DELAY_MS)


def test_a_coordinator_whose_topic_is_deleted_knows_nothing_any_more(tmp_path: Path) -> None:
    desk = Desk(FileStorage(), str(tmp_path), transaction_state_log_num_partitions="2")
    find(desk, ID)
    desk.create("orders")
    producer = init(desk)
    add(desk, producer, ORDERS)
    named = {"topics": [{"name": TRANSACTIONS, "topic_id": None}], "timeout": 1000}
    desk.ask("delete_topics", 6, named)
    assert end(desk, producer, commit=True)["error_code"] == NOT_COORDINATOR
    find(desk, ID)
    assert end(desk, producer, commit=True)["error_code"] == INVALID_MAPPING


# --- time ---


def test_a_transaction_that_takes_too_long_is_aborted(desk: Desk) -> None:
    producer = init(desk, timeout_ms=MINUTE_MS)
    add(desk, producer, ORDERS)
    write(desk, producer, ORDERS)
    desk.alarms.pass_time(MINUTE_MS - 1)
    assert state_of(desk) == "Ongoing"
    desk.alarms.pass_time(1)
    assert state_of(desk) == "CompleteAbort"
    assert markers_in(desk.broker.partition(*ORDERS)) == [(producer.producer_id, 1, False)]
    assert end(desk, producer, commit=True)["error_code"] == INVALID_TXN_STATE


def test_an_abort_that_cannot_be_written_is_tried_again(desk: Desk, storage: FailingStorage) -> None:
    producer = init(desk, timeout_ms=MINUTE_MS)
    add(desk, producer, ORDERS)
    storage.fail_next("append", errno.ENOSPC)
    desk.alarms.pass_time(MINUTE_MS)
    assert state_of(desk) == "Ongoing"
    desk.alarms.pass_time(10_000)
    assert state_of(desk) == "CompleteAbort"


def test_more_aborts_at_once_than_one_batch_can_hold(storage: FailingStorage) -> None:
    desk = open_desk(storage, message_max_bytes="1000")
    find(desk, ID)
    desk.create("orders")
    ids = [f"id-{number}" for number in range(40)]
    for each in ids:
        add(desk, init(desk, each, timeout_ms=MINUTE_MS), ORDERS, transactional_id=each)
    desk.alarms.pass_time(MINUTE_MS)
    assert {state_of(desk, each) for each in ids} == {"CompleteAbort"}


def test_ids_that_nobody_uses_are_forgotten(storage: FailingStorage) -> None:
    desk = open_desk(storage, transactional_id_expiration_ms="1000")
    find(desk, ID)
    producer = init(desk)
    desk.alarms.pass_time(3_600_000)
    assert listed(desk) == []
    assert end(desk, producer, commit=False)["error_code"] == INVALID_MAPPING
    again = open_desk(storage)
    again.broker.resume_transactions()
    again.alarms.pass_time(0)
    assert listed(again) == []


def test_an_answer_of_an_id_waits_for_its_own_partition_only(storage: FailingStorage) -> None:
    desk = open_desk(storage, log_flush_interval_messages="1")
    find(desk, ID)
    waiting = [desk.ask_later("init_producer_id", 5, init_request(each)) for each in ids_apart(2)]
    desk.threads.run_next()
    assert [each.message is None for each in waiting] == [False, True]
    late = desk.ask_later("end_txn", 5, end_request(Producer(0, 0), commit=True, transactional_id=ids_apart(2)[1]))
    desk.threads.run_all()
    assert late.message is not None
