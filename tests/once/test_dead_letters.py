"""Dead letters on their way: the runner waits for no producer, and what is stored is not sent again."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import oncelog
from oncelog import once
from oncelog.client.delivery import NotDeliveredYet
from oncelog.client.producer_errors import DeliveryFailed, TopicUnavailable
from oncelog.once import dead_letters as module
from oncelog.once import runner as runner_module
from oncelog.once.dead_letters import DeadLetters
from tests.once.fake_consumer import FakeConsumer
from tests.once.shop import PARTITION, Order, Shop, orders
from tests.support.patience import PATIENCE_S, eventually


class Producer:
    """Whose letters are on their way until it is said what becomes of them."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.fate: Exception | None = NotDeliveredYet("still on its way")
        self.before_send: Callable[[bytes], object] = lambda key: None

    def send(self, topic: str, *, key: bytes, **content: Any) -> Any:
        self.before_send(key)
        self.sent.append(key)

        def result(timeout: float | None = None) -> None:
            if self.fate is not None:
                raise self.fate

        return SimpleNamespace(result=result)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(str(tmp_path / "shop.db"))
    made.build()
    return made


@pytest.fixture
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "in_thread", lambda work: work())


def letters_of(shop: Shop, producer: Any, count: int = 0) -> DeadLetters:
    """With so many new ones."""
    letters = DeadLetters(shop.open(), "billing", once.DeadLetter(producer, "dead"))
    for offset in range(count):
        letters.write_unmarked(Order(offset, key=b"%d" % offset), "no", 1)
    return letters


def a_claims_time_passes(letters: DeadLetters) -> None:
    with letters._database.transaction() as transaction:
        transaction.run("UPDATE t_dead_letters SET claimed_until_ms = 0")


def fail(connection: Any, record: Any) -> None:
    raise ValueError("no such item")


def runner_of(shop: Shop, consumer: FakeConsumer, producer: Any, effect: Any = fail) -> once.Runner:
    letter = once.DeadLetter(producer, "dead")
    return once.Runner(consumer, shop.open(), effect, topics=["orders"], attempts=1, dead_letter=letter)


# --- on their way -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_inline")
def test_a_letter_that_takes_its_time_is_sent_once(shop: Shop) -> None:
    producer = Producer()
    letters = letters_of(shop, producer, 2)
    assert not letters.ship(0.0, 0.0)
    assert letters.is_shipping
    producer.fate = None
    letters.ship(0.0, 0.0)
    assert not letters.is_shipping
    a_claims_time_passes(letters)
    letters.ship(0.0, 0.0)
    assert producer.sent == [b"0", b"1"]


@pytest.mark.usefixtures("_inline")
def test_a_letter_that_fails_after_a_while_is_sent_again(shop: Shop) -> None:
    producer = Producer()
    letters = letters_of(shop, producer, 1)
    letters.ship(0.0, 0.0)
    producer.fate = DeliveryFailed("too late", may_be_written=False)
    assert not letters.ship(0.0, 0.0), "and not at once"
    producer.fate = None
    letters.ship(0.0, 0.0)
    letters.ship(0.0, 0.0)
    assert producer.sent == [b"0", b"0"]


@pytest.mark.usefixtures("_inline")
def test_who_waits_for_a_producer_keeps_its_claim_however_long_that_tries(shop: Shop) -> None:
    producer, other = Producer(), Producer()
    letters = letters_of(shop, producer, 1)
    letters.ship(0.0, 0.0)
    a_claims_time_passes(letters)
    letters.ship(0.0, module.RENEWAL_S + 1)
    letters_of(shop, other).ship(0.0, 0.0)
    assert other.sent == []


@pytest.mark.usefixtures("_inline")
def test_what_the_database_did_not_hear_of_is_noted_later_and_not_sent_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer()
    letters = letters_of(shop, producer, 1)
    letters.ship(0.0, 0.0)
    producer.fate = None
    with monkeypatch.context() as away:
        away.setattr(letters._database, "transaction", lambda: (_ for _ in ()).throw(sqlite3.OperationalError("away")))
        with pytest.raises(sqlite3.OperationalError):
            letters.ship(0.0, 0.0)
    letters.ship(0.0, 0.0)
    a_claims_time_passes(letters)
    letters.ship(0.0, 0.0)
    assert producer.sent == [b"0"]


