"""Metadata, CreateTopics, DeleteTopics, CreatePartitions, DescribeTopicPartitions, as clients see them."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from tests.broker.handlers.conftest import NOW_MS, Asking, open_broker

ZERO = UUID(int=0)
NOT_ASKED = -(2**31)


def named(*names: str) -> list[dict[str, object]]:
    return [{"name": name} for name in names]


def names_and_errors(answer: dict[str, list[dict[str, object]]]) -> list[tuple[object, object]]:
    return [(topic["name"], topic["error_code"]) for topic in answer["topics"]]


# --- Metadata ---


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_a_topic_in_every_version(ask: Asking, version: int) -> None:
    topic_id = ask.create("orders", 2)
    answer = ask("metadata", version, topics=named("orders"))
    assert answer["brokers"] == [{"node_id": 1, "host": "broker.example", "port": 9092, "rack": None}]
    (topic,) = answer["topics"]
    assert (topic["name"], topic["error_code"], topic["is_internal"]) == ("orders", 0, False)
    assert topic["topic_id"] == (topic_id if version >= 10 else ZERO)
    assert [partition["partition_index"] for partition in topic["partitions"]] == [0, 1]
    first = topic["partitions"][0]
    assert (first["leader_id"], first["replica_nodes"], first["isr_nodes"]) == (1, [1], [1])
    assert first["leader_epoch"] == (0 if version >= 7 else -1)
    assert answer["controller_id"] == (1 if version >= 1 else -1)
    assert (answer["cluster_id"] is not None) == (version >= 2)


@pytest.mark.parametrize(
    ("version", "topics", "expected"),
    [
        (0, [], ["orders", "paid"]),
        (1, [], []),
        (1, None, ["orders", "paid"]),
        (12, [], []),
        (12, None, ["orders", "paid"]),
    ],
)
def test_all_topics_or_none(ask: Asking, version: int, topics: list[object] | None, expected: list[str]) -> None:
    ask.create("orders")
    ask.create("paid")
    assert [topic["name"] for topic in ask("metadata", version, topics=topics)["topics"]] == expected


def test_metadata_by_id(ask: Asking) -> None:
    topic_id = ask.create("orders")
    unknown = UUID(int=77)
    answer = ask("metadata", 12, topics=[{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": unknown}])
    assert names_and_errors(answer) == [("orders", 0), (None, 100)]
    assert answer["topics"][1]["topic_id"] == unknown
    mixed = ask("metadata", 12, topics=[{"name": None, "topic_id": topic_id}, {"name": "other", "topic_id": ZERO}])
    assert names_and_errors(mixed) == [("orders", 0)]


def test_ids_are_not_asked_for_before_version_12(ask: Asking) -> None:
    topic_id = ask.create("orders")
    answer = ask("metadata", 10, topics=[{"name": "orders", "topic_id": topic_id}])
    assert names_and_errors(answer) == [("orders", 42)]
    assert answer["brokers"] == []


def test_a_topic_with_neither_name_nor_id(ask: Asking) -> None:
    answer = ask("metadata", 12, topics=[{"name": None, "topic_id": ZERO}])
    assert names_and_errors(answer) == [("", -1)]
    assert (answer["brokers"], answer["cluster_id"], answer["controller_id"]) == ([], None, -1)


def test_unknown_and_illegal_names(ask: Asking) -> None:
    topics = named("nope", "bad name", "", "__consumer_offsets", "nope")
    answer = ask("metadata", 12, topics=topics, allow_auto_topic_creation=False)
    assert names_and_errors(answer) == [("nope", 3), ("bad name", 17), ("", 17), ("__consumer_offsets", 3)]
    assert [topic["is_internal"] for topic in answer["topics"]] == [False, False, False, True]


def test_a_mention_creates_a_topic(ask: Asking) -> None:
    answer = ask("metadata", 12, topics=named("new", "__consumer_offsets"), allow_auto_topic_creation=True)
    assert names_and_errors(answer) == [("new", 0), ("__consumer_offsets", 3)]
    assert len(answer["topics"][0]["partitions"]) == 1
    ask.broker.partition("new", 0)


def test_versions_below_4_always_allow_creation(ask: Asking) -> None:
    assert names_and_errors(ask("metadata", 3, topics=named("new"))) == [("new", 0)]


def test_a_mention_creates_nothing_where_that_is_off(tmp_path: Path) -> None:
    broker = open_broker(tmp_path, auto_create_topics_enable="false")
    answer = Asking(broker)("metadata", 12, topics=named("new"), allow_auto_topic_creation=True)
    assert names_and_errors(answer) == [("new", 3)]
    assert broker.controller.state.topics == {}


def test_a_mention_that_cannot_be_created(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path, default_replication_factor="2"))
    assert names_and_errors(ask("metadata", 12, topics=named("new"))) == [("new", 38)]


def test_authorized_operations(ask: Asking) -> None:
    ask.create("orders")
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    answer = ask("metadata", 8, topics=named("orders"), **asked)
    assert answer["topics"][0]["topic_authorized_operations"] == 3576
    assert answer["cluster_authorized_operations"] == 8096
    answer = ask("metadata", 8, topics=named("orders"))
    assert answer["topics"][0]["topic_authorized_operations"] == NOT_ASKED
    assert answer["cluster_authorized_operations"] == NOT_ASKED


def test_a_partition_whose_disk_failed_has_no_leader(ask: Asking) -> None:
    ask.create("orders", 2)
    ask.broker.partition("orders", 1).offline = True
    (topic,) = ask("metadata", 12, topics=named("orders"))["topics"]
    healthy, failed = topic["partitions"]
    assert (healthy["error_code"], healthy["leader_id"], healthy["offline_replicas"]) == (0, 1, [])
    assert (failed["error_code"], failed["leader_id"], failed["offline_replicas"]) == (5, -1, [1])


# --- CreateTopics ---


@pytest.mark.parametrize("version", range(2, 8))
def test_a_created_topic_is_described(ask: Asking, version: int) -> None:
    configs = [{"name": "retention.ms", "value": "5"}]
    topic = {"name": "orders", "num_partitions": 2, "replication_factor": 1, "configs": configs}
    (created,) = ask("create_topics", version, topics=[topic])["topics"]
    assert (created["name"], created["error_code"], created["error_message"]) == ("orders", 0, None)
    if version >= 5:
        assert (created["num_partitions"], created["replication_factor"]) == (2, 1)
        described = {config["name"]: (config["value"], config["config_source"]) for config in created["configs"]}
        assert len(described) == 33
        assert described["retention.ms"] == ("5", 1)
        assert described["cleanup.policy"] == ("delete", 5)
        assert list(described) == sorted(described)
    assert created["topic_id"] == (ask.broker.topic_id("orders") if version >= 7 else ZERO)
    assert ask.broker.partition("orders", 1).config.retention_ms == 5


def test_validation_alone_creates_nothing(ask: Asking) -> None:
    topics = [{"name": "x", "num_partitions": 2, "replication_factor": 1}, {"name": "bad name"}]
    answer = ask("create_topics", 7, topics=topics, validate_only=True)
    assert names_and_errors(answer) == [("x", 0), ("bad name", 17)]
    assert ask.broker.controller.state.topics == {}


def test_a_refused_topic_says_why(ask: Asking) -> None:
    ask.create("orders")
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 1}
    (refused,) = ask("create_topics", 7, topics=[topic])["topics"]
    assert (refused["error_code"], refused["error_message"]) == (36, "Topic 'orders' already exists.")
    assert (refused["num_partitions"], refused["replication_factor"], refused["configs"]) == (-1, -1, [])
    assert refused["topic_id"] == ZERO


def test_topics_survive_a_restart(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path))
    topic_id = ask.create("orders", 2, retention_ms="5")
    ask.append("orders", 1, NOW_MS)
    again = Asking(open_broker(tmp_path))
    (topic,) = again("metadata", 12, topics=None)["topics"]
    assert (topic["name"], topic["topic_id"], len(topic["partitions"])) == ("orders", topic_id, 2)
    assert again.broker.partition("orders", 1).log_end_offset == 1
    assert again.broker.partition("orders", 1).config.retention_ms == 5


# --- DeleteTopics ---


def test_deleting_a_topic_and_creating_it_anew(ask: Asking) -> None:
    old_id = ask.create("orders")
    ask.append("orders", 0, NOW_MS)
    (deleted,) = ask("delete_topics", 6, topics=named("orders"))["responses"]
    assert (deleted["name"], deleted["topic_id"], deleted["error_code"]) == ("orders", old_id, 0)
    assert ask.create("orders") != old_id
    assert ask.broker.partition("orders", 0).log_end_offset == 0


def test_deleting_by_name_in_older_versions(ask: Asking) -> None:
    ask.create("orders")
    answer = ask("delete_topics", 1, topic_names=["orders", "nope"])
    assert [(topic["name"], topic["error_code"]) for topic in answer["responses"]] == [("orders", 0), ("nope", 3)]


def test_deleting_by_id(ask: Asking) -> None:
    topic_id = ask.create("orders")
    (deleted,) = ask("delete_topics", 6, topics=[{"name": None, "topic_id": topic_id}])["responses"]
    assert (deleted["name"], deleted["error_code"]) == ("orders", 0)


def test_readers_that_wait_hear_of_a_deletion(ask: Asking) -> None:
    from oncelog.broker.purgatory import WaitingFetch
    from oncelog.types import TopicPartition
    from tests.broker.support import watching

    ask.create("orders")
    woken: list[bool] = []
    view = watching(ask.broker.purgatory, TopicPartition("orders", 0))
    ask.broker.purgatory.park(WaitingFetch(view, 1, lambda: woken.append(True)))
    ask("delete_topics", 6, topics=named("orders"))
    assert woken == [True]


@pytest.mark.parametrize(("version", "code"), [(1, 42), (3, 73), (6, 73)])
def test_deletion_can_be_disabled(tmp_path: Path, version: int, code: int) -> None:
    ask = Asking(open_broker(tmp_path, delete_topic_enable="false"))
    ask.create("orders")
    answer = ask("delete_topics", version, topics=named("orders"), topic_names=["orders"])
    assert [topic["error_code"] for topic in answer["responses"]] == [code]
    assert "orders" in ask.broker.controller.state.topics


# --- CreatePartitions ---


def test_more_partitions_are_served_at_once(ask: Asking) -> None:
    ask.create("orders")
    answer = ask("create_partitions", 3, topics=[{"name": "orders", "count": 3, "assignments": None}])
    assert answer["results"] == [{"name": "orders", "error_code": 0, "error_message": None}]
    ask.append("orders", 2, NOW_MS)
    answer = ask("create_partitions", 3, topics=[{"name": "orders", "count": 2, "assignments": None}])
    (refused,) = answer["results"]
    assert refused["error_code"] == 37
    assert refused["error_message"] == "The topic orders currently has 3 partition(s); 2 would not be an increase."


def test_validating_more_partitions(ask: Asking) -> None:
    ask.create("orders")
    topic = {"name": "orders", "count": 3, "assignments": None}
    assert ask("create_partitions", 3, topics=[topic], validate_only=True)["results"][0]["error_code"] == 0
    assert len(ask.broker.controller.state.topics["orders"].partitions) == 1


# --- DescribeTopicPartitions ---


def pages(ask: Asking, topics: list[str], limit: int) -> list[list[tuple[str, list[int]]]]:
    found = []
    cursor = None
    while True:
        answer = ask(
            "describe_topic_partitions", 0, topics=named(*topics), response_partition_limit=limit, cursor=cursor
        )
        found.append(
            [(topic["name"], [one["partition_index"] for one in topic["partitions"]]) for topic in answer["topics"]]
        )
        cursor = answer["next_cursor"]
        if cursor is None:
            return found


def test_topics_come_in_pages(ask: Asking) -> None:
    ask.create("b", 3)
    ask.create("a", 2)
    assert pages(ask, ["b", "a"], 10) == [[("a", [0, 1]), ("b", [0, 1, 2])]]
    assert pages(ask, ["b", "a"], 2) == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2])]]
    assert pages(ask, ["b", "a"], 3) == [[("a", [0, 1]), ("b", [0])], [("b", [1, 2])]]
    assert pages(ask, [], 4) == [[("a", [0, 1]), ("b", [0, 1])], [("b", [2])]]
    assert pages(ask, ["b"], 0) == [[("b", [0])], [("b", [1])], [("b", [2])]]


def test_a_page_says_what_kafka_says(ask: Asking) -> None:
    topic_id = ask.create("orders")
    (topic,) = ask("describe_topic_partitions", 0, topics=named("orders"), response_partition_limit=9)["topics"]
    assert topic == {
        "error_code": 0,
        "name": "orders",
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": [
            {
                "error_code": 0,
                "partition_index": 0,
                "leader_id": 1,
                "leader_epoch": 0,
                "replica_nodes": [1],
                "isr_nodes": [1],
                "eligible_leader_replicas": [],
                "last_known_elr": [],
                "offline_replicas": [],
            }
        ],
        "topic_authorized_operations": 3576,
    }


@pytest.mark.parametrize(
    "cursor", [{"topic_name": "zz", "partition_index": 0}, {"topic_name": "a", "partition_index": -1}]
)
def test_a_cursor_from_nowhere(ask: Asking, cursor: dict[str, object]) -> None:
    ask.create("a")
    answer = ask("describe_topic_partitions", 0, topics=named("a"), response_partition_limit=9, cursor=cursor)
    assert names_and_errors(answer) == [("a", 42)]


def test_unknown_topics_in_a_page(ask: Asking) -> None:
    answer = ask("describe_topic_partitions", 0, topics=named("nope", "bad name"), response_partition_limit=9)
    assert names_and_errors(answer) == [("bad name", 17), ("nope", 3)]


def test_the_brokers_own_bound_on_a_page(tmp_path: Path) -> None:
    ask = Asking(open_broker(tmp_path, max_request_partition_size_limit="2"))
    ask.create("a", 3)
    assert pages(ask, ["a"], 1000) == [[("a", [0, 1])], [("a", [2])]]
