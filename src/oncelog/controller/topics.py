"""Plans for topics: create, delete, add partitions. Who may be created, and what Kafka says where not.

Every function looks at the state and returns records with the answer per topic; none changes anything. One node: every
replica lives on it, so a replication factor above 1 cannot be met.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from oncelog.controller.config_schema import ConfigSchema
from oncelog.controller.records import AnyRecord, MetadataRecord, NewPartitions, RecordType
from oncelog.controller.state import (
    FIRST_LEADER_EPOCH,
    FIRST_PARTITION_EPOCH,
    ConfigResource,
    ControllerState,
    Outcome,
    ResourceType,
    Topic,
)
from oncelog.controller.topic_names import METADATA_TOPIC, check_topic_name
from oncelog.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from oncelog.named_tuple import NamedTuple

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Kafka's bound as well: what one request creates must fit one batch of the metadata log."""

BROKER_DECIDES = -1
ONLY_REPLICA = 1

Assignment = tuple[int, Sequence[int]]


class Cluster(NamedTuple):
    """The one node that there is, and what it creates where a request leaves the choice to it."""

    node_id: int
    directory_id: UUID
    default_partitions: int
    default_replication_factor: int


class NewTopic(NamedTuple):
    name: str
    partition_count: int = BROKER_DECIDES
    replication_factor: int = BROKER_DECIDES
    assignments: Sequence[Assignment] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class CreatedTopic(NamedTuple):
    topic_id: UUID
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


Created = dict[str, CreatedTopic | KafkaError]


def create_topics(
    state: ControllerState,
    cluster: Cluster,
    schema: ConfigSchema,
    topics: Sequence[NewTopic],
    new_id: Callable[[], UUID],
) -> Outcome[Created]:
    times_named = Counter(topic.name for topic in topics)
    created: Created = {}
    records: list[AnyRecord] = []
    too_many = _asked_for(cluster, topics) > MAX_PARTITIONS_PER_REQUEST
    for topic in topics:
        try:
            if times_named[topic.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            if too_many:
                raise PolicyViolation("Excessively large number of partitions per request.")
            one = _create_topic(state, cluster, schema, topic, new_id)
            created[topic.name] = one.response
            records += one.records
        except KafkaError as error:
            created[topic.name] = error
    return Outcome(records, created)


def _asked_for(cluster: Cluster, topics: Sequence[NewTopic]) -> int:
    counts = (len(topic.assignments) or topic.partition_count for topic in topics)
    return sum(cluster.default_partitions if count == BROKER_DECIDES else max(0, count) for count in counts)


def _create_topic(
    state: ControllerState, cluster: Cluster, schema: ConfigSchema, topic: NewTopic, new_id: Callable[[], UUID]
) -> Outcome[CreatedTopic]:
    _check_new_name(state, topic.name)
    configs = _check_new_configs(schema, topic)
    partition_count = _placed_partitions(cluster, topic)
    topic_id = new_id()
    records: list[AnyRecord] = [MetadataRecord(RecordType.TOPIC, {"name": topic.name, "topic_id": topic_id})]
    records.append(_new_partitions(cluster, topic_id, range(partition_count)))
    records += [
        MetadataRecord(
            RecordType.CONFIG,
            {"resource_type": ResourceType.TOPIC, "resource_name": topic.name, "name": name, "value": value},
        )
        for name, value in configs.items()
    ]
    return Outcome(records, CreatedTopic(topic_id, partition_count, ONLY_REPLICA, configs))


def _check_new_name(state: ControllerState, name: str) -> None:
    if name == METADATA_TOPIC:
        raise InvalidRequest(f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    if state.topic(name) is not None:
        raise TopicAlreadyExists(f"Topic '{name}' already exists.")
    check_topic_name(name)
    other = state.colliding_topic(name)
    if other is not None:
        raise InvalidTopicException(f"Topic '{name}' collides with existing topic: {other}")


def _check_new_configs(schema: ConfigSchema, topic: NewTopic) -> dict[str, str]:
    missing = [name for name, value in topic.configs if value is None]
    if missing:
        raise InvalidConfig(f"Null value not supported for topic configs: {', '.join(missing)}")
    configs = {name: value for name, value in topic.configs if value is not None}
    if configs:
        schema.validate(ConfigResource(ResourceType.TOPIC, topic.name), configs, frozenset(configs))
    return configs


def _placed_partitions(cluster: Cluster, topic: NewTopic) -> int:
    """How many partitions the new topic gets, if all of them can have the replicas that are asked for."""
    if topic.assignments:
        return _assigned_partitions(cluster, topic)
    if topic.replication_factor < BROKER_DECIDES or topic.replication_factor == 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
    if topic.partition_count < BROKER_DECIDES or topic.partition_count == 0:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    replicas = topic.replication_factor
    if replicas == BROKER_DECIDES:
        replicas = cluster.default_replication_factor
    if replicas > ONLY_REPLICA:
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} "
            "cannot be reached because only 1 broker(s) are registered."
        )
    return cluster.default_partitions if topic.partition_count == BROKER_DECIDES else topic.partition_count


