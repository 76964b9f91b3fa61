from __future__ import annotations

from oncelog.broker.answer_line import MAX_PENDING_ANSWERS, AnswerLine


def test_answers_leave_in_the_order_of_their_requests() -> None:
    line = AnswerLine()
    first, second, third = line.reserve(), line.reserve(), line.reserve()
    second.chunks = [b"second"]
    assert line.take_ready() == []
    first.chunks = [b"first"]
    assert line.take_ready() == [[b"first"], [b"second"]]
    assert len(line) == 1
    third.chunks = [b"third"]
    assert line.take_ready() == [[b"third"]]


def test_the_line_is_bounded() -> None:
    line = AnswerLine()
    places = [line.reserve() for _ in range(MAX_PENDING_ANSWERS)]
    assert line.is_full
    places[0].chunks = [b""]
    line.take_ready()
    assert not line.is_full
