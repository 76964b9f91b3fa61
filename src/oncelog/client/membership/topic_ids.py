"""Topics in requests that call them by id in their newer versions, and by name in the older ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from oncelog.client.metadata import ClusterMetadata
from oncelog.types import TopicPartition
from oncelog.wire.codec import Message

NO_ID = UUID(int=0)


def topic_id(cluster: ClusterMetadata | None, name: str) -> UUID:
    topic = cluster.topics.get(name) if cluster is not None else None
    return topic.topic_id if topic is not None else NO_ID


def partitions_by_topic(
    partitions: Iterable[TopicPartition],
    cluster: ClusterMetadata | None,
    entry: Callable[[TopicPartition], Any],
    field: str = "partitions",
) -> list[Message]:
    """Each topic under both of its names; the version decides which is sent."""
    topics: dict[str, list[Any]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(entry(partition))
    return [{"name": name, "topic_id": topic_id(cluster, name), field: some} for name, some in topics.items()]


def last_version(topics: Iterable[Message], first_by_id: int, *, by_name: bool) -> int | None:
    """The newest version in which the topics can be called, None for any."""
    if by_name or any(topic["topic_id"] == NO_ID for topic in topics):
        return first_by_id - 1
    return None


def names_by_id(topics: Iterable[Message]) -> dict[UUID, str]:
    """Of a request, for its answer: the cluster may know these ids no more when that comes."""
    return {topic["topic_id"]: topic["name"] for topic in topics}


def topic_name(topic: Message, names: Mapping[UUID, str]) -> str:
    """The name of a topic in an answer."""
    return str(topic["name"] or names.get(topic["topic_id"], ""))