def _assigned_partitions(cluster: Cluster, topic: NewTopic) -> int:
    if topic.replication_factor != BROKER_DECIDES:
        raise InvalidRequest("A manual partition assignment was specified, but replication factor was not set to -1.")
    if topic.partition_count != BROKER_DECIDES:
        raise InvalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
    assigned = set()
    for index, brokers in topic.assignments:
        if index in assigned:
            raise InvalidReplicaAssignment(f"Found multiple manual partition assignments for partition {index}")
        _check_replicas(cluster, brokers)
        assigned.add(index)
    if assigned != set(range(len(assigned))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    return len(assigned)


def _check_replicas(cluster: Cluster, brokers: Sequence[int]) -> None:
    if not brokers:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    ordered = sorted(brokers)
    for broker, following in zip(ordered, [*ordered[1:], None], strict=True):
        if broker != cluster.node_id:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if broker == following:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {broker} more than once."
            )


def _new_partitions(cluster: Cluster, topic_id: UUID, indexes: range) -> NewPartitions:
    replicas = (cluster.node_id,)
    return NewPartitions(
        topic_id,
        indexes,
        leader=cluster.node_id,
        leader_epoch=FIRST_LEADER_EPOCH,
        partition_epoch=FIRST_PARTITION_EPOCH,
        replicas=replicas,
        isr=replicas,
        directories=(cluster.directory_id,),
    )


class TopicToDelete(NamedTuple):
    """By name or by id: exactly one of them."""

    name: str | None
    topic_id: UUID | None


class DeletedTopic(NamedTuple):
    name: str | None
    topic_id: UUID | None
    error: KafkaError | None


def delete_topics(state: ControllerState, topics: Sequence[TopicToDelete]) -> Outcome[list[DeletedTopic]]:
    deleted: list[DeletedTopic] = []
    records: list[MetadataRecord] = []
    named_twice = _asked_by_name_and_by_id(state, topics)
    for asked, times in Counter(topics).items():
        if asked.name is None and asked.topic_id in named_twice:
            continue  # the name answers for both
        try:
            topic = _topic_to_delete(state, asked, times)
        except KafkaError as error:
            deleted.append(DeletedTopic(asked.name, asked.topic_id, error))
            continue
        if topic.id in named_twice:
            contradiction = InvalidRequest("The provided topic name maps to an ID that was already supplied.")
            deleted.append(DeletedTopic(topic.name, topic.id, contradiction))
            continue
        records.append(MetadataRecord(RecordType.REMOVE_TOPIC, {"topic_id": topic.id}))
        deleted.append(DeletedTopic(topic.name, topic.id, None))
    return Outcome(records, deleted)


def _asked_by_name_and_by_id(state: ControllerState, topics: Sequence[TopicToDelete]) -> set[UUID]:
    by_id = {asked.topic_id for asked in topics if asked.name is None}
    named = (state.topic(asked.name) for asked in topics if asked.name is not None)
    return {topic.id for topic in named if topic is not None and topic.id in by_id}


def _topic_to_delete(state: ControllerState, asked: TopicToDelete, times_asked: int) -> Topic:
    if asked.name is not None and asked.topic_id is not None:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    if asked.name is None and asked.topic_id is None:
        raise InvalidRequest("Neither topic name nor id were specified.")
    if times_asked > 1:
        raise InvalidRequest("Duplicate topic name." if asked.topic_id is None else "Duplicate topic id.")
    if asked.topic_id is not None:
        topic = state.topic_by_id(asked.topic_id)
        if topic is None:
            raise UnknownTopicId("This server does not host this topic ID.")
        return topic
    topic = state.topic(asked.name or "")
    if topic is None:
        raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    return topic


class MorePartitions(NamedTuple):
    name: str
    total: int
    """What the topic shall have altogether."""
    assignments: Sequence[Sequence[int]] | None = None


def create_partitions(
    state: ControllerState, cluster: Cluster, topics: Sequence[MorePartitions]
) -> Outcome[dict[str, KafkaError | None]]:
    times_named = Counter(topic.name for topic in topics)
    answers: dict[str, KafkaError | None] = {}
    records: list[NewPartitions] = []
    left = MAX_PARTITIONS_PER_REQUEST
    for asked in topics:
        try:
            if times_named[asked.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            more = _more_partitions(state, cluster, asked, left)
            records.append(more)
            left -= len(more.indexes)
            answers[asked.name] = None
        except KafkaError as error:
            answers[asked.name] = error
    return Outcome(records, answers)


def _more_partitions(state: ControllerState, cluster: Cluster, asked: MorePartitions, most: int) -> NewPartitions:
    topic = state.topic(asked.name)
    if topic is None:
        raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    present = len(topic.partitions)
    if asked.total == present:
        raise InvalidPartitions(f"Topic already has {present} partition(s).")
    if asked.total < present:
        raise InvalidPartitions(
            f"The topic {asked.name} currently has {present} partition(s); {asked.total} would not be an increase."
        )
    additional = asked.total - present
    if additional > most:
        raise PolicyViolation("Excessively large number of partitions per request.")
    if asked.assignments is not None:
        if len(asked.assignments) != additional:
            raise InvalidReplicaAssignment(
                f"Attempted to add {additional} additional partition(s), but only {len(asked.assignments)} "
                "assignment(s) were specified."
            )
        for brokers in asked.assignments:
            _check_replicas(cluster, brokers)
    return _new_partitions(cluster, topic.id, range(present, asked.total))
