from __future__ import annotations

from oncelog.client.consumer_counters import NEVER, ConsumerCounters


def test_the_first_poll_has_no_distance() -> None:
    counters = ConsumerCounters()
    assert counters.last_poll_ms == NEVER
    counters.poll_began(5_000)
    assert (counters.last_poll_ms, counters.polls, counters.between_polls_ms) == (5_000, 0, 0)


def test_time_in_poll_and_outside_of_it() -> None:
    counters = ConsumerCounters()
    for began_ms, ended_ms in ((0, 10), (100, 150), (1_000, 1_001)):
        counters.poll_began(began_ms)
        counters.poll_ended(ended_ms)
    assert (counters.polls, counters.between_polls_ms, counters.between_polls_ms_max) == (2, 1_000, 900)
    assert counters.in_poll_ms == 60


def test_a_poll_that_raised_counts_as_no_time_in_poll() -> None:
    counters = ConsumerCounters()
    counters.poll_began(0)
    counters.poll_ended(10)
    counters.poll_began(100)
    counters.poll_began(200)
    assert (counters.between_polls_ms, counters.in_poll_ms) == (200, 10)


def test_records_and_commits() -> None:
    counters = ConsumerCounters()
    counters.took(3, 300)
    counters.took(1, 50)
    counters.offsets_committed(20)
    counters.offsets_committed(10)
    assert (counters.records_consumed, counters.bytes_consumed) == (4, 350)
    assert (counters.commits, counters.commit_ms, counters.commit_ms_max) == (2, 30, 20)
