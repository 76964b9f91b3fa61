"""Metadata (key 3), versions 0-13.

Versions: 0 asks for all topics with an empty list, later ones with null, and then an empty list asks for none; 1 adds
the controller, racks and internal topics; 2 the cluster id; 4 lets the client forbid auto creation, which older ones
always allow; 5 offline replicas; 7 leader epochs; 8 authorized operations (those of the cluster until 10); 9 is
flexible; 10 shows topic ids, 12 lets the client ask by them; 13 adds an error for the whole.

Differs from Kafka for the better: a topic that is created by this request is answered at once, not with an error that
the client must retry. Internal topics are not created here: they come with their coordinators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from oncelog.broker.handlers.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from oncelog.broker.request import Answer, Piecewise, Request
from oncelog.controller.state import Partition, Topic
from oncelog.controller.topic_names import check_topic_name, is_internal
from oncelog.errors import (
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.METADATA
FIRST_VERSION_WITH_NULL_FOR_ALL = 1
FIRST_VERSION_BY_ID = 12
NO_LEADER = -1

MAX_CREATED = 20
"""How many topics one request creates by mentioning them: each is a write to the metadata log and folders on the disk,
while everybody waits."""


PIECEWISE_FROM = 100
"""An answer about more topics and partitions than this is made while others are served."""


def handle(broker: BrokerState, request: Request) -> Answer:
    asked = _asked_topics(request)
    try:
        if asked is not None:
            _refuse_impossible(request.version, asked)
    except KafkaError as error:
        return {"topics": [_failed(topic["name"] or "", topic["topic_id"], error) for topic in asked or ()]}
    if asked is None:
        existing = list(broker.controller.state.topics.values())
        count = _count(existing)
        topics: Iterable[Message] = (_found(broker, topic) for topic in existing)
    else:
        state = broker.controller.state
        known = (state.topic(topic["name"]) or state.topic_by_id(topic["topic_id"]) for topic in asked)
        count = len(asked) if len(asked) > PIECEWISE_FROM else _count(topic for topic in known if topic is not None)
        topics = _describe_asked(broker, request, asked)
    if request.body["include_topic_authorized_operations"]:
        topics = ({**topic, "topic_authorized_operations": TOPIC_OPERATIONS} for topic in topics)
    operations = CLUSTER_OPERATIONS if request.body["include_cluster_authorized_operations"] else NOT_ASKED
    rest: Message = {
        "brokers": [describe_broker(broker)],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "cluster_authorized_operations": operations,
    }
    if count > PIECEWISE_FROM:
        return Piecewise(rest, "topics", iter(topics))
    return {**rest, "topics": list(topics)}


def _count(topics: Iterable[Topic]) -> int:
    return sum(1 + len(topic.partitions) for topic in topics)


def describe_broker(broker: BrokerState) -> Message:
    host, port = broker.endpoint
    return {"node_id": broker.node_id, "host": host, "port": port, "rack": broker.config.broker_rack}


def describe_partition(broker: BrokerState, topic: Topic, partition: Partition) -> Message:
    """A partition whose disk failed has no leader: clients then wait and ask again, as with Kafka."""
    offline = broker.is_offline(topic.name, partition.index)
    return {
        "error_code": LeaderNotAvailable.code if offline else 0,
        "partition_index": partition.index,
        "leader_id": NO_LEADER if offline else partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": list(partition.isr),
        "offline_replicas": [partition.leader] if offline else [],
    }


def _asked_topics(request: Request) -> list[Message] | None:
    """None means all of them."""
    topics: list[Message] | None = request.body["topics"]
    if request.version < FIRST_VERSION_WITH_NULL_FOR_ALL and not topics:
        return None
    return topics


def _refuse_impossible(version: int, topics: list[Message]) -> None:
    for topic in topics:
        if topic["topic_id"] != ZERO_UUID and version < FIRST_VERSION_BY_ID:
            raise InvalidRequest(f"topic ids can be asked for from version {FIRST_VERSION_BY_ID} on, not {version}")
        if topic["topic_id"] == ZERO_UUID and topic["name"] is None:
            raise UnknownServerError("a topic is asked for with neither name nor id")  # Kafka's code for it


def _describe_asked(broker: BrokerState, request: Request, asked: list[Message]) -> Iterable[Message]:
    topic_ids = dict.fromkeys(topic["topic_id"] for topic in asked if topic["topic_id"] != ZERO_UUID)
    if topic_ids:  # as Kafka: one id makes it a request by ids
        return (_describe_by_id(broker, topic_id) for topic_id in topic_ids)
    names = dict.fromkeys(topic["name"] for topic in asked)
    if not request.body["allow_auto_topic_creation"]:
        return (_describe_by_name(broker, name, None) for name in names)
    creating = _Creating(broker, request.now_ms)
    return (_describe_by_name(broker, name, creating) for name in names)


class _Creating:
    """Topics that are created because they are asked for: a few for each request."""

    def __init__(self, broker: BrokerState, now_ms: int) -> None:
        self._broker = broker
        self._now_ms = now_ms
        self._left = MAX_CREATED

    def topic(self, name: str) -> Topic | None:
        """Raises LeaderNotAvailable for one that is left to the next request, which clients then send, as they do
        while a topic that Kafka creates has no leader yet."""
        topic = self._broker.controller.state.topic(name)
        if topic is not None or not self._broker.creates_mentioned(name):
            return topic
        if self._left == 0:
            raise LeaderNotAvailable(f"topic {name} will be created; ask again")
        self._left -= 1
        return self._broker.ensure_topic(name, self._now_ms)


def _describe_by_id(broker: BrokerState, topic_id: Any) -> Message:
    topic = broker.controller.state.topic_by_id(topic_id)
    if topic is None:
        return _failed(None, topic_id, UnknownTopicId())
    return _found(broker, topic)


def _describe_by_name(broker: BrokerState, name: str, creating: _Creating | None) -> Message:
    try:
        check_topic_name(name)
        topic = broker.controller.state.topic(name) if creating is None else creating.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition
        return _found(broker, topic)
    except KafkaError as error:
        return _failed(name, ZERO_UUID, error)


def _found(broker: BrokerState, topic: Topic) -> Message:
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": is_internal(topic.name),
        "partitions": [describe_partition(broker, topic, partition) for partition in topic.partitions.values()],
    }


def _failed(name: str | None, topic_id: Any, error: KafkaError) -> Message:
    return {"error_code": error.code, "name": name, "topic_id": topic_id, "is_internal": is_internal(name or "")}
