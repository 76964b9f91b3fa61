"""Produce in transactions: who is asked before the first batch, what is refused in which words, and what waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from oncelog.broker.handlers.transactional_produce import MAX_RETRIES, RETRY_MS
from oncelog.broker.request import FAILED, NO_REPLY, Pending
from oncelog.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    KafkaError,
    NotCoordinator,
    ProducerFenced,
    TransactionAbortable,
)
from oncelog.records.model import ControlMarker
from oncelog.types import TopicPartition
from tests.broker.support import NOW_MS, Desk, FailingStorage
from tests.broker.transactions.support import ID, Producer, add, end, find, init, init_request, markers_in, open_desk
from tests.support.batches import TRANSACTIONAL, make_batch
from tests.support.raw import Message

CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, NOT_ENOUGH_REPLICAS = 2, 3, 17, 19
OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING = 45, 47, 48, 49
CONCURRENT_TRANSACTIONS, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TRANSACTION_ABORTABLE = 51, 53, 120
FIRST_SERVED, HIGHEST, FIRST_WITH_TOPIC_IDS = 3, 13, 13
FIRST_THAT_ADDS = 12
OFFSETS, ORDERS = "__consumer_offsets", "orders"

Refused = dict[TopicPartition, KafkaError]
Answered = tuple[int, int]
"""Error and base offset."""


@pytest.fixture
def storage() -> FailingStorage:
    return FailingStorage()


@pytest.fixture
def desk(storage: FailingStorage) -> Desk:
    return new_desk(storage)


def new_desk(storage: FailingStorage, **settings: str) -> Desk:
    desk = open_desk(storage, **settings)
    desk.create(ORDERS, 4)
    find(desk, ID)
    return desk


def batch(producer: Producer, sequence: int = 0, *, attributes: int = TRANSACTIONAL, **fields: Any) -> bytes:
    return make_batch(
        [b"v"],
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        sequence=sequence,
        attributes=attributes,
        base_timestamp=NOW_MS,
        **fields,
    )


def request(
    desk: Desk, batches: dict[int, bytes], *, transactional_id: str | None = ID, acks: int = -1, topic: str = ORDERS
) -> Message:
    """One batch for each of these partitions."""
    parts = [{"index": index, "records": records} for index, records in batches.items()]
    data = {"name": topic, "topic_id": desk.broker.topic_id(topic), "partition_data": parts}
    return {"transactional_id": transactional_id, "acks": acks, "timeout": 1_000, "topic_data": [data]}


def answered(message: Message | None) -> list[Answered]:
    assert message is not None
    (topic,) = message["responses"]
    return [(part["error_code"], part["base_offset"]) for part in topic["partition_responses"]]


def produce(
    desk: Desk, producer: Producer, sequence: int = 0, *, version: int = FIRST_THAT_ADDS, partition: int = 0, **how: Any
) -> Answered:
    asked = request(desk, {partition: batch(producer, sequence)}, **how)
    (answer,) = answered(desk.ask("produce", version, asked))
    return answer


def end_offsets(desk: Desk) -> list[int]:
    return [desk.broker.partition(ORDERS, index).log_end_offset for index in range(4)]


class Coordinator:
    """Says what the test tells it to say, and when."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch, *answers: type[KafkaError] | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[list[TopicPartition], bool]] = []
        self.waiting: list[Callable[[Refused], None]] = []
        monkeypatch.setattr(desk.broker.transactions, "join", self.join)

    def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        done: Callable[[Refused], None],
    ) -> None:
        self.asked.append((list(partitions), verify_only))
        if not self.answers:
            self.waiting.append(done)
            return
        error = self.answers.pop(0)
        done({} if error is None else dict.fromkeys(partitions, error()))


# --- a transaction's batches ---


@pytest.mark.parametrize("version", range(FIRST_SERVED, HIGHEST + 1))
def test_a_transaction_in_every_version(desk: Desk, version: int) -> None:
    producer = init(desk)
    by_protocol_2 = version >= FIRST_THAT_ADDS
    if not by_protocol_2:
        refusal = TRANSACTION_ABORTABLE if version == FIRST_THAT_ADDS - 1 else INVALID_TXN_STATE
        assert produce(desk, producer, version=version) == (refusal, -1)
        assert add(desk, producer, TopicPartition(ORDERS, 0)) == [0]
    assert [produce(desk, producer, number, version=version) for number in range(3)] == [(0, 0), (0, 1), (0, 2)]
    log = desk.broker.partition(ORDERS, 0)
    assert log.last_stable_offset == 0
    end(desk, producer, commit=True, version=5 if by_protocol_2 else 4)
    assert log.last_stable_offset == log.log_end_offset == 4
    assert [each[2] for each in markers_in(log)] == [True]


