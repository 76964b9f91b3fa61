"""When the next try to make a log is due, and who comes first."""

from __future__ import annotations

from oncelog.broker.missing_logs import FIRST_RETRY_MS, MAX_RETRY_MS, MissingLogs
from oncelog.types import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_each_failure_waits_longer_and_a_success_ends_that() -> None:
    missing, now_ms = MissingLogs(), 0
    waits = []
    assert missing.failed(FIRST, now_ms)
    for _ in range(12):
        waited_ms = 0
        while missing.next_due(now_ms + waited_ms) is None:
            waited_ms += FIRST_RETRY_MS
        now_ms += waited_ms
        waits.append(waited_ms)
        assert not missing.failed(FIRST, now_ms), "it is known by now"
    assert waits[:3] == [FIRST_RETRY_MS, 2 * FIRST_RETRY_MS, 4 * FIRST_RETRY_MS]
    assert waits[-1] == MAX_RETRY_MS
    missing.failed(SECOND, now_ms)
    assert missing.made(FIRST)
    assert missing.next_due(now_ms) == SECOND, "what has worked once may work for all"
    assert not missing.made(FIRST)


def test_one_that_fails_goes_to_the_end_of_the_line() -> None:
    missing = MissingLogs()
    missing.failed(FIRST, 0)
    missing.failed(SECOND, 0)
    assert missing.next_due(MAX_RETRY_MS) == FIRST
    missing.failed(FIRST, 0)
    assert missing.next_due(MAX_RETRY_MS) == SECOND
    missing.forget(SECOND)
    assert missing.next_due(MAX_RETRY_MS) == FIRST
    assert (len(missing), FIRST in missing, SECOND in missing) == (1, True, False)


def test_many_that_fail_together_are_one_failure() -> None:
    missing = MissingLogs()
    for index in range(50):
        assert missing.failed(TopicPartition("orders", index), 1_000)
    assert missing.next_due(1_000 + FIRST_RETRY_MS - 1) is None
    assert missing.next_due(1_000 + FIRST_RETRY_MS) == FIRST
