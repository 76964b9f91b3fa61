"""Rows of a database as the far end of an audit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from oncelog.audit.account import Audit, Counts, Ledger
from oncelog.audit.bookings import Bookings
from oncelog.audit.ids import RecordId
from oncelog.types import TopicPartition

PARTITION = TopicPartition("orders", 0)


class Order(NamedTuple):
    number: int
    topic: str = "orders"
    partition: int = 0
    headers: tuple[()] = ()

    @property
    def offset(self) -> int:
        return self.number

    @property
    def value(self) -> bytes:
        return f"shop/{self.number} paid".encode()


@pytest.fixture
def bookings(tmp_path: Path) -> Iterator[Bookings]:
    with Bookings(str(tmp_path / "shop.db")) as opened:
        yield opened


def account(bookings: Bookings, sent: int) -> Counts:
    ledger = Ledger()
    for number in range(sent):
        ledger.sent(RecordId("shop", number), PARTITION)
        ledger.acknowledged(RecordId("shop", number), PARTITION, number)
    audit = Audit(ledger)
    bookings.show_to(audit)
    return audit.report().total


def book(bookings: Bookings, *numbers: int) -> None:
    bookings.book_all([Order(number) for number in numbers])  # type: ignore[misc]


def test_each_order_once(bookings: Bookings) -> None:
    book(bookings, 0, 1)
    book(bookings, 2)
    assert account(bookings, 3) == Counts(sent=3, stored=3)
    assert (bookings.row_count, bookings.order_count) == (3, 3)


def test_booked_twice(bookings: Bookings) -> None:
    book(bookings, 0, 1)
    book(bookings, 1, 2)
    assert account(bookings, 3) == Counts(sent=3, stored=4, duplicated=1)
    assert (bookings.row_count, bookings.order_count) == (4, 3)


def test_never_booked(bookings: Bookings) -> None:
    book(bookings, 0, 2)
    assert account(bookings, 4) == Counts(sent=4, stored=2, lost=2)


def test_booked_behind_a_later_one(bookings: Bookings) -> None:
    book(bookings, 1)
    book(bookings, 0)
    assert account(bookings, 2) == Counts(sent=2, stored=2, out_of_order=1)


def test_an_order_of_nobody(bookings: Bookings) -> None:
    class Unnumbered(Order):
        value = b"paid"

    bookings.book_all([Unnumbered(0)])  # type: ignore[list-item]
    assert account(bookings, 0) == Counts(unnumbered=1)


def test_a_batch_that_fails_leaves_no_row(bookings: Bookings) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        bookings.book_all([Order(0), Order(1, topic=None)])  # type: ignore[list-item, arg-type]
    assert bookings.row_count == 0
    book(bookings, 0)
    assert bookings.row_count == 1


def test_others_book_into_the_same_file(bookings: Bookings, tmp_path: Path) -> None:
    with Bookings(str(tmp_path / "shop.db")) as other:
        book(bookings, 0)
        book(other, 1)
    book(bookings, 2)
    assert account(bookings, 3) == Counts(sent=3, stored=3)
