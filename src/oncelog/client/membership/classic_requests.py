"""What a classic member writes to its coordinator."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.client.membership.consumer_protocol import PROTOCOL_TYPE
from oncelog.client.membership.membership import MembershipSettings
from oncelog.wire.codec import Message

MAX_REASON_CHARS = 255


def join_request(
    settings: MembershipSettings, member_id: str, subscriptions: Mapping[str, bytes], reason: str | None
) -> Message:
    """`subscriptions` by the names of the assignors, in the order of preference."""
    return {
        "group_id": settings.group_id,
        "session_timeout_ms": settings.session_timeout_ms,
        "rebalance_timeout_ms": settings.max_poll_interval_ms,
        "member_id": member_id,
        "group_instance_id": settings.group_instance_id,
        "protocol_type": PROTOCOL_TYPE,
        "protocols": [{"name": name, "metadata": data} for name, data in subscriptions.items()],
        "reason": None if reason is None else reason[:MAX_REASON_CHARS],
    }


def sync_request(
    settings: MembershipSettings,
    member_id: str,
    generation_id: int,
    protocol_name: str,
    assignments: Mapping[str, bytes],
) -> Message:
    """`assignments` by member, from the leader only."""
    return {
        "group_id": settings.group_id,
        "generation_id": generation_id,
        "member_id": member_id,
        "group_instance_id": settings.group_instance_id,
        "protocol_type": PROTOCOL_TYPE,
        "protocol_name": protocol_name,
        "assignments": [{"member_id": one, "assignment": data} for one, data in assignments.items()],
    }


def leave_request(settings: MembershipSettings, member_id: str, reason: str) -> Message:
    member: Message = {"member_id": member_id, "reason": reason[:MAX_REASON_CHARS]}
    return {"group_id": settings.group_id, "member_id": member_id, "members": [member]}
