"""Produce requests of many batches: appended in parts, with others served in between, and answered as if at once."""

from __future__ import annotations

import itertools

import pytest

from oncelog.broker.handlers import produce_parts
from oncelog.broker.handlers.produce_parts import MAX_BATCHES_AT_ONCE, PART_BATCHES
from oncelog.broker.off_loop import INLINE_BYTES
from oncelog.broker.request import FAILED, NO_REPLY, Pending
from oncelog.records.batch import build_batch
from oncelog.records.compression import ZSTD
from tests.broker.support import NOW_MS, Desk, FailingStorage
from tests.broker.transactions import support as transactions
from tests.support.raw import Message

OK, INVALID_RECORD, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TXN_STATE = 0, 87, 3, 48
MANY = MAX_BATCHES_AT_ONCE + 3 * PART_BATCHES + 1


@pytest.fixture
def desk() -> Desk:
    return open_desk()


def open_desk() -> Desk:
    """Time passes with every look at the clock, so a few parts fill a slice."""
    desk = Desk(FailingStorage(), "/data")
    desk.create("orders")
    desk.create("bills", partitions=2)
    ticks = itertools.count(NOW_MS)
    desk.alarms.now_ms = lambda: next(ticks)  # type: ignore[method-assign]
    return desk


def batch(value: bytes = b"v", **producer: int) -> bytes:
    return bytes(build_batch([(NOW_MS, None, value, ())], **producer))


def to_topic(name: str, batches: list[bytes], index: int = 0) -> Message:
    return {"name": name, "partition_data": [{"index": index, "records": each} for each in batches]}


def produce(*topics: Message, acks: int = -1) -> Message:
    return {"acks": acks, "timeout": 1000, "topic_data": list(topics)}


def answers(message: Message | None) -> list[list[tuple[int, int]]]:
    """Error code and base offset of each batch, by topic."""
    assert message is not None
    return [
        [(partition["error_code"], partition["base_offset"]) for partition in topic["partition_responses"]]
        for topic in message["responses"]
    ]


def end_of(desk: Desk, topic: str) -> int:
    return desk.broker.partition(topic, 0).log_end_offset


def test_many_are_appended_in_parts_and_others_are_served_in_between(desk: Desk) -> None:
    later = desk.ask_later("produce", 9, produce(to_topic("orders", [batch()] * MANY)))
    assert later.pending.holds_connection, "what comes after it must not overtake it"
    seen = [end_of(desk, "orders")]
    while later.message is None:
        assert desk.ask("produce", 9, produce(to_topic("bills", [batch()])))["responses"]
        desk.alarms.due.pop(0)[1]()
        seen.append(end_of(desk, "orders"))
    steps = [after - before for before, after in itertools.pairwise(seen)]
    assert max(steps) <= PART_BATCHES * produce_parts.SLICE_MS
    assert answers(later.message) == [[(OK, offset) for offset in range(MANY)]]
    assert end_of(desk, "bills") == len(steps)


