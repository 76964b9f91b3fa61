"""Fetch: what is read, how long it waits, sessions, and errors that stay in their partition."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from oncelog.broker.fetch_pace import FULL_QUEUE
from oncelog.broker.fetch_view import PartitionKey
from oncelog.broker.handlers import fetch as fetch_handler
from oncelog.broker.request import Pending
from oncelog.log import verification
from oncelog.log.partition_log import PartitionLog
from oncelog.log.storage import FileStorage, Storage
from oncelog.wire.fetch import FetchPartition
from tests.broker.support import NOW_MS, Desk, FailingStorage, Later, MetricsPage, await_that
from tests.support import confluent
from tests.support.batches import make_batch, read_batches, read_records
from tests.support.process import BrokerProcess
from tests.support.raw import Message, RawClient
from tests.support.requests import create_topic, fetch, fetch_request, produce, produce_request

Topics = Callable[[], str]

CORRUPT_MESSAGE = 2
UNKNOWN_SERVER_ERROR, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION = -1, 1, 3
KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_ID, FETCH_SESSION_TOPIC_ID_ERROR = 56, 100, 106
FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH = 70, 71
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75
LOWEST, FIRST_WITH_TOPIC_IDS, HIGHEST = 4, 13, 18
READ_COMMITTED = 1
LONG_MS = 60_000
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"

BATCH = make_batch([bytes(100)])


def answers(message: Message | None) -> dict[int, Message]:
    """By partition, of the one topic there is, if any."""
    assert message is not None
    assert message["error_code"] == 0
    return {each["partition_index"]: each for topic in message["responses"] for each in topic["partitions"]}


def wanted(partition: int, offset: int = 0, **fields: Any) -> Message:
    return {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
        **fields,
    }


def request(*partitions: Message, topic: str = "orders", **fields: Any) -> Message:
    topics = [{"topic": topic, "topic_id": None, "partitions": list(partitions)}] if partitions else []
    return {**fetch_request(topic, 0, max_wait=0), "topics": topics, **fields}


def filled(storage: Storage, folder: str) -> Desk:
    """`orders`: three batches of one record in partition 0, one in partition 1, none in partition 2."""
    desk = Desk(storage, folder)
    desk.create("orders", 3)
    for partition in (0, 0, 0, 1):
        append(desk, partition)
    return desk


@pytest.fixture
def desk() -> Desk:
    return filled(FailingStorage(), "/data")


def append(desk: Desk, partition: int, batch: bytes = BATCH) -> None:
    desk.ask("produce", 9, produce_request("orders", batch, partition=partition))


def batches(answer: Message) -> int:
    return len(list(read_batches(answer["records"] or b"")))


# --- over a socket ---


@pytest.mark.parametrize("version", range(LOWEST, HIGHEST + 1))
def test_every_version(client: RawClient, new_topic: Topics, version: int) -> None:
    topic = new_topic()
    topic_id = create_topic(client, topic)
    for value in (b"a", b"b", b"c"):
        produce(client, topic, make_batch([value]))
    answer = fetch(client, topic, 1, version=version, topic_id=topic_id)
    assert [(record.offset, record.value) for record in read_records(answer["records"])] == [(1, b"b"), (2, b"c")]
    assert (answer["error_code"], answer["high_watermark"], answer["last_stable_offset"]) == (0, 3, 3)
    answer = fetch(client, topic, 3, version=version, topic_id=topic_id, max_wait=1)
    assert (answer["error_code"], answer["records"] or b"") == (0, b"")


def test_max_wait_is_waited_out_and_not_more(client: RawClient, new_topic: Topics) -> None:
    topic = new_topic()
    create_topic(client, topic)
    began = time.monotonic()
    answer = fetch(client, topic, max_wait=250)
    elapsed = time.monotonic() - began
    assert (answer["error_code"], answer["records"] or b"") == (0, b"")
    assert elapsed > 0.24


def test_min_bytes_are_waited_for(
    client: RawClient, measured: BrokerProcess, page: MetricsPage, new_topic: Topics
) -> None:
    topic = new_topic()
    create_topic(client, topic)
    waiting = client.send("fetch", 12, fetch_request(topic, 0, min_bytes=3 * len(BATCH), max_wait=LONG_MS))
    await_that(lambda: page.waiting_fetches == 1, "it waits")
    with RawClient(measured.address) as other:
        for _ in range(2):
            produce(other, topic, BATCH)
        assert page.waiting_fetches == 1, "two batches are less than three"
        produce(other, topic, BATCH)
    (answer,) = answers(client.receive("fetch", 12, waiting)).values()
    assert batches(answer) == 3


def test_a_session_over_the_wire(
    client: RawClient, measured: BrokerProcess, page: MetricsPage, new_topic: Topics
) -> None:
    topic = new_topic()
    topic_id = create_topic(client, topic, partitions=3)

    def ask(session_id: int, epoch: int, *partitions: Message, **fields: Any) -> Message:
        topics = [{"topic": topic, "topic_id": topic_id, "partitions": list(partitions)}] if partitions else []
        body = request(topics=topics, session_id=session_id, session_epoch=epoch, **fields)
        return client.request("fetch", 16, body)

    full = ask(0, 0, wanted(0), wanted(1), wanted(2))
    session = full["session_id"]
    assert session != 0
    assert sorted(answers(full)) == [0, 1, 2]
    assert answers(ask(session, 1)) == {}, "nothing has changed"
    with RawClient(measured.address) as other:
        produce(other, topic, BATCH, partition=1)
        news = answers(ask(session, 2))
        assert {index: batches(answer) for index, answer in news.items()} == {1: 1}
        assert list(answers(ask(session, 3))) == [1], "it was not taken: the offset asked for is still 0"
        assert answers(ask(session, 4, wanted(1, 1))) == {}
        body = request(topics=[], session_id=session, session_epoch=5, max_wait=LONG_MS)
        waiting = client.send("fetch", 16, body)
        await_that(lambda: page.waiting_fetches == 1, "a session waits for its partitions")
        produce(other, topic, BATCH, partition=2)
        assert list(answers(client.receive("fetch", 16, waiting))) == [2]
        forgotten = [{"topic": topic, "topic_id": topic_id, "partitions": [2]}]
        assert answers(ask(session, 6, forgotten_topics_data=forgotten)) == {}
    wrong = ask(session, 6)
    assert (wrong["error_code"], wrong["session_id"], wrong["responses"]) == (INVALID_FETCH_SESSION_EPOCH, 0, [])
    assert ask(session + 1, 1)["error_code"] == FETCH_SESSION_ID_NOT_FOUND
    by_name = request(session_id=session, session_epoch=7)
    assert client.request("fetch", 12, by_name)["error_code"] == FETCH_SESSION_TOPIC_ID_ERROR
    last = ask(session, -1, wanted(0))
    assert (last["session_id"], list(answers(last))) == (0, [0])
    assert ask(session, 7)["error_code"] == FETCH_SESSION_ID_NOT_FOUND, "the client has ended it"


# --- limits ---


def test_bytes_are_shared_among_the_partitions(desk: Desk) -> None:
    everything = answers(desk.ask("fetch", 12, request(wanted(0), wanted(1), wanted(2))))
    assert {index: batches(answer) for index, answer in everything.items()} == {0: 3, 1: 1, 2: 0}
    limited = answers(desk.ask("fetch", 12, request(wanted(0), wanted(1), max_bytes=2 * len(BATCH))))
    assert {index: batches(answer) for index, answer in limited.items()} == {0: 2, 1: 0}
    own = wanted(0, partition_max_bytes=len(BATCH))
    limited = answers(desk.ask("fetch", 12, request(own, wanted(1))))
    assert {index: batches(answer) for index, answer in limited.items()} == {0: 1, 1: 1}


@pytest.mark.parametrize("max_bytes", [0, 1, len(BATCH) - 1, -1])
def test_a_batch_larger_than_every_limit_comes_all_the_same(desk: Desk, max_bytes: int) -> None:
    """Else its reader would stand still; but only one, from the first partition that has any."""
    partitions = [wanted(index, partition_max_bytes=max_bytes) for index in (2, 0, 1)]
    answer = answers(desk.ask("fetch", 12, request(*partitions, max_bytes=max_bytes)))
    assert {index: batches(each) for index, each in answer.items()} == {2: 0, 0: 1, 1: 0}


def test_the_brokers_own_limit() -> None:
    desk = Desk(FailingStorage(), "/data", fetch_max_bytes="1024")
    desk.create("orders")
    for _ in range(10):
        append(desk, 0, make_batch([bytes(400)]))
    assert batches(answers(desk.ask("fetch", 12, request(wanted(0))))[0]) == 2


# --- waiting ---


def waiting_for(desk: Desk, *partitions: Message, min_bytes: int = 1, **fields: Any) -> Later:
    return desk.ask_later("fetch", 12, request(*partitions, min_bytes=min_bytes, max_wait=LONG_MS, **fields))


def test_the_bytes_of_all_partitions_count_together(desk: Desk) -> None:
    later = waiting_for(desk, wanted(0, 3), wanted(1, 1), wanted(2), min_bytes=3 * len(BATCH))
    append(desk, 0)
    append(desk, 2)
    assert later.message is None
    append(desk, 1)
    assert {index: batches(each) for index, each in answers(later.message).items()} == {0: 1, 1: 1, 2: 1}
    assert len(desk.broker.purgatory) == 0


def test_what_is_there_already_counts(desk: Desk) -> None:
    later = waiting_for(desk, wanted(0, 1), min_bytes=3 * len(BATCH))
    append(desk, 0)
    assert batches(answers(later.message)[0]) == 3


def test_at_the_deadline_the_answer_is_what_there_is(desk: Desk) -> None:
    later = waiting_for(desk, wanted(0, 2), min_bytes=100 * len(BATCH))
    assert later.pending.deadline_ms == NOW_MS + LONG_MS
    append(desk, 0)
    assert later.pending.expire is not None
    later.pending.expire()
    assert batches(answers(later.message)[0]) == 2
    assert len(desk.broker.purgatory) == 0


def test_an_abandoned_fetch_waits_no_more(desk: Desk) -> None:
    later = waiting_for(desk, wanted(0, 3))
    assert later.pending.abandon is not None
    later.pending.abandon()
    assert len(desk.broker.purgatory) == 0
    append(desk, 0)
    assert later.message is None


def test_more_than_max_bytes_is_not_waited_for(desk: Desk) -> None:
    """As Kafka: who wants at least 1 GiB and at most two batches is served as soon as there are two batches."""
    limit = 2 * len(BATCH)
    body = request(wanted(0), min_bytes=1 << 30, max_bytes=limit, max_wait=LONG_MS)
    assert batches(answers(desk.ask("fetch", 12, body))[0]) == 2


@pytest.mark.parametrize("fields", [{"max_wait": 0}, {"max_wait": -1}, {"min_bytes": 0}])
def test_those_who_do_not_want_to_wait(desk: Desk, fields: Message) -> None:
    body = {**request(wanted(2), max_wait=LONG_MS), **fields}
    assert batches(answers(desk.ask("fetch", 12, body))[2]) == 0


def test_an_error_is_told_at_once(desk: Desk) -> None:
    body = request(wanted(2), wanted(7), max_wait=LONG_MS)
    assert {index: each["error_code"] for index, each in answers(desk.ask("fetch", 12, body)).items()} == {
        2: 0,
        7: UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_nothing_asked_for_is_nothing_to_wait_for(desk: Desk) -> None:
    assert answers(desk.ask("fetch", 12, request(max_wait=LONG_MS))) == {}


def test_a_fetch_that_fails_when_it_wakes_harms_nobody_else(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It wakes inside a producer's request, whose records are written by then."""
    later = waiting_for(desk, wanted(0, 3))

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(PartitionLog, "read", broken)
    with caplog.at_level(logging.ERROR):
        append(desk, 0)
    assert later.message is not None
    assert later.message["error_code"] == UNKNOWN_SERVER_ERROR
    assert "bug: a waiting fetch failed" in caplog.text


