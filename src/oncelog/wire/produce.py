"""Produce, by hand: the request and the response, both directions, versions 0 to 13.

The same bytes as the generic codec makes by the definitions, several times faster. What differs between versions:
transactional id since 3; append time in the answer since 2, log start offset since 5, error messages since 8;
compact encodings since 9; current leader and node endpoints as tagged fields since 10; topic ids for names since 13.
Versions 0 to 2 are advertised but refused: they are carried here so that the refusal can be written.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from oncelog.named_tuple import NamedTuple
from oncelog.types import NO_OFFSET, NO_TIMESTAMP
from oncelog.wire.hot import (
    FIRST_WITH_TOPIC_IDS,
    NO_TAGS,
    CurrentLeader,
    NodeEndpoint,
    endpoints_value,
    leader_value,
    present,
    read_classic_name,
    read_endpoints,
    read_leader,
    read_tags,
    read_topic_key,
    tags,
    topic_key,
)
from oncelog.wire.primitives import (
    GARBLED,
    MAX_REQUEST_ELEMENTS,
    MalformedMessage,
    compact_string,
    in_words,
    read_bytes,
    read_compact_bytes,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    skip_tagged_fields,
    spend,
    string,
    uvarint,
)

FIRST_FLEXIBLE = 9
FIRST_WITH_LEADERS = 10

MIN_CHUNK_BYTES = 1024
"""Records from this size on are a chunk of their own; to copy fewer costs less than one more chunk."""

_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_INDEX_AND_COUNT = struct.Struct(">ii")
_OFFSETS_V0 = struct.Struct(">ihq")
_OFFSETS_V2 = struct.Struct(">ihqq")
_OFFSETS_V5 = struct.Struct(">ihqqq")
_NOTHING_MORE = b"\x01\x00\x00"  # after the offsets of a flexible version: no record errors, no message, no tags


class ProducePartition(NamedTuple):
    index: int  # type: ignore[assignment]
    records: memoryview | None


class ProduceTopic(NamedTuple):
    name: str
    """Empty where the topic is named by its id."""
    topic_id: UUID | None
    partitions: Sequence[ProducePartition]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: Sequence[ProduceTopic]


class RecordError(NamedTuple):
    batch_index: int
    message: str | None


class ProducedPartition(NamedTuple):
    index: int  # type: ignore[assignment]
    error_code: int = 0
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    error_message: str | None = None
    record_errors: Sequence[RecordError] = ()
    current_leader: CurrentLeader | None = None


class ProducedTopic(NamedTuple):
    name: str
    topic_id: UUID | None
    partitions: Sequence[ProducedPartition]


class ProduceResponse(NamedTuple):
    topics: Sequence[ProducedTopic]
    throttle_ms: int
    node_endpoints: Sequence[NodeEndpoint]


# --- request ------------------------------------------------------------------------------------------------------


def decode_produce_request(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """The request that fills the rest of the frame. Its records are views of the frame."""
    try:
        if version >= FIRST_FLEXIBLE:
            request, end = _read_flexible_request(frame, position, version >= FIRST_WITH_TOPIC_IDS)
        else:
            request, end = _read_classic_request(frame, position, version)
    except GARBLED as error:
        raise MalformedMessage(f"ProduceRequest v{version}: {in_words(error)}") from None
    if end != len(frame):
        raise MalformedMessage(f"ProduceRequest v{version}: {len(frame) - end} bytes are left over")
    return request


def _read_flexible_request(frame: memoryview, position: int, by_id: bool) -> tuple[ProduceRequest, int]:
    transactional_id, position = read_compact_string(frame, position)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    topic_count, position = read_compact_count(frame, position + 6, 3)
    budget = spend(MAX_REQUEST_ELEMENTS, topic_count)
    topics = []
    for _ in range(present(topic_count)):
        name, topic_id, position = read_topic_key(frame, position, by_id)
        count, position = read_compact_count(frame, position, 6)
        budget = spend(budget, count)
        partitions = []
        for _ in range(present(count)):
            (index,) = _INT32.unpack_from(frame, position)
            records, position = read_compact_bytes(frame, position + 4)
            position = skip_tagged_fields(frame, position)
            partitions.append(ProducePartition(index, records))
        position = skip_tagged_fields(frame, position)
        topics.append(ProduceTopic(name, topic_id, partitions))
    position = skip_tagged_fields(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def _read_classic_request(frame: memoryview, position: int, version: int) -> tuple[ProduceRequest, int]:
    transactional_id = None
    if version >= 3:
        transactional_id, position = read_string(frame, position)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    topic_count, position = read_count(frame, position + 6, 6)
    budget = spend(MAX_REQUEST_ELEMENTS, topic_count)
    topics = []
    for _ in range(present(topic_count)):
        name, position = read_classic_name(frame, position)
        count, position = read_count(frame, position, 8)
        budget = spend(budget, count)
        partitions = []
        for _ in range(present(count)):
            (index,) = _INT32.unpack_from(frame, position)
            records, position = read_bytes(frame, position + 4)
            partitions.append(ProducePartition(index, records))
        topics.append(ProduceTopic(name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def encode_produce_request(version: int, request: ProduceRequest) -> list[Any]:
    """The body in chunks: bytes, and the records of each partition, untouched and in place unless they are few."""
    chunks: list[Any] = []
    out = bytearray()
    flexible = version >= FIRST_FLEXIBLE
    if version >= 3:
        out += compact_string(request.transactional_id) if flexible else string(request.transactional_id)
    out += _ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms)
    out += uvarint(len(request.topics) + 1) if flexible else _INT32.pack(len(request.topics))
    for name, topic_id, partitions in request.topics:
        if flexible:
            out += topic_key(name, topic_id, version) + uvarint(len(partitions) + 1)
        else:
            out += string(name) + _INT32.pack(len(partitions))
        for index, records in partitions:
            size = -1 if records is None else len(records)
            out += _INT32.pack(index) + uvarint(size + 1) if flexible else _INDEX_AND_COUNT.pack(index, size)
            if size >= MIN_CHUNK_BYTES:
                chunks += (out, records)
                out = bytearray()
            else:
                out += records or b""
            if flexible:
                out += NO_TAGS
        if flexible:
            out += NO_TAGS
    if flexible:
        out += NO_TAGS
    if out:
        chunks.append(out)
    return chunks


# --- response -----------------------------------------------------------------------------------------------------


def encode_produce_response(
    version: int, topics: Sequence[ProducedTopic], throttle_ms: int = 0, node_endpoints: Sequence[NodeEndpoint] = ()
) -> bytes:
    if version >= FIRST_FLEXIBLE:
        return _flexible_response(version, topics, throttle_ms, node_endpoints)
    out = bytearray(_INT32.pack(len(topics)))
    for name, _, partitions in topics:
        out += string(name) + _INT32.pack(len(partitions))
        for partition in partitions:
            out += _offsets(version, partition)
            if version >= 8:
                out += _INT32.pack(len(partition.record_errors))
                for batch_index, message in partition.record_errors:
                    out += _INT32.pack(batch_index) + string(message)
                out += string(partition.error_message)
    if version >= 1:
        out += _INT32.pack(throttle_ms)
    return bytes(out)


def _flexible_response(
    version: int, topics: Sequence[ProducedTopic], throttle_ms: int, node_endpoints: Sequence[NodeEndpoint]
) -> bytes:
    with_leaders = version >= FIRST_WITH_LEADERS
    out = bytearray(uvarint(len(topics) + 1))
    for name, topic_id, partitions in topics:
        out += topic_key(name, topic_id, version) + uvarint(len(partitions) + 1)
        for partition in partitions:
            out += _OFFSETS_V5.pack(*partition[:5])
            out += uvarint(len(partition.record_errors) + 1)
            for batch_index, message in partition.record_errors:
                out += _INT32.pack(batch_index) + compact_string(message) + NO_TAGS
            out += compact_string(partition.error_message)
            leader = partition.current_leader if with_leaders else None
            out += NO_TAGS if leader is None else tags([(0, leader_value(leader))])
        out += NO_TAGS
    out += _INT32.pack(throttle_ms)
    out += tags([(0, endpoints_value(node_endpoints))]) if with_leaders and node_endpoints else NO_TAGS
    return bytes(out)


def _offsets(version: int, partition: ProducedPartition) -> bytes:
    if version >= 5:
        return _OFFSETS_V5.pack(*partition[:5])
    return _OFFSETS_V2.pack(*partition[:4]) if version >= 2 else _OFFSETS_V0.pack(*partition[:3])


def decode_produce_response(frame: memoryview, position: int, version: int) -> ProduceResponse:
    try:
        if version >= FIRST_FLEXIBLE:
            response, end = _read_flexible_response(frame, position, version)
        else:
            response, end = _read_classic_response(frame, position, version)
    except GARBLED as error:
        raise MalformedMessage(f"ProduceResponse v{version}: {in_words(error)}") from None
    if end != len(frame):
        raise MalformedMessage(f"ProduceResponse v{version}: {len(frame) - end} bytes are left over")
    return response


def _read_flexible_response(frame: memoryview, position: int, version: int) -> tuple[ProduceResponse, int]:
    topic_count, position = read_compact_count(frame, position, 3)
    topics = []
    for _ in range(present(topic_count)):
        name, topic_id, position = read_topic_key(frame, position, version >= FIRST_WITH_TOPIC_IDS)
        count, position = read_compact_count(frame, position, _OFFSETS_V5.size + 3)
        partitions = []
        for _ in range(present(count)):
            partition, position = _read_flexible_partition(frame, position, version)
            partitions.append(partition)
        position = skip_tagged_fields(frame, position)
        topics.append(ProducedTopic(name, topic_id, partitions))
    (throttle_ms,) = _INT32.unpack_from(frame, position)
    position += 4
    if frame[position] == 0:
        return ProduceResponse(topics, throttle_ms, ()), position + 1
    tagged, position = read_tags(frame, position)
    endpoints = read_endpoints(tagged.get(0) if version >= FIRST_WITH_LEADERS else None)
    return ProduceResponse(topics, throttle_ms, endpoints), position


def _read_flexible_partition(frame: memoryview, position: int, version: int) -> tuple[ProducedPartition, int]:
    index, code, base_offset, append_time_ms, start_offset = offsets = _OFFSETS_V5.unpack_from(frame, position)
    position += _OFFSETS_V5.size
    if frame[position : position + 3] == _NOTHING_MORE:
        return ProducedPartition(*offsets), position + 3
    error_count, position = read_compact_count(frame, position, 6)
    errors = []
    for _ in range(present(error_count)):
        (batch_index,) = _INT32.unpack_from(frame, position)
        message, position = read_compact_string(frame, position + 4)
        position = skip_tagged_fields(frame, position)
        errors.append(RecordError(batch_index, message))
    error_message, position = read_compact_string(frame, position)
    tagged, position = read_tags(frame, position)
    leader = read_leader(tagged.get(0) if version >= FIRST_WITH_LEADERS else None)
    partition = ProducedPartition(index, code, base_offset, append_time_ms, start_offset, error_message, errors, leader)
    return partition, position


def _read_classic_response(frame: memoryview, position: int, version: int) -> tuple[ProduceResponse, int]:
    layout = _OFFSETS_V5 if version >= 5 else _OFFSETS_V2 if version >= 2 else _OFFSETS_V0
    topic_count, position = read_count(frame, position, 6)
    topics = []
    for _ in range(present(topic_count)):
        name, position = read_classic_name(frame, position)
        count, position = read_count(frame, position, layout.size)
        partitions = []
        for _ in range(present(count)):
            partition = ProducedPartition(*layout.unpack_from(frame, position))
            position += layout.size
            if version >= 8:
                partition, position = _read_classic_errors(frame, position, partition)
            partitions.append(partition)
        topics.append(ProducedTopic(name, None, partitions))
    throttle_ms = 0
    if version >= 1:
        (throttle_ms,) = _INT32.unpack_from(frame, position)
        position += 4
    return ProduceResponse(topics, throttle_ms, []), position


def _read_classic_errors(
    frame: memoryview, position: int, partition: ProducedPartition
) -> tuple[ProducedPartition, int]:
    count, position = read_count(frame, position, 6)
    errors = []
    for _ in range(present(count)):
        (batch_index,) = _INT32.unpack_from(frame, position)
        message, position = read_string(frame, position + 4)
        errors.append(RecordError(batch_index, message))
    error_message, position = read_string(frame, position)
    return partition._replace(record_errors=errors, error_message=error_message), position
