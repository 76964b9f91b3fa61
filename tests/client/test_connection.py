from __future__ import annotations

import pytest

from oncelog.client.connection import Answer, Connection, Negotiated, ProtocolViolation, Sent
from oncelog.errors import UnsupportedVersion
from oncelog.wire import codec
from oncelog.wire.api import ApiKey
from oncelog.wire.fetch import FetchedPartition, FetchedTopic, FetchRequest, FetchResponse, encode_fetch_response
from oncelog.wire.frame import RequestHeader, decode_request_header, encode_response
from oncelog.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    decode_produce_request,
    encode_produce_response,
)
from oncelog.wire.versions import VersionRange
from tests.client.fake_broker import VERSIONS, api_versions_answer


def data_of(sent: Sent) -> bytes:
    data = b"".join(sent.data)
    assert len(data) == sent.size_bytes
    return data


def header_of(request: bytes) -> tuple[RequestHeader, int]:
    return decode_request_header(memoryview(request)[4:])


def answer_to(request: bytes, body: bytes) -> bytes:
    header, _ = header_of(request)
    return encode_response(header, body)


def negotiated(versions: dict[ApiKey, tuple[int, int]] = VERSIONS) -> Connection:
    connection = Connection("test")
    question = connection.start()
    answer = codec.encode("ApiVersionsResponse", 4, api_versions_answer(versions))
    (event,) = connection.receive(answer_to(question, answer))
    assert isinstance(event, Negotiated)
    return connection


def test_the_first_question_is_about_versions() -> None:
    header, position = header_of(question := Connection("me").start())
    assert header == RequestHeader(ApiKey.API_VERSIONS, 4, 0, "me")
    message = codec.decode_exactly("ApiVersionsRequest", 4, question, 4 + position)
    assert message["client_software_name"] == "oncelog"


def test_the_newest_common_version_is_chosen() -> None:
    connection = negotiated()
    assert connection.version_of(ApiKey.METADATA) == 12
    assert connection.version_of(ApiKey.METADATA, max_version=4) == 4
    assert connection.version_of(ApiKey.INIT_PRODUCER_ID) == 4


def test_an_api_without_a_common_version_is_refused_with_both_ranges() -> None:
    connection = negotiated({ApiKey.METADATA: (40, 41)})
    with pytest.raises(UnsupportedVersion, match="40-41, this client 0-13"):
        connection.send(ApiKey.METADATA, {})
    with pytest.raises(UnsupportedVersion, match="does not serve ListOffsets"):
        connection.send(ApiKey.LIST_OFFSETS, {})


@pytest.mark.parametrize(("known", "second"), [((0, 3), 3), ((0, 0), 0), (None, 0)])
def test_an_older_broker_is_asked_again_in_a_version_it_knows(known: tuple[int, int] | None, second: int) -> None:
    connection = Connection("test")
    refusal = api_versions_answer({ApiKey.API_VERSIONS: known} if known else {})
    body = codec.encode("ApiVersionsResponse", 0, {"error_code": 35, **refusal})
    assert connection.receive(answer_to(connection.start(), body)) == []
    question = connection.data_to_send()
    assert header_of(question)[0].api_version == second
    assert connection.data_to_send() == b""
    body = codec.encode("ApiVersionsResponse", second, api_versions_answer({ApiKey.METADATA: (0, 5)}))
    (event,) = connection.receive(answer_to(question, body))
    assert isinstance(event, Negotiated)
    assert event.versions == {ApiKey.METADATA: VersionRange(0, 5)}


def test_a_broker_that_refuses_even_the_oldest_question_is_given_up() -> None:
    connection = Connection("test")
    refusal = codec.encode("ApiVersionsResponse", 0, {"error_code": 35})
    connection.receive(answer_to(connection.start(), refusal))
    with pytest.raises(UnsupportedVersion):
        connection.receive(answer_to(connection.data_to_send(), refusal))


def test_features_are_learned() -> None:
    connection = Connection("test")
    feature = {"name": "transaction.version", "max_version_level": 2, "min_version_level": 1}
    body = codec.encode("ApiVersionsResponse", 4, {"finalized_features": [feature]})
    (event,) = connection.receive(answer_to(connection.start(), body))
    assert isinstance(event, Negotiated)
    assert event.features == {"transaction.version": 2}


def test_answers_are_matched_to_requests_in_order_however_the_bytes_arrive() -> None:
    connection = negotiated()
    first = connection.send(ApiKey.METADATA, {"topics": None})
    second = connection.send(ApiKey.INIT_PRODUCER_ID, {"transactional_id": None})
    assert connection.in_flight == 2
    stream = answer_to(data_of(first), codec.encode("MetadataResponse", 12, {"cluster_id": "c"}))
    stream += answer_to(data_of(second), codec.encode("InitProducerIdResponse", 4, {"producer_id": 7}))
    events = [event for byte in stream for event in connection.receive(bytes([byte]))]
    answers = [event for event in events if isinstance(event, Answer)]
    assert [answer.correlation_id for answer in answers] == [first.correlation_id, second.correlation_id]
    assert [answer.version for answer in answers] == [12, 4]
    assert answers[0].body["cluster_id"] == "c"
    assert answers[1].body["producer_id"] == 7
    assert connection.in_flight == 0


def test_an_answer_to_another_question_is_a_violation() -> None:
    connection = negotiated()
    sent = connection.send(ApiKey.METADATA, {})
    header, _ = header_of(data_of(sent))
    wrong = encode_response(header._replace(correlation_id=99), codec.encode("MetadataResponse", 12, {}))
    with pytest.raises(ProtocolViolation, match="answered request 99 where 1 is next"):
        connection.receive(wrong)


def test_an_answer_without_a_question_is_a_violation() -> None:
    connection = negotiated()
    with pytest.raises(ProtocolViolation, match="nothing was asked"):
        connection.receive(encode_response(RequestHeader(ApiKey.METADATA, 12, 1, None), b""))


def test_produce_and_fetch_have_values_of_their_own() -> None:
    connection = negotiated({ApiKey.PRODUCE: (0, 9), ApiKey.FETCH: (4, 12)})
    produce = connection.send(ApiKey.PRODUCE, ProduceRequest(None, -1, 5, []))
    _, position = header_of(data_of(produce))
    assert decode_produce_request(memoryview(data_of(produce))[4:], position, 9).timeout_ms == 5
    fetch = connection.send(ApiKey.FETCH, FetchRequest(1, 2, 3, 0, 0, -1, []))
    stored = [ProducedTopic("t", None, [ProducedPartition(0, 0, 42)])]
    fetched = [FetchedTopic("t", None, [FetchedPartition(0, 0, 9, records=b"batch")])]
    stream = answer_to(data_of(produce), encode_produce_response(9, stored))
    stream += answer_to(data_of(fetch), b"".join(encode_fetch_response(12, FetchResponse(fetched))))
    first, second = connection.receive(stream)
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert first.body.topics[0].partitions[0].base_offset == 42
    assert bytes(second.body.topics[0].partitions[0].records) == b"batch"


def test_what_brokers_do_not_answer_is_not_waited_for() -> None:
    connection = negotiated()
    connection.send(ApiKey.PRODUCE, ProduceRequest(None, 0, 5, []), answered=False)
    assert connection.in_flight == 0
