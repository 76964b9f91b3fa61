"""Fetch, by hand: the request and the response, both directions, versions 4 to 18.

The same bytes as the generic codec makes by the definitions, several times faster, and without touching the records:
a response is a list of chunks in which the records stay whatever object the log handed out. What differs between
versions: log start offset since 5; sessions and the forgotten topics since 7; leader epoch of the reader since 9; rack
and preferred replica since 11; compact encodings, divergence and current leader since 12; topic ids for names since
13; the replica's state as a tagged field since 15; node endpoints since 16; directory id since 17, high watermark of a
follower since 18.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol
from uuid import UUID

from oncelog.named_tuple import NamedTuple
from oncelog.types import NO_OFFSET
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
    read_slice,
    read_string,
    skip_tagged_fields,
    spend,
    string,
    uuid_from_bytes,
    uvarint,
)
from oncelog.wire.schema import ZERO_UUID

FIRST_WITH_SESSIONS = 7
FIRST_FLEXIBLE = 12
FIRST_WITH_REPLICA_STATE = 15
FIRST_WITH_ENDPOINTS = 16

CONSUMER_REPLICA_ID = -1
UNKNOWN_HIGH_WATERMARK = 2**63 - 1

_INT32 = struct.Struct(">i")
_REPLICA_AND_LIMITS = struct.Struct(">iiiib")
_LIMITS_AND_SESSION = struct.Struct(">iiibii")
_SESSION = struct.Struct(">ii")
_REPLICA_STATE = struct.Struct(">iq")
_REQUEST_V4 = struct.Struct(">iqi")
_REQUEST_V5 = struct.Struct(">iqqi")
_REQUEST_V9 = struct.Struct(">iiqqi")
_REQUEST_V12 = struct.Struct(">iiqiqi")
_HIGH_WATERMARK = struct.Struct(">q")
_ANSWER_V4 = struct.Struct(">ihqq")
_ANSWER_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_THROTTLE_ERROR_SESSION = struct.Struct(">ihi")
_EPOCH_AND_OFFSET = struct.Struct(">iq")
_OFFSET_AND_EPOCH = struct.Struct(">qi")


class Records(Protocol):
    """Record batches, wherever they lie. Never read here."""

    @property
    def size_bytes(self) -> int: ...


class FetchPartition(NamedTuple):
    """In the order of the wire."""

    index: int  # type: ignore[assignment]
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    replica_directory_id: UUID | None = None
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


class FetchTopic(NamedTuple):
    name: str
    """Empty where the topic is named by its id."""
    topic_id: UUID | None
    partitions: Sequence[FetchPartition]


class ForgottenTopic(NamedTuple):
    name: str
    topic_id: UUID | None
    partitions: Sequence[int]


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: Sequence[FetchTopic]
    forgotten: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    replica_id: int = CONSUMER_REPLICA_ID
    replica_epoch: int = -1
    cluster_id: str | None = None


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    end_offset: int
    epoch: int


class FetchedPartition(NamedTuple):
    index: int  # type: ignore[assignment]
    error_code: int
    high_watermark: int
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of each aborted transaction in the records; None for read_uncommitted."""
    preferred_read_replica: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: CurrentLeader | None = None
    records: Any = None
    """What the log handed out (`Records`), or bytes; None is written as no bytes, since librdkafka refuses null."""
    snapshot_id: SnapshotId | None = None


class FetchedTopic(NamedTuple):
    name: str
    topic_id: UUID | None
    partitions: Sequence[FetchedPartition]
    """In what is to be encoded, some may be bytes: encoded already (`nothing_encoder`)."""


class FetchResponse(NamedTuple):
    topics: Sequence[FetchedTopic]
    throttle_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


# --- request ------------------------------------------------------------------------------------------------------


def decode_fetch_request(frame: memoryview, position: int, version: int) -> FetchRequest:
    """The request that fills the rest of the frame."""
    try:
        if version >= FIRST_FLEXIBLE:
            request, end = _read_flexible_request(frame, position, version)
        else:
            request, end = _read_classic_request(frame, position, version)
    except GARBLED as error:
        raise MalformedMessage(f"FetchRequest v{version}: {in_words(error)}") from None
    if end != len(frame):
        raise MalformedMessage(f"FetchRequest v{version}: {len(frame) - end} bytes are left over")
    return request


