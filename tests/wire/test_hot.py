"""The hand-written Produce and Fetch against the generic codec: the same bytes, the same values, the same refusals."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.wire.codec import MalformedMessage, Message, decode_exactly, encode
from oncelog.wire.fetch import (
    UNKNOWN_HIGH_WATERMARK,
    EpochEndOffset,
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    SnapshotId,
    decode_fetch_request,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
    nothing_encoder,
    records_size,
)
from oncelog.wire.hot import CurrentLeader, NodeEndpoint
from oncelog.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    RecordError,
    decode_produce_request,
    decode_produce_response,
    encode_produce_request,
    encode_produce_response,
)
from oncelog.wire.schema import ZERO_UUID
from tests.support.sizes import examples
from tests.wire.kio_bridge import covers

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text("abc.", min_size=1, max_size=5)
texts = st.none() | st.text(max_size=5) | st.text("é", min_size=80, max_size=90)
blobs = st.binary(max_size=200)
leaders = st.builds(CurrentLeader, st.integers(0, 9), st.integers(0, 9))
endpoints = st.lists(st.builds(NodeEndpoint, int32, names, int32, texts), max_size=2)

CHECKS = settings(max_examples=examples(150), deadline=None, database=None)


def few(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=3)


def since(version: int, first: int, **fields: Any) -> dict[str, Any]:
    return fields if version >= first else {}


def topic_name(version: int, topic: Any, key: str = "topic") -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if version >= 13 else {key: topic.name}


def as_read(version: int, topic: Any) -> Any:
    """A topic as it comes back: named by its id or by its name, never both."""
    return topic._replace(name="") if version >= 13 else topic._replace(topic_id=None)


def leader_message(leader: CurrentLeader | None) -> Message:
    return leader._asdict() if leader else {"leader_id": -1, "leader_epoch": -1}


# --- Produce ------------------------------------------------------------------------------------------------------

produce_requests = st.builds(
    ProduceRequest,
    texts,
    int16,
    int32,
    few(st.builds(ProduceTopic, names, st.uuids(), few(st.builds(ProducePartition, int32, st.none() | blobs)))),
)
produce_responses = st.builds(
    ProduceResponse,
    few(
        st.builds(
            ProducedTopic,
            names,
            st.uuids(),
            few(
                st.builds(
                    ProducedPartition,
                    int32,
                    int16,
                    int64,
                    int64,
                    int64,
                    texts,
                    few(st.builds(RecordError, int32, texts)),
                    st.none() | leaders,
                )
            ),
        )
    ),
    int32,
    endpoints,
)


def produce_request_message(version: int, request: ProduceRequest) -> Message:
    return {
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout_ms": request.timeout_ms,
        "topic_data": [
            topic_name(version, topic, "name")
            | {"partition_data": [{"index": index, "records": records} for index, records in topic.partitions]}
            for topic in request.topics
        ],
    }


def produced_message(version: int, partition: ProducedPartition) -> Message:
    errors = [{"batch_index": index, "batch_index_error_message": text} for index, text in partition.record_errors]
    return (
        {"index": partition.index, "error_code": partition.error_code, "base_offset": partition.base_offset}
        | {"log_append_time_ms": partition.log_append_time_ms}
        | since(version, 5, log_start_offset=partition.log_start_offset)
        | since(version, 8, record_errors=errors, error_message=partition.error_message)
        | since(version, 10, current_leader=leader_message(partition.current_leader))
    )


def produce_response_message(version: int, response: ProduceResponse) -> Message:
    return {
        "responses": [
            topic_name(version, topic, "name")
            | {"partition_responses": [produced_message(version, partition) for partition in topic.partitions]}
            for topic in response.topics
        ],
        "throttle_time_ms": response.throttle_ms,
    } | since(version, 10, node_endpoints=[node._asdict() for node in response.node_endpoints])


@CHECKS
@given(st.integers(3, 13), produce_requests)
def test_produce_request(version: int, request: ProduceRequest) -> None:
    body = b"".join(encode_produce_request(version, request))
    message = produce_request_message(version, request)
    assert body == encode("ProduceRequest", version, message)
    read = decode_produce_request(memoryview(body), 0, version)
    assert read == request._replace(topics=[as_read(version, topic) for topic in request.topics])


@CHECKS
@given(st.integers(3, 13), produce_responses)
def test_produce_response(version: int, response: ProduceResponse) -> None:
    body = encode_produce_response(version, *response)
    message = produce_response_message(version, response)
    assert body == encode("ProduceResponse", version, message)
    read = decode_produce_response(memoryview(body), 0, version)
    assert covers(decode_exactly("ProduceResponse", version, body), produce_response_message(version, read) | message)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_advertised_but_refused_versions_of_produce(version: int) -> None:
    """Their definitions are gone from Kafka; the bytes here are written out by hand."""
    body = b"\xff\xff" + b"\0\0\0\7" + b"\0\0\0\1\0\1t" + b"\0\0\0\1" + b"\0\0\0\5\0\0\0\3abc"
    request = decode_produce_request(memoryview(body), 0, version)
    assert request == ProduceRequest(None, -1, 7, [ProduceTopic("t", None, [ProducePartition(5, b"abc")])])
    assert b"".join(encode_produce_request(version, request)) == body
    answer = encode_produce_response(version, [ProducedTopic("t", None, [ProducedPartition(5, 35)])], 9)
    expected = b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\5\0\x23" + b"\xff" * (8 if version < 2 else 16)
    assert answer == expected + (b"\0\0\0\x09" if version >= 1 else b"")
    assert decode_produce_response(memoryview(answer), 0, version).topics[0].partitions[0].error_code == 35


# --- Fetch --------------------------------------------------------------------------------------------------------

watermarks = st.just(UNKNOWN_HIGH_WATERMARK) | int64
fetch_partitions = st.builds(
    FetchPartition, int32, int32, int64, int32, int64, int32, st.none() | st.uuids(), watermarks
)
fetch_requests = st.builds(
    FetchRequest,
    int32,
    int32,
    int32,
    st.integers(0, 1),
    int32,
    int32,
    few(st.builds(FetchTopic, names, st.uuids(), few(fetch_partitions))),
    few(st.builds(ForgottenTopic, names, st.uuids(), st.lists(int32, max_size=3).map(tuple))),
    st.text(max_size=5),
    int32,
    int64,
    texts,
)
fetched_partitions = st.builds(
    FetchedPartition,
    int32,
    int16,
    int64,
    int64,
    int64,
    st.none() | few(st.tuples(int64, int64)),
    int32,
    st.none() | st.builds(EpochEndOffset, st.integers(0, 9), st.integers(0, 9)),
    st.none() | leaders,
    blobs,
    st.none() | st.builds(SnapshotId, st.integers(0, 9), st.integers(0, 9)),
)
fetch_responses = st.builds(
    FetchResponse,
    few(st.builds(FetchedTopic, names, st.uuids(), few(fetched_partitions))),
    int32,
    int16,
    int32,
    endpoints,
)


def fetch_partition_message(version: int, partition: FetchPartition) -> Message:
    return (
        {
            "partition": partition.index,
            "fetch_offset": partition.fetch_offset,
            "partition_max_bytes": partition.max_bytes,
        }
        | since(version, 5, log_start_offset=partition.log_start_offset)
        | since(version, 9, current_leader_epoch=partition.current_leader_epoch)
        | since(version, 12, last_fetched_epoch=partition.last_fetched_epoch)
        | since(version, 17, replica_directory_id=partition.replica_directory_id or ZERO_UUID)
        | since(version, 18, high_watermark=partition.high_watermark)
    )


def fetch_request_message(version: int, request: FetchRequest) -> Message:
    topics = [
        topic_name(version, topic)
        | {"partitions": [fetch_partition_message(version, partition) for partition in topic.partitions]}
        for topic in request.topics
    ]
    forgotten = [topic_name(version, topic) | {"partitions": list(topic.partitions)} for topic in request.forgotten]
    replica = {"replica_id": request.replica_id, "replica_epoch": request.replica_epoch}
    return (
        {"max_wait_ms": request.max_wait_ms, "min_bytes": request.min_bytes, "max_bytes": request.max_bytes}
        | {"isolation_level": request.isolation_level, "topics": topics}
        | since(version, 7, session_id=request.session_id, session_epoch=request.session_epoch)
        | since(version, 7, forgotten_topics_data=forgotten)
        | since(version, 11, rack_id=request.rack_id)
        | since(version, 12, cluster_id=request.cluster_id)
        | ({"replica_state": replica} if version >= 15 else {"replica_id": request.replica_id})
    )


def fetched_message(version: int, partition: FetchedPartition) -> Message:
    aborted = partition.aborted
    diverging = partition.diverging_epoch or EpochEndOffset(-1, -1)
    snapshot = partition.snapshot_id or SnapshotId(-1, -1)
    return (
        {"partition_index": partition.index, "error_code": partition.error_code, "records": partition.records or b""}
        | {"high_watermark": partition.high_watermark, "last_stable_offset": partition.last_stable_offset}
        | {
            "aborted_transactions": None
            if aborted is None
            else [{"producer_id": producer_id, "first_offset": offset} for producer_id, offset in aborted]
        }
        | since(version, 5, log_start_offset=partition.log_start_offset)
        | since(version, 11, preferred_read_replica=partition.preferred_read_replica)
        | since(version, 12, diverging_epoch=diverging._asdict(), snapshot_id=snapshot._asdict())
        | since(version, 12, current_leader=leader_message(partition.current_leader))
    )


def fetch_response_message(version: int, response: FetchResponse) -> Message:
    topics = [
        topic_name(version, topic)
        | {"partitions": [fetched_message(version, partition) for partition in topic.partitions]}
        for topic in response.topics
    ]
    return (
        {"throttle_time_ms": response.throttle_ms, "responses": topics}
        | since(version, 7, error_code=response.error_code, session_id=response.session_id)
        | since(version, 16, node_endpoints=[node._asdict() for node in response.node_endpoints])
    )


@CHECKS
@given(st.integers(4, 18), fetch_requests)
def test_fetch_request(version: int, request: FetchRequest) -> None:
    body = encode_fetch_request(version, request)
    message = fetch_request_message(version, request)
    assert body == encode("FetchRequest", version, message)
    read = decode_fetch_request(memoryview(body), 0, version)
    assert fetch_request_message(version, read) == message


@CHECKS
@given(st.integers(4, 18), fetch_responses)
def test_fetch_response(version: int, response: FetchResponse) -> None:
    body = b"".join(encode_fetch_response(version, response))
    message = fetch_response_message(version, response)
    assert body == encode("FetchResponse", version, message)
    read = decode_fetch_response(memoryview(body), 0, version)
    assert fetch_response_message(version, read) == message


class OnDisk:
    """What a log hands out: records that are not read before they are sent."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_records_are_passed_through_untouched(version: int) -> None:
    first, second = OnDisk(5), OnDisk(7)
    partitions = [FetchedPartition(index, 0, 9, records=records) for index, records in enumerate([first, None, second])]
    chunks = encode_fetch_response(version, FetchResponse([FetchedTopic("t", UUID(int=1), partitions)]))
    assert [chunk for chunk in chunks if not isinstance(chunk, bytes)] == [first, second]
    filled = b"".join(chunk if isinstance(chunk, bytes) else b"x" * chunk.size_bytes for chunk in chunks)
    assert len(filled) == sum(records_size(chunk) for chunk in chunks)
    (topic,) = decode_fetch_response(memoryview(filled), 0, version).topics
    assert [bytes(partition.records) for partition in topic.partitions] == [b"xxxxx", b"", b"xxxxxxx"]


