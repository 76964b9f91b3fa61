"""CreatePartitions (key 37), versions 0-3.

Versions differ only in form (2 is flexible) and in quotas on changes, which are not served here. Answered once the
partitions are durable and served, so the timeout has no use. More partitions than one request may create are refused
with POLICY_VIOLATION, as CreateTopics does; Kafka creates some of them and answers UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.settle import settle
from oncelog.broker.request import Answer, Request
from oncelog.controller.state import Outcome
from oncelog.controller.topics import MorePartitions, create_partitions
from oncelog.errors import KafkaError
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.CREATE_PARTITIONS

Answers = dict[str, KafkaError | None]


def handle(broker: BrokerState, request: Request) -> Answer:
    topics = [_more_partitions(topic) for topic in request.body["topics"]]

    def plan() -> Outcome[Answers]:
        return create_partitions(broker.controller.state, broker.cluster, topics)

    def answer(answers: Answers) -> Answer:
        return {"results": [_answer(name, error) for name, error in answers.items()]}

    def refuse(error: KafkaError) -> Answers:
        return dict.fromkeys((topic.name for topic in topics), error)

    return settle(broker, request, plan, answer, spoil=_spoil, refuse=refuse)


def _spoil(answers: Answers, error: KafkaError) -> Answers:
    return {name: refused or error for name, refused in answers.items()}


def _more_partitions(topic: Message) -> MorePartitions:
    assignments = topic["assignments"]
    if assignments is not None:
        assignments = [assignment["broker_ids"] for assignment in assignments]
    return MorePartitions(topic["name"], topic["count"], assignments)


def _answer(name: str, error: KafkaError | None) -> Message:
    if error is None:
        return {"name": name}
    return {"name": name, "error_code": error.code, "error_message": error.message}