def _read_flexible_request(frame: memoryview, position: int, version: int) -> tuple[FetchRequest, int]:
    replica_id, replica_epoch = CONSUMER_REPLICA_ID, -1
    if version < FIRST_WITH_REPLICA_STATE:
        (replica_id,) = _INT32.unpack_from(frame, position)
        position += 4
    max_wait, min_bytes, max_bytes, isolation, session, epoch = _LIMITS_AND_SESSION.unpack_from(frame, position)
    by_id = version >= FIRST_WITH_TOPIC_IDS
    topics, position = _read_flexible_topics(frame, position + _LIMITS_AND_SESSION.size, by_id, version)
    forgotten, position = _read_flexible_forgotten(frame, position, by_id)
    rack, position = read_compact_string(frame, position)
    if rack is None:
        raise MalformedMessage("the rack id may not be null")
    cluster_id = None
    tagged, position = read_tags(frame, position)
    if 0 in tagged:
        cluster_id, _ = read_compact_string(tagged[0], 0)
    if 1 in tagged and version >= FIRST_WITH_REPLICA_STATE:
        replica_id, replica_epoch = _REPLICA_STATE.unpack_from(tagged[1], 0)
    limits = (max_wait, min_bytes, max_bytes, isolation)
    reader = (rack, replica_id, replica_epoch, cluster_id)
    return FetchRequest(*limits, session, epoch, topics, forgotten, *reader), position


def _read_flexible_topics(frame: memoryview, position: int, by_id: bool, version: int) -> tuple[list[FetchTopic], int]:
    topic_count, position = read_compact_count(frame, position, 3)
    budget = spend(MAX_REQUEST_ELEMENTS, topic_count)
    topics = []
    for _ in range(present(topic_count)):
        name, topic_id, position = read_topic_key(frame, position, by_id)
        count, position = read_compact_count(frame, position, _REQUEST_V12.size + 1)
        budget = spend(budget, count)
        partitions = []
        for _ in range(present(count)):
            partition = FetchPartition(*_REQUEST_V12.unpack_from(frame, position))
            position += _REQUEST_V12.size
            if frame[position]:
                tagged, position = read_tags(frame, position)
                partition = _with_partition_tags(partition, tagged, version)
            else:
                position += 1
            partitions.append(partition)
        position = skip_tagged_fields(frame, position)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, position


def _with_partition_tags(partition: FetchPartition, tagged: dict[int, memoryview], version: int) -> FetchPartition:
    directory_id, high_watermark = partition.replica_directory_id, partition.high_watermark
    if 0 in tagged and version >= 17:
        raw_id, _ = read_slice(tagged[0], 0, 16)
        directory_id = uuid_from_bytes(bytes(raw_id))
    if 1 in tagged and version >= 18:
        (high_watermark,) = _HIGH_WATERMARK.unpack_from(tagged[1], 0)
    return partition._replace(replica_directory_id=directory_id, high_watermark=high_watermark)


def _read_flexible_forgotten(frame: memoryview, position: int, by_id: bool) -> tuple[list[ForgottenTopic], int]:
    topic_count, position = read_compact_count(frame, position, 3)
    budget = spend(MAX_REQUEST_ELEMENTS, topic_count)
    forgotten = []
    for _ in range(present(topic_count)):
        name, topic_id, position = read_topic_key(frame, position, by_id)
        count, position = read_compact_count(frame, position, 4)
        budget = spend(budget, count)
        indexes = struct.unpack_from(f">{present(count)}i", frame, position)
        position = skip_tagged_fields(frame, position + 4 * count)
        forgotten.append(ForgottenTopic(name, topic_id, indexes))
    return forgotten, position


