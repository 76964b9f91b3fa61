"""DescribeGroups (key 15), versions 0-6.

Versions: 3 adds authorized operations (without an authorizer, all); 4 static members; 5 is flexible; 6 answers a group
that does not exist with GROUP_ID_NOT_FOUND, where older ones show it as dead. The rules are the coordinators'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.authorized_operations import GROUP_OPERATIONS
from oncelog.broker.request import Answer, Pending, Request
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import Message

if TYPE_CHECKING:
    from oncelog.broker.state import BrokerState

API_KEY = ApiKey.DESCRIBE_GROUPS


def handle(broker: BrokerState, request: Request) -> Answer:
    return with_operations(request, broker.coordination.serve_many(request))


def with_operations(request: Request, answer: Answer) -> Answer:
    """Tell what the client may do with each group that could be described, if it asked."""
    if request.body["include_authorized_operations"]:
        if isinstance(answer, Pending):
            answer.amend = _add_operations
        elif isinstance(answer, dict):
            _add_operations(answer)
    return answer


def _add_operations(answer: Message) -> None:
    for group in answer["groups"]:
        if not group.get("error_code"):
            group["authorized_operations"] = GROUP_OPERATIONS
