"""The native reading and writing of plain OffsetCommits against the codec, on good requests and on mangled ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire import codec
from oncelog.wire.codec import MalformedMessage, Message
from oncelog.wire.frame import RequestHeader, decode_request_header, encode_request
from oncelog.wire.quick import load
from oncelog.wire.schema import ZERO_UUID
from tests.wire.test_hot import CHECKS, int32

_quick = pytest.importorskip("oncelog.wire._quick", reason="the native parts are not built")

OFFSET_COMMIT = 8
FIRST_FLEXIBLE, LATEST = 8, 10
versions = st.integers(FIRST_FLEXIBLE, LATEST)
texts = st.text(max_size=20)

requests = st.fixed_dictionaries(
    {
        "group_id": texts,
        "generation_id_or_member_epoch": int32,
        "member_id": texts,
        "group_instance_id": st.none() | texts,
        "topics": st.lists(
            st.fixed_dictionaries(
                {
                    "name": texts,
                    "topic_id": st.uuids(),
                    "partitions": st.lists(
                        st.fixed_dictionaries(
                            {
                                "partition_index": int32,
                                "committed_offset": st.integers(-(2**63), 2**63 - 1),
                                "committed_leader_epoch": int32,
                                "committed_metadata": st.none() | texts,
                            }
                        ),
                        max_size=3,
                    ),
                }
            ),
            max_size=3,
        ),
    }
)
answers = st.fixed_dictionaries(
    {
        "throttle_time_ms": int32,
        "topics": st.lists(
            st.fixed_dictionaries(
                {
                    "name": texts,
                    "topic_id": st.uuids(),
                    "partitions": st.lists(
                        st.fixed_dictionaries({"partition_index": int32, "error_code": st.sampled_from([0, 0, 0, 25])}),
                        max_size=3,
                    ),
                }
            ),
            max_size=3,
        ),
    }
)


def as_frame(version: int, request: Message, correlation_id: int = 7, client_id: str | None = "client") -> bytearray:
    body = codec.encode("OffsetCommitRequest", version, request)
    return bytearray(encode_request(OFFSET_COMMIT, version, correlation_id, client_id, body)[4:])


def read_by_twin(frame: memoryview) -> tuple[RequestHeader, Message] | None:
    try:
        header, position = decode_request_header(frame)
        if header.api_key != OFFSET_COMMIT or not FIRST_FLEXIBLE <= header.api_version <= LATEST:
            return None
        return header, codec.decode("OffsetCommitRequest", header.api_version, frame, position)[0]
    except MalformedMessage:
        return None


@CHECKS
@given(versions, requests, int32, st.none() | texts)
def test_it_reads_what_its_twin_reads(
    version: int, request: Message, correlation_id: int, client_id: str | None
) -> None:
    frame = memoryview(as_frame(version, request, correlation_id, client_id))
    found = _quick.read_offset_commit(frame)
    assert found is not None, "it is plain"
    assert found == read_by_twin(frame)
    assert list(found[1]) == list(read_by_twin(frame)[1])  # type: ignore[index]


@CHECKS
@given(versions, requests, st.data())
def test_of_mangled_bytes_it_reads_what_its_twin_reads_or_nothing(
    version: int, request: Message, data: st.DataObject
) -> None:
    frame = as_frame(version, request)
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)))
    for mangled in (frame, frame[:cut], frame + frame[cut:]):
        found = _quick.read_offset_commit(memoryview(mangled))
        assert found is None or found == read_by_twin(memoryview(mangled))


def test_other_requests_are_left_to_others() -> None:
    plain = as_frame(8, {"group_id": "g", "topics": []})
    assert _quick.read_offset_commit(memoryview(plain)) is not None
    for api_key, version in ((9, 8), (8, 7), (8, 11), (8, -1)):
        frame = api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + plain[4:]
        assert _quick.read_offset_commit(memoryview(frame)) is None


@CHECKS
@given(st.integers(2, LATEST), answers)
def test_it_writes_what_its_twin_writes_or_nothing(version: int, answer: Message) -> None:
    has_errors = any(each["error_code"] for topic in answer["topics"] for each in topic["partitions"])
    written = _quick.offset_commit_response(version, answer)
    if has_errors or version < FIRST_FLEXIBLE:
        assert written is None
    else:
        assert written == codec.encode("OffsetCommitResponse", version, answer)


def test_a_name_that_the_protocol_cannot_carry_is_left_to_the_twin() -> None:
    topic = {"name": "é" * 16_384, "topic_id": ZERO_UUID, "partitions": []}
    assert _quick.offset_commit_response(8, {"topics": [topic]}) is None


def test_what_is_left_out_is_left_to_the_twin() -> None:
    assert _quick.offset_commit_response(8, {"topics": [{"name": "t", "partitions": []}]}) is None


def test_without_it_the_codec_does_everything() -> None:
    twins = load(native=False)
    assert twins.read_offset_commit(memoryview(as_frame(8, {"group_id": "g", "topics": []}))) is None
    assert twins.offset_commit_response(8, {"topics": []}) is None
    assert load(native=True).read_offset_commit is _quick.read_offset_commit


def test_a_text_that_no_answer_could_repeat_is_left_to_the_codec() -> None:
    asked = {"group_id": "g", "topics": [{"name": "t", "partitions": [{"committed_metadata": "x" * 32767}]}]}
    longest = as_frame(9, asked)
    assert _quick.read_offset_commit(memoryview(longest)) is not None
    longer = longest.replace(b"\x80\x80\x02" + b"x" * 32767, b"\x81\x80\x02" + b"x" * 32768)
    assert len(longer) == len(longest) + 1
    assert _quick.read_offset_commit(memoryview(longer)) is None
