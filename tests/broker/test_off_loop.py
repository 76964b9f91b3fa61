"""Work off the loop: one piece at a time, in turn, within bounds, and errors that have a code."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.broker.off_loop import MAX_OFF_LOOP_BYTES, OffLoop
from oncelog.errors import InvalidRecord, KafkaError, RequestTimedOut, UnknownServerError
from tests.broker.support import Threads


def test_one_piece_at_a_time_and_in_turn() -> None:
    threads, ended = Threads(), []
    off_loop = OffLoop(threads.run_in_thread)
    for number in range(3):
        off_loop.run(lambda number=number: number, lambda found, _: ended.append(found))  # type: ignore[misc]
    for number in range(3):
        assert len(threads.waiting) == 1
        threads.run_next()
        assert ended == list(range(number + 1))
    assert not threads.waiting


def test_who_needs_more_waits_behind_the_others() -> None:
    threads, ended = Threads(), []
    off_loop = OffLoop(threads.run_in_thread)

    def greedy(found: Any, _: KafkaError | None) -> None:
        ended.append(found)
        off_loop.run(lambda: "more", lambda found, _: ended.append(found))

    off_loop.run(lambda: "greedy", greedy)
    off_loop.run(lambda: "modest", lambda found, _: ended.append(found))
    threads.run_all()
    assert ended == ["greedy", "modest", "more"]


@pytest.mark.parametrize(
    ("raised", "told"), [(InvalidRecord("bad"), InvalidRecord), (MemoryError(), UnknownServerError)]
)
def test_errors_are_coded(raised: Exception, told: type[KafkaError]) -> None:
    errors: list[KafkaError | None] = []

    def fail() -> None:
        raise raised

    OffLoop().run(fail, lambda _, error: errors.append(error))
    (error,) = errors
    assert isinstance(error, told)


def test_a_failing_end_does_not_stop_the_line() -> None:
    threads, ended = Threads(), []
    off_loop = OffLoop(threads.run_in_thread)

    def fail(_: Any, __: KafkaError | None) -> None:
        raise RuntimeError("a bug")

    off_loop.run(lambda: None, fail)
    off_loop.run(lambda: "next", lambda found, _: ended.append(found))
    with pytest.raises(RuntimeError):
        threads.run_next()
    threads.run_next()
    assert ended == ["next"]


def test_what_is_held_is_bounded() -> None:
    off_loop = OffLoop(Threads().run_in_thread)
    off_loop.enter(2 * MAX_OFF_LOOP_BYTES)  # alone, a request may be as large as requests may be
    with pytest.raises(RequestTimedOut):
        off_loop.enter(1)
    off_loop.leave(2 * MAX_OFF_LOOP_BYTES)
    off_loop.enter(MAX_OFF_LOOP_BYTES)


def test_where_no_thread_can_be_had_the_line_goes_on() -> None:
    ended: list[type | None] = []

    def refuse(*_: Any) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    off_loop = OffLoop(refuse)
    for _ in range(2):
        off_loop.run(lambda: None, lambda _, error: ended.append(type(error)))
    assert ended == [UnknownServerError] * 2
