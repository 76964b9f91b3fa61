"""AlterClientQuotas and DescribeClientQuotas, and how quotas shape the answers of all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.quota.client_quotas import FetchVerdict
from oncelog.broker.quota.meter import Meter
from oncelog.broker.request import NO_REPLY, Pending
from oncelog.errors import KafkaStorageError
from oncelog.log.storage import FileStorage
from tests.broker.support import NOW_MS, Desk, FailingStorage, made
from tests.support.batches import make_batch
from tests.support.raw import Message, encode_request
from tests.support.requests import fetch_request, produce_request

PRODUCE = "producer_byte_rate"
WEB = {"client-id": "web"}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(FileStorage(), str(tmp_path / "data"))
    yield desk
    desk.broker.stop(NOW_MS)


def alter(
    desk: Desk, entity: Mapping[str, str | None], version: int = 1, *, validate_only: bool = False, **limits: Any
) -> int:
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()]
    request = {"entries": [{"entity": parts, "ops": ops}], "validate_only": validate_only}
    (answer,) = desk.ask("alter_client_quotas", version, request)["entries"]
    assert sorted(answer["entity"], key=str) == sorted(parts, key=str)
    code: int = answer["error_code"]
    return code


def describe(desk: Desk, version: int = 1) -> list[Any]:
    answer = desk.ask("describe_client_quotas", version, {"components": [], "strict": False})
    assert (answer["error_code"], answer["error_message"]) == (0, "")
    return [
        (
            {part["entity_type"]: part["entity_name"] for part in entry["entity"]},
            {one["key"]: one["value"] for one in entry["values"]},
        )
        for entry in answer["entries"]
    ]


# --- setting them ---


@pytest.mark.parametrize("version", [0, 1])
def test_setting_and_describing(desk: Desk, version: int) -> None:
    assert describe(desk, version) == []
    assert alter(desk, WEB, version, producer_byte_rate=1000.0, request_percentage=2.5) == 0
    assert alter(desk, {"user": "alice", "client-id": None}, version, consumer_byte_rate=7.0) == 0
    assert describe(desk, version) == [
        (WEB, {"producer_byte_rate": 1000.0, "request_percentage": 2.5}),
        ({"user": "alice", "client-id": None}, {"consumer_byte_rate": 7.0}),
    ]
    assert alter(desk, WEB, version, producer_byte_rate=None, request_percentage=None) == 0
    assert len(describe(desk, version)) == 1


def test_in_force_at_once_and_only_while_set(desk: Desk) -> None:
    assert not desk.broker.quotas.active
    alter(desk, WEB, producer_byte_rate=1000.0, validate_only=True)
    assert not desk.broker.quotas.active
    alter(desk, WEB, producer_byte_rate=1000.0)
    assert desk.broker.quotas.active
    alter(desk, WEB, producer_byte_rate=None)
    assert not desk.broker.quotas.active


def test_a_restart_keeps_them(tmp_path: Path) -> None:
    first = Desk(FileStorage(), str(tmp_path))
    alter(first, WEB, producer_byte_rate=1000.0)
    # Nothing is closed: the next one finds what a kill would leave.
    again = Desk(FileStorage(), str(tmp_path))
    assert describe(again) == [(WEB, {PRODUCE: 1000.0})]
    assert again.broker.quotas.active
    again.broker.stop(NOW_MS)


def test_what_cannot_be_written_is_not_in_force() -> None:
    storage = FailingStorage()
    desk = Desk(storage, "/data")
    storage.fail_next("sync", sticky=True)
    assert alter(desk, WEB, producer_byte_rate=1000.0) == KafkaStorageError.code
    assert not desk.broker.quotas.active
    assert describe(desk) == []


# --- how answers look ---


class FixedMeter(Meter):
    """Finds every request too expensive, by 250 ms."""

    THROTTLE_MS = 250

    def __init__(self, *, is_withheld: bool = False) -> None:
        self.is_withheld = is_withheld
        self.sizes: list[int] = []
        self.client_id: str | None = None

    def meet(self, client_id: str | None) -> None:
        self.client_id = client_id

    @property
    def max_fetch_bytes(self) -> int:
        return 1 << 20

    def produced(self, *, is_answered: bool) -> int:
        return self.THROTTLE_MS

    def fetched(self, size_bytes: int) -> FetchVerdict:
        self.sizes.append(size_bytes)
        return FetchVerdict(self.THROTTLE_MS, self.is_withheld)

    def served(self) -> int:
        return self.THROTTLE_MS


def ask_metered(desk: Desk, api: str, version: int, message: Message, meter: FixedMeter) -> Any:
    frame = memoryview(bytearray(encode_request(api, version, message)[4:]))
    header, answer = desk.dispatcher.dispatch(frame, NOW_MS, meter)
    answer = made(desk.dispatcher, header, answer)
    if not isinstance(answer, dict | list):
        return answer
    return desk._decode(api, version, desk.dispatcher.frame(header, answer))


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        ("metadata", 12, {"topics": []}),
        ("api_versions", 3, {"client_software_name": "x", "client_software_version": "1"}),
        ("find_coordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]}),
        ("describe_cluster", 0, {}),
        ("describe_client_quotas", 1, {}),
    ],
)
def test_any_answer_tells_the_pause(desk: Desk, api: str, version: int, body: Message) -> None:
    meter = FixedMeter()
    assert ask_metered(desk, api, version, body, meter)["throttle_time"] == FixedMeter.THROTTLE_MS
    assert meter.client_id == "raw"


def test_versions_without_a_pause_to_tell(desk: Desk) -> None:
    assert "throttle_time" not in ask_metered(desk, "api_versions", 0, {}, FixedMeter())


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_producing_above_a_quota_is_done_and_told(desk: Desk, version: int) -> None:
    desk.create("orders")
    answer = ask_metered(desk, "produce", version, produce_request("orders", make_batch()), FixedMeter())
    assert answer["throttle_time"] == FixedMeter.THROTTLE_MS
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    unanswered = produce_request("orders", make_batch(), acks=0)
    assert ask_metered(desk, "produce", version, unanswered, FixedMeter()) is NO_REPLY
    assert desk.broker.partition("orders", 0).log_end_offset == 2


def test_an_answer_that_waits_for_the_disk_tells_it_too(desk: Desk) -> None:
    desk.create("orders", flush_messages="1")
    pending = ask_metered(desk, "produce", 9, produce_request("orders", make_batch()), FixedMeter())
    assert isinstance(pending, Pending)
    told: list[Any] = []
    pending.on_complete = told.append
    desk.threads.run_all()
    ((body,),) = told
    assert int.from_bytes(body[-5:-1], "big") == FixedMeter.THROTTLE_MS


@pytest.mark.parametrize("version", [4, 7, 12])
def test_a_fetch_above_the_quota_is_answered_empty(desk: Desk, version: int) -> None:
    desk.create("orders")
    batch = make_batch()
    desk.ask("produce", 9, produce_request("orders", batch))
    meter = FixedMeter(is_withheld=True)
    answer = ask_metered(desk, "fetch", version, fetch_request("orders", 0), meter)
    assert (answer["throttle_time"], answer["responses"]) == (FixedMeter.THROTTLE_MS, [])
    assert meter.sizes == [len(batch)]
    sent = ask_metered(desk, "fetch", version, fetch_request("orders", 0), FixedMeter())
    assert sent["throttle_time"] == FixedMeter.THROTTLE_MS
    assert len(sent["responses"][0]["partitions"][0]["records"]) == len(batch)


def test_a_session_does_not_begin_with_an_empty_answer(desk: Desk) -> None:
    """The client was told of no partition, so it will ask for all of them again."""
    desk.create("orders")
    desk.ask("produce", 9, produce_request("orders", make_batch()))
    full = {**fetch_request("orders", 0), "session_epoch": 0}
    assert ask_metered(desk, "fetch", 12, full, FixedMeter(is_withheld=True))["session_id"] == 0
    assert len(desk.broker.fetch_sessions) == 0
    session_id = ask_metered(desk, "fetch", 12, full, FixedMeter())["session_id"]
    assert session_id != 0
    news = {**fetch_request("orders", 0), "session_id": session_id, "session_epoch": 1, "topics": []}
    withheld = ask_metered(desk, "fetch", 12, news, FixedMeter(is_withheld=True))
    assert (withheld["session_id"], withheld["responses"]) == (session_id, [])
    news["session_epoch"] = 2
    assert desk.ask("fetch", 12, news)["responses"], "what was withheld is still news"


def test_a_waiting_fetch_is_judged_when_it_ends(desk: Desk) -> None:
    desk.create("orders")
    meter = FixedMeter(is_withheld=True)
    pending = ask_metered(desk, "fetch", 12, fetch_request("orders", 0, max_wait=1000), meter)
    assert isinstance(pending, Pending)
    assert meter.sizes == []
    told: list[Any] = []
    pending.on_complete = told.append
    batch = make_batch()
    desk.ask("produce", 9, produce_request("orders", batch))
    assert meter.sizes == [len(batch)]
    assert len(told) == 1
