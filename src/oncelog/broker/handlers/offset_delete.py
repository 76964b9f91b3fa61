"""OffsetDelete (key 47), version 0. The rules are the coordinator's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.errors import InvalidGroupId
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.OFFSET_DELETE


def handle(broker: BrokerState, request: Request) -> Answer:
    if not request.body["group_id"]:
        return {"error_code": InvalidGroupId.code}
    return broker.coordination.serve(request, request.body["group_id"])
