"""IncrementalAlterConfigs (key 44), versions 0-1, which differ only in form (1 is flexible).

Sets, deletes, appends to or subtracts from single keys of topics, of groups (existing or not), of this broker, and of
all brokers (the empty name). A broker takes the keys that Kafka lets change while it runs, and keeps those without an
effect here; keys that nobody knows are refused, where Kafka stores them. Left out: loggers and client metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oncelog.broker.handlers.settle import settle
from oncelog.broker.request import Answer, Request
from oncelog.controller.configs import Answers, ConfigChange, ResourceChange, incremental_alter_configs
from oncelog.controller.state import Outcome
from oncelog.errors import KafkaError
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS


def handle(broker: BrokerState, request: Request) -> Answer:
    changes = [_change(resource) for resource in request.body["resources"]]

    def plan() -> Outcome[Answers]:
        return incremental_alter_configs(broker.controller.state, broker.node_id, broker.config_schema, changes)

    return settle_configs(broker, request, changes, plan)


def settle_configs(
    broker: BrokerState, request: Request, changes: Sequence[ResourceChange], plan: Callable[[], Outcome[Answers]]
) -> Answer:
    def answer(answers: Answers) -> Answer:
        return {"responses": [_answer_resource(change, error) for change, error in zip(changes, answers, strict=True)]}

    def refuse(error: KafkaError) -> Answers:
        return [error] * len(changes)

    return settle(broker, request, plan, answer, spoil=_spoil, refuse=refuse)


def _spoil(answers: Answers, error: KafkaError) -> Answers:
    return [refused or error for refused in answers]


def _answer_resource(change: ResourceChange, error: KafkaError | None) -> Message:
    return {
        "error_code": error.code if error else 0,
        "error_message": error.message if error else None,
        "resource_type": change.resource_type,
        "resource_name": change.resource_name,
    }


def _change(resource: Message) -> ResourceChange:
    return ResourceChange(
        resource["resource_type"],
        resource["resource_name"],
        [ConfigChange(config["name"], config["config_operation"], config["value"]) for config in resource["configs"]],
    )