# --- errors ---


@pytest.mark.parametrize(
    ("partition", "error"),
    [
        (wanted(0, 4), OFFSET_OUT_OF_RANGE),
        (wanted(0, -1), OFFSET_OUT_OF_RANGE),
        (wanted(0, 0, current_leader_epoch=1), UNKNOWN_LEADER_EPOCH),
        (wanted(0, 0, current_leader_epoch=-2), FENCED_LEADER_EPOCH),
        (wanted(0, 0, current_leader_epoch=0), 0),
        (wanted(9), UNKNOWN_TOPIC_OR_PARTITION),
        (wanted(-1), UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_cannot_be_read(desk: Desk, partition: Message, error: int) -> None:
    answer = answers(desk.ask("fetch", 12, request(partition, wanted(1))))
    failed = answer.pop(partition["partition"])
    assert failed["error_code"] == error
    if error:
        assert (failed["high_watermark"], failed["records"] or b"") == (-1, b"")
        assert sum(desk.broker.metrics.errors.values()) == 1
        assert next(iter(desk.broker.metrics.errors))[0] == "Fetch"
    assert batches(answer[1]) == 1, "the other partition is served"


def test_topics_that_do_not_exist(desk: Desk) -> None:
    assert answers(desk.ask("fetch", 12, request(wanted(0), topic="nope")))[0]["error_code"] == 3
    topics = [{"topic_id": uuid.UUID(int=12345), "partitions": [wanted(0)]}]
    assert answers(desk.ask("fetch", 13, request(topics=topics)))[0]["error_code"] == UNKNOWN_TOPIC_ID


def test_a_reader_whose_log_has_parted_from_ours(desk: Desk) -> None:
    """It last read epoch 0, which here ends at offset 3, and stands at offset 3; or it claims to stand beyond."""
    same = answers(desk.ask("fetch", 12, request(wanted(0, 3, last_fetched_epoch=0))))[0]
    assert (same["error_code"], same["diverging_epoch"]["end_offset"]) == (0, -1)
    beyond = answers(desk.ask("fetch", 12, request(wanted(0, 9, last_fetched_epoch=0), max_wait=LONG_MS)))[0]
    assert (beyond["error_code"], beyond["diverging_epoch"]) == (0, {"epoch": 0, "end_offset": 3})
    assert batches(beyond) == 0
    unknown = answers(desk.ask("fetch", 12, request(wanted(0, 2, last_fetched_epoch=5), max_wait=LONG_MS)))[0]
    assert unknown["error_code"] == OFFSET_OUT_OF_RANGE


def test_committed_reads_say_which_transactions_to_leave_out(desk: Desk) -> None:
    committed = answers(desk.ask("fetch", 12, request(wanted(0), isolation_level=READ_COMMITTED)))[0]
    assert (batches(committed), committed["aborted_transactions"]) == (3, [])
    assert answers(desk.ask("fetch", 12, request(wanted(0))))[0]["aborted_transactions"] is None


def test_a_disk_that_cannot_be_read(desk: Desk) -> None:
    storage = desk.broker.storage
    assert isinstance(storage, FailingStorage)
    storage.fail_next("read")
    answer = answers(desk.ask("fetch", 12, request(wanted(0, 1), wanted(1))))
    assert {index: (each["error_code"], batches(each)) for index, each in answer.items()} == {
        0: (KAFKA_STORAGE_ERROR, 0),
        1: (0, 1),
    }
    storage.heal()
    assert batches(answers(desk.ask("fetch", 12, request(wanted(0, 1))))[0]) == 2


def test_an_offline_partition(desk: Desk) -> None:
    desk.broker.partition("orders", 0).offline = True
    answer = answers(desk.ask("fetch", 12, request(wanted(0), wanted(1), max_wait=LONG_MS)))
    assert {index: each["error_code"] for index, each in answer.items()} == {0: KAFKA_STORAGE_ERROR, 1: 0}


# --- what was there before this broker started ---


@pytest.fixture
def restarted(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Twelve batches in each of three partitions that nobody has read yet; a request verifies about four of them."""
    storage = FailingStorage()
    before = Desk(storage, "/data")
    before.create("orders", 3)
    for _ in range(12):
        for partition in range(3):
            append(before, partition)
    before.broker.stop(NOW_MS)
    monkeypatch.setattr(fetch_handler, "MAX_COLD_BYTES", 4 * len(BATCH))
    monkeypatch.setattr(verification, "MAX_COLD_BYTES", 3 * len(BATCH))
    return Desk(storage, "/data")


def test_one_request_verifies_so_much_and_the_next_ones_go_on(restarted: Desk) -> None:
    asked = request(wanted(0), wanted(1), wanted(2))
    first = answers(restarted.ask("fetch", 12, asked))
    assert {index: (each["error_code"], batches(each)) for index, each in first.items()} == {
        0: (0, 3),
        1: (0, 1),
        2: (0, 0),
    }
    offsets = {0: 0, 1: 0, 2: 0}
    while min(offsets.values()) < 12:
        got = answers(restarted.ask("fetch", 12, request(*(wanted(*each) for each in offsets.items()))))
        assert any(batches(each) for each in got.values())
        for index, each in got.items():
            offsets[index] += batches(each)
    assert offsets == {0: 12, 1: 12, 2: 12}


def test_a_session_gives_every_unverified_partition_its_turn(restarted: Desk) -> None:
    body = request(wanted(0), wanted(1), wanted(2), session_epoch=0)
    answer = restarted.ask("fetch", 12, body)
    served = {index for index, each in answers(answer).items() if batches(each)}
    body = request(session_id=answer["session_id"], session_epoch=1)
    served |= {index for index, each in answers(restarted.ask("fetch", 12, body)).items() if batches(each)}
    assert served == {0, 1, 2}


def test_what_is_cut_short_to_be_verified_is_not_waited_for(restarted: Desk) -> None:
    answer = answers(restarted.ask("fetch", 12, request(wanted(0), min_bytes=10 * len(BATCH), max_wait=LONG_MS)))
    assert batches(answer[0]) == 3


def test_damaged_records_are_refused_and_all_else_is_served(restarted: Desk) -> None:
    storage = restarted.broker.storage
    assert isinstance(storage, FailingStorage)
    storage.content(restarted.broker.partition("orders", 0).active_segment.path)[2 * len(BATCH) + 7] ^= 1
    found = []
    for asked in (wanted(0), wanted(0, 2), wanted(1)):
        (answer,) = answers(restarted.ask("fetch", 12, request(asked, max_wait=LONG_MS))).values()
        found.append((answer["error_code"], batches(answer)))
    assert found == [(0, 2), (CORRUPT_MESSAGE, 0), (0, 3)]
    (produced,) = restarted.ask("produce", 9, produce_request("orders", BATCH))["responses"]
    assert produced["partition_responses"][0]["error_code"] == 0


def test_refused_sessions_are_counted(desk: Desk) -> None:
    assert desk.ask("fetch", 12, request(session_id=5, session_epoch=5))["error_code"] == FETCH_SESSION_ID_NOT_FOUND
    assert desk.broker.metrics.errors == {("Fetch", "FETCH_SESSION_ID_NOT_FOUND"): 1}


# --- sessions ---


def test_partitions_with_data_take_turns(desk: Desk) -> None:
    """With room for one batch at a time, the first partition must not starve the others."""
    body = request(wanted(0), wanted(1), session_epoch=0, max_bytes=1)
    session = desk.ask("fetch", 12, body)["session_id"]
    served = []
    for epoch in range(1, 5):
        body = request(session_id=session, session_epoch=epoch, max_bytes=1)
        served += [index for index, each in answers(desk.ask("fetch", 12, body)).items() if batches(each)]
    assert served == [1, 0, 1, 0]


def test_a_deleted_topic_is_news_to_a_waiting_session(tmp_path: Path) -> None:
    """All of it at once, though its logs are deleted one by one; and the epochs that readers send cannot be checked."""
    desk = filled(FileStorage(), str(tmp_path))
    partitions = [wanted(0, 3, current_leader_epoch=0), wanted(1, 1, current_leader_epoch=0)]
    full = desk.ask("fetch", 12, request(*partitions, session_epoch=0))
    later = waiting_for(desk, session_id=full["session_id"], session_epoch=1)
    named = {"topics": [{"name": "orders", "topic_id": None}], "timeout": 1}
    assert desk.ask("delete_topics", 6, named)["responses"][0]["error_code"] == 0
    assert {index: each["error_code"] for index, each in answers(later.message).items()} == {
        0: UNKNOWN_TOPIC_OR_PARTITION,
        1: UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_readers_hear_of_records_before_the_disk_does(desk: Desk) -> None:
    """As in Kafka, `flush.messages` delays the producer's answer, not the readers."""
    desk.create("flushed", flush_messages="1")
    later = desk.ask_later("fetch", 12, request(wanted(0), topic="flushed", max_wait=LONG_MS))
    produced = desk.dispatch("produce", 9, produce_request("flushed", BATCH))
    assert isinstance(produced, Pending)
    assert batches(answers(later.message)[0]) == 1


# --- at the client's pace -------------------------------------------------------------------------------------


class FixedPace:
    """Holds every answer that it is asked about."""

    HOLD_MS = 70

    def __init__(self, max_bytes: int = 1 << 20) -> None:
        self.max_bytes = max_bytes
        self.offsets: list[int] = []
        self.sizes: list[int] = []

    def asked(self, partitions: Mapping[PartitionKey, FetchPartition], now_ms: int) -> None:
        self.offsets += [partition.fetch_offset for partition in partitions.values()]

    def answers(self, size_bytes: int) -> int:
        self.sizes.append(size_bytes)
        return self.HOLD_MS


@pytest.fixture
def paced(desk: Desk) -> FixedPace:
    desk.peer.pace = pace = FixedPace()  # type: ignore[assignment]
    return pace


def test_an_answer_may_come_at_the_clients_pace(desk: Desk, paced: FixedPace) -> None:
    """With what there is when it goes out."""
    later = desk.ask_later("fetch", 12, request(wanted(0, 1), max_wait=LONG_MS))
    assert later.pending.deadline_ms == NOW_MS + FixedPace.HOLD_MS
    assert (paced.offsets, paced.sizes) == ([1], [2 * len(BATCH)])
    assert desk.broker.metrics.fetches_held == 1
    append(desk, 0)
    assert later.message is None
    assert later.pending.expire is not None
    later.pending.expire()
    assert batches(answers(later.message)[0]) == 3


def test_its_size_too(desk: Desk, paced: FixedPace) -> None:
    paced.max_bytes = len(BATCH)
    later = desk.ask_later("fetch", 12, request(wanted(0), min_bytes=LONG_MS, max_wait=LONG_MS))
    assert later.pending.expire is not None
    later.pending.expire()
    assert batches(answers(later.message)[0]) == 1


def test_a_reader_at_the_end_waits_for_data_and_nothing_else(desk: Desk, paced: FixedPace) -> None:
    later = desk.ask_later("fetch", 12, request(wanted(0, 3), max_wait=LONG_MS))
    append(desk, 0)
    assert batches(answers(later.message)[0]) == 1
    assert paced.sizes == []


def test_an_error_is_told_at_once_at_any_pace(desk: Desk, paced: FixedPace) -> None:
    told = answers(desk.ask("fetch", 12, request(wanted(0), wanted(9), max_wait=LONG_MS)))
    assert (told[0]["error_code"], told[9]["error_code"]) == (0, UNKNOWN_TOPIC_OR_PARTITION)
    assert paced.sizes == []


def test_librdkafka_catches_up_at_its_pace(
    measured: BrokerProcess, page: MetricsPage, client: RawClient, new_topic: Topics
) -> None:
    """Its queue is full, and it pauses, once; then it is held instead, and gets everything in order."""
    topic, count, batch_count = new_topic(), 400_000, 5_000
    create_topic(client, topic)
    batches = [
        make_batch([b"%d" % number for number in range(start, start + batch_count)])
        for start in range(0, count, batch_count)
    ]
    for batch in batches:
        produce(client, topic, batch)
    full_queue = sum(len(batch) for batch in batches[: FULL_QUEUE // batch_count])
    held = page.value("oncelog_fetches_held_total")

    def is_held() -> bool:
        """Not if the machine keeps the client from asking as fast as it could."""
        sent_before = page.value(BYTES_OUT)
        consumer = confluent.make_consumer(measured)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        await_that(lambda: page.value(BYTES_OUT) - sent_before >= full_queue, "the client's queue is full")
        seen: list[int] = []
        while len(seen) < count:
            messages = consumer.consume(min(10_000, count - len(seen)), confluent.TIMEOUT_S)
            assert messages, f"{len(seen)} of {count} records arrived"
            seen += [int(message.value()) for message in messages]
        consumer.close()
        assert seen == list(range(count))
        return page.value("oncelog_fetches_held_total") > held

    await_that(is_held, "a client that has paused is held")
