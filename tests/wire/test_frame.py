from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.wire.api import ApiKey, request_header_version, response_header_version
from oncelog.wire.buffer_shelf import BufferShelf
from oncelog.wire.codec import MalformedMessage, encode
from oncelog.wire.frame import (
    IDLE_BUFFER_BYTES,
    MAX_EARNED_BYTES,
    MIN_BUFFER_BYTES,
    FrameAssembler,
    FrameTooLarge,
    MalformedFrame,
    RequestHeader,
    UnknownApi,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from tests.support.sizes import examples

LIMIT = 100 * 1024 * 1024


def frame_of(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def feed(assembler: FrameAssembler, stream: bytes, step: int = 1 << 30) -> list[bytes]:
    """Deliver the stream in reads of at most `step` bytes."""
    frames = []
    position = 0
    while position < len(stream):
        view = assembler.get_buffer()
        count = min(len(view), step, len(stream) - position)
        view[:count] = stream[position : position + count]
        position += count
        frames += [bytes(frame) for frame in assembler.received(count)]
    return frames


@pytest.mark.parametrize("api_key", [ApiKey.API_VERSIONS, ApiKey.METADATA])
@pytest.mark.parametrize("version", [0, 3, 4, 12])
@pytest.mark.parametrize("client_id", [None, "", "a client"])
def test_request_headers_are_those_of_the_definition(api_key: ApiKey, version: int, client_id: str | None) -> None:
    request = encode_request(api_key, version, 7, client_id, b"body")
    fields = {"request_api_key": api_key, "request_api_version": version, "correlation_id": 7, "client_id": client_id}
    header = encode("RequestHeader", request_header_version(api_key, version), fields)
    assert request == frame_of(header + b"body")
    decoded, position = decode_request_header(memoryview(request)[4:])
    assert decoded == RequestHeader(api_key, version, 7, client_id)
    assert request[4 + position :] == b"body"


@pytest.mark.parametrize("api_key", [ApiKey.API_VERSIONS, ApiKey.METADATA])
@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_response_headers_are_those_of_the_definition(api_key: ApiKey, version: int) -> None:
    response = encode_response(RequestHeader(api_key, version, 7, None), b"body")
    header = encode("ResponseHeader", response_header_version(api_key, version), {"correlation_id": 7})
    assert response == frame_of(header + b"body")
    assert decode_response_header(api_key, version, memoryview(response)[4:]) == (7, len(header))


def test_the_answer_to_api_versions_never_has_tagged_fields_in_its_header() -> None:
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    header = struct.pack(">hhih", ApiKey.METADATA, 12, 7, -1) + b"\x01\x05\x03abc"
    assert decode_request_header(memoryview(header + b"body")) == (RequestHeader(3, 12, 7, None), len(header))


@pytest.mark.parametrize(
    "garbage", [b"", b"\0\3\0", b"\0\3\0\1\0\0\0\7", b"\0\3\0\1\0\0\0\7\0\5abc", b"\0\3\0\x0c\0\0\0\7\xff\xff"]
)
def test_a_header_that_ends_early_is_refused(garbage: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_request_header(memoryview(garbage))


def test_an_unknown_api_is_refused() -> None:
    with pytest.raises(UnknownApi, match="999"):
        decode_request_header(memoryview(struct.pack(">hhih", 999, 0, 7, -1)))


@settings(max_examples=examples(100), deadline=None, database=None)
@given(st.lists(st.binary(max_size=300) | st.integers(0, 40_000).map(bytes), max_size=8), st.integers(1, 9000))
def test_frames_come_out_as_they_went_in(payloads: list[bytes], step: int) -> None:
    stream = b"".join(map(frame_of, payloads))
    assert feed(FrameAssembler(LIMIT), stream, step) == payloads


def test_frames_stay_valid_after_later_ones_arrive() -> None:
    assembler = FrameAssembler(LIMIT)
    kept = []
    for number in range(500):
        stream = frame_of(bytes([number % 256]) * 100)
        view = assembler.get_buffer()
        if len(view) < len(stream):
            view[:] = stream[: len(view)]
            rest = stream[len(view) :]
            kept += list(assembler.received(len(view)))
            view, stream = assembler.get_buffer(), rest
        view[: len(stream)] = stream
        kept += list(assembler.received(len(stream)))
    assert [bytes(frame) for frame in kept] == [bytes([number % 256]) * 100 for number in range(500)]
    assert not kept[0].readonly


@pytest.mark.parametrize(
    ("size", "error"), [(-1, MalformedFrame), (-(2**31), MalformedFrame), (LIMIT + 1, FrameTooLarge)]
)
def test_an_impossible_size_is_refused_after_the_good_frames(size: int, error: type[Exception]) -> None:
    assembler = FrameAssembler(LIMIT)
    stream = frame_of(b"good") + struct.pack(">i", size)
    assembler.get_buffer()[: len(stream)] = stream
    frames = assembler.received(len(stream))
    assert bytes(next(frames)) == b"good"
    with pytest.raises(error):
        next(frames)


def test_http_is_recognised() -> None:
    assembler = FrameAssembler(LIMIT)
    stream = b"GET /metrics HTTP/1.1"
    assembler.get_buffer()[: len(stream)] = stream
    with pytest.raises(FrameTooLarge, match=r"this looks like HTTP; metrics are served on metrics\.port"):
        list(assembler.received(len(stream)))


def test_a_claimed_size_allocates_nothing() -> None:
    tracemalloc.start()
    assembler = FrameAssembler(LIMIT)
    assert feed(assembler, struct.pack(">i", LIMIT) + b"x" * 10) == []
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert current < 4 * MIN_BUFFER_BYTES
    assert assembler.pending_bytes() == 14


def test_a_buffer_grows_only_with_the_bytes_that_arrived() -> None:
    assembler = FrameAssembler(LIMIT)
    feed(assembler, struct.pack(">i", LIMIT) + bytes(300_000))
    assert len(assembler.get_buffer()) + assembler.pending_bytes() <= 2 * 300_004 + MIN_BUFFER_BYTES


def test_large_frames_earn_a_buffer_that_holds_them_whole() -> None:
    assembler = FrameAssembler(LIMIT)
    large = frame_of(bytes(500_000))
    feed(assembler, large)
    assert len(assembler.get_buffer()) >= len(large)
    feed(assembler, frame_of(bytes(20_000_000)))
    assert len(assembler.get_buffer()) <= MAX_EARNED_BYTES


def test_an_idle_connection_keeps_little() -> None:
    assembler = FrameAssembler(LIMIT)
    feed(assembler, frame_of(bytes(5_000_000)))
    assert len(assembler._view) <= IDLE_BUFFER_BYTES
    small = FrameAssembler(LIMIT)
    feed(small, frame_of(bytes(100)))
    assert len(small._view) == MIN_BUFFER_BYTES


def test_a_stream_of_large_frames_is_received_into_one_buffer() -> None:
    shelf = BufferShelf()
    assembler = FrameAssembler(LIMIT, shelf)
    buffers = set()
    for number in range(20):
        stream = frame_of(bytes([number]) * 300_000)
        assert feed(assembler, stream) == [stream[4:]]
        if number >= 2:  # by then it has earned a buffer for whole frames
            assert len(shelf) == 1, "nothing is pending, so the shelf has it"
            buffers.add(id(assembler.get_buffer().obj))
    assert len(buffers) == 1


def test_a_frame_that_is_kept_keeps_its_buffer() -> None:
    assembler = FrameAssembler(LIMIT, BufferShelf())
    kept = []
    for number in range(8):
        stream = frame_of(bytes([number]) * 300_000)
        position = 0
        while position < len(stream):
            view = assembler.get_buffer()
            count = min(len(view), len(stream) - position)
            view[:count] = stream[position : position + count]
            position += count
            kept += list(assembler.received(count))
    assert [bytes(frame) for frame in kept] == [bytes([number]) * 300_000 for number in range(8)]


def test_what_an_idle_connection_left_serves_another() -> None:
    shelf = BufferShelf()
    large = frame_of(bytes(300_000))
    for assembler in [FrameAssembler(LIMIT, shelf) for _ in range(5)]:
        for _ in range(3):
            feed(assembler, large)
    assert len(shelf) == 1


@settings(max_examples=examples(50), deadline=None, database=None)
@given(st.lists(st.integers(0, 3_000_000).map(bytes) | st.binary(max_size=99), max_size=8), st.integers(1_000, 900_000))
def test_a_shelf_changes_nothing_about_the_frames(payloads: list[bytes], step: int) -> None:
    stream = b"".join(map(frame_of, payloads))
    assert feed(FrameAssembler(LIMIT, BufferShelf()), stream, step) == payloads
