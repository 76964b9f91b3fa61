"""Plans for topics. Codes and words are those of a running Kafka 4.3.1 with one broker."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from oncelog.controller.state import ConfigResource, ControllerState, ResourceType
from oncelog.controller.topics import (
    MAX_PARTITIONS_PER_REQUEST,
    CreatedTopic,
    MorePartitions,
    NewTopic,
    TopicToDelete,
    create_partitions,
    create_topics,
    delete_topics,
)
from oncelog.errors import KafkaError
from tests.controller.support import CLUSTER, SCHEMA, apply, counting_ids


def create(state: ControllerState, *topics: NewTopic) -> dict[str, CreatedTopic | KafkaError]:
    outcome = create_topics(state, CLUSTER, SCHEMA, topics, counting_ids())
    apply(state, outcome)
    return outcome.response


@pytest.fixture
def state() -> ControllerState:
    state = ControllerState()
    create(state, NewTopic("orders", 2), NewTopic("a.b"))
    return state


def test_a_new_topic(state: ControllerState) -> None:
    configs = [("retention.ms", "5"), ("retention.ms", "6")]
    created = create(state, NewTopic("paid", 2, 1, configs=configs))["paid"]
    topic = state.topics["paid"]
    assert created == CreatedTopic(topic.id, 2, 1, {"retention.ms": "6"})
    assert state.topic_by_id(topic.id) is topic
    assert state.configs(ConfigResource(ResourceType.TOPIC, "paid")) == {"retention.ms": "6"}
    assert list(topic.partitions) == [0, 1]
    first = topic.partitions[0]
    assert (first.leader, first.leader_epoch, first.replicas, first.isr) == (1, 0, (1,), (1,))
    assert first.directories == (CLUSTER.directory_id,)


def test_the_broker_decides_where_the_client_does_not(state: ControllerState) -> None:
    create(state, NewTopic("paid"))
    assert len(state.topics["paid"].partitions) == CLUSTER.default_partitions


def test_planning_changes_nothing(state: ControllerState) -> None:
    create_topics(state, CLUSTER, SCHEMA, [NewTopic("paid")], counting_ids())
    delete_topics(state, [TopicToDelete("orders", None)])
    create_partitions(state, CLUSTER, [MorePartitions("orders", 9)])
    assert set(state.topics) == {"orders", "a.b"}
    assert len(state.topics["orders"].partitions) == 2


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (NewTopic("orders"), 36, "Topic 'orders' already exists."),
        (NewTopic("a_b"), 17, "Topic 'a_b' collides with existing topic: a.b"),
        (NewTopic(""), 17, "Topic name is invalid: the empty string is not allowed"),
        (NewTopic("."), 17, "Topic name is invalid: '.' is not allowed"),
        (NewTopic(".."), 17, "Topic name is invalid: '..' is not allowed"),
        (NewTopic("x" * 250), 17, "is longer than the max allowed length 249"),
        (NewTopic("bad name"), 17, "contains one or more characters other than ASCII alphanumerics"),
        (NewTopic("größe"), 17, "contains one or more characters other than ASCII alphanumerics"),
        (NewTopic("__cluster_metadata"), 42, "Creation of internal topic __cluster_metadata is prohibited."),
        (NewTopic("x", 0), 37, "Number of partitions was set to an invalid non-positive value."),
        (NewTopic("x", -2), 37, "Number of partitions was set to an invalid non-positive value."),
        (NewTopic("x", 1, 0), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        (NewTopic("x", 0, 0), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        (NewTopic("x", 1, 3), 38, "Unable to replicate the partition 3 time(s): The target replication factor of 3"),
        (NewTopic("x", 10_001), 44, "Excessively large number of partitions per request."),
        (NewTopic("x", 1, -1, [(0, [1])]), 42, "but numPartitions was not set to -1."),
        (NewTopic("x", -1, 1, [(0, [1])]), 42, "but replication factor was not set to -1."),
        (NewTopic("x", -1, -1, [(0, [2])]), 39, "includes broker 2, but no such broker is registered."),
        (NewTopic("x", -1, -1, [(0, [])]), 39, "includes an empty replica list."),
        (NewTopic("x", -1, -1, [(0, [1, 1])]), 39, "includes the broker 1 more than once."),
        (NewTopic("x", -1, -1, [(1, [1])]), 39, "partitions should be a consecutive 0-based integer sequence"),
        (
            NewTopic("x", -1, -1, [(0, [1]), (0, [1])]),
            39,
            "Found multiple manual partition assignments for partition 0",
        ),
        (NewTopic("x", configs=[("foo", "1")]), 40, "Unknown topic config name: foo"),
        (
            NewTopic("x", configs=[("retention.ms", None)]),
            40,
            "Null value not supported for topic configs: retention.ms",
        ),
    ],
)
def test_refused_topics(state: ControllerState, topic: NewTopic, code: int, words: str) -> None:
    answer = create(state, topic)[topic.name]
    assert isinstance(answer, KafkaError)
    assert (answer.code, words in answer.message) == (code, True), answer.message
    assert set(state.topics) == {"orders", "a.b"}


def test_partitions_assigned_by_hand(state: ControllerState) -> None:
    create(state, NewTopic("x", assignments=[(1, [1]), (0, [1])]))
    assert sorted(state.topics["x"].partitions) == [0, 1]


def test_a_name_twice_in_one_request_spoils_only_itself(state: ControllerState) -> None:
    answers = create(state, NewTopic("twice"), NewTopic("once"), NewTopic("twice"))
    assert list(answers) == ["twice", "once"]
    refused = answers["twice"]
    assert isinstance(refused, KafkaError)
    assert (refused.code, refused.message) == (42, "Duplicate topic name.")
    assert set(state.topics) == {"orders", "a.b", "once"}


def test_the_bound_on_partitions_holds_for_the_whole_request(state: ControllerState) -> None:
    half = MAX_PARTITIONS_PER_REQUEST // 2
    answers = create(state, NewTopic("x", half), NewTopic("y", half + 1))
    assert {answer.code for answer in answers.values() if isinstance(answer, KafkaError)} == {44}
    assert "x" not in state.topics


def delete(state: ControllerState, *topics: TopicToDelete) -> list[tuple[str | None, UUID | None, int]]:
    outcome = delete_topics(state, topics)
    apply(state, outcome)
    return [(topic.name, topic.topic_id, topic.error.code if topic.error else 0) for topic in outcome.response]


def test_deleting_by_name_and_by_id(state: ControllerState) -> None:
    orders, other = state.topics["orders"], state.topics["a.b"]
    assert delete(state, TopicToDelete("orders", None)) == [("orders", orders.id, 0)]
    assert delete(state, TopicToDelete(None, other.id)) == [("a.b", other.id, 0)]
    assert state.topics == {}
    assert state.topic_by_id(orders.id) is None
    assert isinstance(create(state, NewTopic("a_b"))["a_b"], CreatedTopic), "the name that collided is gone"


def test_configs_go_with_their_topic(state: ControllerState) -> None:
    create(state, NewTopic("x", configs=[("retention.ms", "5")]))
    delete(state, TopicToDelete("x", None))
    create(state, NewTopic("x"))
    assert state.configs(ConfigResource(ResourceType.TOPIC, "x")) == {}


def test_deletions_that_are_refused(state: ControllerState) -> None:
    orders = state.topics["orders"].id
    unknown = UUID(int=12345)
    assert delete(state, TopicToDelete("nope", None)) == [("nope", None, 3)]
    assert delete(state, TopicToDelete(None, unknown)) == [(None, unknown, 100)]
    assert delete(state, TopicToDelete("orders", unknown)) == [("orders", unknown, 42)]
    assert delete(state, TopicToDelete(None, None)) == [(None, None, 42)]
    assert delete(state, *[TopicToDelete("orders", None)] * 2) == [("orders", None, 42)]
    assert delete(state, *[TopicToDelete(None, orders)] * 2) == [(None, orders, 42)]
    assert delete(state, TopicToDelete("orders", None), TopicToDelete(None, orders)) == [("orders", orders, 42)]
    assert delete(state, TopicToDelete(None, orders), TopicToDelete("orders", None)) == [("orders", orders, 42)]
    assert "orders" in state.topics


def more(state: ControllerState, *topics: MorePartitions) -> dict[str, tuple[int, str]]:
    outcome = create_partitions(state, CLUSTER, topics)
    apply(state, outcome)
    return {name: (error.code, error.message) if error else (0, "") for name, error in outcome.response.items()}


@pytest.mark.parametrize("assignments", [None, [[1], [1]]])
def test_more_partitions(state: ControllerState, assignments: Sequence[Sequence[int]] | None) -> None:
    assert more(state, MorePartitions("orders", 4, assignments)) == {"orders": (0, "")}
    assert list(state.topics["orders"].partitions) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (MorePartitions("nope", 3), 3, ""),
        (MorePartitions("orders", 2), 37, "Topic already has 2 partition(s)."),
        (MorePartitions("orders", 1), 37, "currently has 2 partition(s); 1 would not be an increase."),
        (MorePartitions("orders", -1), 37, "currently has 2 partition(s); -1 would not be an increase."),
        (MorePartitions("orders", 20_000), 44, "Excessively large number of partitions per request."),
        (
            MorePartitions("orders", 4, [[1]]),
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s)",
        ),
        (MorePartitions("orders", 3, []), 39, "Attempted to add 1 additional partition(s), but only 0 assignment(s)"),
        (MorePartitions("orders", 3, [[2]]), 39, "includes broker 2, but no such broker is registered."),
        (MorePartitions("orders", 3, [[]]), 39, "includes an empty replica list."),
    ],
)
def test_more_partitions_refused(state: ControllerState, asked: MorePartitions, code: int, words: str) -> None:
    (answer,) = more(state, asked).values()
    assert answer[0] == code
    assert words in answer[1]
    assert len(state.topics["orders"].partitions) == 2


def test_more_partitions_twice_in_one_request(state: ControllerState) -> None:
    answers = more(state, MorePartitions("orders", 4), MorePartitions("orders", 5))
    assert answers == {"orders": (42, "Duplicate topic name.")}
