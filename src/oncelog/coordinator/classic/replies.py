"""The answers of the classic group APIs, in the shape that each version of a request expects."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.coordinator.effects import Caller, Reply
from oncelog.coordinator.groups import UNKNOWN_GENERATION
from oncelog.wire.codec import Message

FIRST_JOIN_WITH_NULL_PROTOCOL = 7
FIRST_LEAVE_WITH_MEMBERS = 3


def join_failed(caller: Caller, member_id: str, error_code: int) -> Reply:
    body = {"error_code": error_code, "generation_id": UNKNOWN_GENERATION, "member_id": member_id}
    return Reply(caller.ticket, {**body, "protocol_name": _nullable(caller, None), "leader": "", "members": []})


def joined(
    caller: Caller,
    member_id: str,
    *,
    generation: int,
    protocol_type: str | None,
    protocol: str | None,
    leader: str,
    members: Sequence[Message] = (),
    skip_assignment: bool = False,
) -> Reply:
    return Reply(
        caller.ticket,
        {
            "error_code": 0,
            "generation_id": generation,
            "protocol_type": protocol_type,
            "protocol_name": _nullable(caller, protocol),
            "leader": leader,
            "skip_assignment": skip_assignment,
            "member_id": member_id,
            "members": list(members),
        },
    )


def _nullable(caller: Caller, protocol: str | None) -> str | None:
    return "" if protocol is None and caller.version < FIRST_JOIN_WITH_NULL_PROTOCOL else protocol


def sync_failed(caller: Caller, error_code: int) -> Reply:
    return Reply(caller.ticket, {"error_code": error_code, "assignment": b""})


def synced(caller: Caller, protocol_type: str | None, protocol: str | None, assignment: bytes) -> Reply:
    body = {"error_code": 0, "protocol_type": protocol_type, "protocol_name": protocol, "assignment": assignment}
    return Reply(caller.ticket, body)


def heartbeat(caller: Caller, error_code: int) -> Reply:
    return Reply(caller.ticket, {"error_code": error_code})


def left(caller: Caller, members: Sequence[Message]) -> Reply:
    """Versions without a list of members know one, whose error is that of the request."""
    if caller.version >= FIRST_LEAVE_WITH_MEMBERS:
        return Reply(caller.ticket, {"error_code": 0, "members": list(members)})
    return Reply(caller.ticket, {"error_code": members[0]["error_code"]})


def leave_failed(caller: Caller, error_code: int) -> Reply:
    return Reply(caller.ticket, {"error_code": error_code, "members": []})
