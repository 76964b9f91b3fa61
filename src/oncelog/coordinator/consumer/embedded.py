"""What members of the classic protocol say and hear inside JoinGroup and SyncGroup: the consumer protocol's own bytes.

A version (int16), then ConsumerProtocolSubscription or ConsumerProtocolAssignment. Newer versions only add fields at
the end, so one that is not known is read as the newest that is. Owns that format; never knows a group.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from oncelog.coordinator.consumer.member import HeldPartitions, Partitions, gather
from oncelog.coordinator.effects import TopicsView
from oncelog.errors import InconsistentGroupProtocol
from oncelog.wire.codec import MalformedMessage, Message, decode, encode

_VERSION = struct.Struct(">h")
NEWEST_VERSION = 3


class Subscription(NamedTuple):
    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]]
    """What a cooperative member keeps while it joins; an eager one has given up everything."""
    rack_id: str | None


class EmbeddedAssignment(NamedTuple):
    partitions: Mapping[str, frozenset[int]]
    has_user_data: bool
    """Something that only the assignor which wrote it understands."""


def read_subscription(data: bytes) -> Subscription:
    message = _read("ConsumerProtocolSubscription", data)
    return Subscription(frozenset(message["topics"]), _by_name(message["owned_partitions"]), message["rack_id"])


def read_assignment(data: bytes) -> EmbeddedAssignment:
    """A member that has not synced yet has none."""
    if not data:
        return EmbeddedAssignment({}, has_user_data=False)
    message = _read("ConsumerProtocolAssignment", data)
    return EmbeddedAssignment(_by_name(message["assigned_partitions"]), bool(message["user_data"]))


def write_assignment(partitions: Partitions | HeldPartitions, topics: TopicsView, like: bytes) -> bytes:
    """In the version of the member's own subscription. Topics that were deleted have no name, and are left out."""
    version = max(0, min(version_of(like), NEWEST_VERSION))
    named = [
        {"topic": name, "partitions": sorted(numbers)}
        for topic_id, numbers in partitions.items()
        if (name := topics.topic_name(topic_id)) is not None
    ]
    message = {"assigned_partitions": sorted(named, key=lambda topic: str(topic["topic"])), "user_data": None}
    return _VERSION.pack(version) + encode("ConsumerProtocolAssignment", version, message)


def version_of(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise InconsistentGroupProtocol("the consumer protocol's part of the request is cut off")
    return int(_VERSION.unpack_from(data)[0])


def with_ids(partitions: Mapping[str, frozenset[int]], topics: TopicsView) -> Partitions:
    """Topics that do not exist are left out: nobody can own a part of them."""
    return gather(
        (topic_id, numbers) for name, numbers in partitions.items() if (topic_id := topics.topic_id(name)) is not None
    )


def _read(schema: str, data: bytes) -> Message:
    version = version_of(data)
    if version < 0:
        raise InconsistentGroupProtocol(f"{schema} has version {version}")
    try:
        message, _ = decode(schema, min(version, NEWEST_VERSION), data, _VERSION.size)
    except MalformedMessage as error:
        raise InconsistentGroupProtocol(f"the consumer protocol's part of the request is malformed: {error}") from error
    return message


def _by_name(topics: list[Message]) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for topic in topics:
        found[topic["topic"]] = found.get(topic["topic"], frozenset()) | frozenset(topic["partitions"])
    return found
