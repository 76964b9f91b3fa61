"""The finer rules of Fetch: byte limits, waiting, epochs, isolation, and incremental sessions (KIP-227)."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.batches import make_batch, read_batches
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import create_topic, fetch, fetch_request, list_offset, produce

Topics = Callable[[], str]

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNKNOWN_TOPIC_ID = 100

BATCH = make_batch([bytes(100)])
BATCHES = 10
FOREVER_MS = 300_000
"""Longer than the test's client waits for an answer."""


@dataclass
class Reader:
    """A connection and a topic with ten batches of one record in partition 0 and three in partition 1."""

    client: RawClient
    topic: str

    def ask(self, *wanted: dict[str, Any], **fields: Any) -> tuple[int, int, dict[int, tuple[int, int]]]:
        """Error code, session id, and for each partition answered its error and how many whole batches came."""
        partitions = [
            {
                "partition": 0,
                "current_leader_epoch": -1,
                "fetch_offset": 0,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": 1 << 20,
                **each,
            }
            for each in wanted
        ]
        topics = [{"topic": self.topic, "partitions": partitions}] if partitions else []
        request = {**fetch_request(self.topic, 0, max_wait=20), "topics": topics, **fields}
        answer = self.client.request("fetch", 12, request)
        answered = {
            each["partition_index"]: (each["error_code"], len(list(read_batches(each["records"] or b""))))
            for topic in answer["responses"]
            for each in topic["partitions"]
        }
        return answer["error_code"], answer["session_id"], answered

    def append(self, partition: int = 0) -> None:
        with RawClient(self.client.socket.getpeername()) as another:
            assert produce(another, self.topic, BATCH, partition=partition)["error_code"] == 0


@pytest.fixture
def reader(broker: BrokerProcess, new_topic: Topics) -> Iterator[Reader]:
    with RawClient(broker.address) as client:
        made = Reader(client, new_topic())
        create_topic(client, made.topic, partitions=2)
        for _ in range(BATCHES):
            made.append(0)
        for _ in range(3):
            made.append(1)
        yield made


def test_a_partitions_limit(reader: Reader) -> None:
    size = len(BATCH)
    counts = [reader.ask({"partition_max_bytes": limit})[2][0][1] for limit in (0, 1, size, 2 * size, 3 * size - 1)]
    assert counts == [1, 1, 1, 2, 2]


def test_the_requests_limit(reader: Reader) -> None:
    size = len(BATCH)
    counts = [reader.ask({}, max_bytes=limit)[2][0][1] for limit in (0, 1, size, 2 * size, 3 * size - 1)]
    assert counts == [1, 1, 1, 2, 2]


def test_only_the_first_partition_may_exceed_the_limits(reader: Reader) -> None:
    small = {"partition_max_bytes": 1}
    assert reader.ask({**small}, {**small, "partition": 1})[2] == {0: (0, 1), 1: (0, 0)}
    assert reader.ask({**small, "partition": 1}, {**small})[2] == {1: (0, 1), 0: (0, 0)}
    assert reader.ask({}, {"partition": 1}, max_bytes=4 * len(BATCH))[2] == {0: (0, 4), 1: (0, 0)}


def test_a_fetch_waits_for_enough_bytes_then_gives_what_there_is(reader: Reader) -> None:
    started = time.monotonic()
    answer = reader.ask({"fetch_offset": 9}, min_bytes=100_000, max_wait=400)
    assert time.monotonic() - started >= 0.35
    assert answer[2] == {0: (0, 1)}


def test_a_fetch_that_finds_enough_does_not_wait(reader: Reader) -> None:
    assert reader.ask({}, min_bytes=5 * len(BATCH), max_wait=FOREVER_MS)[2] == {0: (0, 10)}


def test_an_append_wakes_a_waiting_fetch(reader: Reader) -> None:
    def append_soon() -> None:
        time.sleep(0.3)
        reader.append(1)

    thread = threading.Thread(target=append_soon)
    thread.start()
    answer = reader.ask({"fetch_offset": 10}, {"partition": 1, "fetch_offset": 3}, max_wait=FOREVER_MS)
    thread.join()
    assert answer[2] == {0: (0, 0), 1: (0, 1)}


def test_waiting_does_not_hold_up_other_connections(broker: BrokerProcess, reader: Reader) -> None:
    waiting = reader.client.send("fetch", 12, fetch_request(reader.topic, 10, max_wait=FOREVER_MS))
    with RawClient(broker.address) as another:
        assert list_offset(another, reader.topic, -1)["offset"] == 10
        produce(another, reader.topic, BATCH)
    reader.client.receive("fetch", 12, waiting)


def test_requests_in_flight_are_answered_in_order(reader: Reader) -> None:
    """Even when a later one could be answered at once and an earlier one waits."""
    slow = reader.client.send("fetch", 12, fetch_request(reader.topic, 10, max_wait=300))
    quick = reader.client.send("metadata", 12, {"topics": []})
    assert reader.client.receive("fetch", 12, slow)["error_code"] == 0
    assert reader.client.receive("metadata", 12, quick)["brokers"]


