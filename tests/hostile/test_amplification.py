"""Small requests that ask for much: what is named again is answered once, and work and answers have bounds.

A broker without a socket is asked; what is counted are answers, bytes and calls, never time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncelog.broker.handlers import describe_configs, describe_producers, metadata
from oncelog.broker.handlers.partition_arrays import PartitionArray
from oncelog.broker.request import Pending, Piecewise
from oncelog.coordinator.classic.groups import MAX_GROUP_BYTES
from oncelog.coordinator.classic.joining import MAX_MEMBER_BYTES, MAX_PROTOCOLS
from oncelog.coordinator.offsets import Offsets
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import MalformedMessage, Message, decode_exactly, encode
from oncelog.wire.frame import encode_request
from oncelog.wire.primitives import MAX_REQUEST_ELEMENTS
from tests.broker.support import NOW_MS, Desk, FailingStorage, made

TIMES = 1_000


@pytest.fixture
def desk() -> Iterator[Desk]:
    partitions = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    desk = Desk(FailingStorage(), "/data", auto_create_topics_enable="true", **partitions)
    desk.create("orders", 3)
    for key_type in (0, 1):
        desk.ask("find_coordinator", 1, {"key": "g", "key_type": key_type})
    yield desk
    desk.broker.stop(NOW_MS)


def ask(desk: Desk, api_key: ApiKey, version: int, body: Message) -> Message:
    """The answer, and it may not be large: the request names one thing."""
    data = encode(f"{api_key.schema_prefix}Request", version, body)
    frame = encode_request(api_key, version, 1, "test", data)
    with desk.alarms.turn():
        header, answer = desk.dispatcher.dispatch(memoryview(bytearray(frame))[4:], NOW_MS, peer=desk.peer)
        answer = made(desk.dispatcher, header, answer)
        assert isinstance(answer, dict), answer
    encoded = encode(f"{api_key.schema_prefix}Response", version, answer)
    assert len(encoded) < 100_000
    return decode_exactly(f"{api_key.schema_prefix}Response", version, encoded)


def count(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[object]:
    """The calls of a function, as they come."""
    calls: list[object] = []
    original: Callable[..., Any] = getattr(where, name)

    def counted(*args: Any, **named: Any) -> Any:
        calls.append(args)
        return original(*args, **named)

    monkeypatch.setattr(where, name, counted)
    return calls


def commit(desk: Desk, group_id: str = "g", count: int = 3) -> None:
    partitions = [{"partition_index": index, "committed_offset": 5} for index in range(count)]
    ask(desk, ApiKey.OFFSET_COMMIT, 9, {"group_id": group_id, "topics": [{"name": "orders", "partitions": partitions}]})


def test_configs_of_one_resource(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count(monkeypatch, describe_configs, "_entries")
    resource = {"resource_type": 4, "resource_name": str(desk.broker.node_id)}
    body = {"resources": [resource] * TIMES, "include_synonyms": True, "include_documentation": True}
    assert len(ask(desk, ApiKey.DESCRIBE_CONFIGS, 4, body)["results"]) == 1
    assert len(calls) == 1


def test_configs_are_described_one_by_one(desk: Desk) -> None:
    resources = [{"resource_type": 32, "resource_name": f"group-{number}"} for number in range(TIMES)]
    body = encode("DescribeConfigsRequest", 4, {"resources": resources})
    frame = encode_request(ApiKey.DESCRIBE_CONFIGS, 4, 1, "test", body)
    _, answer = desk.dispatcher.dispatch(memoryview(bytearray(frame))[4:], NOW_MS)
    assert isinstance(answer, Piecewise)
    assert next(answer.elements)["resource_name"] == "group-0"


@pytest.mark.parametrize("indexes", [[0] * TIMES, [0]])
def test_producers_of_one_partition(desk: Desk, monkeypatch: pytest.MonkeyPatch, indexes: list[int]) -> None:
    calls = count(monkeypatch, describe_producers, "_answer")
    topics = [{"name": "orders", "partition_indexes": indexes}] * (TIMES // len(indexes))
    (topic,) = ask(desk, ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics})["topics"]
    assert len(topic["partitions"]) == len(calls) == 1


def test_producers_of_many_partitions_come_in_parts(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_producers, "MAX_PRODUCERS_IN_PART", 1)
    monkeypatch.setattr(
        describe_producers, "_answer", lambda _, __, index: {"partition_index": index, "active_producers": [{}]}
    )
    topics = [{"name": "orders", "partition_indexes": [0, 1, 2]}, {"name": "other", "partition_indexes": []}]
    parts = ask(desk, ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics})["topics"]
    assert [(part["name"], len(part["partitions"])) for part in parts] == [("orders", 2), ("orders", 1), ("other", 0)]


def test_offsets_of_one_group(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(desk)
    calls = count(monkeypatch, Offsets, "_fetch_group")
    (group,) = ask(desk, ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": None}] * TIMES})["groups"]
    assert len(group["topics"][0]["partitions"]) == 3
    assert len(calls) == 1


@pytest.mark.parametrize("version", [7, 9])
def test_offsets_in_one_topic(desk: Desk, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    commit(desk)
    calls = count(monkeypatch, Offsets, "_fetch_topic")
    topics = [{"name": "orders", "partition_indexes": [index % 3]} for index in range(TIMES)]
    body: Message = (
        {"group_id": "g", "topics": topics} if version < 8 else {"groups": [{"group_id": "g", "topics": topics}]}
    )
    answer = ask(desk, ApiKey.OFFSET_FETCH, version, body)
    (topic,) = answer["topics"] if version < 8 else answer["groups"][0]["topics"]
    assert [partition["committed_offset"] for partition in topic["partitions"]] == [5, 5, 5]
    assert len(calls) == 1


def test_offsets_are_deleted_after_one_look_at_those_that_there_are(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(desk)
    calls = count(monkeypatch, Offsets, "_keys_of")
    topics = [{"name": f"other-{number}", "partitions": []} for number in range(TIMES)]
    topics += [
        {"name": "orders", "partitions": [{"partition_index": index}, {"partition_index": 0}]} for index in range(3)
    ]
    answer = ask(desk, ApiKey.OFFSET_DELETE, 0, {"group_id": "g", "topics": topics})["topics"]
    assert [each["partition_index"] for each in answer[-1]["partitions"]] == [0, 1, 2]
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("api_key", "version", "asked", "answered"),
    [
        (ApiKey.DESCRIBE_GROUPS, 5, "groups", "groups"),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, "group_ids", "groups"),
        (ApiKey.DELETE_GROUPS, 2, "groups_names", "results"),
        (ApiKey.DESCRIBE_TRANSACTIONS, 0, "transactional_ids", "transaction_states"),
        (ApiKey.FIND_COORDINATOR, 4, "coordinator_keys", "coordinators"),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)
def test_one_name(desk: Desk, api_key: ApiKey, version: int, asked: str, answered: str) -> None:
    commit(desk)
    assert len(ask(desk, api_key, version, {asked: ["g"] * TIMES})[answered]) == 1


def test_epochs_of_one_partition(desk: Desk) -> None:
    partition = {"partition": 0, "leader_epoch": 0}
    body = {"topics": [{"topic": "orders", "partitions": [partition] * 2}] * TIMES}
    (topic,) = ask(desk, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, body)["topics"]
    assert len(topic["partitions"]) == 1


def test_offsets_of_one_partition_are_refused(desk: Desk) -> None:
    """As Kafka does, also where its topic is named again."""
    partition = {"partition_index": 0, "timestamp": -1}
    (topic,) = ask(desk, ApiKey.LIST_OFFSETS, 7, {"topics": [{"name": "orders", "partitions": [partition]}] * TIMES})[
        "topics"
    ]
    assert [each["error_code"] for each in topic["partitions"]] == [42]


def test_markers_for_one_partition(desk: Desk) -> None:
    marker = {
        "producer_id": 5,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [{"name": "orders", "partition_indexes": [0] * 4}],
        "coordinator_epoch": 0,
    }
    (answered,) = ask(desk, ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker] * 500})["markers"]
    assert len(answered["topics"][0]["partitions"]) == 1
    assert desk.broker.partition("orders", 0).log_end_offset == 1


def test_one_transaction_that_partitions_are_added_to(desk: Desk) -> None:
    topics = [{"name": "orders", "partitions": [0, 0]}] * 3
    transaction = {
        "transactional_id": "t",
        "producer_id": 1,
        "producer_epoch": 0,
        "verify_only": True,
        "topics": topics,
    }
    (answered,) = ask(desk, ApiKey.ADD_PARTITIONS_TO_TXN, 5, {"transactions": [transaction] * TIMES})[
        "results_by_transaction"
    ]
    (topic,) = answered["topic_results"]
    assert len(topic["results_by_partition"]) == 1


def test_metadata_of_some_topics_looks_at_no_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count(monkeypatch, PartitionArray, "_describe")
    ask(desk, ApiKey.METADATA, 12, {"topics": []})
    assert not calls
    ask(desk, ApiKey.METADATA, 12, {"topics": [{"name": "orders"}] * TIMES})
    assert len(calls) == 1


def test_a_request_creates_a_few_of_the_topics_that_it_mentions(desk: Desk) -> None:
    """The others are told of as Kafka does while it creates them, and come with the requests that follow."""
    names = [f"new-{number}" for number in range(metadata.MAX_CREATED + 5)]
    body = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": True}
    errors = [topic["error_code"] for topic in ask(desk, ApiKey.METADATA, 12, body)["topics"]]
    assert errors == [0] * metadata.MAX_CREATED + [5] * 5
    assert [topic["error_code"] for topic in ask(desk, ApiKey.METADATA, 12, body)["topics"]] == [0] * len(names)


def test_too_many_elements_are_refused_before_they_are_made(desk: Desk) -> None:
    topics = [{"name": "orders", "partition_indexes": list(range(MAX_REQUEST_ELEMENTS))}]
    frame = encode_request(
        ApiKey.DESCRIBE_PRODUCERS, 0, 1, "test", encode("DescribeProducersRequest", 0, {"topics": topics})
    )
    with pytest.raises(MalformedMessage, match="elements in one request"):
        desk.dispatcher.dispatch(memoryview(bytearray(frame))[4:], NOW_MS)


def test_a_commit_that_fits_no_batch_is_refused_and_the_coordinator_goes_on(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    commit(desk)
    coordination = desk.broker.coordination
    (before,) = coordination._partitions.values()
    topic = {"name": "orders", "partitions": [{"partition_index": 0, "committed_metadata": "x" * 100}] * 10_000}
    data = encode("OffsetCommitRequest", 9, {"group_id": "g", "topics": [topic]})
    frame = encode_request(ApiKey.OFFSET_COMMIT, 9, 1, "test", data)
    caplog.set_level("INFO")
    for _ in range(3):
        _, answer = desk.dispatcher.dispatch(memoryview(bytearray(frame))[4:], NOW_MS)
    told = [line.levelname for line in caplog.records if "became errors" in line.getMessage()]
    assert told == ["INFO"], "a client must not fill the broker's log"
    assert isinstance(answer, dict)
    assert {part["error_code"] for part in answer["topics"][0]["partitions"]} == {-1}
    assert list(coordination._partitions.values()) == [before]
    (group,) = ask(desk, ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": None}]})["groups"]
    assert [part["committed_offset"] for part in group["topics"][0]["partitions"]] == [5, 5, 5]


JOIN = {
    "group_id": "team",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "member_id": "",
    "protocol_type": "consumer",
}


@pytest.mark.parametrize(
    "protocols",
    [
        [{"name": str(number), "metadata": b""} for number in range(MAX_PROTOCOLS + 1)],
        [{"name": name, "metadata": bytes(MAX_MEMBER_BYTES // 2 + 1)} for name in ("range", "sticky")],
    ],
    ids=["too many assignors", "too much metadata"],
)
def test_a_member_that_has_too_much_to_say_does_not_join(desk: Desk, protocols: list[Message]) -> None:
    assert ask(desk, ApiKey.JOIN_GROUP, 3, {**JOIN, "protocols": protocols})["error_code"] == 42


def test_a_group_that_fits_no_record_is_refused_before_anything_changes(desk: Desk) -> None:
    body = {**JOIN, "protocols": [{"name": "range", "metadata": bytes(MAX_MEMBER_BYTES)}]}
    frame = encode_request(ApiKey.JOIN_GROUP, 3, 1, "test", encode("JoinGroupRequest", 3, body))
    _, pending = desk.dispatcher.dispatch(memoryview(bytearray(frame))[4:], NOW_MS, peer=desk.peer)
    assert isinstance(pending, Pending)
    joined: list[Any] = []
    pending.on_complete = joined.append
    desk.alarms.pass_time(1)
    member_id = joined[0]["member_id"]
    coordination = desk.broker.coordination
    (before,) = coordination._partitions.values()
    sync = {
        "group_id": "team",
        "generation_id": 1,
        "member_id": member_id,
        "assignments": [{"member_id": member_id, "assignment": bytes(MAX_GROUP_BYTES - MAX_MEMBER_BYTES + 1)}],
    }
    assert ask(desk, ApiKey.SYNC_GROUP, 3, sync)["error_code"] == -1
    assert list(coordination._partitions.values()) == [before]
    sync["assignments"] = [{"member_id": member_id, "assignment": b"small"}]
    assert ask(desk, ApiKey.SYNC_GROUP, 3, sync)["error_code"] == 0


# --- what is large for a reason -----------------------------------------------------------------------------------


def test_a_consumer_of_many_partitions(desk: Desk) -> None:
    """As many as a test can afford; the bounds are for 10,000 of as many topics."""
    assert MAX_REQUEST_ELEMENTS > 2 * 10_000
    desk.create("wide", 300)
    fetch = [{"topic": "wide", "partitions": [{"partition": index, "fetch_offset": 0} for index in range(300)]}]
    body = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1000, "topics": fetch, "session_epoch": 0}
    frame = encode_request(ApiKey.FETCH, 12, 1, "test", encode("FetchRequest", 12, body))
    answer = made(desk.dispatcher, *desk.dispatcher.dispatch(memoryview(bytearray(frame))[4:], NOW_MS))
    assert isinstance(answer, Pending)
    assert desk.broker.purgatory.watched_partitions == desk.broker.fetch_sessions.kept_partitions == 300


def test_a_fetch_that_finds_no_room_to_wait_is_answered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.broker.sessionless.MAX_WATCHED_PARTITIONS", 3)
    fetch = [{"topic": "orders", "partitions": [{"partition": index, "fetch_offset": 0} for index in range(2)]}]
    body = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1000, "topics": fetch}
    frame = encode_request(ApiKey.FETCH, 12, 1, "test", encode("FetchRequest", 12, body))
    answers = [desk.dispatcher.dispatch(memoryview(bytearray(frame))[4:], NOW_MS)[1] for _ in range(2)]
    assert [type(answer) for answer in answers] == [Pending, list]


def test_configs_of_thousands_of_topics_fit_an_answer(desk: Desk) -> None:
    """Each once, as an administrator asks for them; told as if the one topic had as many names."""
    resource = {"resource_type": 2, "resource_name": "orders"}
    body = {"resources": [resource], "include_synonyms": True}
    (one,) = ask(desk, ApiKey.DESCRIBE_CONFIGS, 4, body)["results"]
    size_bytes = len(encode("DescribeConfigsResponse", 4, {"results": [one]}))
    assert 5_000 * size_bytes < 32 << 20


@pytest.mark.parametrize("asked", [None, [{"topic_id": None, "name": "wide"}]])
def test_a_topic_of_many_partitions_is_described_while_others_are_served(desk: Desk, asked: object) -> None:
    desk.create("wide", 101)
    desk.create("narrow", 1)
    assert isinstance(desk.dispatch("metadata", 12, {"topics": asked}), Piecewise)
    narrow = [{"topic_id": None, "name": "narrow"}]
    assert isinstance(desk.dispatch("metadata", 12, {"topics": narrow}), dict)
    (found,) = [each for each in desk.ask("metadata", 12, {"topics": asked})["topics"] if each["name"] == "wide"]
    assert len(found["partitions"]) == 101
    page = {"topics": [], "response_partition_limit": 50, "cursor": None}
    assert isinstance(desk.dispatch("describe_topic_partitions", 0, page), Piecewise)
