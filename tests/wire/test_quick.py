"""The native reading and writing of plain Produce against its twin, on good requests and on mangled ones."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.records.model import MAX_BASE_OFFSET
from oncelog.wire.codec import MalformedMessage
from oncelog.wire.frame import RequestHeader, decode_request_header, encode_request
from oncelog.wire.hot import CurrentLeader
from oncelog.wire.primitives import MAX_REQUEST_ELEMENTS, uvarint
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
from oncelog.wire.quick import load
from tests.wire.test_hot import CHECKS, int32, produce_requests, produce_responses

_quick = pytest.importorskip("oncelog.wire._quick", reason="the native parts are not built")

FIRST_FLEXIBLE, LATEST = 9, 13
flexible_versions = st.integers(FIRST_FLEXIBLE, LATEST)
client_ids = st.none() | st.text(max_size=20)
produced_topics = produce_responses.map(lambda response: response.topics)


def as_frame(version: int, request: ProduceRequest, correlation_id: int, client_id: str | None) -> bytearray:
    body = b"".join(encode_produce_request(version, request))
    return bytearray(encode_request(0, version, correlation_id, client_id, body)[4:])


def read_by_twin(frame: memoryview) -> tuple[RequestHeader, ProduceRequest] | None:
    try:
        header, position = decode_request_header(frame)
        if header.api_key != 0 or not FIRST_FLEXIBLE <= header.api_version <= LATEST:
            return None
        return header, decode_produce_request(frame, position, header.api_version)
    except MalformedMessage:
        return None


@CHECKS
@given(flexible_versions, produce_requests, int32, client_ids)
def test_it_reads_what_its_twin_reads(
    version: int, request: ProduceRequest, correlation_id: int, client_id: str | None
) -> None:
    frame = memoryview(as_frame(version, request, correlation_id, client_id))
    found = _quick.read_produce(frame)
    assert found is not None, "it is plain"
    assert found == read_by_twin(frame)
    assert [type(part) for part in found] == [RequestHeader, ProduceRequest]


@CHECKS
@given(flexible_versions, produce_requests, st.data())
def test_of_mangled_bytes_it_reads_what_its_twin_reads_or_nothing(
    version: int, request: ProduceRequest, data: st.DataObject
) -> None:
    frame = as_frame(version, request, 7, "client")
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(frame) - 1))
        frame[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)))
    for mangled in (frame, frame[:cut], frame + frame[cut:]):
        found = _quick.read_produce(memoryview(mangled))
        assert found is None or found == read_by_twin(memoryview(mangled))


@CHECKS
@given(st.binary(max_size=100))
def test_of_noise_it_reads_nothing_that_its_twin_refuses(noise: bytes) -> None:
    for frame in (noise, b"\x00\x00\x00\x09" + noise):
        found = _quick.read_produce(memoryview(frame))
        assert found is None or found == read_by_twin(memoryview(frame))


def test_other_requests_are_left_to_others() -> None:
    plain = as_frame(9, ProduceRequest(None, -1, 1, []), 1, None)
    assert _quick.read_produce(memoryview(plain)) is not None
    for api_key, version in ((1, 9), (0, 8), (0, 14), (0, -1)):
        frame = api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + plain[4:]
        assert _quick.read_produce(memoryview(frame)) is None


def test_a_request_of_too_many_elements_is_left_to_the_twin() -> None:
    """Which refuses it: each element takes hundreds of bytes as an object."""
    count = MAX_REQUEST_ELEMENTS + 1
    body = b"\x00" + b"\xff\xff" + b"\x00\x00\x00\x01" + uvarint(count + 1) + b"\x01\x01\x00" * count + b"\x00"
    frame = memoryview(encode_request(0, 9, 1, None, body)[4:])
    assert _quick.read_produce(frame) is None
    with pytest.raises(MalformedMessage, match="elements in one request"):
        decode_produce_request(frame, decode_request_header(frame)[1], 9)


@CHECKS
@given(st.integers(0, LATEST), produced_topics, int32)
def test_it_writes_what_its_twin_writes_or_nothing(version: int, topics: list[ProducedTopic], throttle_ms: int) -> None:
    written = _quick.produce_response(version, topics, throttle_ms)
    assert written is None or written == encode_produce_response(version, topics, throttle_ms)


@CHECKS
@given(flexible_versions, produced_topics, int32)
def test_it_writes_answers_without_errors(version: int, topics: list[ProducedTopic], throttle_ms: int) -> None:
    plain = _plain(topics)
    written = _quick.produce_response(version, plain, throttle_ms)
    assert written == encode_produce_response(version, plain, throttle_ms)


@CHECKS
@given(st.integers(3, LATEST), produce_requests, st.integers(0, 3000))
def test_it_writes_the_requests_that_its_twin_writes_in_the_same_chunks(
    version: int, request: ProduceRequest, size: int
) -> None:
    large = ProduceTopic("t", UUID(int=5), [ProducePartition(7, memoryview(b"r" * size))])
    request = request._replace(topics=[*request.topics, large])
    has_null = any(one.records is None for topic in request.topics for one in topic.partitions)
    written = _quick.produce_request(version, request)
    assert (written is None) is (version < FIRST_FLEXIBLE or has_null)
    if written is not None:
        assert [bytes(chunk) for chunk in written] == [bytes(one) for one in encode_produce_request(version, request)]


@CHECKS
@given(flexible_versions, produce_responses, st.data())
def test_of_answers_it_reads_what_its_twin_reads_or_nothing(
    version: int, response: ProduceResponse, data: st.DataObject
) -> None:
    plain = _plain(response.topics)
    body = encode_produce_response(version, plain, response.throttle_ms)
    found = _quick.read_produce_response(memoryview(b"head" + body), 4, version)
    assert found is not None, "it is plain"
    assert found == decode_produce_response(memoryview(body), 0, version)
    mangled = bytearray(encode_produce_response(version, *response))
    mangled[data.draw(st.integers(0, len(mangled) - 1))] = data.draw(st.integers(0, 255))
    for frame in (mangled, mangled[: data.draw(st.integers(0, len(mangled)))]):
        found = _quick.read_produce_response(memoryview(frame), 0, version)
        assert found is None or found == decode_produce_response(memoryview(frame), 0, version)


def test_answers_that_tell_of_errors_are_left_to_the_twin() -> None:
    stored = ProducedPartition(0, 0, 5)
    for told in (
        stored._replace(error_code=6),
        stored._replace(error_message="why"),
        stored._replace(record_errors=[RecordError(0, None)]),
        stored._replace(current_leader=CurrentLeader(1, 2)),
    ):
        body = memoryview(encode_produce_response(12, [ProducedTopic("t", None, [stored, told])]))
        assert _quick.read_produce_response(body, 0, 12) is None
    assert _quick.read_produce_response(memoryview(b""), 1, 12) is None
    assert _quick.read_produce_response(memoryview(b"\0" * 20), 0, 8) is None


def test_a_name_that_the_protocol_cannot_carry_is_left_to_the_twin() -> None:
    topic = ProducedTopic("é" * 16_384, None, [])
    assert _quick.produce_response(9, [topic], 0) is None
    longest = topic._replace(name="é" * 16_383 + "e")
    assert _quick.produce_response(9, [longest], 0) == encode_produce_response(9, [longest])


def test_without_it_the_python_codec_does_everything() -> None:
    twins = load(native=False)
    assert twins.read_produce(memoryview(as_frame(9, ProduceRequest(None, -1, 1, []), 1, None))) is None
    assert load(native=True)[0] is _quick.read_produce


def _plain(topics: Sequence[ProducedTopic]) -> list[ProducedTopic]:
    """The same without errors, and with offsets that a log can have."""
    return [topic._replace(partitions=[_stored(each) for each in topic.partitions]) for topic in topics]


def _stored(partition: ProducedPartition) -> ProducedPartition:
    offset = min(max(partition.base_offset, -1), MAX_BASE_OFFSET)
    return partition._replace(
        base_offset=offset, error_code=0, error_message=None, record_errors=(), current_leader=None
    )
