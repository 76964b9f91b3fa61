"""`Admin` against a running broker: oncelog by default, Apache Kafka with `--brokers=oncelog,kafka`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from oncelog.admin import ALL_RECORDS, Admin, ConfigSource, OffsetSpec, ResourceType
from oncelog.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopicException,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from oncelog.producer.producer import Producer
from oncelog.types import TopicPartition
from tests.support.patience import eventually
from tests.support.process import BrokerProcess


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as admin:
        yield admin


def write(broker: BrokerProcess, topic: str, count: int, first_timestamp_ms: int = 1000) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=first_timestamp_ms + number)


def test_the_cluster(admin: Admin, broker: BrokerProcess) -> None:
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert [(node.host, node.port) for node in cluster.nodes] == [broker.address]
    assert cluster.controller_id == cluster.nodes[0].node_id


def test_a_topic_from_creation_to_deletion(admin: Admin, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    created = admin.create_topic(name, partitions=2, replication_factor=1, configs={"retention.ms": "60000"})
    assert (created.name, created.partitions, created.replication_factor) == (name, 2, 1)
    assert created.configs["retention.ms"].value == "60000"
    described = admin.describe_topic(name)
    assert described.topic_id == created.topic_id
    assert [partition.index for partition in described.partitions] == [0, 1]
    assert described.replication_factor == 1
    assert name in [topic.name for topic in admin.list_topics()]
    admin.delete_topic(name)
    assert name not in [topic.name for topic in admin.list_topics()]
    with pytest.raises(UnknownTopicOrPartition, match=name):
        admin.describe_topic(name)


def test_creation_can_be_tried_without_creating(admin: Admin, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    assert admin.create_topic(name, partitions=3, validate_only=True).partitions == 3
    assert name not in [topic.name for topic in admin.list_topics()]


def test_what_cannot_be_created(admin: Admin, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    admin.create_topic(name)
    with pytest.raises(TopicAlreadyExists, match=name):
        admin.create_topic(name)
    with pytest.raises(InvalidTopicException):
        admin.create_topic("not a name")
    with pytest.raises(InvalidConfig, match="retention"):
        admin.create_topic(new_topic(), configs={"retention.ms": "soon"})
    with pytest.raises(InvalidConfig):
        admin.create_topic(new_topic(), configs={"no.such.key": "1"})
    with pytest.raises(InvalidPartitions):
        admin.create_topic(new_topic(), partitions=0)
    with pytest.raises(InvalidReplicationFactor):
        admin.create_topic(new_topic(), replication_factor=5)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("retention.sm", "; did you mean retention.ms?"),
        ("log.retention.ms", "; did you mean retention.ms?"),  # as a broker is told it
        ("no.such.key", ""),
    ],
)
def test_a_mistyped_config_is_told_with_the_one_that_was_meant(
    admin: Admin, new_topic: Callable[[], str], key: str, meant: str
) -> None:
    name = new_topic()
    admin.create_topic(name)
    for call in (
        lambda: admin.create_topic(new_topic(), configs={"retention.ms": 1000, key: 1}),
        lambda: admin.alter_configs("topic", name, assign={key: 1}),
    ):
        with pytest.raises(InvalidConfig) as caught:
            call()
        assert caught.value.message.endswith(f"Unknown topic config name: {key}{meant}")


def test_partitions_can_be_added_and_not_taken_away(admin: Admin, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    admin.create_topic(name, partitions=1)
    admin.create_partitions(name, 3)
    assert len(admin.describe_topic(name).partitions) == 3
    with pytest.raises(InvalidPartitions, match="3"):
        admin.create_partitions(name, 2)
    with pytest.raises(UnknownTopicOrPartition):
        admin.create_partitions(new_topic(), 2)


def _await_segment_bytes(admin: Admin, topic: str, value: str | None) -> None:
    """Apache Kafka's brokers hear of changes a moment after the controller has made them."""
    eventually(lambda: admin.describe_configs(ResourceType.TOPIC, topic)["segment.bytes"].value == value, "the change")


def test_topic_configs(admin: Admin, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    admin.create_topic(name)
    before = admin.describe_configs(ResourceType.TOPIC, name)
    assert before["segment.bytes"].is_default
    admin.alter_configs(
        ResourceType.TOPIC, name, assign={"segment.bytes": "2097152"}, append={"cleanup.policy": "compact"}
    )
    _await_segment_bytes(admin, name, "2097152")
    changed = admin.describe_configs(ResourceType.TOPIC, name)
    assert changed["segment.bytes"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert changed["cleanup.policy"].value == "delete,compact"
    admin.alter_configs(ResourceType.TOPIC, name, remove=["segment.bytes"], subtract={"cleanup.policy": "delete"})
    _await_segment_bytes(admin, name, before["segment.bytes"].value)
    last = admin.describe_configs(ResourceType.TOPIC, name)
    assert last["segment.bytes"] == before["segment.bytes"]
    assert last["cleanup.policy"].value == "compact"
    with pytest.raises(InvalidConfig):
        admin.alter_configs(ResourceType.TOPIC, name, assign={"segment.bytes": "many"})
    with pytest.raises(UnknownTopicOrPartition):
        admin.describe_configs(ResourceType.TOPIC, new_topic())


def test_broker_configs(admin: Admin) -> None:
    (node,) = admin.describe_cluster().nodes
    configs = admin.describe_configs(ResourceType.BROKER, str(node.node_id), include_documentation=True)
    assert configs["num.partitions"].value == "1"
    assert configs["num.partitions"].documentation


def test_offsets(admin: Admin, broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    partition = TopicPartition(new_topic(), 0)
    admin.create_topic(partition.topic)
    write(broker, partition.topic, 10, first_timestamp_ms=1000)

    def offset(spec: int) -> int:
        return admin.list_offsets({partition: spec})[partition].offset

    assert offset(OffsetSpec.EARLIEST) == 0
    assert offset(OffsetSpec.LATEST) == 10
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 9
    assert offset(1004) == 4
    assert offset(5000) == -1
    with pytest.raises(UnknownTopicOrPartition, match="no partition 7"):
        admin.list_offsets({TopicPartition(partition.topic, 7): OffsetSpec.LATEST})


def test_records_can_be_deleted(admin: Admin, broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    partition = TopicPartition(new_topic(), 0)
    admin.create_topic(partition.topic)
    write(broker, partition.topic, 10)
    assert admin.delete_records({partition: 4}) == {partition: 4}
    assert admin.list_offsets({partition: OffsetSpec.EARLIEST})[partition].offset == 4
    with pytest.raises(OffsetOutOfRange):
        admin.delete_records({partition: 99})
    assert admin.delete_records({partition: ALL_RECORDS}) == {partition: 10}


def test_producers(admin: Admin, broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    partition = TopicPartition(new_topic(), 0)
    admin.create_topic(partition.topic)
    assert admin.describe_producers([partition]) == {partition: ()}
    write(broker, partition.topic, 3)
    ((state,),) = admin.describe_producers([partition]).values()
    assert state.producer_id >= 0
    assert (state.producer_epoch, state.last_sequence) == (0, 2)
    assert state.last_timestamp_ms == 1002
    assert state.current_transaction_start_offset is None
