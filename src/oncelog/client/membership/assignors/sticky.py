"""`sticky` and `cooperative-sticky`: as even as subscriptions allow, and members keep what they have wherever they can.

The two differ in how a member tells what it has: `sticky` members give up everything before they join, so they remember
it in their user data; `cooperative-sticky` ones still own it, and say so in the subscription itself. What a member says
counts by its generation: after a split the older claim to a partition is void, and two claims of one generation (which
no sound group makes) void each other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from oncelog.client.consumer_records import NO_GENERATION
from oncelog.client.membership.assignor import COOPERATIVE, EAGER, Assignments, Subscription, Topics
from oncelog.client.membership.assignors.balance import balance
from oncelog.client.membership.assignors.members import in_order
from oncelog.types import TopicPartition
from oncelog.wire.primitives import GARBLED

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member says it has, since which generation."""

    partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION


class StickyAssignor:
    name = "sticky"
    protocols: Collection[str] = (EAGER,)

    def user_data(self, owned: Collection[TopicPartition], generation_id: int) -> bytes | None:
        return encode_claim(Claim(tuple(sorted(owned)), generation_id)) if generation_id != NO_GENERATION else None

    def assign(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> Assignments:
        return _assign(topics, subscriptions, lambda one: decode_claim(one.user_data))


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    protocols: Collection[str] = (COOPERATIVE, EAGER)

    def user_data(self, owned: Collection[TopicPartition], generation_id: int) -> bytes | None:
        return _INT32.pack(generation_id)

    def assign(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> Assignments:
        return _assign(topics, subscriptions, _stated_claim)


def _assign(
    topics: Topics, subscriptions: Mapping[str, Subscription], claim_of: Callable[[Subscription], Claim]
) -> Assignments:
    members = in_order(subscriptions)
    wanted = {member_id: frozenset(subscriptions[member_id].topics) & topics.keys() for member_id in members}
    kept = _valid_claims(topics, wanted, {member_id: claim_of(subscriptions[member_id]) for member_id in members})
    counts = {topic: len(racks) for topic, racks in topics.items()}
    return balance(counts, wanted, kept)


def _valid_claims(
    topics: Topics, wanted: Mapping[str, Collection[str]], claims: Mapping[str, Claim]
) -> dict[str, list[TopicPartition]]:
    """What each member really has: partitions that exist, of topics it wants, and nobody claims with more right."""
    owners: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, claim in claims.items():
        for partition in dict.fromkeys(claim.partitions):
            generation_id, _ = owners.get(partition, (NO_GENERATION - 1, None))
            if claim.generation_id > generation_id:
                owners[partition] = (claim.generation_id, member_id)
            elif claim.generation_id == generation_id:
                owners[partition] = (generation_id, None)
    kept: dict[str, list[TopicPartition]] = {member_id: [] for member_id in claims}
    for partition, (_, owner) in owners.items():
        is_there = partition.topic in topics and 0 <= partition.partition < len(topics[partition.topic])
        if owner is not None and is_there and partition.topic in wanted[owner]:
            kept[owner].append(partition)
    return kept


def _stated_claim(subscription: Subscription) -> Claim:
    """From the subscription since its version 2, before that with the generation of the user data."""
    generation_id = subscription.generation_id
    data = subscription.user_data
    if generation_id == NO_GENERATION and data is not None and len(data) >= _INT32.size:
        generation_id = _INT32.unpack_from(data)[0]
    return Claim(subscription.owned, generation_id)


# --- the user data of `sticky`, as the Java client writes it: topics with partitions, then the generation -----------


def encode_claim(claim: Claim) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in claim.partitions:
        topics.setdefault(topic, []).append(partition)
    out = bytearray(_INT32.pack(len(topics)))
    for topic, partitions in topics.items():
        name = topic.encode()
        out += _INT16.pack(len(name)) + name
        out += struct.pack(f">{len(partitions) + 1}i", len(partitions), *partitions)
    return bytes(out + _INT32.pack(claim.generation_id))


def decode_claim(data: bytes | None) -> Claim:
    """Rubbish claims nothing. The first version of the format had no generation."""
    if data is None:
        return Claim()
    try:
        partitions, position = _read_partitions(data)
        generation_id = _INT32.unpack_from(data, position)[0] if position < len(data) else NO_GENERATION
    except GARBLED:
        return Claim()
    return Claim(partitions, generation_id)


def _read_partitions(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    found: list[TopicPartition] = []
    (topic_count,) = _INT32.unpack_from(data)
    position = _INT32.size
    for _ in range(topic_count):
        (size,) = _INT16.unpack_from(data, position)
        position += _INT16.size
        topic = data[position : position + max(size, 0)].decode()
        position += max(size, 0)
        (count,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        indexes = struct.unpack_from(f">{max(count, 0)}i", data, position)
        position += _INT32.size * len(indexes)
        found += [TopicPartition(topic, index) for index in indexes]
    return tuple(found), position
