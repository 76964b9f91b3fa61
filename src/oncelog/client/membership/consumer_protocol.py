"""What members of a classic group write for each other into JoinGroup and SyncGroup: Kafka's ConsumerProtocol.

Every message begins with its version. A newer one than ours is read as far as ours goes: new versions add at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable

from oncelog.client.consumer_records import NO_GENERATION
from oncelog.client.membership.assignor import Subscription
from oncelog.types import TopicPartition
from oncelog.wire import codec
from oncelog.wire.codec import MalformedMessage, Message

PROTOCOL_TYPE = "consumer"
VERSION = 3

_VERSION = struct.Struct(">h")


def encode_subscription(
    topics: Collection[str],
    *,
    user_data: bytes | None = None,
    owned: Iterable[TopicPartition] = (),
    generation_id: int = NO_GENERATION,
    rack: str | None = None,
) -> bytes:
    message: Message = {
        "topics": sorted(topics),
        "user_data": user_data,
        "owned_partitions": _by_topic(sorted(owned)),
        "generation_id": generation_id,
        "rack_id": rack,
    }
    return _VERSION.pack(VERSION) + codec.encode("ConsumerProtocolSubscription", VERSION, message)


def decode_subscription(data: bytes | memoryview, group_instance_id: str | None = None) -> Subscription:
    """Raises MalformedMessage."""
    message = _decode("ConsumerProtocolSubscription", data)
    user_data = message["user_data"]
    return Subscription(
        topics=tuple(message["topics"]),
        user_data=None if user_data is None else bytes(user_data),
        owned=tuple(_partitions(message["owned_partitions"])),
        generation_id=message["generation_id"],
        rack=message["rack_id"],
        group_instance_id=group_instance_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    message: Message = {"assigned_partitions": _by_topic(partitions), "user_data": None}
    return _VERSION.pack(VERSION) + codec.encode("ConsumerProtocolAssignment", VERSION, message)


def decode_assignment(data: bytes | memoryview) -> frozenset[TopicPartition]:
    """No bytes, which is what the coordinator has for a member that the leader left out, assign nothing. Raises
    MalformedMessage."""
    if not len(data):
        return frozenset()
    return frozenset(_partitions(_decode("ConsumerProtocolAssignment", data)["assigned_partitions"]))


def _decode(name: str, data: bytes | memoryview) -> Message:
    if len(data) < _VERSION.size:
        raise MalformedMessage(f"{name}: {len(data)} bytes have no version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MalformedMessage(f"{name}: version {version}")
    message, _ = codec.decode(name, min(version, VERSION), data, _VERSION.size)
    return message


def _by_topic(partitions: Iterable[TopicPartition]) -> list[Message]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": some} for topic, some in topics.items()]


def _partitions(topics: Iterable[Message]) -> Iterable[TopicPartition]:
    for topic in topics:
        for partition in topic["partitions"]:
            yield TopicPartition(topic["topic"], partition)