@pytest.mark.usefixtures("_inline")
def test_a_letter_that_no_producer_takes_does_not_hold_up_those_behind_it(shop: Shop) -> None:
    def check(key: bytes) -> None:
        if key == b"0":
            raise oncelog.RecordTooLarge("larger than max.request.size")

    producer = Producer()
    producer.fate, producer.before_send = None, check
    letters_of(shop, producer, 3).ship(0.0, 0.0)
    assert producer.sent == [b"1", b"2"]


@pytest.mark.usefixtures("_inline")
def test_a_topic_that_is_away_is_waited_for_once_not_by_every_letter(shop: Shop) -> None:
    asked: list[bytes] = []

    def refuse(key: bytes) -> None:
        asked.append(key)
        raise TopicUnavailable("no broker has answered")

    producer = Producer()
    producer.before_send = refuse
    letters = letters_of(shop, producer, 3)
    assert not letters.ship(0.0, 0.0)
    assert asked == [b"0"]
    producer.before_send, producer.fate = (lambda key: None), None
    letters.ship(0.0, 0.0)
    assert producer.sent == [b"0", b"1", b"2"]


def test_what_no_producer_has_got_at_the_end_is_free_for_the_next(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "in_thread", lambda work: None)  # it has not come to it
    letters = letters_of(shop, Producer(), 2)
    letters.ship(0.0, 0.0)
    letters.give_up()
    assert not letters.is_shipping
    monkeypatch.setattr(module, "in_thread", lambda work: work())
    other = Producer()
    letters_of(shop, other).ship(0.0, 0.0)
    assert other.sent == [b"0", b"1"]


# --- and the runner ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_inline")
def test_a_runner_polls_between_two_shipments(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHIPMENT", 1)
    events: list[str] = []
    producer, consumer = Producer(), FakeConsumer({PARTITION: orders(3)})
    producer.fate, producer.before_send = None, lambda key: events.append("send")
    poll = consumer.poll
    consumer.poll = lambda *args, **how: events.append("poll") or poll(*args, **how)  # type: ignore[method-assign]
    runner_of(shop, consumer, producer).run(until_idle=0.0)
    assert events == ["poll", "send", "poll", "send", "send"], "at the end nothing is left to be polled for"


@pytest.mark.real
def test_a_runner_polls_and_ends_while_a_producer_does_not_even_accept(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "SHIP_SLICE_S", 0.0)
    monkeypatch.setattr(runner_module, "SHIP_PATIENCE_S", 0.0)
    topic_is_known, is_asked = threading.Event(), threading.Event()

    def wait(key: bytes) -> None:
        is_asked.set()
        if not topic_is_known.wait(PATIENCE_S):
            raise TopicUnavailable("no broker has answered")

    producer, consumer = Producer(), FakeConsumer({PARTITION: orders(3)})
    producer.fate, producer.before_send = None, wait

    def effect(connection: Any, record: Any) -> None:
        if record.offset == 0:
            fail(connection, record)
        assert record.offset != 2 or is_asked.wait(PATIENCE_S)
        shop.book(connection, record)

    letter = once.DeadLetter(producer, "dead")
    runner = once.Runner(consumer, shop.open(), effect, topics=["orders"], attempts=1, batch_size=1, dead_letter=letter)
    tally = runner.run(until_idle=0.0)
    assert (tally.done, tally.failed) == (2, 1)
    assert not topic_is_known.is_set(), "it ended meanwhile"
    assert producer.sent == []
    topic_is_known.set()
    shipment = runner._dead_letters._shipment  # type: ignore[union-attr]
    eventually(shipment._is_given_over.is_set, "the letter is sent")  # type: ignore[union-attr]
    runner.close()
    letters = letters_of(shop, producer)
    a_claims_time_passes(letters)
    letters.ship(0.0, 0.0)
    assert producer.sent == [b"shop"], "the end of the runner has noted it"
