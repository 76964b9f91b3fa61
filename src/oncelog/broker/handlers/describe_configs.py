"""DescribeConfigs (key 32), versions 1-4.

Versions: 1 adds the source of a value and its synonyms; 3 types and documentation; 4 is flexible. Describes topics,
this broker (by its id), what holds for all brokers (the empty name), and groups, existing or not. Topics show all of
Kafka's keys; groups those that are served here; brokers these, all that Kafka lets change while it runs, and what was
set at the start without a meaning here. Secrets are never shown. Left out: loggers and client metrics, which are
refused with INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.config.describe import (
    ConfigEntry,
    describe_all_brokers_configs,
    describe_broker_configs,
    describe_group_configs,
    describe_topic_configs,
)
from oncelog.broker.request import Answer, Piecewise, Request
from oncelog.controller.configs import ALL_BROKERS
from oncelog.controller.state import ConfigResource, ResourceType
from oncelog.controller.topic_names import check_topic_name
from oncelog.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DESCRIBE_CONFIGS


def handle(broker: BrokerState, request: Request) -> Answer:
    body: Message = request.body
    return Piecewise({}, "results", (_answer(broker, body, resource) for resource in body["resources"]))


def _answer(broker: BrokerState, body: Message, resource: Message) -> Message:
    answer = {"resource_type": resource["resource_type"], "resource_name": resource["resource_name"]}
    try:
        entries = _entries(broker, resource["resource_type"], resource["resource_name"])
    except KafkaError as error:
        return {**answer, "error_code": error.code, "error_message": error.message}
    wanted = frozenset(resource["configuration_keys"] or ())
    answer["configs"] = [_describe(body, entry) for entry in entries if not wanted or entry.name in wanted]
    return answer


def _entries(broker: BrokerState, resource_type: int, name: str) -> list[ConfigEntry]:
    if resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        if broker.controller.state.topic(name) is None:
            raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
        texts = broker.controller.state.configs(ConfigResource(ResourceType.TOPIC, name))
        return describe_topic_configs(broker.config, texts)
    if resource_type == ResourceType.BROKER:
        if name == ALL_BROKERS:
            return describe_all_brokers_configs(broker.config)
        _check_broker_id(broker.node_id, name)
        return describe_broker_configs(broker.config)
    if resource_type == ResourceType.GROUP:
        if not name:
            raise InvalidRequest("Group name must not be empty")
        texts = broker.controller.state.configs(ConfigResource(ResourceType.GROUP, name))
        return describe_group_configs(broker.config, texts)
    raise InvalidRequest(f"configs of resource type {resource_type} are not served here")


def _check_broker_id(node_id: int, name: str) -> None:
    try:
        asked = int(name)
    except ValueError:
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}") from None
    if asked != node_id:
        raise InvalidRequest(f"Unexpected broker id, expected {node_id} or empty string, but received {name}")


def _describe(body: Message, entry: ConfigEntry) -> Message:
    settings = entry.settings if body["include_synonyms"] else []
    is_sensitive = entry.key.is_sensitive
    return {
        "name": entry.name,
        "value": None if is_sensitive else entry.text,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": is_sensitive,
        "synonyms": [
            {"name": one.name, "value": None if is_sensitive else one.text, "source": one.source} for one in settings
        ],
        "config_type": entry.key.type,
        "documentation": entry.key.documentation if body["include_documentation"] else None,
    }
