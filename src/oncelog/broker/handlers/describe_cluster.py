"""DescribeCluster (key 60), versions 0-2.

Versions: 1 asks for brokers or controllers; 2 may include fenced brokers, of which a cluster of one has none. This
endpoint serves brokers: who asks for controllers here is told so with MISMATCHED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from oncelog.broker.handlers.metadata import describe_broker
from oncelog.broker.request import Request
from oncelog.errors import MismatchedEndpointType, UnsupportedEndpointType
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DESCRIBE_CLUSTER
BROKERS, CONTROLLERS = 1, 2


def handle(broker: BrokerState, request: Request) -> Message:
    asked_type = request.body["endpoint_type"]
    if asked_type == CONTROLLERS:
        raise MismatchedEndpointType(
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        )
    if asked_type != BROKERS:
        raise UnsupportedEndpointType(f"Unsupported endpoint type {asked_type}")
    described = describe_broker(broker)
    described["broker_id"] = described.pop("node_id")
    asked_operations = request.body["include_cluster_authorized_operations"]
    return {
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "brokers": [described],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asked_operations else NOT_ASKED,
    }
