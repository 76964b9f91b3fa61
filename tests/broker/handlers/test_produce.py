"""Produce: what is answered when, acknowledged only what is written, and a disk error that stays in its partition."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.broker.handlers.produce import MAX_ANSWERED_RECORD_ERRORS
from oncelog.broker.request import CLOSE, NO_REPLY
from oncelog.records import validation
from tests.broker.support import Desk, FailingStorage
from tests.support.batches import CODECS, TRANSACTIONAL, Record, batch_records, make_batch, read_batches, read_records
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient, decode_response, encode_request
from tests.support.requests import (
    LATEST,
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    produce,
    produce_request,
)

Topics = Callable[[], str]

CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE = 2, 3, 10
NOT_ENOUGH_REPLICAS, INVALID_REQUIRED_ACKS = 19, 21
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_ID = 53, 56, 100
FIRST_SERVED, HIGHEST = 3, 13


def only_partition(answer: Message) -> Message:
    ((partition,),) = [topic["partition_responses"] for topic in answer["responses"]]
    return dict(partition)


# --- over a socket ---


@pytest.mark.parametrize("version", range(FIRST_SERVED, HIGHEST + 1))
def test_every_version(client: RawClient, new_topic: Topics, version: int) -> None:
    topic = new_topic()
    topic_id = create_topic(client, topic)
    for offset in (0, 2):
        answer = produce(client, topic, make_batch([b"a", b"b"]), version=version, topic_id=topic_id)
        assert (answer["error_code"], answer["base_offset"]) == (0, offset)
    assert [record.value for record in read_records(fetch(client, topic)["records"])] == [b"a", b"b"] * 2


@pytest.mark.parametrize("acks", [1, -1])
def test_an_acknowledged_record_can_be_read(client: RawClient, new_topic: Topics, acks: int) -> None:
    topic = new_topic()
    create_topic(client, topic)
    answer = produce(client, topic, make_batch([b"here"]), acks=acks)
    assert (answer["error_code"], answer["base_offset"], answer["log_append_time"]) == (0, 0, None)
    assert b"here" in fetch(client, topic, max_wait=0)["records"]


def test_without_acks_there_is_no_answer(client: RawClient, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(client, topic)
    for number in range(10):
        client.send("produce", 9, produce_request(topic, make_batch([b"%d" % number]), acks=0))
    assert list_offset(client, topic, LATEST)["offset"] == 10, "the next answer is to the next question"


def test_without_acks_an_error_ends_the_connection(
    client: RawClient, measured: BrokerProcess, new_topic: Topics
) -> None:
    """At the record that failed: those behind it must not be written, or they would overtake it."""
    topic = new_topic()
    create_topic(client, topic)
    frames = [
        encode_request("produce", 9, produce_request(topic, make_batch([b"good"]), acks=0)),
        encode_request("produce", 9, produce_request(topic, make_batch([b"bad"], crc=1), acks=0)),
        encode_request("produce", 9, produce_request(topic, make_batch([b"behind it"]), acks=0)),
    ]
    with RawClient(measured.address) as careless:
        careless.send_bytes(b"".join(frames))
        assert careless.is_closed_by_peer()
    assert [record.value for record in read_records(fetch(client, topic)["records"])] == [b"good"]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_do_not_exist(client: RawClient, new_topic: Topics, acks: int) -> None:
    topic = new_topic()
    create_topic(client, topic)
    assert produce(client, topic, make_batch(), acks=acks)["error_code"] == INVALID_REQUIRED_ACKS
    assert list_offset(client, topic, LATEST)["offset"] == 0


def test_where_nothing_can_be_written(client: RawClient, new_topic: Topics) -> None:
    topic = new_topic()
    topic_id = create_topic(client, topic)
    assert produce(client, topic, make_batch(), partition=1)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert produce(client, "nope", make_batch())["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    nobodys = type(topic_id)(int=12345)
    assert produce(client, "", make_batch(), version=13, topic_id=nobodys)["error_code"] == UNKNOWN_TOPIC_ID
    transactional = make_batch(producer_id=5, epoch=0, sequence=0, attributes=TRANSACTIONAL)
    assert produce(client, topic, transactional)["error_code"] == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert list_offset(client, topic, LATEST)["offset"] == 0


def test_more_replicas_than_there_are(client: RawClient, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(client, topic, configs={"min.insync.replicas": "2"})
    assert produce(client, topic, make_batch(), acks=-1)["error_code"] == NOT_ENOUGH_REPLICAS
    assert produce(client, topic, make_batch(), acks=1)["error_code"] == 0


def test_the_brokers_own_time(client: RawClient, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(client, topic, configs={"message.timestamp.type": "LogAppendTime"})
    answer = produce(client, topic, make_batch([b"old"], producer_id=77, epoch=0, sequence=0, base_timestamp=1000))
    (record,) = read_records(fetch(client, topic)["records"])
    assert record.timestamp_ms == answer["log_append_time"] > 1_700_000_000_000
    again = produce(client, topic, make_batch([b"old"], producer_id=77, epoch=0, sequence=0, base_timestamp=1000))
    assert again == answer, "a duplicate is answered as its original was"


# --- compression.type ---

TYPES = {"uncompressed": CODECS["none"], **{name: codec for name, codec in CODECS.items() if name != "none"}}


@pytest.mark.parametrize("sent", CODECS)
@pytest.mark.parametrize("wanted", [*TYPES, "producer"])
def test_a_batch_is_stored_as_the_topic_compresses(
    client: RawClient, new_topic: Topics, wanted: str, sent: str
) -> None:
    topic = new_topic()
    create_topic(client, topic, configs={"compression.type": wanted})
    records = [
        Record(b"key %d" % number, b"value " * 50, (("name", b"\x00"), ("none", None)), timestamp_delta=number)
        for number in range(20)
    ]
    batch = make_batch(records, codec=CODECS[sent], producer_id=9, epoch=0, sequence=0)
    assert produce(client, topic, batch)["base_offset"] == 0
    assert produce(client, topic, batch)["base_offset"] == 0, "recognised, although it is stored in other bytes"
    (stored,) = read_batches(fetch(client, topic)["records"])
    assert stored.codec == (CODECS[sent] if wanted == "producer" else TYPES[wanted])
    assert stored.crc_is_right
    assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (9, 0, 0)
    (original,) = read_batches(batch)
    assert list(batch_records(stored)) == list(batch_records(original))
    if stored.codec == CODECS[sent]:
        assert stored.section == original.section, "nothing to change: the producer's own bytes"


def test_a_batch_that_is_too_large_once_the_topic_has_its_way(client: RawClient, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(client, topic, configs={"compression.type": "uncompressed", "max.message.bytes": "2000"})
    small = make_batch([bytes(1900)], codec=CODECS["zstd"])
    large = make_batch([bytes(1950)], codec=CODECS["zstd"])
    assert len(large) < 200
    assert produce(client, topic, small)["error_code"] == 0
    assert produce(client, topic, large)["error_code"] == MESSAGE_TOO_LARGE
    assert list_offset(client, topic, LATEST)["offset"] == 1


# --- flush.messages, over a socket ---


def test_answers_that_wait_for_the_disk(client: RawClient, measured: BrokerProcess, new_topic: Topics) -> None:
    """Many in flight on several connections: more than a connection may have waiting, all answered, in order."""
    topic = new_topic()
    create_topic(client, topic, configs={"flush.messages": "1"})
    clients = [RawClient(measured.address) for _ in range(3)]
    per_client = 200
    for number in range(per_client):
        for each in clients:
            batch = make_batch([b"%d" % number], producer_id=id(each) & 0xFFFF, epoch=0, sequence=number)
            each.send_bytes(encode_request("produce", 9, produce_request(topic, batch), correlation_id=number))
    offsets: set[int] = set()
    for each in clients:
        last = -1
        for number in range(per_client):
            correlation_id, answer = decode_response("produce", 9, each.receive_frame())
            partition = only_partition(answer)
            assert (correlation_id, partition["error_code"]) == (number, 0)
            assert partition["base_offset"] > last
            last = partition["base_offset"]
            offsets.add(last)
        each.close()
    assert offsets == set(range(3 * per_client))


# --- the disk, held in the test's hands ---


@pytest.fixture
def storage() -> FailingStorage:
    return FailingStorage()


@pytest.fixture
def desk(storage: FailingStorage) -> Desk:
    return Desk(storage, "/data")


def ask(desk: Desk, topic: str, partition: int = 0, **batch: Any) -> Message:
    return only_partition(desk.ask("produce", 9, produce_request(topic, make_batch(**batch), partition=partition)))


def fetch_error(desk: Desk, topic: str, partition: int = 0) -> int:
    answer = desk.ask("fetch", 12, fetch_request(topic, 0, partition=partition, max_wait=0))
    error: int = answer["responses"][0]["partitions"][0]["error_code"]
    return error


def syncs_of_logs(storage: FailingStorage) -> int:
    return sum(entry.endswith(".log") and " sync " in entry for entry in storage.log)


def test_the_answer_comes_after_the_sync(desk: Desk, storage: FailingStorage) -> None:
    desk.create("orders", flush_messages="1")
    before = syncs_of_logs(storage)
    answer = desk.ask_later("produce", 9, produce_request("orders", make_batch([b"precious"])))
    assert (answer.message, syncs_of_logs(storage)) == (None, before)
    desk.threads.run_next()
    assert syncs_of_logs(storage) == before + 1
    assert answer.message is not None
    assert only_partition(answer.message)["base_offset"] == 0


def survivors(storage: FailingStorage) -> list[bool]:
    """Whether the record is there after the power failed, for many ways in which it can fail."""
    found = []
    for seed in range(40):
        after = storage.after_power_loss(seed)
        paths = [path for path in after.paths(".log") if "orders-0" in path]
        found.append(any(b"precious" in after.content(path) for path in paths))
    return found


def test_what_was_answered_survives_the_loss_of_power(desk: Desk, storage: FailingStorage) -> None:
    desk.create("orders", flush_messages="1")
    answer = desk.ask_later("produce", 9, produce_request("orders", make_batch([b"precious"])))
    assert not all(survivors(storage)), "nothing is promised yet, and this test could not fail"
    desk.threads.run_next()
    assert answer.message is not None
    assert all(survivors(storage))


def test_appends_share_a_sync(desk: Desk, storage: FailingStorage) -> None:
    desk.create("orders", flush_messages="1")
    before = syncs_of_logs(storage)
    answers = [desk.ask_later("produce", 9, produce_request("orders", make_batch())) for _ in range(20)]
    assert len(desk.threads.waiting) == 1
    desk.threads.run_next()
    assert [answer.message is not None for answer in answers] == [True] + [False] * 19
    desk.threads.run_next()
    assert syncs_of_logs(storage) == before + 2
    bases = [only_partition(answer.message)["base_offset"] for answer in answers if answer.message is not None]
    assert bases == list(range(20))
    assert desk.threads.waiting == []


def test_only_enough_messages_make_an_answer_wait(desk: Desk) -> None:
    desk.create("orders", flush_messages="3")
    ask(desk, "orders")
    ask(desk, "orders")
    third = desk.ask_later("produce", 9, produce_request("orders", make_batch()))
    desk.threads.run_all()
    assert third.message is not None
    ask(desk, "orders")


def test_a_repeat_waits_for_the_sync_of_its_original(desk: Desk) -> None:
    desk.create("orders", flush_messages="1")
    request = produce_request("orders", make_batch(producer_id=5, epoch=0, sequence=0))
    first = desk.ask_later("produce", 9, request)
    repeat = desk.ask_later("produce", 9, request)
    desk.threads.run_next()
    for answer in (first, repeat):
        assert answer.message is not None
        assert partitions_of(answer.message) == [(0, 0, 0)]
    assert desk.broker.partition("orders", 0).log_end_offset == 1
    assert desk.broker.metrics.duplicates_recognised == 1


def two_partitions(first: bytes, second: bytes) -> Message:
    data = [{"index": 0, "records": first}, {"index": 1, "records": second}]
    return {"acks": -1, "timeout": 1000, "topic_data": [{"name": "orders", "partition_data": data}]}


def partitions_of(answer: Message | None) -> list[tuple[int, int, int]]:
    assert answer is not None
    (topic,) = answer["responses"]
    return [(each["index"], each["error_code"], each["base_offset"]) for each in topic["partition_responses"]]


def test_a_request_waits_for_all_of_its_partitions(desk: Desk) -> None:
    desk.create("orders", 2, flush_messages="1")
    answer = desk.ask_later("produce", 9, two_partitions(make_batch(), make_batch()))
    desk.threads.run_next()
    assert answer.message is None
    desk.threads.run_next()
    assert partitions_of(answer.message) == [(0, 0, 0), (1, 0, 0)]


def test_without_acks_the_sync_begins_all_the_same(desk: Desk, storage: FailingStorage) -> None:
    desk.create("orders", flush_messages="1")
    before = syncs_of_logs(storage)
    assert desk.dispatch("produce", 9, produce_request("orders", make_batch(), acks=0)) is NO_REPLY
    desk.threads.run_all()
    assert syncs_of_logs(storage) == before + 1


def test_a_sync_that_fails_takes_its_partition_offline(desk: Desk, storage: FailingStorage) -> None:
    desk.create("orders", 2, flush_messages="1")
    waiting = desk.ask_later("fetch", 12, fetch_request("orders", 0, min_bytes=100_000, max_wait=60_000))
    answer = desk.ask_later("produce", 9, two_partitions(make_batch(), make_batch()))
    storage.fail_next("sync")
    desk.threads.run_all()
    assert partitions_of(answer.message) == [(0, KAFKA_STORAGE_ERROR, -1), (1, 0, 0)]
    assert waiting.message is not None, "whoever waits for the partition hears of it at once"
    assert waiting.message["responses"][0]["partitions"][0]["error_code"] == KAFKA_STORAGE_ERROR
    storage.heal()
    assert ask(desk, "orders")["error_code"] == KAFKA_STORAGE_ERROR, "no sync of it can be believed any more"
    assert (fetch_error(desk, "orders", 0), fetch_error(desk, "orders", 1)) == (KAFKA_STORAGE_ERROR, 0)
    other = desk.ask_later("produce", 9, produce_request("orders", make_batch(), partition=1))
    desk.threads.run_all()
    assert other.message is not None
    assert only_partition(other.message)["base_offset"] == 1
    errors = desk.broker.metrics.errors
    assert errors["Produce", "KAFKA_STORAGE_ERROR"] == 2
    assert errors["Fetch", "KAFKA_STORAGE_ERROR"] == 2


def test_a_log_that_goes_offline_before_its_flush_begins(desk: Desk) -> None:
    """As when replacing its segments failed meanwhile: the answer is an error, not a wait without end."""
    desk.create("orders", flush_messages="1")
    first = desk.ask_later("produce", 9, produce_request("orders", make_batch()))
    second = desk.ask_later("produce", 9, produce_request("orders", make_batch()))
    desk.broker.partition("orders", 0).offline = True
    desk.threads.run_all()
    for answer in (first, second):
        assert answer.message is not None
        assert only_partition(answer.message)["error_code"] == KAFKA_STORAGE_ERROR


def test_a_write_that_fails_leaves_no_trace(desk: Desk, storage: FailingStorage) -> None:
    desk.create("orders")
    assert ask(desk, "orders", producer_id=5, epoch=0, sequence=0)["base_offset"] == 0
    for error in (errno.EIO, errno.ENOSPC):
        storage.fail_next("append", error)
        failed = ask(desk, "orders", producer_id=5, epoch=0, sequence=1)
        assert (failed["error_code"], failed["base_offset"]) == (KAFKA_STORAGE_ERROR, -1)
        storage.heal()
    assert fetch_error(desk, "orders") == 0, "the log is as it was, and serves"
    again = ask(desk, "orders", producer_id=5, epoch=0, sequence=1)
    assert (again["error_code"], again["base_offset"]) == (0, 1)
    assert desk.broker.metrics.duplicates_recognised == 0


def test_a_disk_error_stays_in_its_partition(desk: Desk, storage: FailingStorage) -> None:
    """The write fails, and so does cutting off what it left: that partition is offline, its neighbours serve."""
    desk.create("orders", 3)
    assert [ask(desk, "orders", index)["base_offset"] for index in range(3)] == [0, 0, 0]
    waiting = desk.ask_later("fetch", 12, fetch_request("orders", 1, partition=1, max_wait=60_000))
    storage.fail_next("append", sticky=True)
    assert ask(desk, "orders", 1)["error_code"] == KAFKA_STORAGE_ERROR
    storage.heal()
    assert waiting.message is not None
    assert waiting.message["responses"][0]["partitions"][0]["error_code"] == KAFKA_STORAGE_ERROR
    assert [ask(desk, "orders", index)["error_code"] for index in range(3)] == [0, KAFKA_STORAGE_ERROR, 0]
    assert [fetch_error(desk, "orders", index) for index in range(3)] == [0, KAFKA_STORAGE_ERROR, 0]
    (topic,) = desk.ask("metadata", 12, {"topics": [{"name": "orders", "topic_id": None}]})["topics"]
    assert sorted((each["partition_index"], each["leader_id"]) for each in topic["partitions"]) == [
        (0, 1),
        (1, -1),
        (2, 1),
    ]


def test_an_error_concerns_only_its_own_partition_of_a_request(desk: Desk, storage: FailingStorage) -> None:
    desk.create("orders", 2)
    assert partitions_of(desk.ask("produce", 9, two_partitions(make_batch(), make_batch()))) == [(0, 0, 0), (1, 0, 0)]
    storage.fail_next("append")
    answer = desk.ask("produce", 9, two_partitions(make_batch(), make_batch()))
    assert partitions_of(answer) == [(0, KAFKA_STORAGE_ERROR, -1), (1, 0, 1)]
    storage.heal()
    answer = desk.ask("produce", 9, two_partitions(make_batch(), make_batch(crc=1)))
    assert partitions_of(answer) == [(0, 0, 1), (1, CORRUPT_MESSAGE, -1)]


def test_an_answer_names_no_more_records_than_it_may(desk: Desk) -> None:
    """A few hundred compressed bytes for each partition must not become megabytes of words."""
    per_batch, partitions = validation.MAX_RECORD_ERRORS, 7
    desk.create("orders", partitions, cleanup_policy="compact")
    batch = make_batch([b""] * (per_batch + 1), codec=CODECS["zstd"])
    data = [{"index": index, "records": batch} for index in range(partitions)]
    request = {"acks": -1, "timeout": 1000, "topic_data": [{"name": "orders", "partition_data": data}]}
    (topic,) = desk.ask("produce", 9, request)["responses"]
    named = [len(each["record_errors"]) for each in topic["partition_responses"]]
    assert named == [per_batch] * 5 + [0, 0]
    assert sum(named) == MAX_ANSWERED_RECORD_ERRORS
    assert all(each["error_message"] for each in topic["partition_responses"])


def test_without_acks_a_disk_error_ends_the_connection(desk: Desk, storage: FailingStorage) -> None:
    desk.create("orders")
    storage.fail_next("append")
    assert desk.dispatch("produce", 9, produce_request("orders", make_batch(), acks=0)) is CLOSE


def test_what_produce_counts(desk: Desk) -> None:
    desk.create("orders")
    batch = make_batch([b"one", b"two"], producer_id=5, epoch=0, sequence=0)
    for _ in range(3):
        desk.ask("produce", 9, produce_request("orders", batch))
    ask(desk, "orders", crc=1)
    ask(desk, "nope")
    metrics = desk.broker.metrics
    assert metrics.duplicates_recognised == 2
    assert (metrics.topics["orders"].messages_in, metrics.topics["orders"].bytes_in) == (2, len(batch))
    assert metrics.errors == {
        ("Produce", "CORRUPT_MESSAGE"): 1,
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
    }
    desk.ask("delete_topics", 6, {"topics": [{"name": "orders", "topic_id": None}], "timeout": 1})
    assert "orders" not in metrics.topics
