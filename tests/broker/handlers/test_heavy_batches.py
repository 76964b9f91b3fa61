"""Batches that are too much for the loop: nothing of them is decompressed there, and all is answered as ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncelog.broker.handlers import heavy_batches
from oncelog.broker.off_loop import INLINE_BYTES, MAX_OFF_LOOP_BYTES
from oncelog.broker.request import CLOSE, FAILED, NO_REPLY, Pending
from oncelog.records import compression
from oncelog.records.batch import build_batch
from oncelog.records.compression import GZIP, LZ4, NAMES, NONE, SNAPPY, ZSTD
from tests.broker.support import NOW_MS, Desk, FailingStorage
from tests.broker.transactions import support as transactions
from tests.support.raw import Message

OK, UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT, INVALID_TXN_STATE, INVALID_RECORD = 0, -1, 7, 48, 87
HEAVY_BYTES = INLINE_BYTES + 1


@pytest.fixture
def desk() -> Desk:
    desk = Desk(FailingStorage(), "/data")
    desk.create("orders", partitions=40)
    return desk


@pytest.fixture
def unfolded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes came out of each decompression so far."""
    sizes: list[int] = []
    decompress = compression.decompress

    def counted(*args: Any, **kwargs: Any) -> Any:
        output = decompress(*args, **kwargs)
        sizes.append(len(output))
        return output

    monkeypatch.setattr(compression, "decompress", counted)
    return sizes


def batch(size: int, codec: int = ZSTD, **producer: int) -> bytes:
    return bytes(build_batch([(NOW_MS, b"k", bytes(size), ())], codec=codec, **producer))


def produce(*batches: bytes, acks: int = -1, topic: str = "orders") -> Message:
    """One batch for each partition."""
    data = [{"index": index, "records": each} for index, each in enumerate(batches)]
    return {"acks": acks, "timeout": 1000, "topic_data": [{"name": topic, "partition_data": data}]}


def codes(answer: Message | None) -> list[int]:
    assert answer is not None
    ((topic),) = answer["responses"]
    return [partition["error_code"] for partition in topic["partition_responses"]]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, ZSTD], ids=lambda codec: NAMES[codec])
def test_what_is_heavy_is_decompressed_off_the_loop(desk: Desk, unfolded: list[int], codec: int) -> None:
    later = desk.ask_later("produce", 9, produce(batch(HEAVY_BYTES, codec)))
    assert unfolded == []
    assert later.pending.holds_connection, "what comes after it must not overtake it"
    assert desk.broker.partition("orders", 0).log_end_offset == 0
    desk.threads.run_all()
    assert codes(later.message) == [OK]
    assert len(unfolded) == 1
    assert desk.broker.partition("orders", 0).log_end_offset == 1


def test_lz4_weighs_what_it_hardly_ever_exceeds(desk: Desk, unfolded: list[int]) -> None:
    large = HEAVY_BYTES * 255 // heavy_batches.LZ4_EXPECTED_RATIO
    later = desk.ask_later("produce", 9, produce(batch(large, LZ4)))
    assert unfolded == []
    desk.threads.run_all()
    assert codes(later.message) == [OK]


@pytest.mark.parametrize("codec", range(5), ids=lambda codec: NAMES[codec])
def test_usual_batches_are_answered_at_once(desk: Desk, codec: int) -> None:
    assert codes(desk.ask("produce", 9, produce(*[batch(100_000, codec)] * 10))) == [OK] * 10


def test_uncompressed_batches_are_never_heavy(desk: Desk) -> None:
    assert codes(desk.ask("produce", 9, produce(*[batch(1_000_000, NONE)] * 10))) == [OK] * 10


def test_together_they_are_too_much(desk: Desk, unfolded: list[int]) -> None:
    """What fits into the loop's share stays there, and waits for the rest."""
    each = INLINE_BYTES // 2 - 1000
    later = desk.ask_later("produce", 9, produce(*[batch(each)] * 5))
    for done in range(3):
        assert (len(unfolded), len(desk.threads.waiting)) == (done, 1), "one at a time"
        desk.threads.run_next()
    assert codes(later.message) == [OK] * 5
    assert len(unfolded) == 5


def test_others_are_served_between_the_batches(desk: Desk) -> None:
    first = desk.ask_later("produce", 9, produce(*[batch(HEAVY_BYTES)] * 3))
    second = desk.ask_later("produce", 9, produce(batch(HEAVY_BYTES)))
    desk.threads.run_next()
    desk.threads.run_next()
    assert (first.message, codes(second.message)) == (None, [OK])
    desk.threads.run_all()
    assert codes(first.message) == [OK] * 3


def test_what_a_request_may_unfold_to_is_bounded(
    desk: Desk, unfolded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heavy_batches, "MAX_UNFOLDED_BYTES", 3 * HEAVY_BYTES)
    later = desk.ask_later("produce", 9, produce(*[batch(HEAVY_BYTES)] * 40))
    desk.threads.run_all()
    assert codes(later.message) == [OK, OK] + [INVALID_RECORD] * 38
    assert len(unfolded) == 2


def test_a_bad_batch_among_them(desk: Desk) -> None:
    """Its error is its own; and a batch that nobody can store costs nothing."""
    bad = bytearray(batch(HEAVY_BYTES))
    bad[-1] ^= 1
    later = desk.ask_later("produce", 9, produce(batch(HEAVY_BYTES), bytes(bad), batch(HEAVY_BYTES)))
    desk.threads.run_all()
    assert codes(later.message) == [OK, 2, OK]


