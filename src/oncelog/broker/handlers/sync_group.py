"""SyncGroup (key 14), versions 0-5.

Versions: 3 adds static members; 4 is flexible; 5 names the protocol, which must be the one that was joined with. The
answer waits for the leader's assignment. The rules are the coordinator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.errors import InvalidGroupId
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.SYNC_GROUP


def handle(broker: BrokerState, request: Request) -> Answer:
    if not request.body["group_id"]:
        return {"error_code": InvalidGroupId.code}
    return broker.coordination.serve(request, request.body["group_id"])
