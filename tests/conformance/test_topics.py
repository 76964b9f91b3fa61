"""Topics: creating, describing, growing and deleting them, and every way to get that wrong."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import NewPartitions, NewTopic

from tests.support.batches import make_batch
from tests.support.compare import Ask, assert_same
from tests.support.confluent import TIMEOUT_S, create_topic, make_admin, make_producer, read, send
from tests.support.patience import eventually
from tests.support.process import BrokerProcess
from tests.support.raw import RawClient
from tests.support.requests import LATEST, await_leaders, fetch, list_offset, produce

Topics = Callable[[], str]
Brokers = dict[str, BrokerProcess]

UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
INVALID_REQUEST = 42
UNKNOWN_TOPIC_ID = 100


def create(name: str, *, version: int = 7, validate_only: bool = False, **fields: Any) -> Ask:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, **fields}
    return Ask("create_topics", version, {"topics": [topic], "timeout": 10_000, "validate_only": validate_only})


def grow(name: str, count: int, *, assignments: list[Any] | None = None, validate_only: bool = False) -> Ask:
    topic = {"name": name, "count": count, "assignments": assignments}
    return Ask("create_partitions", 3, {"topics": [topic], "timeout": 10_000, "validate_only": validate_only})


def delete(*topics: dict[str, Any]) -> Ask:
    return Ask("delete_topics", 6, {"topics": list(topics), "timeout": 10_000})


def assigned(*replicas: list[int], first: int = 0) -> dict[str, Any]:
    places = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(replicas, first)]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": places}


CREATIONS: dict[str, tuple[Callable[[str], Ask], int]] = {
    "plain": (create, 0),
    "several partitions": (lambda name: create(name, num_partitions=5), 0),
    "the broker's defaults": (lambda name: create(name, num_partitions=-1, replication_factor=-1), 0),
    "validated only": (lambda name: create(name, validate_only=True), 0),
    "no partitions": (lambda name: create(name, num_partitions=0), INVALID_PARTITIONS),
    "negative partitions": (lambda name: create(name, num_partitions=-2), INVALID_PARTITIONS),
    "no replicas": (lambda name: create(name, replication_factor=0), INVALID_REPLICATION_FACTOR),
    "more replicas than brokers": (lambda name: create(name, replication_factor=2), INVALID_REPLICATION_FACTOR),
    "assigned by hand": (lambda name: create(name, **assigned([1], [1])), 0),
    "assigned by hand and counted": (
        lambda name: create(name, **{**assigned([1]), "num_partitions": 2, "replication_factor": 1}),
        INVALID_REQUEST,
    ),
    "assigned to an unknown broker": (lambda name: create(name, **assigned([9])), INVALID_REPLICA_ASSIGNMENT),
    "assigned twice to one broker": (lambda name: create(name, **assigned([1, 1])), INVALID_REPLICA_ASSIGNMENT),
    "assigned to nobody": (lambda name: create(name, **assigned([])), INVALID_REPLICA_ASSIGNMENT),
    "assigned with a hole": (lambda name: create(name, **assigned([1], first=1)), INVALID_REPLICA_ASSIGNMENT),
    "an empty name": (lambda _: create(""), INVALID_TOPIC),
    "a dot": (lambda _: create("."), INVALID_TOPIC),
    "two dots": (lambda _: create(".."), INVALID_TOPIC),
    "a slash": (lambda name: create(f"../{name}"), INVALID_TOPIC),
    "a space": (lambda name: create(f"{name} x"), INVALID_TOPIC),
    "a letter beyond ASCII": (lambda name: create(f"{name}ü"), INVALID_TOPIC),
    "a NUL": (lambda name: create(f"{name}\0"), INVALID_TOPIC),
    "the longest name": (lambda name: create(name.ljust(249, "x")), 0),
    "a name too long": (lambda name: create(name.ljust(250, "x")), INVALID_TOPIC),
    "an unknown config": (
        lambda name: create(name, configs=[{"name": "no.such.config", "value": "1"}]),
        INVALID_CONFIG,
    ),
    "a config of the wrong type": (
        lambda name: create(name, configs=[{"name": "retention.ms", "value": "soon"}]),
        INVALID_CONFIG,
    ),
    "a config out of range": (
        lambda name: create(name, configs=[{"name": "segment.bytes", "value": "-1"}]),
        INVALID_CONFIG,
    ),
    "a config without a value": (
        lambda name: create(name, configs=[{"name": "retention.ms", "value": None}]),
        INVALID_CONFIG,
    ),
}


@pytest.mark.parametrize("case", CREATIONS)
def test_creating(both_brokers: Brokers, new_topic: Topics, case: str) -> None:
    ask, code = CREATIONS[case]
    topic = new_topic()

    def asks() -> list[Ask]:
        made = ask(topic)
        # The answer's configs are compared where configs are tested.
        return [Ask(made.api, 4, made.body)]

    assert_same(both_brokers, asks, [code])


def test_creating_twice(both_brokers: Brokers, new_topic: Topics) -> None:
    name = new_topic()
    asks = [create(name, version=4), create(name, version=4), create(name, version=4, validate_only=True)]
    assert_same(both_brokers, lambda: asks, [0, TOPIC_ALREADY_EXISTS, TOPIC_ALREADY_EXISTS])


def test_names_that_collide_as_metrics(both_brokers: Brokers, new_topic: Topics) -> None:
    name = new_topic()
    asks = [create(f"{name}.a_b", version=4), create(f"{name}_a.b", version=4)]
    assert_same(both_brokers, lambda: asks, [0, INVALID_TOPIC])


def test_one_name_twice_in_a_request(both_brokers: Brokers, new_topic: Topics) -> None:
    topic = {"name": new_topic(), "num_partitions": 1, "replication_factor": 1}
    ask = Ask("create_topics", 4, {"topics": [topic, topic], "timeout": 10_000})
    assert_same(both_brokers, lambda: [ask], [INVALID_REQUEST])


def test_some_topics_of_a_request_fail_alone(both_brokers: Brokers, new_topic: Topics) -> None:
    good, bad = new_topic(), new_topic()
    topics = [
        {"name": good, "num_partitions": 1, "replication_factor": 1},
        {"name": bad, "num_partitions": 0, "replication_factor": 1},
    ]
    ask = Ask("create_topics", 4, {"topics": topics, "timeout": 10_000})
    assert_same(both_brokers, lambda: [ask], [0, INVALID_PARTITIONS])


def test_validating_creates_nothing(broker: BrokerProcess, new_topic: Topics) -> None:
    name = new_topic()
    admin = make_admin(broker)
    admin.create_topics([NewTopic(name, 3, 1)], validate_only=True)[name].result(TIMEOUT_S)
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_growing(both_brokers: Brokers, new_topic: Topics) -> None:
    name = new_topic()
    asks = [
        create(name, version=4),
        grow(name, 3),
        grow(name, 3),
        grow(name, 2),
        grow(name, 0),
        grow(name, -1),
        grow(name, 8, validate_only=True),
        grow(name, 4, assignments=[{"broker_ids": [1]}]),
        grow(name, 6, assignments=[{"broker_ids": [1]}]),
        grow(name, 5, assignments=[{"broker_ids": [9]}]),
        grow(f"{name}-unknown", 2),
    ]
    codes = [0, 0, *[INVALID_PARTITIONS] * 4, 0, 0, *[INVALID_REPLICA_ASSIGNMENT] * 2, UNKNOWN_TOPIC_OR_PARTITION]
    assert_same(both_brokers, lambda: asks, codes)


def test_a_grown_topic_keeps_its_records(broker: BrokerProcess, new_topic: Topics) -> None:
    name = new_topic()
    create_topic(broker, name)
    send(make_producer(broker), name, [{"value": b"old"}])
    admin = make_admin(broker)
    admin.create_partitions([NewPartitions(name, 3)])[name].result(TIMEOUT_S)
    with RawClient(broker.address) as client:
        await_leaders(client, name, 3)
    send(make_producer(broker), name, [{"value": b"new", "partition": 2}])
    assert read(broker, name, 1, partition=0)[0].value() == b"old"
    assert read(broker, name, 1, partition=2)[0].value() == b"new"


def test_deleting(both_brokers: Brokers, new_topic: Topics) -> None:
    name = new_topic()
    asks = [
        create(name, version=4),
        delete({"name": name}),
        delete({"name": name}),
        delete({"name": None, "topic_id": uuid.UUID(int=12345)}),
        delete({"name": None, "topic_id": None}),
    ]
    codes = [0, 0, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST]
    assert_same(both_brokers, lambda: asks, codes)


def test_deleting_by_id(broker: BrokerProcess, new_topic: Topics) -> None:
    name = new_topic()
    with RawClient(broker.address) as client:
        (created,) = client.request(*create(name))["topics"]
        both = delete({"name": name, "topic_id": created["topic_id"]})
        assert client.request(*both)["responses"][0]["error_code"] == INVALID_REQUEST
        (deleted,) = client.request(*delete({"name": None, "topic_id": created["topic_id"]}))["responses"]
        assert (deleted["error_code"], deleted["name"]) == (0, name)


def test_a_topic_made_again_is_another(broker: BrokerProcess, new_topic: Topics) -> None:
    """It is empty, has a new id, and requests that carry the old id are told so."""
    name = new_topic()
    with RawClient(broker.address) as client:
        (first,) = client.request(*create(name))["topics"]
        await_leaders(client, name, 1)
        assert produce(client, name, make_batch([b"old"] * 3))["error_code"] == 0
        assert client.request(*delete({"name": name}))["responses"][0]["error_code"] == 0
        (second,) = client.request(*create(name))["topics"]
        await_leaders(client, name, 1)
        assert first["topic_id"] != second["topic_id"]
        # Kafka's broker goes on with the old one until it has heard of both changes.
        eventually(lambda: list_offset(client, name, LATEST)["offset"] == 0, "the new one, which is empty")
        assert fetch(client, name, version=13, topic_id=first["topic_id"])["error_code"] == UNKNOWN_TOPIC_ID
        assert (
            produce(client, name, make_batch(), version=13, topic_id=first["topic_id"])["error_code"]
            == UNKNOWN_TOPIC_ID
        )
        assert produce(client, name, make_batch(), version=13, topic_id=second["topic_id"])["base_offset"] == 0


def test_a_deleted_topic_is_gone(broker: BrokerProcess, new_topic: Topics) -> None:
    name = new_topic()
    create_topic(broker, name)
    admin = make_admin(broker)
    admin.delete_topics([name])[name].result(TIMEOUT_S)
    deadline = time.monotonic() + 60
    while name in admin.list_topics(timeout=TIMEOUT_S).topics:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with RawClient(broker.address) as client:
        assert produce(client, name, make_batch())["error_code"] == UNKNOWN_TOPIC_OR_PARTITION


def test_describing(broker: BrokerProcess, new_topic: Topics) -> None:
    name = new_topic()
    create_topic(broker, name, partitions=3)
    admin = make_admin(broker)
    described = admin.describe_topics(TopicCollection([name]))[name].result(TIMEOUT_S)
    assert described.name == name
    assert not described.is_internal
    assert [
        (each.id, each.leader.id, [node.id for node in each.replicas], [node.id for node in each.isr])
        for each in described.partitions
    ] == [(index, 1, [1], [1]) for index in range(3)]
    with pytest.raises(KafkaException) as refused:
        admin.describe_topics(TopicCollection([f"{name}-unknown"]))[f"{name}-unknown"].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


METADATA = {
    "a known topic": lambda name, topic_id: {"topics": [{"name": name}]},
    "an unknown topic": lambda name, topic_id: {"topics": [{"name": f"{name}-unknown"}]},
    "an invalid name": lambda name, topic_id: {"topics": [{"name": "in valid"}]},
    "an empty name": lambda name, topic_id: {"topics": [{"name": ""}]},
    "several": lambda name, topic_id: {"topics": [{"name": f"{name}-unknown"}, {"name": name}]},
    "one twice": lambda name, topic_id: {"topics": [{"name": name}, {"name": name}]},
    "by id": lambda name, topic_id: {"topics": [{"name": None, "topic_id": topic_id}]},
    "by an unknown id": lambda name, topic_id: {"topics": [{"name": None, "topic_id": uuid.UUID(int=99)}]},
    "none": lambda name, topic_id: {"topics": []},
    "authorized operations": lambda name, topic_id: {
        "topics": [{"name": name}],
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    },
}


@pytest.mark.parametrize("case", METADATA)
def test_metadata(both_brokers: Brokers, new_topic: Topics, case: str) -> None:
    name = new_topic()
    ids = {}
    for kind, broker in both_brokers.items():
        with RawClient(broker.address) as client:
            (created,) = client.request(*create(name, num_partitions=2))["topics"]
            await_leaders(client, name, 2)
        ids[kind] = created["topic_id"]
    kinds = iter(both_brokers)

    def asks() -> list[Ask]:
        topic_id = ids[next(kinds)]
        wanted = {"allow_auto_topic_creation": False, **METADATA[case](name, topic_id)}
        return [Ask("metadata", version, wanted) for version in (12, 13)]

    assert_same(both_brokers, asks)


def test_asking_for_metadata_may_create_a_topic(broker: BrokerProcess, new_topic: Topics) -> None:
    """Kafka answers before the topic exists and oncelog after; either way the next question finds it."""
    name = new_topic()
    ask = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    with RawClient(broker.address) as client:
        deadline = time.monotonic() + 60
        while (answer := client.request("metadata", 12, ask)["topics"][0])["error_code"] != 0:
            assert answer["error_code"] in (UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE)
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert len(answer["partitions"]) == 1
