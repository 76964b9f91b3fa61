"""The oracle itself: it must see what is lost, doubled, or out of order."""

from __future__ import annotations

import pytest

from tests.spark.support.oracle import Row, exactly_once

SENT = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2")]


def rows(*pairs: tuple[bytes, bytes]) -> list[Row]:
    return [Row(0, offset, key, value) for offset, (key, value) in enumerate(pairs)]


def test_all_once_whatever_the_order_between_keys() -> None:
    exactly_once(rows((b"b", b"1"), (b"a", b"1"), (b"b", b"2"), (b"a", b"2")), SENT)


def test_lost() -> None:
    with pytest.raises(AssertionError, match="1 of 4 are lost"):
        exactly_once(rows(*SENT[:3]), SENT)


def test_doubled() -> None:
    with pytest.raises(AssertionError, match="1 are too many"):
        exactly_once(rows(*SENT, SENT[0]), SENT)


def test_out_of_order() -> None:
    swapped = rows(SENT[2], SENT[1], SENT[0], SENT[3])
    exactly_once(swapped, SENT, in_order=False)
    with pytest.raises(AssertionError):
        exactly_once(swapped, SENT)