def test_an_error_is_answered_at_once(reader: Reader) -> None:
    answer = reader.ask({"fetch_offset": 11}, {"partition": 1, "fetch_offset": 3}, max_wait=FOREVER_MS)
    assert answer[2] == {0: (OFFSET_OUT_OF_RANGE, 0), 1: (0, 0)}


def test_leader_epochs(reader: Reader) -> None:
    asked = [reader.ask({"current_leader_epoch": epoch})[2][0] for epoch in (-1, 0, 1)]
    assert asked == [(0, 10), (0, 10), (UNKNOWN_LEADER_EPOCH, 0)]


def test_read_committed_sees_plain_records(reader: Reader) -> None:
    for isolation_level in (0, 1):
        answer = fetch(reader.client, reader.topic, isolation_level=isolation_level)
        assert len(list(read_batches(answer["records"]))) == BATCHES
        assert (answer["high_watermark"], answer["last_stable_offset"]) == (BATCHES, BATCHES)
        assert answer["aborted_transactions"] == (None if isolation_level == 0 else [])


def test_an_unknown_topic_id(reader: Reader) -> None:
    answer = fetch(reader.client, "", version=13, topic_id=uuid.UUID(int=7), max_wait=20)
    assert answer["error_code"] == UNKNOWN_TOPIC_ID


def test_a_session_answers_only_what_changed(reader: Reader) -> None:
    error, session, answered = reader.ask({"fetch_offset": 10}, {"partition": 1, "fetch_offset": 3}, session_epoch=0)
    assert (error, answered) == (0, {0: (0, 0), 1: (0, 0)})
    assert session != 0
    assert reader.ask(session_id=session, session_epoch=1) == (0, session, {})
    reader.append(1)
    assert reader.ask(session_id=session, session_epoch=2) == (0, session, {1: (0, 1)})
    moved = {"partition": 1, "fetch_offset": 4}
    assert reader.ask(moved, session_id=session, session_epoch=3) == (0, session, {})
    reader.append(0)
    reader.append(1)
    assert reader.ask(session_id=session, session_epoch=4) == (0, session, {0: (0, 1), 1: (0, 1)})


def test_a_session_repeats_data_that_was_not_consumed(reader: Reader) -> None:
    _, session, answered = reader.ask({}, {"partition": 1, "fetch_offset": 3}, session_epoch=0)
    assert answered == {0: (0, 10), 1: (0, 0)}
    assert reader.ask(session_id=session, session_epoch=1)[2] == {0: (0, 10)}


def test_partitions_join_and_leave_a_session(reader: Reader) -> None:
    _, session, _ = reader.ask({"fetch_offset": 10}, session_epoch=0)
    assert reader.ask({"partition": 1}, session_id=session, session_epoch=1)[2] == {1: (0, 3)}
    forgotten = [{"topic": reader.topic, "partitions": [0]}]
    at_end = {"partition": 1, "fetch_offset": 3}
    assert reader.ask(at_end, session_id=session, session_epoch=2, forgotten_topics_data=forgotten)[2] == {}
    reader.append(0)
    assert reader.ask(session_id=session, session_epoch=3)[2] == {}


def test_errors_are_repeated_in_a_session(reader: Reader) -> None:
    _, session, answered = reader.ask({"partition": 9}, session_epoch=0)
    assert answered == {9: (UNKNOWN_TOPIC_OR_PARTITION, 0)}
    assert reader.ask(session_id=session, session_epoch=1)[2] == {9: (UNKNOWN_TOPIC_OR_PARTITION, 0)}


def test_a_sessions_epoch_must_be_the_next(reader: Reader) -> None:
    _, session, _ = reader.ask({"fetch_offset": 10}, session_epoch=0)
    assert reader.ask(session_id=session, session_epoch=5) == (INVALID_FETCH_SESSION_EPOCH, 0, {})
    assert reader.ask(session_id=session, session_epoch=1)[:2] == (0, session)
    assert reader.ask(session_id=session, session_epoch=1) == (INVALID_FETCH_SESSION_EPOCH, 0, {})


def test_a_session_can_be_closed(reader: Reader) -> None:
    _, session, _ = reader.ask({"fetch_offset": 10}, session_epoch=0)
    assert reader.ask({}, session_id=session, session_epoch=-1) == (0, 0, {0: (0, 10)})
    assert reader.ask(session_id=session, session_epoch=1) == (FETCH_SESSION_ID_NOT_FOUND, 0, {})


def test_a_session_that_never_was(reader: Reader) -> None:
    for session in (0, 12345):
        assert reader.ask(session_id=session, session_epoch=1) == (FETCH_SESSION_ID_NOT_FOUND, 0, {})
