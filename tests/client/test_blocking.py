from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from oncelog.client import blocking
from oncelog.client.blocking import BlockingClient, BrokersUnreachable, ConnectionLost, NoAnswer
from oncelog.client.config import ClientConfig
from oncelog.client.leaders import list_offsets
from oncelog.errors import InvalidRequest, LeaderNotAvailable, NotLeaderOrFollower, UnknownTopicOrPartition
from oncelog.types import IsolationLevel, TopicPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.frame import RequestHeader
from tests.client.fake_broker import HANG_UP, SILENCE, FakeBroker, metadata_answer
from tests.support.ports import refusing_port

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED

FOREVER_MS = 600_000  # longer than the test may take


def quick(bootstrap: str, **settings: object) -> BlockingClient:
    return BlockingClient(ClientConfig.of(bootstrap, **{"retry_backoff_ms": 1, **settings}))


def unused_address() -> str:
    return f"127.0.0.1:{refusing_port()}"


def serving(topics: dict[str, int], script: Callable[[int], object] | None = None) -> FakeBroker:
    """A broker with these topics; `script(n)` is its answer to the n-th request that is not about metadata."""
    count = 0

    def handle(header: RequestHeader, message: Message) -> object:
        nonlocal count
        if header.api_key == ApiKey.METADATA:
            asked = message["topics"]
            known = topics if asked is None else {one["name"]: topics.get(one["name"], 0) for one in asked}
            answer = metadata_answer(broker, known)
            for topic in answer["topics"]:
                topic["error_code"] = 0 if topic["partitions"] else UnknownTopicOrPartition.code
            return answer
        count += 1
        assert script is not None
        return script(count)

    broker = FakeBroker(handle)
    return broker


def offset_answer(error_code: int = 0, offset: int = 5) -> Message:
    return {
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": error_code, "offset": offset}]}]
    }


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was slept between attempts; the client's clock goes on by that alone."""
    pauses: list[float] = []
    monkeypatch.setattr(blocking, "time", SimpleNamespace(sleep=pauses.append, monotonic=lambda: sum(pauses)))
    return pauses


def test_no_broker_at_all_is_said_at_once_with_what_to_do() -> None:
    address = unused_address()
    with (
        quick(address, default_api_timeout_ms=FOREVER_MS) as client,
        pytest.raises(BrokersUnreachable, match=rf"{address}: Connection refused\); start one with `oncelog broker`"),
    ):
        client.refresh_metadata(None)


def test_an_unknown_host_is_said() -> None:
    with quick("no.such.host.invalid:1") as client, pytest.raises(BrokersUnreachable, match="unknown host"):
        client.refresh_metadata(None)


def test_the_next_bootstrap_server_is_asked_when_the_first_is_down() -> None:
    with serving({"t": 1}) as broker, quick(f"{unused_address()},{broker.bootstrap}") as client:
        assert set(client.refresh_metadata(None).topics) == {"t"}


def test_something_that_is_no_kafka_broker_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with (
            quick(f"127.0.0.1:{port}", request_timeout_ms=300) as client,
            pytest.raises(BrokersUnreachable, match="in time"),
        ):
            client.refresh_metadata(None)


def test_connections_are_reused() -> None:
    with serving({"t": 1}) as broker, quick(broker.bootstrap) as client:
        client.refresh_metadata(None)
        client.refresh_metadata(["t"])
        assert broker.connections == 1


def test_a_request_without_an_answer_times_out_and_gives_up_the_connection() -> None:
    with (
        serving({"t": 1}, lambda _: SILENCE) as broker,
        quick(broker.bootstrap, request_timeout_ms=5_000, default_api_timeout_ms=500) as client,
    ):
        with pytest.raises(NoAnswer):
            client.request(ApiKey.INIT_PRODUCER_ID, {})
        client.refresh_metadata(None)
        assert broker.connections == 2


def test_a_lost_connection_is_not_repeated_unless_asked_for() -> None:
    with serving({"t": 1}, lambda _: HANG_UP) as broker, quick(broker.bootstrap) as client:
        with pytest.raises(ConnectionLost, match="closed the connection"):
            client.request(ApiKey.INIT_PRODUCER_ID, {})
        assert len(broker.requests) == 1


def test_retries_bridge_lost_connections_and_retriable_errors() -> None:
    answers = [HANG_UP, offset_answer(NotLeaderOrFollower.code), HANG_UP, offset_answer()]
    partition = TopicPartition("t", 0)
    with serving({"t": 1}, lambda number: answers[number - 1]) as broker, quick(broker.bootstrap) as client:
        assert list_offsets(client, {partition: -1}, UNCOMMITTED)[partition].offset == 5
        # After every failure the metadata is asked for again: the leader may have changed.
        kinds = [header.api_key for header, _ in broker.requests]
        assert kinds == [ApiKey.METADATA, ApiKey.LIST_OFFSETS] * 4


