"""Transactions over raw requests: in every version, on every way to an error, Kafka's answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.batches import TRANSACTIONAL, make_batch
from tests.support.compare import assert_equal, masked
from tests.support.groups import await_coordinator
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient
from tests.support.requests import create_topic, produce_request
from tests.support.transactions import (
    HandProducer,
    await_transactions,
    committed,
    describe_transactions,
    end_offset,
    last_stable_offset,
    offset_of,
    uncommitted,
)

Topics = Callable[[], str]
Brokers = dict[str, BrokerProcess]

OFFSETS_TOPIC = "__consumer_offsets"
LONGEST_NAME = 32_767
LONGEST_TIMEOUT_MS = 900_000
PROTOCOL_1, PROTOCOL_2 = False, True
BOTH_PROTOCOLS = pytest.mark.parametrize("is_modern", [PROTOCOL_1, PROTOCOL_2], ids=["protocol 1", "protocol 2"])


# --- every version ----------------------------------------------------------------------------------------------------


def live(client: RawClient, topic: str, step: int) -> list[Message]:
    """One transaction that is committed and one that is aborted, each API in its next version with each step; by
    protocol 2 with the last step alone."""
    await_transactions(client)
    await_coordinator(client, topic)
    topic_id = create_topic(client, topic, partitions=2)
    is_modern = step == 5
    producer = HandProducer(client, f"writer of {topic}", is_modern)
    producer.init(version=step)
    for commit in (True, False):
        if not is_modern:
            producer.add((topic, 0), (topic, 1), version=min(step, 3))
            producer.add_offsets(topic, version=step)
        producer.produce(topic, b"one", b"two", version=3 + 2 * step, topic_id=topic_id)
        producer.produce(topic, b"three", version=3 + 2 * step, topic_id=topic_id)
        producer.commit_offsets(topic, (topic, 0, 7), (topic, 1, 9), version=step)
        producer.answers.append(described(producer))
        listed = client.request("list_transactions", min(step, 2), {"state_filters": ["Ongoing"]})
        states = [each for each in listed["transaction_states"] if each["transactional_id"].endswith(topic)]
        producer.answers.append({**listed, "transaction_states": states})
        producer.end(commit=commit, version=step)
        producer.rest()
        producer.answers.append(described(producer))
        producer.answers.append({"seen": [committed(client, topic), uncommitted(client, topic)]})
        producer.answers.append({"offset": offset_of(client, topic, topic), "lso": last_stable_offset(client, topic)})
    return producer.answers


def described(producer: HandProducer) -> Message:
    """Without what rightly differs: points in time, the order of a set, how many partitions the groups' topic has."""
    state = producer.described()
    topics = [each for each in state["topics"] if each["topic"] != OFFSETS_TOPIC]
    for each in topics:
        each["partitions"].sort()
    seen = {"topics": topics, "has_offsets": len(topics) < len(state["topics"])}
    return {**state, **seen, "transaction_start_time_ms": state["transaction_start_time_ms"] > 0}


