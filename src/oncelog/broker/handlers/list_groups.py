"""ListGroups (key 16), versions 0-5.

Versions: 3 is flexible; 4 shows states and filters by them; 5 shows types and filters by them. While some groups are
still being loaded the answer is COORDINATOR_LOAD_IN_PROGRESS: a list with holes would be taken for the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.LIST_GROUPS


def handle(broker: BrokerState, request: Request) -> Answer:
    return broker.coordination.list_groups(request)
