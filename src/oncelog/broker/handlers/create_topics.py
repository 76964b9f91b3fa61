"""CreateTopics (key 19), versions 2-7.

Versions: 4 lets the broker choose partitions and replication factor (-1); 5 is flexible and answers with the new
topic's partitions, replication factor and configs; 7 with its id. Answered once the topics are durable and served, so
the timeout has no use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.config import BrokerConfig
from oncelog.broker.config.describe import describe_topic_configs
from oncelog.broker.dispatch import response_schema
from oncelog.broker.handlers.settle import settle
from oncelog.broker.request import Answer, Piecewise, Request
from oncelog.controller.state import Outcome
from oncelog.controller.topics import Created, CreatedTopic, NewTopic, create_topics
from oncelog.errors import KafkaError
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message, encoded_elements
from oncelog.wire.encoder import EncodedElements

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.CREATE_TOPICS
FIRST_VERSION_WITH_CONFIGS = 5


def handle(broker: BrokerState, request: Request) -> Answer:
    topics = [_new_topic(topic) for topic in request.body["topics"]]

    def plan() -> Outcome[Created]:
        return create_topics(broker.controller.state, broker.cluster, broker.config_schema, topics, broker.new_id)

    def answer(created: Created) -> Answer:
        configs = _Configs(broker.config, request.version)
        return Piecewise({}, "topics", (_answer(configs, name, one) for name, one in created.items()))

    def refuse(error: KafkaError) -> Created:
        return dict.fromkeys((topic.name for topic in topics), error)

    return settle(broker, request, plan, answer, spoil=_spoil, refuse=refuse)


def _spoil(created: Created, error: KafkaError) -> Created:
    return {name: one if isinstance(one, KafkaError) else error for name, one in created.items()}


def _new_topic(topic: Message) -> NewTopic:
    return NewTopic(
        topic["name"],
        topic["num_partitions"],
        topic["replication_factor"],
        [(assignment["partition_index"], assignment["broker_ids"]) for assignment in topic["assignments"]],
        [(config["name"], config["value"]) for config in topic["configs"]],
    )


class _Configs:
    """The configs of new topics, encoded once for all that are configured alike."""

    def __init__(self, config: BrokerConfig, version: int) -> None:
        self._config = config
        self._version = version
        self._encoded: dict[tuple[tuple[str, str], ...], EncodedElements] = {}

    def of(self, created: CreatedTopic) -> EncodedElements | list[Message]:
        if self._version < FIRST_VERSION_WITH_CONFIGS:
            return []
        key = tuple(created.configs.items())
        encoded = self._encoded.get(key)
        if encoded is None:
            encoded = encoded_elements(response_schema(API_KEY), self._version, "topics", "configs")
            for entry in describe_topic_configs(self._config, created.configs):
                encoded.append(
                    {
                        "name": entry.name,
                        "value": entry.text,
                        "read_only": entry.read_only,
                        "config_source": entry.source,
                    }
                )
            self._encoded = {key: encoded}  # one is enough: who creates many mostly configures them alike
        return encoded


def _answer(configs: _Configs, name: str, created: CreatedTopic | KafkaError) -> Message:
    if isinstance(created, KafkaError):
        return {"name": name, "error_code": created.code, "error_message": created.message}
    return {
        "name": name,
        "error_message": None,
        "topic_id": created.topic_id,
        "num_partitions": created.partition_count,
        "replication_factor": created.replication_factor,
        "configs": configs.of(created),
    }