# --- bytes that are not the message -------------------------------------------------------------------------------

HOT: dict[str, tuple[Any, Any, Any, range]] = {
    "ProduceRequest": (decode_produce_request, produce_request_message, produce_requests, range(3, 14)),
    "ProduceResponse": (decode_produce_response, produce_response_message, produce_responses, range(3, 14)),
    "FetchRequest": (decode_fetch_request, fetch_request_message, fetch_requests, range(4, 19)),
    "FetchResponse": (decode_fetch_response, fetch_response_message, fetch_responses, range(4, 19)),
}


@st.composite
def damaged(draw: st.DrawFn, name: str) -> tuple[int, bytes]:
    """A message of which a few bytes are overwritten, and the end perhaps cut off."""
    _, to_message, values, versions = HOT[name]
    version = draw(st.sampled_from(versions))
    body = bytearray(encode(name, version, to_message(version, draw(values))))
    for _ in range(draw(st.integers(0, 3))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return version, bytes(body[: draw(st.integers(0, len(body)) | st.just(len(body)))])


@pytest.mark.parametrize("name", HOT)
@settings(max_examples=examples(200), deadline=None, database=None)
@given(data=st.data())
def test_damaged_bytes_are_refused_or_mean_what_the_generic_codec_reads(name: str, data: st.DataObject) -> None:
    decode_by_hand, to_message, _, _ = HOT[name]
    version, body = data.draw(damaged(name))
    try:
        by_hand = decode_by_hand(memoryview(body), 0, version)
    except MalformedMessage:
        with pytest.raises(MalformedMessage):
            decode_exactly(name, version, body)
        return
    try:
        generic = decode_exactly(name, version, body)
    except MalformedMessage:
        return  # the generic codec also looks into tagged fields that nobody needs
    for topic in generic.get("responses", []) if name == "FetchResponse" else []:
        for partition in topic["partitions"]:
            partition["records"] = partition["records"] or b""
    assert covers(generic, to_message(version, by_hand))


@pytest.mark.parametrize("version", [3, 9, 13])
def test_every_truncation_of_produce_is_refused(version: int) -> None:
    topic = ProduceTopic("t", UUID(int=1), [ProducePartition(0, memoryview(b"0123456789"))] * 2)
    body = b"".join(encode_produce_request(version, ProduceRequest("x", -1, 5, [topic, topic])))
    for end in range(len(body)):
        with pytest.raises(MalformedMessage):
            decode_produce_request(memoryview(body)[:end], 0, version)
    with pytest.raises(MalformedMessage, match="left over"):
        decode_produce_request(memoryview(body + b"!"), 0, version)


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 18])
def test_every_truncation_of_fetch_is_refused(version: int) -> None:
    topic = FetchTopic("t", UUID(int=1), [FetchPartition(0, 1, 2, 3, 4, 5, UUID(int=9), 7)] * 2)
    forgotten = [ForgottenTopic("f", UUID(int=2), (1, 2))]
    body = encode_fetch_request(version, FetchRequest(1, 2, 3, 1, 5, 6, [topic], forgotten, "rack", 4, 5, "cluster"))
    for end in range(len(body)):
        with pytest.raises(MalformedMessage):
            decode_fetch_request(memoryview(body)[:end], 0, version)


