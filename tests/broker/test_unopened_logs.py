"""When the next try to open a log is due, and who comes first."""

from __future__ import annotations

from oncelog.broker.unopened_logs import FIRST_RETRY_MS, MAX_RETRY_MS, UnopenedLogs
from oncelog.types import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_each_failure_waits_longer_and_a_success_ends_that() -> None:
    unopened, now_ms = UnopenedLogs(), 0
    waits = []
    assert unopened.failed(FIRST, now_ms)
    for _ in range(12):
        waited_ms = 0
        while unopened.next_due(now_ms + waited_ms) is None:
            waited_ms += FIRST_RETRY_MS
        now_ms += waited_ms
        waits.append(waited_ms)
        assert not unopened.failed(FIRST, now_ms), "it is known by now"
    assert waits[:3] == [FIRST_RETRY_MS, 2 * FIRST_RETRY_MS, 4 * FIRST_RETRY_MS]
    assert waits[-1] == MAX_RETRY_MS
    unopened.failed(SECOND, now_ms)
    assert unopened.opened(FIRST)
    assert unopened.next_due(now_ms) == SECOND, "what has worked once may work for all"
    assert not unopened.opened(FIRST)


def test_one_that_fails_goes_to_the_end_of_the_line() -> None:
    unopened = UnopenedLogs()
    unopened.failed(FIRST, 0)
    unopened.failed(SECOND, 0)
    assert unopened.next_due(MAX_RETRY_MS) == FIRST
    unopened.failed(FIRST, 0)
    assert unopened.next_due(MAX_RETRY_MS) == SECOND
    unopened.forget(SECOND)
    assert unopened.next_due(MAX_RETRY_MS) == FIRST
    assert (len(unopened), FIRST in unopened, SECOND in unopened) == (1, True, False)


def test_many_that_fail_together_are_one_failure() -> None:
    unopened = UnopenedLogs()
    for index in range(50):
        assert unopened.failed(TopicPartition("orders", index), 1_000)
    assert unopened.next_due(1_000 + FIRST_RETRY_MS - 1) is None
    assert unopened.next_due(1_000 + FIRST_RETRY_MS) == FIRST
