"""DescribeGroups (key 15), versions 0-6.

Versions: 3 adds authorized operations (without an authorizer, all); 4 static members; 5 is flexible; 6 answers a group
that does not exist with GROUP_ID_NOT_FOUND, where older ones show it as dead. The rules are the coordinators'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.broker.handlers.authorized_operations import GROUP_OPERATIONS
from oncelog.broker.request import Answer, Request
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DESCRIBE_GROUPS


def handle(broker: BrokerState, request: Request) -> Answer:
    return broker.coordination.serve_many(request, with_operations(request))


def with_operations(request: Request) -> Callable[[Message], None] | None:
    """Tells what the client may do with each group that could be described, if it asked."""
    return _add_operations if request.body["include_authorized_operations"] else None


def _add_operations(answer: Message) -> None:
    for group in answer["groups"]:
        if not group.get("error_code"):
            group["authorized_operations"] = GROUP_OPERATIONS
