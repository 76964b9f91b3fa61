"""ConsumerGroupDescribe (key 69), versions 0-1: groups of the KIP-848 protocol.

Versions: 1 tells which members use the classic protocol. Authorized operations are, without an authorizer, all. Without
`consumer` among `group.coordinator.rebalance.protocols` every group is answered with UNSUPPORTED_VERSION. The rules are
the coordinators'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.groups.answers import refusal
from oncelog.broker.handlers.consumer_group_heartbeat import serves_consumer_protocol
from oncelog.broker.handlers.describe_groups import with_operations
from oncelog.broker.request import Answer, Request
from oncelog.errors import UnsupportedVersion
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.CONSUMER_GROUP_DESCRIBE


def handle(broker: BrokerState, request: Request) -> Answer:
    if not serves_consumer_protocol(broker):
        return refusal(API_KEY, request.version, request.body, UnsupportedVersion())
    return broker.coordination.serve_many(request, with_operations(request))
