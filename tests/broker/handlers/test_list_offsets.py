"""ListOffsets by timestamp in compressed batches: off the loop if it is much, once for the same question, in bounds."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.broker.lookup_memory import MAX_REMEMBERED, LookupMemory
from oncelog.broker.off_loop import INLINE_BYTES
from oncelog.broker.request import FAILED, Pending
from oncelog.log import segment
from oncelog.records.batch import build_batch
from oncelog.records.compression import GZIP, ZSTD
from tests.broker.support import NOW_MS, Desk, FailingStorage
from tests.support.raw import Message

MAX_TIMESTAMP, LATEST = -3, -1
INVALID_REQUEST = 42
HEAVY_BYTES = INLINE_BYTES + 1
PARTITIONS = 3


@pytest.fixture
def desk() -> Desk:
    """Each partition has two records in one batch, which unfolds to more than the loop may decompress."""
    desk = Desk(FailingStorage(), "/data")
    desk.create("orders", partitions=PARTITIONS)
    fill(desk, HEAVY_BYTES)
    return desk


@pytest.fixture
def looked_into(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The base offsets of batches that were decompressed for a look-up so far."""
    offsets: list[int] = []
    records_payload = segment.records_payload

    def noted(data: Any, header: Any) -> Any:
        offsets.append(header.base_offset)
        return records_payload(data, header)

    monkeypatch.setattr(segment, "records_payload", noted)
    return offsets


def fill(desk: Desk, size: int, codec: int = ZSTD) -> None:
    rows = [(NOW_MS + number, None, bytes(size // 2), ()) for number in range(2)]
    data = [{"index": index, "records": bytes(build_batch(rows, codec=codec))} for index in range(PARTITIONS)]
    request = {"acks": -1, "timeout": 1000, "topic_data": [{"name": "orders", "partition_data": data}]}
    answer = desk.dispatch("produce", 9, request)
    if not isinstance(answer, list):
        answer.on_complete = lambda _: None  # type: ignore[union-attr]
    desk.threads.run_all()


def questions(*timestamps: int, topics: int = 1) -> Message:
    asked = [{"partition_index": index, "timestamp": each} for index, each in enumerate(timestamps)]
    return {"replica_id": -1, "topics": [{"name": "orders", "partitions": asked}] * topics}


def found(answer: Message | None) -> list[tuple[int, int, int]]:
    assert answer is not None
    (topic,) = answer["topics"]
    return [(each["error_code"], each["timestamp"], each["offset"]) for each in topic["partitions"]]


def test_what_is_heavy_is_looked_up_off_the_loop(desk: Desk, looked_into: list[int]) -> None:
    later = desk.ask_later("list_offsets", 7, questions(NOW_MS, NOW_MS + 1, MAX_TIMESTAMP))
    for done in range(3):
        assert (len(looked_into), len(desk.threads.waiting)) == (done, 1), "one at a time"
        desk.threads.run_next()
    assert found(later.message) == [(0, NOW_MS, 0), (0, NOW_MS + 1, 1), (0, NOW_MS + 1, 1)]


def test_the_same_question_decompresses_nothing(desk: Desk, looked_into: list[int]) -> None:
    later = desk.ask_later("list_offsets", 7, questions(NOW_MS + 1, MAX_TIMESTAMP))
    desk.threads.run_all()
    assert len(looked_into) == 2
    assert desk.ask("list_offsets", 7, questions(NOW_MS + 1, MAX_TIMESTAMP)) == later.message
    assert len(looked_into) == 2


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_usual_batches_are_answered_at_once_and_remembered(looked_into: list[int], codec: int) -> None:
    desk = Desk(FailingStorage(), "/data")
    desk.create("orders", partitions=PARTITIONS)
    fill(desk, 100_000, codec)
    for _ in range(2):
        assert found(desk.ask("list_offsets", 7, questions(NOW_MS + 1, NOW_MS))) == [(0, NOW_MS + 1, 1), (0, NOW_MS, 0)]
        assert len(looked_into) == 2


def test_another_batch_in_the_place_is_another_question(desk: Desk, looked_into: list[int]) -> None:
    later = desk.ask_later("list_offsets", 7, questions(NOW_MS))
    desk.threads.run_all()
    assert found(later.message) == [(0, NOW_MS, 0)]
    log = desk.broker.partition("orders", 0)
    log.truncate_to(0, NOW_MS)
    rows = [(NOW_MS + 5, None, bytes(HEAVY_BYTES), ())]
    data = [{"index": 0, "records": bytes(build_batch(rows, codec=ZSTD))}]
    request = {"acks": -1, "timeout": 1000, "topic_data": [{"name": "orders", "partition_data": data}]}
    desk.ask_later("produce", 9, request)
    desk.threads.run_all()
    later = desk.ask_later("list_offsets", 7, questions(NOW_MS))
    desk.threads.run_all()
    assert found(later.message) == [(0, NOW_MS + 5, 0)]


def test_deleted_records_are_not_found(desk: Desk) -> None:
    desk.ask_later("list_offsets", 7, questions(NOW_MS))
    desk.threads.run_all()
    desk.broker.partition("orders", 0).delete_records(1)
    later = desk.ask_later("list_offsets", 7, questions(NOW_MS))
    desk.threads.run_all()
    assert found(later.message) == [(0, NOW_MS + 1, 1)]


def test_a_topic_that_is_named_again_and_again_costs_nothing(desk: Desk, looked_into: list[int]) -> None:
    answer = desk.ask("list_offsets", 7, questions(NOW_MS, topics=60))
    assert found(answer) == [(INVALID_REQUEST, -1, -1)]
    assert looked_into == []


def test_a_log_that_goes_offline_meanwhile(desk: Desk) -> None:
    later = desk.ask_later("list_offsets", 7, questions(NOW_MS, LATEST))
    desk.broker.partition("orders", 0).offline = True
    desk.threads.run_all()
    assert [code for code, _, _ in found(later.message)] == [56, 0]


def test_who_is_gone_is_not_looked_up_for(desk: Desk, looked_into: list[int]) -> None:
    later = desk.ask_later("list_offsets", 7, questions(NOW_MS, NOW_MS, NOW_MS))
    assert later.pending.abandon is not None
    later.pending.abandon()
    desk.threads.run_all()
    assert (later.message, len(looked_into)) == (None, 1)


def test_the_memory_is_bounded() -> None:
    memory = LookupMemory()
    memory.remember("kept", (1, 2))
    for number in range(2 * MAX_REMEMBERED):
        memory.remember(number, None)
        assert memory["kept"] == (1, 2), "what is asked for stays"
    assert 0 not in memory
    assert 2 * MAX_REMEMBERED - 1 in memory


def test_a_failure_after_the_look_up_ends_the_connection(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = desk.dispatch("list_offsets", 7, questions(NOW_MS))
    assert isinstance(answer, Pending)
    ended: list[object] = []
    answer.on_complete = ended.append

    def failing(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(desk.broker, "partition", failing)
    desk.threads.run_all()
    assert ended == [FAILED]