def _read_classic_request(frame: memoryview, position: int, version: int) -> tuple[FetchRequest, int]:
    replica_id, max_wait, min_bytes, max_bytes, isolation = _REPLICA_AND_LIMITS.unpack_from(frame, position)
    position += _REPLICA_AND_LIMITS.size
    session, epoch = 0, -1
    if version >= FIRST_WITH_SESSIONS:
        session, epoch = _SESSION.unpack_from(frame, position)
        position += _SESSION.size
    layout, build = _classic_partition(version)
    topic_count, position = read_count(frame, position, 6)
    budget = spend(MAX_REQUEST_ELEMENTS, topic_count)
    topics = []
    for _ in range(present(topic_count)):
        name, position = read_classic_name(frame, position)
        count, position = read_count(frame, position, layout.size)
        budget = spend(budget, count)
        end = position + present(count) * layout.size
        partitions = [build(*values) for values in layout.iter_unpack(frame[position:end])]
        position = end
        topics.append(FetchTopic(name, None, partitions))
    forgotten: list[ForgottenTopic] = []
    if version >= FIRST_WITH_SESSIONS:
        forgotten, position = _read_classic_forgotten(frame, position)
    rack: str | None = ""
    if version >= 11:
        rack, position = read_string(frame, position)
    if rack is None:
        raise MalformedMessage("the rack id may not be null")
    limits = (max_wait, min_bytes, max_bytes, isolation)
    return FetchRequest(*limits, session, epoch, topics, forgotten, rack, replica_id), position


def _classic_partition(version: int) -> tuple[struct.Struct, Any]:
    if version >= 9:
        return _REQUEST_V9, lambda index, epoch, offset, start, limit: FetchPartition(
            index, epoch, offset, -1, start, limit
        )
    if version >= 5:
        return _REQUEST_V5, lambda index, offset, start, limit: FetchPartition(index, -1, offset, -1, start, limit)
    return _REQUEST_V4, lambda index, offset, limit: FetchPartition(index, -1, offset, -1, -1, limit)


def _read_classic_forgotten(frame: memoryview, position: int) -> tuple[list[ForgottenTopic], int]:
    topic_count, position = read_count(frame, position, 6)
    budget = spend(MAX_REQUEST_ELEMENTS, topic_count)
    forgotten = []
    for _ in range(present(topic_count)):
        name, position = read_classic_name(frame, position)
        count, position = read_count(frame, position, 4)
        budget = spend(budget, count)
        indexes = struct.unpack_from(f">{present(count)}i", frame, position)
        position += 4 * count
        forgotten.append(ForgottenTopic(name, None, indexes))
    return forgotten, position


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    if version >= FIRST_FLEXIBLE:
        return _flexible_request(version, request)
    out = bytearray(_REPLICA_AND_LIMITS.pack(request.replica_id, *request[:4]))
    if version >= FIRST_WITH_SESSIONS:
        out += _SESSION.pack(request.session_id, request.session_epoch)
    out += _INT32.pack(len(request.topics))
    for name, _, partitions in request.topics:
        out += string(name) + _INT32.pack(len(partitions))
        for index, leader_epoch, offset, _, start, limit, *_ in partitions:
            if version >= 9:
                out += _REQUEST_V9.pack(index, leader_epoch, offset, start, limit)
            elif version >= 5:
                out += _REQUEST_V5.pack(index, offset, start, limit)
            else:
                out += _REQUEST_V4.pack(index, offset, limit)
    if version >= FIRST_WITH_SESSIONS:
        out += _INT32.pack(len(request.forgotten))
        for name, _, indexes in request.forgotten:
            out += string(name) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    if version >= 11:
        out += string(request.rack_id)
    return bytes(out)


def _flexible_request(version: int, request: FetchRequest) -> bytes:
    out = bytearray()
    if version < FIRST_WITH_REPLICA_STATE:
        out += _INT32.pack(request.replica_id)
    out += _LIMITS_AND_SESSION.pack(*request[:6])
    out += uvarint(len(request.topics) + 1)
    for name, topic_id, partitions in request.topics:
        out += topic_key(name, topic_id, version) + uvarint(len(partitions) + 1)
        for partition in partitions:
            out += _REQUEST_V12.pack(*partition[:6]) + tags(_partition_tags(partition, version))
        out += NO_TAGS
    out += uvarint(len(request.forgotten) + 1)
    for name, topic_id, indexes in request.forgotten:
        out += topic_key(name, topic_id, version) + uvarint(len(indexes) + 1)
        out += struct.pack(f">{len(indexes)}i", *indexes) + NO_TAGS
    return bytes(out + compact_string(request.rack_id) + tags(_request_tags(request, version)))


def _partition_tags(partition: FetchPartition, version: int) -> list[tuple[int, bytes]]:
    values = []
    if version >= 17 and partition.replica_directory_id not in (None, ZERO_UUID):
        assert partition.replica_directory_id is not None
        values.append((0, partition.replica_directory_id.bytes))
    if version >= 18 and partition.high_watermark != UNKNOWN_HIGH_WATERMARK:
        values.append((1, _HIGH_WATERMARK.pack(partition.high_watermark)))
    return values


