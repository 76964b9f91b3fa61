from __future__ import annotations

from oncelog.broker.answer_line import MAX_PENDING_ANSWERS, AnswerLine
from oncelog.broker.held_answers import MAX_HELD_BYTES


def test_answers_leave_in_the_order_of_their_requests() -> None:
    line = AnswerLine()
    first, second, third = line.reserve(), line.reserve(), line.reserve()
    line.fill(second, [b"second"])
    assert line.take_ready() == []
    line.fill(first, [b"first"])
    assert line.take_ready() == [[b"first"], [b"second"]]
    assert len(line) == 1
    line.fill(third, [b"third"])
    assert line.take_ready() == [[b"third"]]


def test_the_line_is_bounded() -> None:
    line = AnswerLine()
    places = [line.reserve() for _ in range(MAX_PENDING_ANSWERS)]
    assert line.is_full()
    line.fill(places[0], [b""])
    line.take_ready()
    assert not line.is_full()


def test_answers_that_wait_for_one_before_them_are_bounded_in_bytes() -> None:
    line = AnswerLine()
    first = line.reserve()
    line.fill(line.reserve(), [bytes(MAX_HELD_BYTES)])
    assert not line.is_full()
    line.fill(line.reserve(), [b"x"])
    assert line.is_full()
    assert line.held_bytes == MAX_HELD_BYTES + 1
    line.fill(first, [b"first"])
    assert len(line.take_ready()) == 3
    assert (line.is_full(), line.held_bytes) == (False, 0)
