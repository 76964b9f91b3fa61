"""DescribeTopicPartitions (key 75), version 0: topics in pages.

Topics come in the order of their names, partitions in theirs; a page ends after `response_partition_limit` partitions,
at most `max.request.partition.size.limit`, and its cursor says where the next begins. An empty list of topics means
all. Eligible leader replicas come with replication.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from oncelog.broker.handlers.authorized_operations import TOPIC_OPERATIONS
from oncelog.broker.handlers.partition_arrays import PartitionArray
from oncelog.broker.request import Answer, Piecewise, Request
from oncelog.controller.topic_names import check_topic_name, is_internal
from oncelog.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSION = 0


def handle(broker: BrokerState, request: Request) -> Answer:
    body = request.body
    cursor: Message | None = body["cursor"]
    all_topics = not body["topics"]
    names = sorted(broker.controller.state.topics if all_topics else {topic["name"] for topic in body["topics"]})
    try:
        limit = _page_size(broker, body["response_partition_limit"])
        first_partition = _check_cursor(cursor, names, all_topics)
    except InvalidRequest as error:
        return {"topics": [{"name": name, "error_code": error.code} for name in names]}
    if cursor is not None:
        names = [name for name in names if name >= cursor["topic_name"]]
    return _page(broker, names, cursor, first_partition, limit)


def _page_size(broker: BrokerState, asked: int) -> int:
    return max(1, min(asked, broker.config.max_request_partition_size_limit))


def _check_cursor(cursor: Message | None, names: list[str], all_topics: bool) -> int:
    if cursor is None:
        return 0
    if cursor["partition_index"] < 0:
        raise InvalidRequest(f"the cursor's partition is {cursor['partition_index']}; it cannot be negative")
    if not all_topics and cursor["topic_name"] not in names:
        raise InvalidRequest(f"the cursor's topic {cursor['topic_name']} is not among those asked for")
    return int(cursor["partition_index"])


def _page(broker: BrokerState, names: list[str], cursor: Message | None, first_partition: int, limit: int) -> Piecewise:
    """Which partitions are on it is known before any is described."""
    wanted: list[tuple[str, range]] = []
    next_cursor, left = None, limit
    for name in names:
        if left == 0:
            next_cursor = {"topic_name": name, "partition_index": 0}
            break
        topic = broker.controller.state.topic(name)
        count = 0 if topic is None else len(topic.partitions)
        start = first_partition if cursor is not None and name == cursor["topic_name"] else 0
        partitions = range(start, min(start + left, count))
        wanted.append((name, partitions))
        left -= len(partitions)
        if partitions.stop < count:
            next_cursor = {"topic_name": name, "partition_index": partitions.stop}
            break
    return Piecewise(
        {"next_cursor": next_cursor}, "topics", chain.from_iterable(_describe(broker, *each) for each in wanted)
    )


def _describe(broker: BrokerState, name: str, indexes: range) -> Iterator[Message | None]:
    """The topic, after as many None as it takes steps to describe it."""
    described: Message = {
        "name": name,
        "is_internal": is_internal(name),
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }
    try:
        check_topic_name(name)
        topic = broker.controller.state.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition
    except KafkaError as error:
        yield {**described, "error_code": error.code}
        return
    partitions = PartitionArray(broker, API_KEY, VERSION, {"eligible_leader_replicas": [], "last_known_elr": []})
    known = topic.partitions  # perhaps of another topic by now
    yield from partitions.steps(topic, [known[index] for index in indexes if index in known])
    yield {**described, "topic_id": topic.id, "partitions": partitions.encoded}
