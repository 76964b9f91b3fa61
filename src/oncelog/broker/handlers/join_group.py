"""JoinGroup (key 11), versions 0-9.

Versions: 1 adds the rebalance timeout, which before is the session timeout; 4 makes a new member come back with the id
that it was given (MEMBER_ID_REQUIRED); 5 adds static members; 6 is flexible; 7 tells the protocol type; 8 carries the
client's reason; 9 may tell the leader to skip the assignment. The answer waits until all members have joined, or the
rebalance timeout is over. The rules are the coordinator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.groups.answers import refusal
from oncelog.broker.request import Answer, Request
from oncelog.errors import InvalidGroupId
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.JOIN_GROUP


def handle(broker: BrokerState, request: Request) -> Answer:
    if not request.body["group_id"]:
        refused = refusal(API_KEY, request.version, request.body, InvalidGroupId())
        return {**refused, "member_id": request.body["member_id"]}
    return broker.coordination.serve(request, request.body["group_id"])
