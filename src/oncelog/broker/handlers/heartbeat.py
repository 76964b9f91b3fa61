"""Heartbeat (key 12), versions 0-4, which differ in form (4 is flexible) and in static members (3).

While groups are being loaded it is answered without an error, as Kafka does. The rules are the coordinator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.errors import InvalidGroupId
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.HEARTBEAT


def handle(broker: BrokerState, request: Request) -> Answer:
    if not request.body["group_id"]:
        return {"error_code": InvalidGroupId.code}
    return broker.coordination.serve(request, request.body["group_id"])
