"""ConsumerGroupHeartbeat (key 68), versions 0-1: membership in a group of the KIP-848 protocol.

Versions: 1 adds subscriptions by regular expression, and member ids are the client's. Without `consumer` among
`group.coordinator.rebalance.protocols` it is answered with UNSUPPORTED_VERSION. The rules are the coordinator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.errors import UnsupportedVersion
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT

CONSUMER_PROTOCOL = "consumer"


def handle(broker: BrokerState, request: Request) -> Answer:
    if not serves_consumer_protocol(broker):
        return {"error_code": UnsupportedVersion.code}
    return broker.coordination.serve(request, request.body["group_id"])


def serves_consumer_protocol(broker: BrokerState) -> bool:
    protocols = broker.config.values["group.coordinator.rebalance.protocols"]
    assert isinstance(protocols, tuple)
    return CONSUMER_PROTOCOL in protocols
