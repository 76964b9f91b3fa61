"""What the hand-written messages share: tagged fields, topics named by name or by id, leaders and their endpoints."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from oncelog.named_tuple import NamedTuple
from oncelog.wire.primitives import (
    MalformedMessage,
    check_tag_count,
    compact_string,
    read_compact_count,
    read_compact_string,
    read_slice,
    read_string,
    read_uvarint,
    skip_tagged_fields,
    uuid_from_bytes,
    uvarint,
)

NO_TAGS = b"\x00"

FIRST_WITH_TOPIC_IDS = 13
"""By chance the same version of Produce and of Fetch."""

_INT32 = struct.Struct(">i")
_LEADER = struct.Struct(">ii")
_ENDPOINT_LEAST_BYTES = 11


class CurrentLeader(NamedTuple):
    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def present(count: int) -> int:
    """The count of an array that may not be null."""
    if count < 0:
        raise MalformedMessage("an array may not be null")
    return count


def read_classic_name(frame: memoryview, position: int) -> tuple[str, int]:
    name, position = read_string(frame, position)
    if name is None:
        raise MalformedMessage("a topic name may not be null")
    return name, position


def read_topic_key(frame: memoryview, position: int, by_id: bool) -> tuple[str, UUID | None, int]:
    """A topic of a flexible version: its name and no id, or no name and its id."""
    if by_id:
        raw_id, position = read_slice(frame, position, 16)
        return "", uuid_from_bytes(bytes(raw_id)), position
    name, position = read_compact_string(frame, position)
    if name is None:
        raise MalformedMessage("a topic name may not be null")
    return name, None, position


def topic_key(name: str, topic_id: UUID | None, version: int) -> bytes:
    if version < FIRST_WITH_TOPIC_IDS:
        return compact_string(name)
    assert topic_id is not None, f"topic {name} has no id, which version {version} needs"
    return topic_id.bytes


def read_tags(frame: memoryview, position: int) -> tuple[dict[int, memoryview], int]:
    """Tagged fields as raw values by tag."""
    if frame[position] == 0:
        return {}, position + 1
    count, position = read_uvarint(frame, position)
    check_tag_count(count)
    values = {}
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        values[tag], position = read_slice(frame, position, size)
    return values, position


def tags(values: list[tuple[int, bytes]]) -> bytes:
    if not values:
        return NO_TAGS
    return uvarint(len(values)) + b"".join(uvarint(tag) + uvarint(len(value)) + value for tag, value in values)


def read_leader(value: memoryview | None) -> CurrentLeader | None:
    return None if value is None else CurrentLeader(*_LEADER.unpack_from(value, 0))


def leader_value(leader: CurrentLeader) -> bytes:
    return _LEADER.pack(*leader) + NO_TAGS


def read_endpoints(value: memoryview | None) -> list[NodeEndpoint]:
    if value is None:
        return []
    count, position = read_compact_count(value, 0, _ENDPOINT_LEAST_BYTES)
    endpoints = []
    for _ in range(present(count)):
        (node_id,) = _INT32.unpack_from(value, position)
        host, position = read_compact_string(value, position + 4)
        (port,) = _INT32.unpack_from(value, position)
        rack, position = read_compact_string(value, position + 4)
        position = skip_tagged_fields(value, position)
        endpoints.append(NodeEndpoint(node_id, host or "", port, rack))
    return endpoints


def endpoints_value(endpoints: Sequence[NodeEndpoint]) -> bytes:
    value = bytearray(uvarint(len(endpoints) + 1))
    for node_id, host, port, rack in endpoints:
        value += _INT32.pack(node_id) + compact_string(host) + _INT32.pack(port) + compact_string(rack) + NO_TAGS
    return bytes(value)