def test_a_topic_that_is_deleted_meanwhile(desk: Desk) -> None:
    later = desk.ask_later("produce", 9, produce(batch(HEAVY_BYTES), batch(HEAVY_BYTES)))
    desk.ask("delete_topics", 5, {"topic_names": ["orders"], "timeout": 1000})
    desk.threads.run_all()
    assert codes(later.message) == [3, 3]


@pytest.mark.parametrize(("codec", "wanted"), [(NONE, "gzip"), (GZIP, "zstd"), (ZSTD, "uncompressed")])
def test_compressing_anew_weighs_more(desk: Desk, codec: int, wanted: str) -> None:
    desk.create("packed", compression_type=wanted)
    size = INLINE_BYTES // heavy_batches.RECOMPRESSION_WEIGHT + 1000
    later = desk.ask_later("produce", 9, produce(batch(size, codec), topic="packed"))
    desk.threads.run_all()
    assert codes(later.message) == [OK]
    stored = desk.broker.partition("packed", 0).read(0, 1 << 24, upper_bound=1).read_all()
    assert stored[22] & 7 == (NONE if wanted == "uncompressed" else NAMES.index(wanted))
    assert codes(desk.ask("produce", 9, produce(batch(1000, codec), topic="packed"))) == [OK]


def test_too_much_in_line_is_to_be_tried_again(desk: Desk) -> None:
    desk.broker.off_loop.enter(MAX_OFF_LOOP_BYTES)
    assert codes(desk.ask("produce", 9, produce(batch(HEAVY_BYTES)))) == [REQUEST_TIMED_OUT]
    desk.broker.off_loop.leave(MAX_OFF_LOOP_BYTES)
    desk.ask_later("produce", 9, produce(batch(HEAVY_BYTES)))


@pytest.mark.parametrize(("spoil", "expected"), [(lambda good: good, NO_REPLY), (lambda good: good[:-1] + b"?", CLOSE)])
def test_without_acks_it_is_done_all_the_same(desk: Desk, spoil: Callable[[bytes], bytes], expected: object) -> None:
    answer = desk.dispatch("produce", 9, produce(spoil(batch(HEAVY_BYTES)), acks=0))
    assert isinstance(answer, Pending)
    assert answer.abandon is None, "the client may be gone already"
    ended: list[object] = []
    answer.on_complete = ended.append
    desk.threads.run_all()
    assert ended == [expected]


def test_who_is_gone_gets_nothing_done(desk: Desk, unfolded: list[int]) -> None:
    later = desk.ask_later("produce", 9, produce(*[batch(HEAVY_BYTES)] * 5))
    assert later.pending.abandon is not None
    desk.threads.run_next()
    later.pending.abandon()
    desk.threads.run_all()
    assert len(unfolded) == 2, "the one that was under way, and no more"
    assert desk.broker.partition("orders", 0).log_end_offset == 0
    desk.broker.off_loop.enter(MAX_OFF_LOOP_BYTES)  # nothing is held any more


def test_a_flush_comes_after_it(desk: Desk) -> None:
    desk.create("safe", flush_messages="1")
    later = desk.ask_later("produce", 9, produce(batch(HEAVY_BYTES), topic="safe"))
    desk.threads.run_next()
    assert later.message is None
    desk.threads.run_all()
    assert codes(later.message) == [OK]


def test_a_transaction_that_ends_while_its_batch_is_judged() -> None:
    """By protocol 1 its marker has the epoch of the batch: after the marker, the log would take that for the beginning
    of the next transaction, which nobody ends."""
    desk = transactions.open_desk(FailingStorage())
    desk.create("orders")
    transactions.find(desk, transactions.ID)
    producer = transactions.init(desk)
    transactions.add(desk, producer, transactions.ORDERS)
    transactions.write(desk, producer, transactions.ORDERS)
    heavy = batch(
        HEAVY_BYTES,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=1,
        transactional=True,
    )
    later = desk.ask_later("produce", 9, {**produce(heavy), "transactional_id": transactions.ID})
    transactions.end(desk, producer, commit=False, version=3)
    log = desk.broker.partition("orders", 0)
    assert log.last_stable_offset == log.log_end_offset == 2
    desk.threads.run_all()
    assert codes(later.message) == [INVALID_TXN_STATE]
    assert log.last_stable_offset == log.log_end_offset == 2


def test_a_failure_after_they_were_judged_ends_the_connection(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one before would: nobody waits for ever, and the client asks again."""
    answer = desk.dispatch("produce", 9, produce(batch(HEAVY_BYTES)))
    assert isinstance(answer, Pending)
    ended: list[object] = []
    answer.on_complete = ended.append
    monkeypatch.setattr(desk.broker.purgatory, "appended", failing)
    desk.threads.run_all()
    assert ended == [FAILED]
    assert "bug: a request could not be finished" in caplog.text


def test_a_failure_before_one_is_judged_is_its_own(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    later = desk.ask_later("produce", 9, produce(*[batch(HEAVY_BYTES)] * 2))
    rules = desk.broker.batch_rules
    monkeypatch.setattr(desk.broker, "batch_rules", failing)
    desk.threads.run_next()
    monkeypatch.setattr(desk.broker, "batch_rules", rules)
    assert codes(later.message) == [OK, UNKNOWN_SERVER_ERROR]
    assert "bug: a batch for orders could not be judged" in caplog.text
    desk.broker.off_loop.enter(MAX_OFF_LOOP_BYTES)  # nothing is held any more


def failing(*_: object) -> None:
    raise ZeroDivisionError