def _request_tags(request: FetchRequest, version: int) -> list[tuple[int, bytes]]:
    values = []
    if request.cluster_id is not None:
        values.append((0, compact_string(request.cluster_id)))
    replica_state = (request.replica_id, request.replica_epoch)
    if version >= FIRST_WITH_REPLICA_STATE and replica_state != (CONSUMER_REPLICA_ID, -1):
        values.append((1, _REPLICA_STATE.pack(*replica_state) + NO_TAGS))
    return values


# --- response -----------------------------------------------------------------------------------------------------


def encode_fetch_response(version: int, response: FetchResponse) -> list[Any]:
    """The body in chunks: bytes, and the records of each partition that has any, untouched and in place."""
    chunks: list[Any] = []
    out = bytearray(_response_head(version, response))
    flexible = version >= FIRST_FLEXIBLE
    for name, topic_id, partitions in response.topics:
        if flexible:
            out += topic_key(name, topic_id, version) + uvarint(len(partitions) + 1)
        else:
            out += string(name) + _INT32.pack(len(partitions))
        for partition in partitions:
            if isinstance(partition, bytes):
                out += partition
                continue
            out += _partition_head(version, partition)
            records = partition.records
            size = records_size(records)
            out += uvarint(size + 1) if flexible else _INT32.pack(size)
            if size:
                chunks += (bytes(out), records)
                out = bytearray()
            if flexible:
                out += tags(_answer_tags(partition))
        if flexible:
            out += NO_TAGS
    if flexible:
        has_endpoints = version >= FIRST_WITH_ENDPOINTS and response.node_endpoints
        out += tags([(0, endpoints_value(response.node_endpoints))]) if has_endpoints else NO_TAGS
    if out:
        chunks.append(bytes(out))
    return chunks


@cache
def nothing_encoder(version: int, committed_only: bool) -> Callable[[int, int, int, int], bytes]:
    """Encodes one partition of a response of which there is nothing to read, from its index, high watermark, last
    stable offset and log start offset. That is what most of a reader's partitions are, most of the time."""
    layout = _ANSWER_V5 if version >= 5 else _ANSWER_V4
    end = _partition_head(version, FetchedPartition(0, 0, 0, aborted=() if committed_only else None))[layout.size :]
    end += uvarint(1) + NO_TAGS if version >= FIRST_FLEXIBLE else _INT32.pack(0)
    pack = layout.pack
    if version >= 5:
        return lambda index, high_watermark, stable, start: pack(index, 0, high_watermark, stable, start) + end
    return lambda index, high_watermark, stable, _: pack(index, 0, high_watermark, stable) + end


def records_size(records: Any) -> int:
    if records is None:
        return 0
    if isinstance(records, bytes | bytearray | memoryview):
        return len(records)
    return int(records.size_bytes)


def _response_head(version: int, response: FetchResponse) -> bytes:
    if version >= FIRST_FLEXIBLE:
        head = _THROTTLE_ERROR_SESSION.pack(response.throttle_ms, response.error_code, response.session_id)
        return head + uvarint(len(response.topics) + 1)
    if version >= FIRST_WITH_SESSIONS:
        head = _THROTTLE_ERROR_SESSION.pack(response.throttle_ms, response.error_code, response.session_id)
        return head + _INT32.pack(len(response.topics))
    return _INT32.pack(response.throttle_ms) + _INT32.pack(len(response.topics))


def _partition_head(version: int, partition: FetchedPartition) -> bytes:
    head = _ANSWER_V5.pack(*partition[:5]) if version >= 5 else _ANSWER_V4.pack(*partition[:4])
    aborted = partition.aborted
    if version >= FIRST_FLEXIBLE:
        head += uvarint(0 if aborted is None else len(aborted) + 1)
        for transaction in aborted or ():
            head += _ABORTED.pack(*transaction) + NO_TAGS
    else:
        head += _INT32.pack(-1 if aborted is None else len(aborted))
        for transaction in aborted or ():
            head += _ABORTED.pack(*transaction)
    return head + _INT32.pack(partition.preferred_read_replica) if version >= 11 else head


