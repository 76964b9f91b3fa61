"""ListConfigResources (key 74), versions 0-1.

Versions: 0 lists client metrics, of which there are none here; 1 lists the types that are asked for, all of them if
none is named. Topics, this broker and the groups for which something was set have configs; loggers and client metrics
have none here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Request
from oncelog.controller.state import ResourceType
from oncelog.errors import UnsupportedVersion
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.LIST_CONFIG_RESOURCES
FIRST_VERSION_WITH_TYPES = 1


def handle(broker: BrokerState, request: Request) -> Message:
    if request.version < FIRST_VERSION_WITH_TYPES:
        return {}
    asked = set(request.body["resource_types"]) or set(ResourceType)
    unknown = asked - set(ResourceType)
    if unknown:
        raise UnsupportedVersion(f"resource types {sorted(unknown)} do not exist")
    resources: list[Message] = []
    if ResourceType.BROKER in asked:
        resources.append({"resource_name": str(broker.node_id), "resource_type": ResourceType.BROKER})
    if ResourceType.TOPIC in asked:
        names = broker.controller.state.topics
        resources += [{"resource_name": name, "resource_type": ResourceType.TOPIC} for name in names]
    if ResourceType.GROUP in asked:
        configured = (resource for resource, _ in broker.controller.state.configured_resources())
        resources += [
            {"resource_name": resource.name, "resource_type": ResourceType.GROUP}
            for resource in configured
            if resource.type is ResourceType.GROUP
        ]
    return {"config_resources": resources}