@pytest.mark.parametrize("step", range(6))
def test_the_life_of_a_producer_in_every_version(both_brokers: Brokers, new_topic: Topics, step: int) -> None:
    topic, answers = new_topic(), {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            answers[kind] = masked(live(client, topic, step))
    assert_equal(answers)
    for told in answers.values():
        seen = [each["seen"] for each in told if "seen" in each]
        written = [b"one", b"two", b"three"]
        assert seen == [[written, written], [written, written * 2]]
        assert [each["offset"] for each in told if "lso" in each] == [7, 7]


def test_transactions_that_nobody_has(client: RawClient, topic: str) -> None:
    answer = describe_transactions(client, f"{topic}-a", "", f"{topic}-b")
    codes = [(each["transactional_id"], each["error_code"]) for each in answer["transaction_states"]]
    assert codes == [(f"{topic}-a", 105), ("", 42), (f"{topic}-b", 105)]
    assert describe_transactions(client)["transaction_states"] == []


def test_transactions_of_several_producers_in_one_request(client: RawClient, topic: str) -> None:
    """What brokers ask each other: each producer is answered for itself."""
    first, second = (HandProducer(client, f"{topic}-{number}").begun() for number in range(2))
    asked = [
        {
            "transactional_id": producer.transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch + ahead,
            "topics": [{"name": topic, "partitions": [0]}],
        }
        for producer, ahead in ((first, 0), (second, 1))
    ]
    answer = client.request("add_partitions_to_txn", 5, {"transactions": asked})
    told = {
        each["transactional_id"]: each["topic_results"][0]["results_by_partition"][0]["partition_error_code"]
        for each in answer["results_by_transaction"]
    }
    assert told == {first.transactional_id: 0, second.transactional_id: 90}
    first.ended(commit=True)


LISTINGS: list[Message] = [
    {"state_filters": ["Ongoing"]},
    {"state_filters": ["Empty", "Nonsense", "ongoing"]},
    {"state_filters": ["Nonsense"]},
    {"producer_id_filters": [2**40]},
    {"duration_filter": 3_600_000},
    {"duration_filter": 0},
    {"transactional_id_pattern": ".*-1"},
    {"transactional_id_pattern": ""},
    {"transactional_id_pattern": "("},
]


@pytest.mark.parametrize("version", range(3))
def test_listing(both_brokers: Brokers, new_topic: Topics, version: int) -> None:
    topic, answers = new_topic(), {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            await_transactions(client)
            create_topic(client, topic)
            producers = [HandProducer(client, f"{topic}-{number}").begun() for number in range(3)]
            producers[1].produce(topic)
            listed = [client.request("list_transactions", version, asked) for asked in LISTINGS]
            producers[1].ended(commit=True)
        for answer in listed:
            answer["unknown_state_filters"].sort()
            own = [each for each in answer["transaction_states"] if each["transactional_id"].startswith(topic)]
            answer["transaction_states"] = sorted(own, key=lambda each: str(each["transactional_id"]))
        answers[kind] = masked(listed)
    assert_equal(answers)


# --- what InitProducerId refuses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeout_ms", "expected"),
    {
        -1: "invalid_transaction_timeout",
        0: "invalid_transaction_timeout",
        1: "none",
        LONGEST_TIMEOUT_MS: "none",
        LONGEST_TIMEOUT_MS + 1: "invalid_transaction_timeout",
        2**31 - 1: "invalid_transaction_timeout",
    }.items(),
)
def test_timeouts(client: RawClient, topic: str, timeout_ms: int, expected: str) -> None:
    assert HandProducer(client, topic).init(timeout_ms=timeout_ms) == expected


def test_an_empty_name(client: RawClient, topic: str) -> None:
    nobody = HandProducer(client, "", producer_id=1, epoch=0)
    assert nobody.init() == "invalid_request"
    for version in (0, 3, 5):
        assert nobody.add((topic, 0), version=version) == {(topic, 0): "invalid_request"}
    assert nobody.add_offsets("some-group") == "invalid_request"
    assert nobody.end(commit=True) == "invalid_request"


def test_the_longest_name(client: RawClient, topic: str) -> None:
    producer = HandProducer(client, topic.ljust(LONGEST_NAME, "x")).begun()
    assert producer.produce(topic) == "none"
    assert producer.described()["transaction_state"] == "Ongoing"
    producer.ended(commit=True)
    assert committed(client, topic) == [b"v"]


def test_half_an_identity(client: RawClient, topic: str) -> None:
    for producer_id, epoch in ((5, -1), (-1, 5)):
        half = HandProducer(client, topic, producer_id=producer_id, epoch=epoch)
        assert half.init(goes_on=True) == "invalid_request"


def test_a_name_that_is_new_goes_on_as_if_it_had_none(client: RawClient, topic: str) -> None:
    producer = HandProducer(client, topic, producer_id=2**40, epoch=3)
    assert producer.init(goes_on=True) == "none"
    assert producer.producer_id != 2**40
    assert producer.epoch == 0


# --- what belongs to a transaction ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_a_topic_that_is_unknown(producer: HandProducer, topic: str, version: int) -> None:
    """Nothing is added then, and the others hear that nobody has tried."""
    added = producer.add((topic, 0), ("no-such-topic", 0), (topic, 7), version=version)
    assert added == {
        (topic, 0): "operation_not_attempted",
        ("no-such-topic", 0): "unknown_topic_or_partition",
        (topic, 7): "unknown_topic_or_partition",
    }
    assert producer.described()["transaction_state"] == "Empty"


@pytest.mark.parametrize("internal", [OFFSETS_TOPIC, "__transaction_state"])
def test_a_topic_of_the_brokers_own(producer: HandProducer, group: str, topic: str, internal: str) -> None:
    """Brokers may add it, clients may not, and nobody may write into it."""
    for version in range(4):
        added = producer.add((topic, 0), (internal, 0), version=version)
        assert added == {(topic, 0): "operation_not_attempted", (internal, 0): "topic_authorization_failed"}
    assert producer.described()["transaction_state"] == "Empty"
    assert producer.add((internal, 0), version=5) == {(internal, 0): "none"}
    assert producer.produce(internal) == "invalid_topic_exception"
    producer.ended(commit=True)


@BOTH_PROTOCOLS
def test_the_same_partition_twice(producer: HandProducer, topic: str, is_modern: bool) -> None:
    producer.is_modern = is_modern
    for _ in range(2):
        assert producer.add((topic, 0), (topic, 0)) == {(topic, 0): "none"}
    assert producer.described()["topics"] == [{"topic": topic, "partitions": [0]}]
    producer.ended(commit=True)


def test_no_partition_at_all(producer: HandProducer) -> None:
    """A transaction all the same: it can be committed."""
    assert producer.add() == {}
    producer.ended(commit=True)


def test_verifying_adds_nothing(producer: HandProducer, topic: str) -> None:
    for version in (4, 5):
        assert producer.add((topic, 0), version=version, verify_only=True) == {(topic, 0): "transaction_abortable"}
    producer.add((topic, 0))
    told = producer.add((topic, 0), (topic, 1), verify_only=True)
    assert told == {(topic, 0): "none", (topic, 1): "transaction_abortable"}
    producer.ended(commit=False)


# --- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7, 8, 9, 10, 11])
def test_writing_outside_a_transaction(producer: HandProducer, client: RawClient, topic: str, version: int) -> None:
    """Old clients say first where they will write; from version 11 they know an error that asks them to abort."""
    refused = "invalid_txn_state" if version < 11 else "transaction_abortable"
    assert producer.produce(topic, version=version) == refused
    producer.add((topic, 1), version=3)
    assert producer.produce(topic, version=version) == refused
    assert producer.produce(topic, partition=1, version=version) == "none"
    producer.ended(commit=True)
    assert producer.produce(topic, partition=1, version=version) == refused
    assert [uncommitted(client, topic, index) for index in (0, 1)] == [[], [b"v"]]


@pytest.mark.parametrize("version", [12, 13])
def test_a_first_write_adds_the_partition(producer: HandProducer, client: RawClient, topic: str, version: int) -> None:
    (found,) = client.request("metadata", 12, {"topics": [{"name": topic}]})["topics"]
    assert producer.produce(topic, version=version, topic_id=found["topic_id"]) == "none"
    assert producer.described()["topics"] == [{"topic": topic, "partitions": [0]}]
    producer.ended(commit=True)


@pytest.mark.parametrize("version", [9, 12])
def test_writing_beside_the_transaction(producer: HandProducer, client: RawClient, topic: str, version: int) -> None:
    """A producer may write without a transaction, but not where its own is open."""
    producer.is_modern = version >= 12
    producer.add((topic, 0), (topic, 1), version=3)
    assert producer.produce(topic, b"plain", version=version, attributes=0) == "none"
    assert producer.produce(topic, b"in it", version=version) == "none"
    assert producer.produce(topic, b"plain", version=version, attributes=0) == "invalid_txn_state"
    producer.ended(commit=False)
    assert committed(client, topic) == [b"plain"]


def test_writing_under_no_name(producer: HandProducer, client: RawClient, topic: str) -> None:
    for version in (9, 11, 12):
        told = producer.produce(topic, version=version, transactional_id=None)
        assert told == "transactional_id_authorization_failed"
    assert uncommitted(client, topic) == []


def test_writing_under_a_name_that_is_unknown(client: RawClient, topic: str) -> None:
    nobody = HandProducer(client, f"{topic}-unknown", producer_id=2**40, epoch=0)
    for version in (9, 11, 12):
        assert nobody.produce(topic, version=version) == "invalid_producer_id_mapping"
    assert uncommitted(client, topic) == []


@pytest.mark.parametrize("version", [9, 12])
def test_two_producers_in_one_request(producer: HandProducer, client: RawClient, topic: str, version: int) -> None:
    """Their transactions would share an answer. A batch that is in no transaction may come along."""
    second = HandProducer(client, f"second beside {topic}").begun()

    def written(attributes: int) -> set[int]:
        batches = [
            make_batch(
                producer_id=each.producer_id,
                epoch=each.epoch,
                sequence=0,
                attributes=own_attributes,
                base_timestamp=each.now_ms(),
            )
            for each, own_attributes in ((producer, TRANSACTIONAL), (second, attributes))
        ]
        request = produce_request(topic, batches[0], transactional_id=producer.transactional_id)
        request["topic_data"][0]["partition_data"].append({"index": 1, "records": batches[1]})
        (answer,) = client.request("produce", version, request)["responses"]
        return {each["error_code"] for each in answer["partition_responses"]}

    producer.add((topic, 0))
    second.add((topic, 1))
    assert written(TRANSACTIONAL) == {49}
    assert written(0) == {0}
    for each in (producer, second):
        each.ended(commit=False)
    assert (committed(client, topic), committed(client, topic, 1)) == ([], [b"v"])


def test_writing_the_same_batch_twice(producer: HandProducer, client: RawClient, topic: str) -> None:
    for _ in range(3):
        assert producer.produce(topic, b"once", sequence=0) == "none"
    assert producer.produce(topic, b"a gap", sequence=5) == "out_of_order_sequence_number"
    producer.ended(commit=True)
    assert committed(client, topic) == [b"once"]


def test_a_transaction_of_protocol_2_begins_with_sequence_zero(producer: HandProducer, topic: str) -> None:
    assert producer.produce(topic, sequence=7) == "out_of_order_sequence_number"


# --- ending -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_ending_what_has_not_begun_by_protocol_1(producer: HandProducer, version: int) -> None:
    for commit in (True, False):
        assert producer.end(commit=commit, version=version) == "invalid_txn_state"


def test_ending_what_has_not_begun_by_protocol_2(producer: HandProducer) -> None:
    """To abort nothing is allowed: it raises the epoch, which settles whatever may be under way."""
    epoch = producer.epoch
    assert producer.end(commit=True) == "invalid_txn_state"
    producer.ended(commit=False)
    assert producer.epoch == epoch + 1
    assert producer.end(commit=True) == "invalid_txn_state"


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
def test_asking_for_the_same_end_again(producer: HandProducer, topic: str, version: int, commit: bool) -> None:
    """As one does whose answer was lost. Its opposite is not to be had any more."""
    producer.is_modern = version == 5
    producer.add((topic, 0))
    asked = producer.copy()
    assert producer.end(commit=commit, version=version) == "none"
    producer.rest()
    assert producer.epoch == asked.epoch + producer.is_modern
    again = asked.copy()
    assert again.end(commit=commit, version=version) == "none"
    assert again.epoch == producer.epoch
    assert asked.copy().end(commit=not commit, version=version) == "invalid_txn_state"
    assert producer.described()["transaction_state"] == ("CompleteCommit" if commit else "CompleteAbort")


@BOTH_PROTOCOLS
def test_the_wrong_producer_id(
    producer: HandProducer, client: RawClient, topic: str, group: str, is_modern: bool
) -> None:
    wrong = producer.copy(producer_id=producer.producer_id + 1_000_000, is_modern=is_modern)
    unknown = "invalid_producer_id_mapping"
    assert wrong.init(goes_on=True) == "producer_fenced"
    assert wrong.add((topic, 0)) == {(topic, 0): unknown}
    assert wrong.add_offsets(group) == unknown
    assert wrong.commit_offsets(group, (topic, 0, 1)) == [unknown]
    assert wrong.produce(topic) == unknown
    assert wrong.end(commit=True) == unknown
    assert uncommitted(client, topic) == []


@BOTH_PROTOCOLS
def test_an_epoch_that_nobody_has_yet(producer: HandProducer, topic: str, group: str, is_modern: bool) -> None:
    ahead = producer.copy(epoch=producer.epoch + 3, is_modern=is_modern)
    assert ahead.init(goes_on=True) == "producer_fenced"
    assert ahead.add((topic, 0)) == {(topic, 0): "producer_fenced"}
    assert ahead.add_offsets(group) == "producer_fenced"
    assert ahead.commit_offsets(group, (topic, 0, 1)) == ["invalid_producer_epoch"]
    assert ahead.produce(topic) == "invalid_producer_epoch"
    assert ahead.end(commit=True) == "producer_fenced"


@BOTH_PROTOCOLS
def test_a_transaction_that_takes_too_long(client: RawClient, topic: str, group: str, is_modern: bool) -> None:
    """It is aborted with the next epoch. Its producer may begin anew with what it had; by protocol 2 it may also abort,
    which has happened already."""
    producer = HandProducer(client, topic, is_modern)
    assert producer.init(timeout_ms=500) == "none"
    assert producer.add((topic, 0)) == {(topic, 0): "none"}
    producer.produce(topic, b"perhaps too late")
    assert producer.rest() == "CompleteAbort"
    assert producer.add((topic, 0)) == {(topic, 0): "producer_fenced"}
    assert producer.add_offsets(group) == "producer_fenced"
    assert producer.produce(topic, b"certainly too late") == "invalid_producer_epoch"
    assert producer.commit_offsets(group, (topic, 0, 1)) == ["invalid_producer_epoch"]
    assert producer.end(commit=True) == ("invalid_txn_state" if is_modern else "producer_fenced")
    assert producer.copy().end(commit=False) == ("none" if is_modern else "producer_fenced")
    assert producer.copy().init(goes_on=True) == "none"
    assert committed(client, topic) == []
    assert last_stable_offset(client, topic) == end_offset(client, topic)
