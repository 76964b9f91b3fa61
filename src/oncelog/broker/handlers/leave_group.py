"""LeaveGroup (key 13), versions 0-5.

Versions: 3 removes several members at once, static ones by their instance ids; 4 is flexible; 5 carries their reasons.
The rules are the coordinator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.errors import InvalidGroupId
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.LEAVE_GROUP


def handle(broker: BrokerState, request: Request) -> Answer:
    if not request.body["group_id"]:
        return {"error_code": InvalidGroupId.code}
    return broker.coordination.serve(request, request.body["group_id"])
