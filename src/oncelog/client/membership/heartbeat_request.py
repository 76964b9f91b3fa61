"""ConsumerGroupHeartbeat as a member writes it: what the coordinator does not know yet, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from oncelog.client.membership.membership import MembershipSettings
from oncelog.wire.codec import Message

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""The member goes, and its place is kept for its return."""

AssignedIds = frozenset[tuple[UUID, int]]


class MemberFields(NamedTuple):
    """What a member says of itself besides its identity."""

    topics: tuple[str, ...] | None
    regex: str | None
    owned: AssignedIds


def heartbeat_request(
    settings: MembershipSettings, member_id: str, epoch: int, now: MemberFields, known: MemberFields | None
) -> Message:
    """`known` is what the coordinator has answered already; None to tell it everything."""
    request: Message = {
        "group_id": settings.group_id,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": settings.group_instance_id,
    }
    if known is None:
        request["rack_id"] = settings.client_rack or None
        request["rebalance_timeout_ms"] = settings.max_poll_interval_ms
        request["server_assignor"] = settings.group_remote_assignor
    if known is None or (now.topics, now.regex) != (known.topics, known.regex):
        # Where one takes the place of the other, the other is emptied: null would mean that it did not change.
        request["subscribed_topic_names"] = [] if now.topics is None else list(now.topics)
        was_regex = known is not None and known.regex is not None
        request["subscribed_topic_regex"] = "" if now.regex is None and was_regex else now.regex
    if known is None or now.owned != known.owned:
        request["topic_partitions"] = ids_by_topic(now.owned)
    return request


def leave_heartbeat(settings: MembershipSettings, member_id: str) -> Message:
    epoch = LEAVE_EPOCH if settings.group_instance_id is None else STATIC_LEAVE_EPOCH
    return {
        "group_id": settings.group_id,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": settings.group_instance_id,
    }


def ids_by_topic(partitions: Iterable[tuple[UUID, int]]) -> list[Message]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return [{"topic_id": topic_id, "partitions": some} for topic_id, some in topics.items()]


def read_assignment(assignment: Message) -> AssignedIds:
    return frozenset(
        (topic["topic_id"], partition) for topic in assignment["topic_partitions"] for partition in topic["partitions"]
    )
