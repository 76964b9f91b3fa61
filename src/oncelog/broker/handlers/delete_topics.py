"""DeleteTopics (key 20), versions 1-6.

Versions: 4 is flexible; 5 adds error messages; 6 names topics by id as well. `delete.topic.enable=false` is answered
with TOPIC_DELETION_DISABLED, and before version 3, which cannot say it, with INVALID_REQUEST. Answered once the
deletion is durable; the files go later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.settle import settle
from oncelog.broker.request import Answer, Request
from oncelog.controller.state import Outcome
from oncelog.controller.topics import DeletedTopic, TopicToDelete, delete_topics
from oncelog.errors import InvalidRequest, KafkaError, TopicDeletionDisabled
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message
from oncelog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DELETE_TOPICS
FIRST_VERSION_BY_ID = 6
FIRST_VERSION_THAT_CAN_SAY_DISABLED = 3


def handle(broker: BrokerState, request: Request) -> Answer:
    topics = _asked_topics(request)
    if not broker.config.delete_topic_enable:
        return {"responses": [_answer(DeletedTopic(*topic, _disabled(request.version))) for topic in topics]}

    def plan() -> Outcome[list[DeletedTopic]]:
        return delete_topics(broker.controller.state, topics)

    def answer(deleted: list[DeletedTopic]) -> Answer:
        return {"responses": [_answer(topic) for topic in deleted]}

    def refuse(error: KafkaError) -> list[DeletedTopic]:
        return [DeletedTopic(*topic, error) for topic in topics]

    return settle(broker, request, plan, answer, spoil=_spoil, refuse=refuse)


def _spoil(deleted: list[DeletedTopic], error: KafkaError) -> list[DeletedTopic]:
    return [topic._replace(error=topic.error or error) for topic in deleted]


def _asked_topics(request: Request) -> list[TopicToDelete]:
    if request.version < FIRST_VERSION_BY_ID:
        return [TopicToDelete(name, None) for name in request.body["topic_names"]]
    return [
        TopicToDelete(topic["name"], None if topic["topic_id"] == ZERO_UUID else topic["topic_id"])
        for topic in request.body["topics"]
    ]


def _disabled(version: int) -> KafkaError:
    if version < FIRST_VERSION_THAT_CAN_SAY_DISABLED:
        return InvalidRequest("Topic deletion is disabled.")
    return TopicDeletionDisabled("Topic deletion is disabled.")


def _answer(topic: DeletedTopic) -> Message:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id or ZERO_UUID,
        "error_code": topic.error.code if topic.error else 0,
        "error_message": topic.error.message if topic.error else None,
    }
