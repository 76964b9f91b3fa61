"""From frame to handler and back: who is called, how the answer is framed, and what a failing handler becomes."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.dispatch import Dispatcher, api_name, request_schema, response_schema
from oncelog.broker.handlers import describe_cluster, find_coordinator, init_producer_id
from oncelog.broker.request import Answer, Pending, Request
from oncelog.errors import ClusterAuthorizationFailed
from oncelog.log.storage import FileStorage
from oncelog.wire import codec
from oncelog.wire.api import SUPPORTED, ApiKey
from oncelog.wire.codec import MalformedMessage
from oncelog.wire.frame import RequestHeader
from oncelog.wire.schema import load_schema
from tests.broker.support import NOW_MS, Desk
from tests.support.batches import make_batch
from tests.support.raw import decode_response, encode_header, encode_request
from tests.support.requests import fetch_request, produce_request

UNKNOWN_SERVER_ERROR, CLUSTER_AUTHORIZATION_FAILED = -1, 31
DAY_MS = 86_400_000


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(FileStorage(), str(tmp_path / "data"))
    yield desk
    desk.broker.stop(NOW_MS)


def dispatch(desk: Desk, frame: bytes) -> tuple[RequestHeader, Answer]:
    return desk.dispatcher.dispatch(memoryview(bytearray(frame)), NOW_MS)


@pytest.mark.parametrize("key", SUPPORTED, ids=lambda key: key.name)
def test_every_api_that_is_served_has_a_handler_and_its_schemas(key: ApiKey) -> None:
    module = importlib.import_module(f"oncelog.broker.handlers.{key.name.lower()}")
    assert key == module.API_KEY
    assert callable(module.handle)
    assert load_schema(request_schema(key)).fields
    assert load_schema(response_schema(key)).fields


@pytest.mark.parametrize("key", sorted(set(SUPPORTED) - {ApiKey.API_VERSIONS}), ids=lambda key: key.name)
def test_versions_beyond_the_range_have_no_answer(desk: Desk, key: ApiKey) -> None:
    for version in (SUPPORTED[key].lowest - 1, SUPPORTED[key].highest + 1):
        frame = encode_header(key, version, 1, "test", flexible=True) + bytes(200)
        with pytest.raises(MalformedMessage, match=f"{api_name(key)} version {version} is not served"):
            dispatch(desk, frame)


@pytest.mark.parametrize("key", sorted(set(ApiKey) - set(SUPPORTED)), ids=lambda key: key.name)
def test_apis_that_are_known_but_not_served(desk: Desk, key: ApiKey) -> None:
    with pytest.raises(MalformedMessage, match="not served here"):
        dispatch(desk, encode_header(key, 0, 1, "test", flexible=False) + bytes(200))


@pytest.mark.parametrize("key", [-1, 4, 999, 32767])
def test_apis_that_nobody_knows(desk: Desk, key: int) -> None:
    with pytest.raises(MalformedMessage, match=f"API key {key} is unknown"):
        dispatch(desk, encode_header(key, 0, 1, "test", flexible=False) + bytes(200))


def test_what_a_handler_is_given(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Request] = []

    def handle(broker: object, request: Request) -> Answer:
        assert broker is desk.broker
        given.append(request)
        return {}

    monkeypatch.setattr(describe_cluster, "handle", handle)
    frame = encode_request("describe_cluster", 1, {"include_cluster_authorized_operations": True}, 42, "somebody")
    header, answer = dispatch(desk, frame[4:])
    (request,) = given
    assert request[:4] == (60, 1, 42, "somebody")
    assert request.now_ms == NOW_MS
    assert request.body["include_cluster_authorized_operations"] is True
    assert header == (60, 1, 42, "somebody")
    assert answer == {}


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("correlation_id", [0, 7, -5, 2**31 - 1])
def test_the_answers_frame_is_what_clients_expect(desk: Desk, version: int, correlation_id: int) -> None:
    header, answer = dispatch(desk, encode_request("describe_cluster", version, {}, correlation_id)[4:])
    assert isinstance(answer, dict)
    (frame,) = desk.dispatcher.frame(header, answer)
    assert isinstance(frame, bytes)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    found, message = decode_response("describe_cluster", version, frame[4:])
    assert found == correlation_id
    assert message["brokers"][0]["host"] == "broker.example"


class OnDisk:
    size_bytes = 1_000_000

    def chunks(self, max_chunk: int) -> Any:
        raise AssertionError("framing reads no records")


def test_records_of_an_answer_are_counted_but_not_read(desk: Desk) -> None:
    on_disk = OnDisk()
    head, *body = desk.dispatcher.frame(RequestHeader(ApiKey.FETCH, 12, 5, None), [b"before", on_disk, b"after"])
    assert isinstance(head, bytes)
    assert int.from_bytes(head[:4], "big") == 5 + 6 + 1_000_000 + 5  # correlation id and no tagged fields come first
    assert body == [b"before", on_disk, b"after"]


def failing_handler(monkeypatch: pytest.MonkeyPatch, module: Any, error: Exception) -> None:
    def handle(broker: object, request: Request) -> Answer:
        raise error

    monkeypatch.setattr(module, "handle", handle)


def test_an_error_of_the_whole_request_is_its_answer(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_handler(monkeypatch, describe_cluster, ClusterAuthorizationFailed("not you"))
    answer = desk.ask("describe_cluster", 1, {})
    assert (answer["error_code"], answer["error_message"]) == (CLUSTER_AUTHORIZATION_FAILED, "not you")
    assert desk.broker.metrics.errors == {("DescribeCluster", "CLUSTER_AUTHORIZATION_FAILED"): 1}


def test_a_bug_in_a_handler_is_logged_and_answered(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing_handler(monkeypatch, init_producer_id, ZeroDivisionError("oops"))
    with caplog.at_level(logging.ERROR):
        answer = desk.ask("init_producer_id", 4, {"transactional_id": None, "transaction_timeout": 1})
    assert answer["error_code"] == UNKNOWN_SERVER_ERROR
    assert "bug: InitProducerId v4 failed" in caplog.text
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_a_bug_where_the_answer_has_no_place_for_an_error_ends_the_connection(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("oncelog.broker.handlers.create_topics")
    failing_handler(monkeypatch, module, ZeroDivisionError("oops"))
    with pytest.raises(MalformedMessage, match="no answer can say it"):
        dispatch(desk, encode_request("create_topics", 7, {"topics": []})[4:])


def test_what_a_handler_finds_malformed_stays_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_handler(monkeypatch, find_coordinator, MalformedMessage("no"))
    with pytest.raises(MalformedMessage, match=r"^no$"):
        dispatch(desk, encode_request("find_coordinator", 3, {"key": "g", "key_type": 0})[4:])


def test_handlers_are_loaded_once_and_when_they_are_needed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = encode_request("describe_cluster", 1, {})[4:]
    loaded: list[str] = []
    really_import = importlib.import_module

    def import_module(name: str) -> Any:
        loaded.append(name)
        return really_import(name)

    monkeypatch.setattr("oncelog.broker.dispatch.importlib.import_module", import_module)
    dispatcher = Dispatcher(desk.broker)
    for _ in range(3):
        dispatcher.dispatch(memoryview(bytearray(frame)), NOW_MS)
    assert loaded == ["oncelog.broker.handlers.describe_cluster"]


def test_the_codec_is_the_one_of_the_version_asked_for(desk: Desk) -> None:
    header, answer = dispatch(desk, encode_request("init_producer_id", 0, {"transaction_timeout": 1}, 9)[4:])
    assert isinstance(answer, dict)
    (frame,) = desk.dispatcher.frame(header, answer)
    assert isinstance(frame, bytes)
    assert codec.decode_exactly("InitProducerIdResponse", 0, frame[8:])["producer_epoch"] == 0


# --- two clocks ---


@pytest.mark.parametrize("turned_ms", [-DAY_MS, DAY_MS])
def test_waiting_counts_by_the_steady_clock_and_stamps_are_of_the_time_of_day(desk: Desk, turned_ms: int) -> None:
    desk.create("orders", message_timestamp_type="LogAppendTime")
    wall_ms = NOW_MS + turned_ms

    def ask(api: str, version: int, body: dict[str, Any]) -> tuple[RequestHeader, Answer]:
        frame = encode_request(api, version, body)[4:]
        return desk.dispatcher.dispatch(memoryview(bytearray(frame)), NOW_MS, wall_ms=wall_ms)

    batch = make_batch([b"v"], producer_id=7, epoch=0, sequence=0)
    ask("produce", 9, produce_request("orders", batch))
    log = desk.broker.partition("orders", 0)
    found, entry = log.max_timestamp(), log.producers.entry(7)
    assert found is not None
    assert entry is not None
    assert (found.timestamp, entry.last_timestamp, entry.last_appended_ms) == (wall_ms, wall_ms, NOW_MS)
    _, waiting = ask("fetch", 12, fetch_request("orders", 1, max_wait=500))
    assert isinstance(waiting, Pending)
    assert waiting.deadline_ms == NOW_MS + 500


@pytest.mark.parametrize(("age_ms", "is_taken"), [(0, True), (DAY_MS, False)])
def test_timestamps_of_clients_are_judged_by_the_time_of_day(desk: Desk, age_ms: int, is_taken: bool) -> None:
    desk.create("orders", message_timestamp_before_max_ms="1000")
    request = produce_request("orders", make_batch([b"v"], base_timestamp=NOW_MS + 3 * DAY_MS - age_ms))
    frame = memoryview(bytearray(encode_request("produce", 9, request)[4:]))
    desk.dispatcher.dispatch(frame, NOW_MS, wall_ms=NOW_MS + 3 * DAY_MS)
    assert desk.broker.partition("orders", 0).log_end_offset == is_taken