def test_each_batch_is_answered_in_its_place(desk: Desk) -> None:
    bad = batch()[:-1] + b"\xff"
    orders = [bad if number % 7 == 0 else batch() for number in range(50)]
    request = produce(
        to_topic("orders", orders), to_topic("bills", [batch()] * 50, index=1), to_topic("none", [batch()])
    )
    later = desk.ask_later("produce", 9, request)
    desk.alarms.pass_time(1_000)
    of_orders, of_bills, of_none = answers(later.message)
    assert [code == OK for code, _ in of_orders] == [number % 7 != 0 for number in range(50)]
    assert of_bills == [(OK, offset) for offset in range(50)]
    assert of_none == [(UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_few_are_appended_at_once(desk: Desk) -> None:
    answer = desk.ask("produce", 9, produce(to_topic("orders", [batch()] * MAX_BATCHES_AT_ONCE)))
    assert answers(answer) == [[(OK, offset) for offset in range(MAX_BATCHES_AT_ONCE)]]


def test_what_is_left_is_not_appended_for_a_client_that_has_gone(desk: Desk) -> None:
    later = desk.ask_later("produce", 9, produce(to_topic("orders", [batch()] * MANY)))
    assert later.pending.abandon is not None
    later.pending.abandon()
    appended = end_of(desk, "orders")
    assert appended < MANY
    desk.alarms.pass_time(1_000)
    assert end_of(desk, "orders") == appended
    assert later.message is None


def test_who_wants_no_answer_may_have_gone_and_wants_it_done_all_the_same(desk: Desk) -> None:
    answer = desk.dispatch("produce", 9, produce(to_topic("orders", [batch()] * MANY), acks=0))
    assert isinstance(answer, Pending)
    assert answer.abandon is None
    answer.on_complete = lambda _: None
    desk.alarms.pass_time(1_000)
    assert end_of(desk, "orders") == MANY


def test_what_was_judged_off_the_loop_is_not_appended_for_a_client_that_has_gone(desk: Desk) -> None:
    heavy = bytes(build_batch([(NOW_MS, None, bytes(INLINE_BYTES + 1), ())], codec=ZSTD))
    answer = desk.dispatch("produce", 9, produce(to_topic("orders", [heavy] + [batch()] * MANY)))
    assert isinstance(answer, Pending)
    answer.on_complete = lambda _: None
    desk.threads.run_all()
    appended = end_of(desk, "orders")
    assert 0 < appended < MANY
    assert answer.abandon is not None
    answer.abandon()
    desk.alarms.pass_time(1_000)
    assert end_of(desk, "orders") == appended


def test_a_topic_that_promises_the_disk_is_answered_when_all_parts_are_on_it(desk: Desk) -> None:
    desk.create("safe", flush_messages="1")
    later = desk.ask_later("produce", 9, produce(to_topic("bills", [batch()] * 10), to_topic("safe", [batch()] * MANY)))
    desk.alarms.pass_time(1_000)
    assert end_of(desk, "safe") == MANY
    assert later.message is None
    desk.threads.run_all()
    assert answers(later.message)[1] == [(OK, offset) for offset in range(MANY)]


def test_a_client_that_wants_no_answer_gets_none(desk: Desk) -> None:
    answer = desk.dispatch("produce", 9, produce(to_topic("orders", [batch()] * MANY), acks=0))
    assert isinstance(answer, Pending)
    ended: list[object] = []
    answer.on_complete = ended.append
    desk.alarms.pass_time(1_000)
    assert ended == [NO_REPLY]
    assert end_of(desk, "orders") == MANY


def test_a_part_that_fails_ends_the_connection(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError

    answer = desk.dispatch("produce", 9, produce(to_topic("orders", [batch()] * MANY)))
    assert isinstance(answer, Pending)
    ended: list[object] = []
    answer.on_complete = ended.append
    monkeypatch.setattr(desk.broker.purgatory, "appended", failing)
    desk.alarms.pass_time(1_000)
    assert ended == [FAILED]


def test_a_transaction_that_ends_between_two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after its end would be taken for the beginning of the next one, which nobody ends."""
    monkeypatch.setattr(produce_parts, "TRANSACTIONAL_PART_BATCHES", 8)
    desk = transactions.open_desk(FailingStorage())
    ticks = itertools.count(NOW_MS)
    desk.alarms.now_ms = lambda: next(ticks)  # type: ignore[method-assign]
    desk.create("orders")
    transactions.find(desk, transactions.ID)
    producer = transactions.init(desk)
    transactions.add(desk, producer, transactions.ORDERS)
    transactions.write(desk, producer, transactions.ORDERS)
    batches = [
        batch(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=1 + number,
            transactional=True,
        )
        for number in range(4 * MANY)
    ]
    request = {**produce(to_topic("orders", batches)), "transactional_id": transactions.ID}
    later = desk.ask_later("produce", 9, request)
    transactions.end(desk, producer, commit=False, version=3)
    log = desk.broker.partition("orders", 0)
    ended_at = log.log_end_offset
    assert ended_at < 4 * MANY
    desk.alarms.pass_time(1_000)
    desk.threads.run_all()
    desk.alarms.pass_time(1_000)
    assert log.last_stable_offset == log.log_end_offset == ended_at
    ((*appended, last),) = answers(later.message)
    assert last[0] == INVALID_TXN_STATE
    assert any(code == OK for code, _ in appended)
