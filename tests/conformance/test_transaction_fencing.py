"""Zombies and requests that come late: who is fenced at which call, and what a late request may still do.

A zombie is a producer whose successor has begun. A late request is one of the same producer, sent before its last
transaction ended: by protocol 2 it is fenced, as every transaction has an epoch of its own; by protocol 1 nothing tells
it from a request of the present transaction, and tests here show what comes of it.
"""

from __future__ import annotations

import pytest

from tests.support.process import BrokerProcess
from tests.support.raw import RawClient, decode_response, encode_request
from tests.support.transactions import (
    HandProducer,
    committed,
    end_offset,
    last_stable_offset,
    offset_of,
    uncommitted,
)

LAST_CLIENT_EPOCH = 32_766
IN_FLIGHT = 1_000
BOTH_PROTOCOLS = pytest.mark.parametrize("is_modern", [False, True], ids=["protocol 1", "protocol 2"])


def fenced(version: int, first: int = 2) -> str:
    """Older clients know another name for it."""
    return "invalid_producer_epoch" if version < first else "producer_fenced"


# --- zombies ----------------------------------------------------------------------------------------------------------


@BOTH_PROTOCOLS
@pytest.mark.parametrize("is_busy", [False, True], ids=["at rest", "in a transaction"])
def test_a_zombie_is_fenced_at_each_of_its_calls(
    client: RawClient, topic: str, group: str, is_modern: bool, is_busy: bool
) -> None:
    zombie = HandProducer(client, f"writer of {topic}", is_modern).begun()
    zombie.add((topic, 0))
    assert zombie.produce(topic, b"the zombie's") == "none"
    successor = zombie.copy()
    assert successor.init() == "concurrent_transactions"  # which aborts what the zombie has left
    successor.begun()
    if is_busy:
        successor.add((topic, 0))
        assert successor.produce(topic, b"the successor's") == "none"
        successor.add_offsets(group)
        assert successor.commit_offsets(group, (topic, 0, 7)) == ["none"]

    for version in range(6):
        assert zombie.add((topic, 0), version=version) == {(topic, 0): fenced(version)}
        assert zombie.commit_offsets(group, (topic, 0, 99), version=version) == ["invalid_producer_epoch"]
        for commit in (True, False):
            assert zombie.end(commit=commit, version=version) == fenced(version)
    for version in range(5):
        assert zombie.add_offsets(group, version=version) == fenced(version)
    assert zombie.add((topic, 0), verify_only=True, version=5) == {(topic, 0): "producer_fenced"}
    for version in range(3, 13):
        for partition in (0, 1):
            assert zombie.produce(topic, partition=partition, version=version) == "invalid_producer_epoch"
    if not is_busy:
        for version in (3, 4, 5):
            assert zombie.init(version=version, goes_on=True) == fenced(version, first=4)

    if is_busy:
        assert successor.described()["transaction_state"] == "Ongoing"
        successor.ended(commit=True)
    assert committed(client, topic) == ([b"the successor's"] if is_busy else [])
    assert offset_of(client, group, topic) == (7 if is_busy else -1)
    assert [last_stable_offset(client, topic, index) - end_offset(client, topic, index) for index in (0, 1)] == [0, 0]


