"""What readers see of transactions: nothing before the end, all of it afterwards, and of an aborted one never anything.

Of records: the last stable offset, aborted ranges, markers. Of offsets: those that are pending until their transaction
ends. On both brokers.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.support.batches import CONTROL, batch_records, read_batches
from tests.support.groups import commit_request, heartbeat_request, join_alone
from tests.support.raw import Message, RawClient
from tests.support.requests import EARLIEST, LATEST, create_topic, fetch, fetch_request, list_offset
from tests.support.transactions import (
    READ_COMMITTED,
    HandProducer,
    committed,
    end_offset,
    last_stable_offset,
    name_of,
    offset_of,
    uncommitted,
    visible,
)

UNKNOWN_PRODUCER_ID = 2**40
ABORT, COMMIT = 0, 1


def other(producer: HandProducer, name: str) -> HandProducer:
    return HandProducer(producer.client, f"{name} beside {producer.transactional_id}").begun()


# --- records ----------------------------------------------------------------------------------------------------------


def test_two_transactions_that_overlap(producer: HandProducer, client: RawClient, topic: str) -> None:
    """What was committed first is seen when the older one has ended, too."""
    second = other(producer, "second")
    producer.produce(topic, b"a1", b"a2")
    second.produce(topic, b"b1")
    producer.produce(topic, b"a3")
    assert (last_stable_offset(client, topic), end_offset(client, topic)) == (0, 4)
    assert committed(client, topic) == []
    second.ended(commit=True)
    assert (last_stable_offset(client, topic), end_offset(client, topic)) == (0, 5)
    assert committed(client, topic) == []
    producer.ended(commit=False)
    assert (last_stable_offset(client, topic), end_offset(client, topic)) == (6, 6)
    assert committed(client, topic) == [b"b1"]
    assert uncommitted(client, topic) == [b"a1", b"a2", b"b1", b"a3"]


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_aborted_ranges(producer: HandProducer, client: RawClient, topic: str, version: int) -> None:
    (found,) = client.request("metadata", 12, {"topics": [{"name": topic}]})["topics"]
    second = other(producer, "second")

    def ranges(offset: int, **options: Any) -> Any:
        asked = {"version": version, "topic_id": found["topic_id"], "max_wait": 0, **options}
        answer = fetch(client, topic, offset, isolation_level=READ_COMMITTED, **asked)
        told = answer["aborted_transactions"]
        return told and sorted((each["first_offset"], each["producer_id"]) for each in told)

    producer.produce(topic, b"0")
    assert ranges(0) == []
    second.produce(topic, b"1")
    producer.ended(commit=False)  # offset 2
    producer.produce(topic, b"3")
    second.ended(commit=False)  # offset 4
    producer.ended(commit=True)  # offset 5
    a, b = producer.producer_id, second.producer_id
    assert ranges(0) == [(0, a), (1, b)]
    assert ranges(3) == [(1, b)]
    assert ranges(5) == []
    assert committed(client, topic) == [b"3"]
    plain = fetch(client, topic, 0, version=version, topic_id=found["topic_id"], max_wait=0)
    assert plain["aborted_transactions"] is None


def test_markers(producer: HandProducer, client: RawClient, topic: str) -> None:
    """One for each partition that belongs to the transaction, with the next epoch by protocol 2."""
    first = producer.epoch
    producer.add((topic, 1))
    producer.produce(topic)
    producer.ended(commit=True)
    producer.produce(topic)
    producer.ended(commit=False)
    found = [
        (index, batch.base_offset, batch.producer_epoch - first, [record.key for record in batch_records(batch)])
        for index in (0, 1)
        for batch in read_batches(fetch(client, topic, partition=index)["records"])
        if batch.attributes & CONTROL
    ]
    commit, abort = [struct.pack(">hh", 0, COMMIT)], [struct.pack(">hh", 0, ABORT)]
    assert found == [(0, 1, 1, commit), (0, 3, 2, abort), (1, 0, 1, commit)]


def test_offsets_that_readers_of_committed_records_are_told(
    producer: HandProducer, client: RawClient, topic: str
) -> None:
    producer.produce(topic)
    producer.ended(commit=True)
    producer.produce(topic, b"open")
    told = {
        (isolation_level, timestamp): list_offset(client, topic, timestamp, isolation_level=isolation_level)["offset"]
        for isolation_level in (0, READ_COMMITTED)
        for timestamp in (EARLIEST, LATEST, 1, 2**50)
    }
    of_all = {(0, EARLIEST): 0, (0, LATEST): 3, (0, 1): 0, (0, 2**50): -1}
    of_stable = {(1, EARLIEST): 0, (1, LATEST): 2, (1, 1): 0, (1, 2**50): -1}
    assert told == of_all | of_stable
    producer.ended(commit=False)
    assert last_stable_offset(client, topic) == 4


def test_a_reader_that_waits_wakes_at_the_end_of_the_transaction(
    producer: HandProducer, client: RawClient, topic: str
) -> None:
    producer.produce(topic, b"awaited")
    address = client.socket.getpeername()
    with RawClient(address) as reader:
        asked = fetch_request(topic, 0, max_wait=60_000, isolation_level=READ_COMMITTED)
        waiting = reader.send("fetch", 12, asked)
        assert not reader.is_readable(0.2), "nothing is stable yet"
        producer.ended(commit=True)
        ((answer,),) = [each["partitions"] for each in reader.receive("fetch", 12, waiting)["responses"]]
        assert visible(answer) == [b"awaited"]


def test_a_reader_beyond_the_stable_part_waits(producer: HandProducer, client: RawClient, topic: str) -> None:
    producer.produce(topic, b"1", b"2", b"3")
    answer = fetch(client, topic, 2, isolation_level=READ_COMMITTED, max_wait=50)
    assert (answer["error_code"], answer["records"] or b"") == (0, b"")
    assert fetch(client, topic, 4, isolation_level=READ_COMMITTED)["error_code"] == 1
    producer.ended(commit=True)


def test_what_is_deleted_is_not_waited_for(producer: HandProducer, client: RawClient, topic: str) -> None:
    producer.produce(topic, b"1", b"2")
    partition = {"partition_index": 0, "offset": -1}
    asked = {"topics": [{"name": topic, "partitions": [partition]}], "timeout": 10_000}
    ((deleted,),) = [each["partitions"] for each in client.request("delete_records", 2, asked)["topics"]]
    assert (deleted["error_code"], deleted["low_watermark"]) == (0, 2)
    assert last_stable_offset(client, topic) == 2
    assert fetch(client, topic, 2, isolation_level=READ_COMMITTED, max_wait=0)["error_code"] == 0
    producer.produce(topic, b"3")
    assert last_stable_offset(client, topic) == 2
    producer.ended(commit=True)
    assert last_stable_offset(client, topic) == end_offset(client, topic) == 4


def test_a_topic_that_is_deleted_while_its_transaction_is_open(
    producer: HandProducer, client: RawClient, topic: str
) -> None:
    gone = f"{topic}-gone"
    create_topic(client, gone)
    assert producer.produce(gone) == "none"
    assert producer.produce(topic, b"kept") == "none"
    (deleted,) = client.request("delete_topics", 6, {"topics": [{"name": gone}], "timeout": 10_000})["responses"]
    assert deleted["error_code"] == 0
    producer.ended(commit=True)
    assert committed(client, topic) == [b"kept"]


def test_producers_of_a_partition(producer: HandProducer, client: RawClient, topic: str) -> None:
    """What tools look for where a transaction hangs."""

    def active() -> tuple[int, int, int]:
        asked = {"topics": [{"name": topic, "partition_indexes": [0]}]}
        (described,) = client.request("describe_producers", 0, asked)["topics"]
        (found,) = described["partitions"][0]["active_producers"]
        return found["producer_epoch"] - first, found["last_sequence"], found["current_txn_start_offset"]

    first = producer.epoch
    producer.produce(topic, b"1", b"2")
    assert active() == (0, 1, 0)
    producer.ended(commit=True)
    assert active() == (1, -1, -1)
    producer.produce(topic, b"3")
    assert active() == (1, 0, 3)
    producer.ended(commit=False)


# --- markers by hand (WriteTxnMarkers) --------------------------------------------------------------------------------


def mark(
    producer: HandProducer,
    *places: tuple[str, int],
    commit: bool,
    epoch: int,
    version: int = 2,
    transaction_version: int = 2,
    coordinator_epoch: int = 0,
) -> list[str]:
    marker: Message = {
        "producer_id": producer.producer_id,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": topic, "partition_indexes": [index]} for topic, index in places],
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": transaction_version,
    }
    (told,) = producer.client.request("write_txn_markers", version, {"markers": [marker]})["markers"]
    assert told["producer_id"] == producer.producer_id
    return [name_of(each["error_code"]) for topic in told["topics"] for each in topic["partitions"]]


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_by_hand_ends_what_hangs(producer: HandProducer, client: RawClient, topic: str, version: int) -> None:
    """As `kafka-transactions.sh abort` does."""
    producer.produce(topic, b"hanging")
    assert mark(producer, (topic, 0), commit=False, epoch=producer.epoch, version=version, transaction_version=0) == [
        "none"
    ]
    assert last_stable_offset(client, topic) == end_offset(client, topic) == 2
    assert committed(client, topic) == []


def test_markers_that_are_refused(producer: HandProducer, client: RawClient, topic: str) -> None:
    for _ in range(3):  # so that there are epochs below
        producer.ended(commit=False)
    producer.produce(topic, b"open")
    epoch = producer.epoch
    unknown = mark(producer, (topic, 9), ("no-such-topic", 0), commit=True, epoch=epoch + 1)
    assert unknown == ["unknown_topic_or_partition"] * 2
    assert mark(producer, (topic, 0), commit=True, epoch=epoch - 1, version=1) == ["invalid_producer_epoch"]
    assert mark(producer, (topic, 0), commit=True, epoch=epoch - 1) == ["invalid_producer_epoch"]
    assert mark(producer, (topic, 0), commit=True, epoch=epoch) == ["invalid_producer_epoch"], "by protocol 2 it rises"
    assert (last_stable_offset(client, topic), end_offset(client, topic)) == (0, 1)

    assert mark(producer, (topic, 0), commit=True, epoch=epoch + 1, coordinator_epoch=5) == ["none"]
    older = mark(producer, (topic, 0), commit=True, epoch=epoch + 2, coordinator_epoch=4)
    assert older == ["transaction_coordinator_fenced"]
    assert mark(producer, (topic, 0), commit=True, epoch=epoch + 1, coordinator_epoch=5) == ["none"], "again"
    assert committed(client, topic) == [b"open"]
    assert last_stable_offset(client, topic) == end_offset(client, topic)


def test_a_marker_of_a_producer_that_the_partition_does_not_know(
    producer: HandProducer, client: RawClient, topic: str
) -> None:
    """It may have been forgotten here, or its partition was added and never written."""
    stranger = producer.copy(producer_id=UNKNOWN_PRODUCER_ID)
    assert mark(stranger, (topic, 0), commit=True, epoch=0, coordinator_epoch=3) == ["none"]
    older = mark(stranger, (topic, 0), commit=True, epoch=0, coordinator_epoch=2)
    assert older == ["transaction_coordinator_fenced"]
    assert (last_stable_offset(client, topic), end_offset(client, topic)) == (1, 1)


def test_no_markers(client: RawClient, topic: str) -> None:
    for version in (1, 2):
        assert client.request("write_txn_markers", version, {"markers": []}) == {"markers": []}


# --- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_are_pending_until_the_end(
    producer: HandProducer, client: RawClient, topic: str, group: str, version: int, commit: bool
) -> None:
    producer.is_modern = version == 5
    client.request("offset_commit", 8, commit_request(group, (topic, 0, 3)))
    if version < 5:
        refused = "invalid_txn_state" if version < 4 else "transaction_abortable"
        assert producer.commit_offsets(group, (topic, 0, 7), version=version) == [refused]
        assert producer.add_offsets(group) == "none"
    assert producer.commit_offsets(group, (topic, 0, 7), version=version) == ["none"]
    assert offset_of(client, group, topic) == 3
    assert offset_of(client, group, topic, require_stable=True) == "unstable_offset_commit"
    producer.ended(commit=commit)
    for require_stable in (False, True):
        assert offset_of(client, group, topic, require_stable=require_stable) == (7 if commit else 3)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_of_one_who_is_not_in_the_group(
    producer: HandProducer, client: RawClient, topic: str, group: str, version: int
) -> None:
    producer.is_modern = version == 5
    member = join_alone(client, group, group_instance_id="i-1")
    me = {name: member[name] for name in ("generation_id", "member_id")}
    static = {**me, "group_instance_id": "i-1"}
    producer.add_offsets(group)

    def told(**who: Any) -> str:
        (code,) = producer.commit_offsets(group, (topic, 0, 99), version=version, **who)
        return code

    now = member["generation_id"]
    assert told(**{**static, "generation_id": now - 1}) == "illegal_generation"
    assert told(**{**static, "generation_id": now + 1}) == "illegal_generation"
    assert told(**{**static, "member_id": "nobody"}) == "fenced_instance_id"
    assert told(**{**static, "group_instance_id": "i-2"}) == "unknown_member_id"
    assert told(**{**me, "member_id": "nobody"}) == "unknown_member_id"
    assert offset_of(client, group, topic, require_stable=True) == -1
    assert producer.commit_offsets(group, (topic, 0, 7), version=version, **static) == ["none"]
    producer.ended(commit=True)
    assert offset_of(client, group, topic) == 7


@pytest.mark.parametrize("version", [3, 5])
def test_offsets_of_a_member_of_a_consumer_group(
    producer: HandProducer, client: RawClient, topic: str, group: str, version: int
) -> None:
    """By KIP-848: a producer knows epochs of members as generations."""
    producer.is_modern = version == 5
    joined = client.request("consumer_group_heartbeat", 1, heartbeat_request(group, "member-a", 0))
    member_id, epoch = joined["member_id"], joined["member_epoch"]
    producer.add_offsets(group)

    def told(member_id: str, epoch: int) -> list[str]:
        who = {"member_id": member_id, "generation_id": epoch}
        return producer.commit_offsets(group, (topic, 0, 7), version=version, **who)

    assert told(member_id, epoch - 1) == told(member_id, epoch + 1) == ["illegal_generation"]
    assert told("nobody", epoch) == ["unknown_member_id"]
    assert told(member_id, epoch) == ["none"]
    producer.ended(commit=True)
    assert offset_of(client, group, topic) == 7


@pytest.mark.parametrize("version", [0, 2])
def test_old_clients_do_not_say_who_they_are(
    producer: HandProducer, client: RawClient, topic: str, group: str, version: int
) -> None:
    producer.is_modern = False
    join_alone(client, group)
    producer.add_offsets(group)
    assert producer.commit_offsets(group, (topic, 0, 7), version=version) == ["none"]
    producer.ended(commit=True)
    assert offset_of(client, group, topic) == 7


def test_offsets_that_are_refused(producer: HandProducer, client: RawClient, topic: str, group: str) -> None:
    unknown = "unknown_topic_or_partition"
    told = producer.commit_offsets(group, ("no-such-topic", 0, 1), (topic, 0, 7), (topic, 9, 1))
    assert sorted(told) == sorted([unknown, "none", unknown])
    assert producer.commit_offsets("", (topic, 0, 1)) == ["invalid_group_id"]
    told = producer.commit_offsets(f"{group}-unknown", (topic, 0, 1), generation_id=3, member_id="x")
    assert told == ["illegal_generation"]
    assert producer.commit_offsets(group) == []
    producer.ended(commit=True)
    assert offset_of(client, group, topic) == 7


def test_the_later_commit_counts(producer: HandProducer, client: RawClient, topic: str, group: str) -> None:
    """Later in the log: a plain commit behind a pending one stays, whenever the transaction ends."""
    producer.commit_offsets(group, (topic, 0, 100))
    client.request("offset_commit", 8, commit_request(group, (topic, 0, 50)))
    assert offset_of(client, group, topic) == 50
    assert offset_of(client, group, topic, require_stable=True) == "unstable_offset_commit"
    producer.ended(commit=True)
    assert offset_of(client, group, topic) == 50


def test_two_transactions_with_offsets_of_one_partition(
    producer: HandProducer, client: RawClient, topic: str, group: str
) -> None:
    second = other(producer, "second")
    producer.commit_offsets(group, (topic, 0, 1))
    second.commit_offsets(group, (topic, 0, 2))
    second.ended(commit=True)
    assert offset_of(client, group, topic) == 2
    assert offset_of(client, group, topic, require_stable=True) == "unstable_offset_commit"
    producer.ended(commit=True)
    assert offset_of(client, group, topic) == 2


def test_a_group_that_is_deleted_takes_its_pending_offsets_with_it(
    producer: HandProducer, client: RawClient, topic: str, group: str
) -> None:
    producer.commit_offsets(group, (topic, 0, 7))
    (deleted,) = client.request("delete_groups", 2, {"groups_names": [group]})["results"]
    assert deleted["error_code"] == 0
    producer.ended(commit=True)
    assert offset_of(client, group, topic) == -1


def test_records_and_offsets_of_one_transaction(
    producer: HandProducer, client: RawClient, topic: str, group: str
) -> None:
    for number in range(4):
        producer.produce(topic, b"%d" % number)
        producer.produce(topic, b"%d" % number, partition=1)
        producer.commit_offsets(group, (topic, 0, number))
        producer.ended(commit=number % 2 == 0)
    assert committed(client, topic) == committed(client, topic, 1) == [b"0", b"2"]
    assert offset_of(client, group, topic, require_stable=True) == 2