def _answer_tags(partition: FetchedPartition) -> list[tuple[int, bytes]]:
    values = []
    if partition.diverging_epoch is not None:
        values.append((0, _EPOCH_AND_OFFSET.pack(*partition.diverging_epoch) + NO_TAGS))
    if partition.current_leader is not None:
        values.append((1, leader_value(partition.current_leader)))
    if partition.snapshot_id is not None:
        values.append((2, _OFFSET_AND_EPOCH.pack(*partition.snapshot_id) + NO_TAGS))
    return values


def decode_fetch_response(frame: memoryview, position: int, version: int) -> FetchResponse:
    """The response that fills the rest of the frame. Its records are views of the frame."""
    try:
        response, end = _read_response(frame, position, version)
    except GARBLED as error:
        raise MalformedMessage(f"FetchResponse v{version}: {in_words(error)}") from None
    if end != len(frame):
        raise MalformedMessage(f"FetchResponse v{version}: {len(frame) - end} bytes are left over")
    return response


def _read_response(frame: memoryview, position: int, version: int) -> tuple[FetchResponse, int]:
    flexible = version >= FIRST_FLEXIBLE
    read_array_count = read_compact_count if flexible else read_count
    error_code = session_id = 0
    if version >= FIRST_WITH_SESSIONS:
        throttle_ms, error_code, session_id = _THROTTLE_ERROR_SESSION.unpack_from(frame, position)
        position += _THROTTLE_ERROR_SESSION.size
    else:
        (throttle_ms,) = _INT32.unpack_from(frame, position)
        position += 4
    topic_count, position = read_array_count(frame, position, 3)
    topics = []
    for _ in range(present(topic_count)):
        if flexible:
            name, topic_id, position = read_topic_key(frame, position, version >= FIRST_WITH_TOPIC_IDS)
        else:
            (name, position), topic_id = read_classic_name(frame, position), None
        count, position = read_array_count(frame, position, _ANSWER_V4.size + 2)
        partitions = []
        for _ in range(present(count)):
            partition, position = _read_answer(frame, position, version)
            partitions.append(partition)
        if flexible:
            position = skip_tagged_fields(frame, position)
        topics.append(FetchedTopic(name, topic_id, partitions))
    endpoints: Sequence[NodeEndpoint] = ()
    if flexible:
        tagged, position = read_tags(frame, position)
        endpoints = read_endpoints(tagged.get(0) if version >= FIRST_WITH_ENDPOINTS else None)
    return FetchResponse(topics, throttle_ms, error_code, session_id, endpoints), position


def _read_answer(frame: memoryview, position: int, version: int) -> tuple[FetchedPartition, int]:
    flexible = version >= FIRST_FLEXIBLE
    if version >= 5:
        index, error_code, high_watermark, last_stable, log_start = _ANSWER_V5.unpack_from(frame, position)
        position += _ANSWER_V5.size
    else:
        index, error_code, high_watermark, last_stable = _ANSWER_V4.unpack_from(frame, position)
        log_start = NO_OFFSET
        position += _ANSWER_V4.size
    aborted, position = _read_aborted(frame, position, flexible)
    preferred = -1
    if version >= 11:
        (preferred,) = _INT32.unpack_from(frame, position)
        position += 4
    records, position = (read_compact_bytes if flexible else read_bytes)(frame, position)
    tagged: dict[int, memoryview] = {}
    if flexible:
        tagged, position = read_tags(frame, position)
    head = (index, error_code, high_watermark, last_stable, log_start)
    diverging = EpochEndOffset(*_EPOCH_AND_OFFSET.unpack_from(tagged[0], 0)) if 0 in tagged else None
    snapshot = SnapshotId(*_OFFSET_AND_EPOCH.unpack_from(tagged[2], 0)) if 2 in tagged else None
    leader = read_leader(tagged.get(1))
    return FetchedPartition(*head, aborted, preferred, diverging, leader, records, snapshot), position


def _read_aborted(frame: memoryview, position: int, flexible: bool) -> tuple[list[tuple[int, int]] | None, int]:
    if flexible:
        count, position = read_compact_count(frame, position, _ABORTED.size + 1)
    else:
        count, position = read_count(frame, position, _ABORTED.size)
    if count < 0:
        return None, position
    aborted = []
    for _ in range(count):
        aborted.append(_ABORTED.unpack_from(frame, position))
        position += _ABORTED.size
        if flexible:
            position = skip_tagged_fields(frame, position)
    return aborted, position