def test_a_zombie_that_goes_on_while_its_successor_transacts(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    """Apache Kafka aborts the successor's transaction, for whoever asks; oncelog fences who asks."""
    zombie = HandProducer(client, f"writer of {topic}").begun()
    successor = zombie.copy().begun().begun()
    assert successor.produce(topic, b"the successor's") == "none"
    if broker.kind == "kafka":
        assert zombie.init(goes_on=True) == "concurrent_transactions"
        assert successor.rest() == "CompleteAbort"
        assert committed(client, topic) == []
    else:
        assert zombie.init(goes_on=True) == "producer_fenced"
        successor.ended(commit=True)
        assert committed(client, topic) == [b"the successor's"]


def test_a_producer_goes_on_with_what_it_had(client: RawClient, topic: str) -> None:
    """After an error, with the next epoch. The same request again, as its answer was lost, gives the same epoch."""
    producer = HandProducer(client, f"writer of {topic}").begun()
    had = producer.copy()
    assert producer.init(goes_on=True) == "none"
    assert producer.epoch == had.epoch + 1
    again = had.copy()
    assert again.init(goes_on=True) == "none"
    assert again.epoch == producer.epoch
    assert producer.init(goes_on=True) == "none"
    assert had.init(goes_on=True) == "producer_fenced"


def test_the_transaction_of_one_who_goes_on_is_aborted(client: RawClient, topic: str) -> None:
    producer = HandProducer(client, f"writer of {topic}").begun()
    assert producer.produce(topic, b"given up") == "none"
    assert producer.init(goes_on=True) == "concurrent_transactions"
    assert producer.rest() == "CompleteAbort"
    assert producer.init(goes_on=True) == "none"
    assert producer.produce(topic, b"kept") == "none"
    producer.ended(commit=True)
    assert committed(client, topic) == [b"kept"]


# --- late requests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("was_committed", [True, False])
@pytest.mark.parametrize("is_busy", [False, True], ids=["at rest", "in the next transaction"])
def test_late_requests_by_protocol_2(
    client: RawClient, topic: str, group: str, was_committed: bool, is_busy: bool
) -> None:
    """None of them touches a later transaction."""
    producer = HandProducer(client, f"writer of {topic}").begun()
    assert producer.produce(topic, b"first") == "none"
    late = producer.copy()
    producer.ended(commit=was_committed)
    if is_busy:
        assert producer.produce(topic, b"second") == "none"
        for commit in (True, False):
            assert late.copy().end(commit=commit) == "producer_fenced"
    assert late.produce(topic, b"late") == "invalid_producer_epoch"
    assert late.produce(topic, b"late", partition=1) == "invalid_producer_epoch"
    assert late.produce(topic, b"late", version=9) == "invalid_producer_epoch"
    assert late.add((topic, 1)) == {(topic, 1): "producer_fenced"}
    assert late.add((topic, 1), version=3) == {(topic, 1): "producer_fenced"}
    assert late.commit_offsets(group, (topic, 0, 99)) == ["invalid_producer_epoch"]
    assert late.add_offsets(group) == "producer_fenced"
    if is_busy:
        assert producer.described()["topics"] == [{"topic": topic, "partitions": [0]}]
        producer.ended(commit=True)
    first = [b"first"] if was_committed else []
    assert committed(client, topic) == first + ([b"second"] if is_busy else [])
    assert offset_of(client, group, topic) == -1


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_a_late_end_by_protocol_1_ends_the_next_transaction(client: RawClient, topic: str, is_commit: bool) -> None:
    """The hazard for which protocol 2 was made: half of the second transaction is committed here, or its first half
    lost, and its producer learns of it when it is too late."""
    producer = HandProducer(client, f"writer of {topic}", is_modern=False).begun()
    producer.add((topic, 0))
    late = producer.copy()
    producer.ended(commit=is_commit)
    producer.add((topic, 0))
    assert producer.produce(topic, b"first half") == "none"

    assert late.end(commit=is_commit) == "none"

    assert producer.rest() == ("CompleteCommit" if is_commit else "CompleteAbort")
    assert producer.produce(topic, b"second half") == "invalid_txn_state"
    assert committed(client, topic) == ([b"first half"] if is_commit else [])


def test_a_late_write_by_protocol_1_joins_the_next_transaction(client: RawClient, topic: str) -> None:
    producer = HandProducer(client, f"writer of {topic}", is_modern=False).begun()
    producer.add((topic, 0), (topic, 1))
    late = producer.copy()
    producer.ended(commit=False)
    assert late.produce(topic, b"too late") == "invalid_txn_state", "no transaction is open"
    producer.add((topic, 0))
    assert late.produce(topic, b"of the first") == "none"
    assert late.produce(topic, b"of the first", partition=1) == "invalid_txn_state", "this one is not its own"
    producer.ended(commit=True)
    assert committed(client, topic) == [b"of the first"]


def test_late_additions_by_protocol_1_begin_a_transaction(client: RawClient, topic: str, group: str) -> None:
    """Which stays open until it takes too long, or its producer ends it without knowing why."""
    producer = HandProducer(client, f"writer of {topic}", is_modern=False).begun()
    producer.add((topic, 0))
    late = producer.copy()
    producer.ended(commit=True)
    assert late.add((topic, 1)) == {(topic, 1): "none"}
    assert late.add_offsets(group) == "none"
    assert late.commit_offsets(group, (topic, 0, 99)) == ["none"]
    assert producer.described()["transaction_state"] == "Ongoing"
    producer.ended(commit=False)
    assert offset_of(client, group, topic) == -1


# --- the end of the epochs --------------------------------------------------------------------------------------------


def raise_epoch(producer: HandProducer, epoch: int) -> None:
    """By asking to begin, again and again."""
    body = {"transactional_id": producer.transactional_id, "transaction_timeout": 60_000}
    asked = encode_request("init_producer_id", 4, {**body, "producer_id": -1, "producer_epoch": -1})
    missing = epoch - producer.epoch
    while missing:
        count = min(missing, IN_FLIGHT)
        producer.client.send_bytes(asked * count)
        frames = [producer.client.receive_frame() for _ in range(count)]
        missing -= count
    _, answer = decode_response("init_producer_id", 4, frames[-1])
    assert (answer["error_code"], answer["producer_epoch"]) == (0, epoch)
    producer.epoch = epoch


def test_after_the_last_epoch_comes_another_producer_id(client: RawClient, topic: str) -> None:
    producer = HandProducer(client, f"writer of {topic}").begun()
    raise_epoch(producer, LAST_CLIENT_EPOCH)
    assert producer.produce(topic, b"of the last epoch") == "none"
    last = producer.copy()
    producer.ended(commit=True)
    assert producer.producer_id != last.producer_id
    assert producer.epoch == 0

    again = last.copy()
    assert again.end(commit=True) == "none"
    assert (again.producer_id, again.epoch) == (producer.producer_id, producer.epoch)
    assert last.copy().end(commit=False) == "invalid_txn_state"
    assert producer.produce(topic, b"of the first epoch") == "none"
    assert last.end(commit=True) == "invalid_producer_id_mapping"
    assert last.add((topic, 0)) == {(topic, 0): "invalid_producer_id_mapping"}
    assert last.produce(topic, b"too late") == "invalid_producer_epoch"
    assert last.init(goes_on=True) == "producer_fenced"
    producer.ended(commit=True)
    assert committed(client, topic) == uncommitted(client, topic) == [b"of the last epoch", b"of the first epoch"]
