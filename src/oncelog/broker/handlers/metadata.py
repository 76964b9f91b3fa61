"""Metadata (key 3), versions 0-13.

Versions: 0 asks for all topics with an empty list, later ones with null, and then an empty list asks for none; 1 adds
the controller, racks and internal topics; 2 the cluster id; 4 lets the client forbid auto creation, which older ones
always allow; 5 offline replicas; 7 leader epochs; 8 authorized operations (those of the cluster until 10); 9 is
flexible; 10 shows topic ids, 12 lets the client ask by them; 13 adds an error for the whole.

Differs from Kafka for the better: a topic that is created by this request is answered at once, not with an error that
the client must retry. Internal topics are not created here: they come with their coordinators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from oncelog.broker.handlers.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from oncelog.broker.handlers.partition_arrays import PartitionArray
from oncelog.broker.request import Answer, Piecewise, Request, promised
from oncelog.controller.state import Topic
from oncelog.controller.topic_names import check_topic_name, is_internal, is_topic_name
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
    from oncelog.broker.state import BrokerState, Refusals

API_KEY = ApiKey.METADATA
FIRST_VERSION_WITH_NULL_FOR_ALL = 1
FIRST_VERSION_BY_ID = 12

MAX_CREATED = 20
"""How many topics one request creates by mentioning them; of the others it hears LEADER_NOT_AVAILABLE, as while a topic
that Kafka creates has no leader yet, and asks again."""


PIECEWISE_FROM = 100
"""An answer about more topics and partitions than this is made while others are served."""


def handle(broker: BrokerState, request: Request) -> Answer:
    asked = _asked_topics(request)
    try:
        if asked is not None:
            _refuse_impossible(request.version, asked)
    except KafkaError as error:
        return {"topics": [_failed(topic["name"] or "", topic["topic_id"], error) for topic in asked or ()]}
    missing = _to_create(broker, asked) if asked and request.body["allow_auto_topic_creation"] else []
    if not missing:
        return _describe(broker, request, asked, {})
    later = dict.fromkeys(missing[MAX_CREATED:], LeaderNotAvailable("the topic will be created; ask again"))

    def begin(deliver: Callable[[Callable[[], Answer]], None]) -> None:
        def created(refused: Refusals) -> None:
            deliver(lambda: _describe(broker, request, asked, {**refused, **later}))

        broker.create_mentioned(missing[:MAX_CREATED], request.now_ms, created)

    return promised(request, begin)


def _to_create(broker: BrokerState, asked: list[Message]) -> list[str]:
    """Topics that come to be because they are asked for."""
    if any(topic["topic_id"] != ZERO_UUID for topic in asked):
        return []
    known = broker.controller.state.topics
    names = dict.fromkeys(topic["name"] for topic in asked)
    return [name for name in names if name not in known and broker.creates_mentioned(name) and is_topic_name(name)]


def _describe(broker: BrokerState, request: Request, asked: list[Message] | None, refused: Refusals) -> Answer:
    describing = _Describing(broker, request)
    if asked is None:
        existing = list(broker.controller.state.topics.values())
        topics: Iterable[Iterable[Message | None]] = (describing.found(topic) for topic in existing)
    else:
        state = broker.controller.state
        known = (state.topic(topic["name"]) or state.topic_by_id(topic["topic_id"]) for topic in asked)
        existing = [topic for topic in known if topic is not None]
        topics = describing.asked(asked, refused)
    operations = CLUSTER_OPERATIONS if request.body["include_cluster_authorized_operations"] else NOT_ASKED
    rest: Message = {
        "brokers": [describe_broker(broker)],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "cluster_authorized_operations": operations,
    }
    described = chain.from_iterable(topics)
    if max(len(existing), len(asked or ())) > PIECEWISE_FROM or _count(existing) > PIECEWISE_FROM:
        return Piecewise(rest, "topics", described)
    return {**rest, "topics": list(described)}


def _count(topics: Iterable[Topic]) -> int:
    return sum(1 + len(topic.partitions) for topic in topics)


def describe_broker(broker: BrokerState) -> Message:
    host, port = broker.endpoint
    return {"node_id": broker.node_id, "host": host, "port": port, "rack": broker.config.broker_rack}


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


class _Describing:
    """Each topic comes after as many None as it takes steps to describe it."""

    def __init__(self, broker: BrokerState, request: Request) -> None:
        self._broker = broker
        self._version = request.version
        asks_operations = request.body["include_topic_authorized_operations"]
        self._operations: Message = {"topic_authorized_operations": TOPIC_OPERATIONS} if asks_operations else {}

    def asked(self, asked: list[Message], refused: Refusals) -> Iterator[Iterable[Message | None]]:
        topic_ids = dict.fromkeys(topic["topic_id"] for topic in asked if topic["topic_id"] != ZERO_UUID)
        if topic_ids:  # as Kafka: one id makes it a request by ids
            return map(self._by_id, topic_ids)
        return (self._by_name(name, refused.get(name)) for name in dict.fromkeys(topic["name"] for topic in asked))

    def _by_id(self, topic_id: Any) -> Iterable[Message | None]:
        topic = self._broker.controller.state.topic_by_id(topic_id)
        return [self._failed(None, topic_id, UnknownTopicId())] if topic is None else self.found(topic)

    def _by_name(self, name: str, refused: KafkaError | None) -> Iterable[Message | None]:
        try:
            check_topic_name(name)
            topic = self._broker.controller.state.topic(name)
            if topic is None:
                raise refused or UnknownTopicOrPartition
            return self.found(topic)
        except KafkaError as error:
            return [self._failed(name, ZERO_UUID, error)]

    def found(self, topic: Topic) -> Iterator[Message | None]:
        partitions = PartitionArray(self._broker, API_KEY, self._version)
        yield from partitions.steps(topic, list(topic.partitions.values()))
        yield {
            "name": topic.name,
            "topic_id": topic.id,
            "is_internal": is_internal(topic.name),
            "partitions": partitions.encoded,
            **self._operations,
        }

    def _failed(self, name: str | None, topic_id: Any, error: KafkaError) -> Message:
        return {**_failed(name, topic_id, error), **self._operations}


def _failed(name: str | None, topic_id: Any, error: KafkaError) -> Message:
    return {"error_code": error.code, "name": name, "topic_id": topic_id, "is_internal": is_internal(name or "")}
