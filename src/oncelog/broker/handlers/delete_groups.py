"""DeleteGroups (key 42), versions 0-2, which differ only in form (2 is flexible). The rules are the coordinators'."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.request import Answer, Request
from oncelog.wire.api import ApiKey

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DELETE_GROUPS


def handle(broker: BrokerState, request: Request) -> Answer:
    return broker.coordination.serve_many(request)
