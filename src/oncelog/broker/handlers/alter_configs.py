"""AlterConfigs (key 33), versions 0-2, which differ only in form (2 is flexible).

The older way to change configs: what is not named goes back to its default. The same resources and rules as in
IncrementalAlterConfigs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.incremental_alter_configs import settle_configs
from oncelog.broker.request import Answer, Request
from oncelog.controller.configs import Answers, ConfigChange, Operation, ResourceChange, alter_configs
from oncelog.controller.state import Outcome
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.ALTER_CONFIGS


def handle(broker: BrokerState, request: Request) -> Answer:
    changes = [_change(resource) for resource in request.body["resources"]]

    def plan() -> Outcome[Answers]:
        return alter_configs(broker.controller.state, broker.node_id, broker.config_schema, changes)

    return settle_configs(broker, request, changes, plan)


def _change(resource: Message) -> ResourceChange:
    return ResourceChange(
        resource["resource_type"],
        resource["resource_name"],
        [ConfigChange(config["name"], Operation.SET, config["value"]) for config in resource["configs"]],
    )
