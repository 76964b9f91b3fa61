"""OffsetFetch (key 9), versions 1-10.

Versions: 2 asks for all offsets of a group with null, and has an error for the whole; 5 adds leader epochs; 6 is
flexible; 7 may ask for stable offsets only (those that an open transaction is about to change are answered with
UNSTABLE_OFFSET_COMMIT); 8 asks for many groups; 9 lets members of KIP-848 groups say who they are; 10 names topics by
id. The rules are the coordinators'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.groups.answers import FIRST_FETCH_OF_MANY_GROUPS
from oncelog.broker.request import Answer, Request
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.OFFSET_FETCH


def handle(broker: BrokerState, request: Request) -> Answer:
    if request.version >= FIRST_FETCH_OF_MANY_GROUPS:
        return broker.coordination.serve_many(request)
    return broker.coordination.serve(request, request.body["group_id"])
