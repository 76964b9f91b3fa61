"""OffsetCommit (key 8), versions 2-10.

Versions: 2-4 carry a retention time of their own; 6 adds leader epochs; 7 static members; 8 is flexible; 9 lets members
of KIP-848 groups commit, and may answer STALE_MEMBER_EPOCH; 10 names topics by id. An empty group id is legal, as in
Kafka. The rules are the coordinator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.OFFSET_COMMIT


def handle(broker: BrokerState, request: Request) -> Answer:
    return broker.coordination.serve(request, request.body["group_id"])