def test_errors_that_no_retry_mends_are_raised_at_once() -> None:
    with serving({"t": 1}, lambda _: offset_answer(InvalidRequest.code)) as broker, quick(broker.bootstrap) as client:
        with pytest.raises(InvalidRequest, match="'t-0'"):
            list_offsets(client, {TopicPartition("t", 0): -1}, UNCOMMITTED)
        assert len(broker.requests) == 2


def test_retries_end_at_the_deadline(slept: list[float]) -> None:
    with (
        serving({"t": 1}, lambda _: offset_answer(NotLeaderOrFollower.code)) as broker,
        quick(broker.bootstrap, default_api_timeout_ms=1_000) as client,
    ):
        with pytest.raises(NotLeaderOrFollower):
            list_offsets(client, {TopicPartition("t", 0): -1}, UNCOMMITTED)
        assert len(broker.requests) > 2, "it was tried again"
    assert 0.5 < sum(slept) < 1


def test_pauses_between_retries_grow_to_their_bound(slept: list[float]) -> None:
    answers = [HANG_UP] * 6 + [offset_answer()]
    with (
        serving({"t": 1}, lambda number: answers[number - 1]) as broker,
        quick(broker.bootstrap, retry_backoff_ms=100, retry_backoff_max_ms=500) as client,
    ):
        list_offsets(client, {TopicPartition("t", 0): -1}, UNCOMMITTED)
    assert slept == [0.1, 0.2, 0.4, 0.5, 0.5, 0.5]


def test_a_topic_that_does_not_exist_is_no_reason_to_wait() -> None:
    with serving({}) as broker, quick(broker.bootstrap) as client:
        with pytest.raises(UnknownTopicOrPartition, match="oncelog topics create nope"):
            client.topic("nope")
        assert [one[1]["topics"] is None for one in broker.requests] == [False, True], "once, and then for a hint"
        assert not any(one[1]["allow_auto_topic_creation"] for one in broker.requests)


def test_a_mistyped_topic_is_told_what_was_probably_meant() -> None:
    refusal = pytest.raises(UnknownTopicOrPartition, match=r"'salez' does not exist; did you mean sales\?")
    with serving({"sales": 1, "orders": 1}) as broker, quick(broker.bootstrap) as client, refusal:
        client.topic("salez")


def test_a_partition_that_does_not_exist_names_those_that_do() -> None:
    refusal = pytest.raises(UnknownTopicOrPartition, match=r"has 3 partitions \(0 to 2\), and no partition 3")
    with serving({"t": 3}) as broker, quick(broker.bootstrap) as client, refusal:
        client.partition(TopicPartition("t", 3))


def test_a_topic_that_grew_is_noticed() -> None:
    topics = {"t": 1}
    with serving(topics) as broker, quick(broker.bootstrap) as client:
        client.partition(TopicPartition("t", 0))
        topics["t"] = 2
        assert client.partition(TopicPartition("t", 1)).index == 1


def test_a_partition_without_a_leader_is_said() -> None:
    def leaderless(header: RequestHeader, message: Message) -> Message:
        answer = metadata_answer(broker, {"t": 1})
        answer["topics"][0]["partitions"][0]["leader_id"] = -1
        return answer

    refusal = pytest.raises(LeaderNotAvailable, match="partition 0 of topic 't' has no leader")
    with FakeBroker(leaderless) as broker, quick(broker.bootstrap) as client, refusal:
        client.leader_of(TopicPartition("t", 0))


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_whoever_waits_for_retries_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 100.0

    def sleep(pause_s: float) -> None:
        nonlocal now_s
        now_s += pause_s

    monkeypatch.setattr(blocking, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    client = BlockingClient(ClientConfig.of("127.0.0.1:1", default_api_timeout_ms=10_000))

    def attempt() -> None:
        raise ConnectionLost("nobody answers")

    with caplog.at_level(logging.DEBUG), pytest.raises(ConnectionLost):
        client.retrying(attempt)
    (told,) = warnings_of(caplog)
    assert told.startswith("nobody answers; trying again for up to ")
    caplog.clear()
    attempts = iter([ConnectionLost("broke"), None])

    def second_works() -> None:
        error = next(attempts)
        if error is not None:
            raise error

    client.retrying(second_works)
    assert warnings_of(caplog) == [], "it was over before anybody wondered"


def test_a_broker_that_says_nothing_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(blocking, "SLOW_ANSWER_S", 0.05)
    with serving({"t": 1}, lambda _: SILENCE) as broker, quick(broker.bootstrap) as client:
        with caplog.at_level(logging.WARNING), pytest.raises(NoAnswer):
            client.request(ApiKey.INIT_PRODUCER_ID, {}, timeout_ms=2_000)
        assert warnings_of(caplog)[-1].startswith(f"{broker.bootstrap} has not answered for ")