def test_a_batch_that_comes_again_is_answered_with_where_it_is(desk: Desk) -> None:
    producer = init(desk)
    for number in range(3):
        produce(desk, producer, number)
    assert [produce(desk, producer, number) for number in range(3)] == [(0, 0), (0, 1), (0, 2)]
    assert end_offsets(desk)[0] == 3


def test_each_partition_has_its_own_answer(desk: Desk) -> None:
    producer = init(desk)
    batches = {0: batch(producer), 1: batch(producer, crc=1), 2: make_batch([b"plain"]), 9: batch(producer)}
    batches[3] = b""
    answers = answered(desk.ask("produce", 12, request(desk, batches)))
    assert answers[:4] == [(0, 0), (CORRUPT_MESSAGE, -1), (0, 0), (UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert answers[4][0] != 0
    assert end_offsets(desk) == [1, 0, 1, 0]


def test_all_partitions_are_asked_for_at_once_and_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(desk, monkeypatch, None, None)
    producer = Producer(5, 0)
    places = [TopicPartition(ORDERS, index) for index in range(3)]
    assert answered(desk.ask("produce", 12, request(desk, {0: batch(producer), 1: batch(producer)}))) == [(0, 0)] * 2
    again = {index: batch(producer, sequence) for index, sequence in ((0, 1), (1, 1), (2, 0))}
    assert answered(desk.ask("produce", 12, request(desk, again))) == [(0, 1), (0, 1), (0, 0)]
    assert coordinator.asked == [(places[:2], False), (places[2:], False)]
    assert produce(desk, producer, 2) == (0, 2)
    assert len(coordinator.asked) == 2, "wherever the transaction is open, nobody is asked"


def test_a_refusal_is_its_partitions_alone(desk: Desk) -> None:
    producer = init(desk)
    add(desk, producer, TopicPartition(ORDERS, 1))
    answers = desk.ask("produce", 9, request(desk, {0: batch(producer), 1: batch(producer), 2: make_batch([b"plain"])}))
    assert answered(answers) == [(INVALID_TXN_STATE, -1), (0, 0), (0, 0)]
    assert end_offsets(desk) == [0, 1, 1, 0]


def test_without_verification_only_protocol_2_asks(storage: FailingStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = new_desk(storage, transaction_partition_verification_enable="false")
    coordinator = Coordinator(desk, monkeypatch, InvalidProducerIdMapping)
    assert produce(desk, Producer(5, 0), version=11) == (0, 0)
    assert coordinator.asked == []
    assert produce(desk, Producer(6, 0), version=12) == (INVALID_PRODUCER_ID_MAPPING, -1)


# --- what does not fit ---


def test_batches_of_two_producers_are_refused_and_so_is_all_that_comes_with_them(desk: Desk) -> None:
    producer = init(desk)
    for other in (Producer(producer.producer_id + 1, producer.epoch), producer._replace(epoch=producer.epoch + 1)):
        batches = {0: batch(producer), 1: batch(other), 2: make_batch([b"plain"])}
        assert answered(desk.ask("produce", 12, request(desk, batches))) == [(INVALID_PRODUCER_ID_MAPPING, -1)] * 3
    assert end_offsets(desk) == [0] * 4


def test_a_transactional_batch_of_no_transaction(desk: Desk) -> None:
    producer = init(desk)
    for version in (9, 12):
        refused = produce(desk, producer, version=version, transactional_id=None)
        assert refused == (TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)


def test_other_batches_of_a_producer_whose_transaction_is_open(desk: Desk) -> None:
    producer = init(desk)
    produce(desk, producer)
    for transactional_id in (ID, None):
        plain = request(desk, {0: batch(producer, 1, attributes=0)}, transactional_id=transactional_id)
        assert answered(desk.ask("produce", 12, plain)) == [(INVALID_TXN_STATE, -1)]
    elsewhere = request(desk, {1: batch(producer, 0, attributes=0)})
    assert answered(desk.ask("produce", 12, elsewhere)) == [(0, 0)], "the transaction is not open there"


def test_epochs(desk: Desk) -> None:
    old = init(desk)
    produce(desk, old)
    assert desk.ask("init_producer_id", 5, init_request())["error_code"] == CONCURRENT_TRANSACTIONS
    new = init(desk)
    assert new.epoch > old.epoch
    for version in (9, 12):
        assert produce(desk, old, 1, version=version) == (INVALID_PRODUCER_EPOCH, -1)
        assert produce(desk, old, partition=1, version=version) == (INVALID_PRODUCER_EPOCH, -1)
        assert produce(desk, Producer(new.producer_id, 99), version=version) == (INVALID_PRODUCER_EPOCH, -1)
    assert produce(desk, new) == (0, 2)


def test_by_protocol_2_a_transaction_begins_with_the_first_sequence(desk: Desk) -> None:
    producer = init(desk)
    assert produce(desk, producer, 5) == (OUT_OF_ORDER_SEQUENCE, -1)
    assert produce(desk, producer, 0) == (0, 0)


def test_after_the_end_the_epoch_is_over(desk: Desk) -> None:
    producer = init(desk)
    produce(desk, producer)
    ended = end(desk, producer, commit=False)
    assert produce(desk, producer, 0) == (INVALID_PRODUCER_EPOCH, -1), "not even for a batch that is there"
    assert produce(desk, Producer(ended["producer_id"], ended["producer_epoch"])) == (0, 2)


def test_topics_of_the_coordinators_join_no_transaction(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.ask("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
    coordinator = Coordinator(desk, monkeypatch)
    asked = request(desk, {0: batch(Producer(5, 0))}, topic=OFFSETS)
    assert answered(desk.ask("produce", 12, asked)) == [(INVALID_TOPIC, -1)]
    assert coordinator.asked == []


# --- what the coordinator says ---


@pytest.mark.parametrize("error", [CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator])
@pytest.mark.parametrize("version", [9, 12])
def test_a_coordinator_that_cannot_say_it_now(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: type[KafkaError], version: int
) -> None:
    Coordinator(desk, monkeypatch, error, None)
    assert produce(desk, Producer(5, 0), version=version) == (NOT_ENOUGH_REPLICAS, -1)
    assert produce(desk, Producer(5, 0), version=version) == (0, 0)


@pytest.mark.parametrize(
    ("error", "version", "told"),
    [
        (ProducerFenced, 9, INVALID_PRODUCER_EPOCH),
        (ProducerFenced, 12, INVALID_PRODUCER_EPOCH),
        (TransactionAbortable, 10, INVALID_TXN_STATE),
        (TransactionAbortable, 11, TRANSACTION_ABORTABLE),
        (ConcurrentTransactions, 11, NOT_ENOUGH_REPLICAS),
        (InvalidProducerIdMapping, 12, INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_in_words_that_the_client_knows(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: type[KafkaError], version: int, told: int
) -> None:
    coordinator = Coordinator(desk, monkeypatch, error)
    assert produce(desk, Producer(5, 0), version=version) == (told, -1)
    assert coordinator.asked == [([TopicPartition(ORDERS, 0)], version < FIRST_THAT_ADDS)]


def test_the_next_transaction_waits_for_the_end_of_the_last(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(desk, monkeypatch, ConcurrentTransactions, ConcurrentTransactions, None)
    answer = desk.ask_later("produce", 12, request(desk, {0: batch(Producer(5, 0))}))
    assert answer.pending.holds_connection, "the producer's next batch must not overtake it"
    desk.alarms.pass_time(RETRY_MS)
    assert (answer.message, len(coordinator.asked)) == (None, 2)
    desk.alarms.pass_time(RETRY_MS)
    assert answered(answer.message) == [(0, 0)]


def test_but_not_forever(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(desk, monkeypatch, *[ConcurrentTransactions] * 100)
    answer = desk.ask_later("produce", 12, request(desk, {0: batch(Producer(5, 0))}))
    desk.alarms.pass_time(RETRY_MS * MAX_RETRIES)
    assert answered(answer.message) == [(CONCURRENT_TRANSACTIONS, -1)]
    assert len(coordinator.asked) == MAX_RETRIES + 1
    assert end_offsets(desk) == [0] * 4


# --- what waits ---


def test_the_batch_waits_until_its_partition_is_part_of_the_transaction_for_certain(storage: FailingStorage) -> None:
    desk = new_desk(storage, log_flush_interval_messages="1")
    begun = desk.ask_later("init_producer_id", 5, init_request())
    desk.threads.run_all()
    assert begun.message is not None
    producer = Producer(begun.message["producer_id"], begun.message["producer_epoch"])
    answers = [desk.ask_later("produce", 12, request(desk, {0: batch(producer, number)})) for number in range(3)]
    assert end_offsets(desk)[0] == 0
    desk.threads.run_next()
    desk.threads.run_next()
    assert end_offsets(desk)[0] > 0
    desk.threads.run_all()
    assert [answered(answer.message) for answer in answers] == [[(0, 0)], [(0, 1)], [(0, 2)]], "in their order"


def test_an_append_that_waited_waits_for_its_own_flush_as_well(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.create("safe", flush_messages="1")
    coordinator = Coordinator(desk, monkeypatch)
    answer = desk.ask_later("produce", 12, request(desk, {0: batch(Producer(5, 0))}, topic="safe"))
    coordinator.waiting.pop()({})
    assert desk.broker.partition("safe", 0).log_end_offset == 1
    assert answer.message is None
    desk.threads.run_all()
    assert answered(answer.message) == [(0, 0)]


def test_who_wants_no_answer_is_appended_all_the_same(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(desk, monkeypatch)
    pending = desk.dispatch("produce", 12, request(desk, {0: batch(Producer(5, 0))}, acks=0))
    assert isinstance(pending, Pending)
    assert pending.holds_connection
    assert pending.abandon is None, "the client may have gone"
    ended: list[object] = []
    pending.on_complete = ended.append
    coordinator.waiting.pop()({})
    assert (end_offsets(desk)[0], ended) == (1, [NO_REPLY])


def test_a_topic_that_is_deleted_while_its_batch_waits(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(desk, monkeypatch)
    answer = desk.ask_later("produce", 12, request(desk, {0: batch(Producer(5, 0))}))
    desk.ask("delete_topics", 6, {"topics": [{"name": ORDERS}], "timeout": 1_000})
    coordinator.waiting.pop()({})
    assert answered(answer.message) == [(UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_where_the_last_transaction_ends_meanwhile_the_next_one_enters_too(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was open there when the coordinator was first asked about another partition, and is over when it is asked
    again."""
    coordinator = Coordinator(desk, monkeypatch, None, ConcurrentTransactions, None)
    producer = Producer(5, 0)
    produce(desk, producer)
    later = desk.ask_later("produce", 12, request(desk, {0: batch(producer, 1), 1: batch(producer)}))
    log = desk.broker.partition(ORDERS, 0)
    log.append_marker(ControlMarker(True, 0), producer_id=5, producer_epoch=0, leader_epoch=0, now_ms=NOW_MS)
    desk.alarms.pass_time(RETRY_MS)
    assert [code for code, _ in answered(later.message)] == [0, 0]
    places = [TopicPartition(ORDERS, index) for index in range(2)]
    assert [asked for asked, _ in coordinator.asked] == [places[:1], places[1:], places]


def test_a_failure_after_the_coordinator_has_answered_ends_the_connection(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = Coordinator(desk, monkeypatch)
    answer = desk.dispatch("produce", 12, request(desk, {0: batch(Producer(5, 0))}))
    assert isinstance(answer, Pending)
    ended: list[object] = []
    answer.on_complete = ended.append

    def failing(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(desk.broker.purgatory, "appended", failing)
    coordinator.waiting.pop()({})
    assert ended == [FAILED]


def test_a_failure_when_the_coordinator_is_asked_again_ends_the_connection(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    Coordinator(desk, monkeypatch, ConcurrentTransactions)
    answer = desk.dispatch("produce", 12, request(desk, {0: batch(Producer(5, 0))}))
    assert isinstance(answer, Pending)
    ended: list[object] = []
    answer.on_complete = ended.append

    def failing(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(desk.broker.transactions, "join", failing)
    desk.alarms.pass_time(RETRY_MS)
    assert ended == [FAILED]
