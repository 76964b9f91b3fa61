"""AlterConfigs (key 33), versions 0-2, which differ only in form (2 is flexible).

The older way to change configs: what is not named goes back to its default. The same resources and rules as in
IncrementalAlterConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.incremental_alter_configs import answer_resource, spoil
from oncelog.broker.handlers.settle import settle
from oncelog.broker.request import Request
from oncelog.controller.configs import ConfigChange, Operation, ResourceChange, alter_configs
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.ALTER_CONFIGS


def handle(broker: BrokerState, request: Request) -> Message:
    changes = [_change(resource) for resource in request.body["resources"]]
    outcome = alter_configs(broker.controller.state, broker.node_id, broker.config_schema, changes)
    answers = settle(broker, request, outcome, spoil)
    return {"responses": [answer_resource(change, error) for change, error in zip(changes, answers, strict=True)]}


def _change(resource: Message) -> ResourceChange:
    return ResourceChange(
        resource["resource_type"],
        resource["resource_name"],
        [ConfigChange(config["name"], Operation.SET, config["value"]) for config in resource["configs"]],
    )