@pytest.mark.parametrize("version", [3, 9, 13])
def test_the_elements_of_a_produce_request_are_bounded(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.wire.produce.MAX_REQUEST_ELEMENTS", 10)
    topic = ProduceTopic("", UUID(int=1), [ProducePartition(0, None)])

    def read(topics: int) -> ProduceRequest:
        body = b"".join(encode_produce_request(version, ProduceRequest(None, -1, 5, [topic] * topics)))
        return decode_produce_request(memoryview(body), 0, version)

    assert len(read(5).topics) == 5
    with pytest.raises(MalformedMessage, match="elements in one request"):
        read(6)


@pytest.mark.parametrize("version", [7, 12, 13])
def test_the_elements_of_a_fetch_request_are_bounded(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.wire.fetch.MAX_REQUEST_ELEMENTS", 10)
    topic = FetchTopic("", UUID(int=1), [FetchPartition(0, -1, 0, -1, -1, 1)])
    forgotten = ForgottenTopic("", UUID(int=1), (0,))

    def read(topics: int, forgotten_topics: int) -> FetchRequest:
        request = FetchRequest(1, 2, 3, 1, 5, 6, [topic] * topics, [forgotten] * forgotten_topics)
        return decode_fetch_request(memoryview(encode_fetch_request(version, request)), 0, version)

    assert len(read(5, 5).topics) == 5
    for topics, forgotten_topics in [(6, 0), (0, 6)]:
        with pytest.raises(MalformedMessage, match="elements in one request"):
            read(topics, forgotten_topics)


@pytest.mark.parametrize("committed_only", [False, True])
@pytest.mark.parametrize("version", range(4, 19))
def test_what_is_encoded_beforehand_is_what_is_encoded_at_once(version: int, committed_only: bool) -> None:
    empty = FetchedPartition(7, 0, 30, 20, 10, aborted=() if committed_only else None)
    full = FetchedPartition(8, 0, 31, 21, 11, aborted=() if committed_only else None, records=b"abc")
    piece = nothing_encoder(version, committed_only)(7, 30, 20, 10)
    topic = ("orders", None) if version < 13 else ("", UUID(int=5))
    made = [
        encode_fetch_response(version, FetchResponse([FetchedTopic(*topic, partitions)]))  # type: ignore[arg-type]
        for partitions in ([empty, full, empty], [piece, full, piece])
    ]
    assert made[0] == made[1]
