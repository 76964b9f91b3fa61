from __future__ import annotations

import struct

import pytest

from oncelog.faults.frames import RequestHead, api_name, read_correlation_id, read_request_head, with_size
from oncelog.wire.api import ApiKey
from oncelog.wire.codec import MalformedMessage, encode
from oncelog.wire.frame import encode_request
from tests.faults_tool.line import produce, request


def head_of(frame: bytes) -> RequestHead:
    return read_request_head(memoryview(frame)[4:])


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_only_produce_with_acks_0_has_no_answer(version: int, acks: int) -> None:
    assert head_of(produce(7, acks=acks, version=version)) == RequestHead(ApiKey.PRODUCE, version, 7, acks != 0)


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("transactional_id", [None, "a transaction"])
def test_acks_are_found_behind_a_transactional_id(version: int, transactional_id: str | None) -> None:
    for acks in (0, -1):
        body = encode("ProduceRequest", version, {"transactional_id": transactional_id, "acks": acks})
        assert head_of(encode_request(ApiKey.PRODUCE, version, 7, "me", body)).is_answered is (acks != 0)


def test_an_unknown_api_is_read_as_far_as_all_requests_are_alike() -> None:
    assert head_of(request(7, api_key=1_234, version=5)) == RequestHead(1_234, 5, 7, True)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x03\x00\x01\x00\x00\x00",
        struct.pack(">hhih", ApiKey.PRODUCE, 9, 1, -1),
        struct.pack(">hhih", ApiKey.PRODUCE, 2, 1, 100),
        struct.pack(">hhihbb", ApiKey.PRODUCE, 9, 1, -1, 0, 0) + b"\xff",
    ],
)
def test_requests_without_a_whole_head_are_refused(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_request_head(memoryview(frame))


def test_the_oldest_sasl_handshake_is_refused_with_the_remedy() -> None:
    with pytest.raises(MalformedMessage, match="SaslHandshake v1"):
        head_of(request(1, ApiKey.SASL_HANDSHAKE, 0))
    assert head_of(request(1, ApiKey.SASL_HANDSHAKE, 1)).is_answered


def test_answers_name_their_request() -> None:
    assert read_correlation_id(memoryview(b"\x00\x00\x00\x2abody")) == 42
    with pytest.raises(MalformedMessage):
        read_correlation_id(memoryview(b"\x00\x00\x00"))


def test_the_size_is_that_of_all_parts() -> None:
    assert with_size(b"abc", memoryview(b"de")) == b"\x00\x00\x00\x05abcde"


def test_names_of_apis() -> None:
    assert (api_name(0), api_name(22), api_name(1_234)) == ("Produce", "InitProducerId", "Api1234")
