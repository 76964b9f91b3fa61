"""What a client knows about a cluster: brokers, topics, and who leads which partition. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from oncelog.wire.codec import Message

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Node:
    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error_code: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]
    """In the order of their numbers."""
    error_code: int
    is_usable: bool = field(init=False)
    """Whether it names every partition from 0 on: an answer that leaves some out tells a wrong number of them."""

    def __post_init__(self) -> None:
        # Once: it is asked for each partition.
        is_whole = all(place == one.index for place, one in enumerate(self.partitions))
        object.__setattr__(self, "is_usable", not self.error_code and bool(self.partitions) and is_whole)

    def partition(self, index: int) -> PartitionMetadata | None:
        return next((partition for partition in self.partitions if partition.index == index), None)


def no_such_partition(topic: TopicMetadata, index: int) -> str:
    """For people: how many there are."""
    count = len(topic.partitions)
    there = "1 partition (0)" if count == 1 else f"{count:,} partitions (0 to {count - 1})"
    return f"topic {topic.name!r} has {there}, and no partition {index}"


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    cluster_id: str | None
    controller_id: int
    nodes: Mapping[int, Node]
    topics: Mapping[str, TopicMetadata]

    @classmethod
    def from_message(cls, message: Message) -> ClusterMetadata:
        nodes = [Node(one["node_id"], one["host"], one["port"], one["rack"]) for one in message["brokers"]]
        nodes = [node for node in nodes if node.node_id >= 0]  # below are the numbers that stand for nobody
        topics = [_topic(one) for one in message["topics"]]
        return cls(
            cluster_id=message["cluster_id"],
            controller_id=message["controller_id"],
            nodes={node.node_id: node for node in nodes},
            topics={topic.name: topic for topic in topics if topic.name},
        )

    def objection_to(self, topic: str, index: int) -> str | None:
        """Why there is no such partition, where the topic is known and has fewer of them."""
        known = self.topics.get(topic)
        if known is None or not known.is_usable or 0 <= index < len(known.partitions):
            return None
        return no_such_partition(known, index)

    def keeping_topics_of(self, older: ClusterMetadata | None) -> ClusterMetadata:
        """This metadata of a few topics, with what was known about the others."""
        return self if older is None else replace(self, topics={**older.topics, **self.topics})


def _topic(message: Message) -> TopicMetadata:
    partitions = [
        PartitionMetadata(
            index=one["partition_index"],
            leader=one["leader_id"],
            leader_epoch=one["leader_epoch"],
            replicas=tuple(one["replica_nodes"]),
            isr=tuple(one["isr_nodes"]),
            offline_replicas=tuple(one["offline_replicas"]),
            error_code=one["error_code"],
        )
        for one in message["partitions"]
    ]
    return TopicMetadata(
        name=message["name"] or "",
        topic_id=message["topic_id"],
        is_internal=message["is_internal"],
        partitions=tuple(sorted(partitions, key=lambda partition: partition.index)),
        error_code=message["error_code"],
    )
