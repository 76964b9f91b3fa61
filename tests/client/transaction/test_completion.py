"""When a producer looks whether its last transaction is complete: where it was held up, and until it never is."""

from __future__ import annotations

import pytest

from oncelog.client.transaction.completion import (
    AT_ONCE_MS,
    MAX_LOOKING_MS,
    MAX_LOOKS,
    NEVER_BUSY_TRANSACTIONS,
    SERIAL_TRANSACTIONS,
    Completion,
)

QUICK_MS, SLOW_MS = 2, 24
BUSY, COMPLETE = "PrepareCommit", "CompleteCommit"


def looks(completion: Completion, now_ms: int = 1_000) -> bool:
    return completion.wants_look(now_ms, is_needed=True)


def after(completion: Completion, *took_ms: int, end_ms: int = QUICK_MS, seen: tuple[str, ...] = (COMPLETE,)) -> bool:
    """Transactions whose first records took so long. Whether the next one waits for a look."""
    for one in took_ms:
        completion.ended(end_ms, 1_000)
        for state in seen if looks(completion) else ():
            completion.looked(state)
        completion.began(2_000)
        completion.began(2_900)
        completion.entered(2_000 + one)
    completion.ended(end_ms, 1_000)
    return looks(completion)


def test_nobody_looks_while_answers_are_quick() -> None:
    assert not after(Completion(), *[QUICK_MS] * 50)


def test_after_one_that_was_held_up_the_next_waits_until_the_last_is_complete() -> None:
    completion = Completion()
    assert after(completion, QUICK_MS, SLOW_MS)
    completion.looked(BUSY)
    assert looks(completion)
    completion.looked(COMPLETE)
    assert not looks(completion)


def test_whoever_does_not_begin_at_once_looks_when_it_begins() -> None:
    completion = Completion()
    after(completion, QUICK_MS, SLOW_MS)
    completion.ended(QUICK_MS, 2_000)
    assert completion.wants_look(2_000, is_needed=False), "it began at once the last time"
    completion.looked(COMPLETE)
    assert not completion.wants_look(2_000 + AT_ONCE_MS + 1, is_needed=True)
    completion.ended(QUICK_MS, 3_000)
    assert not completion.wants_look(3_000, is_needed=False)
    assert completion.wants_look(3_000 + AT_ONCE_MS, is_needed=True)
    completion.looked(COMPLETE)
    completion.ended(QUICK_MS, 4_000)
    assert completion.wants_look(4_000, is_needed=False)


@pytest.mark.parametrize("state", ["CompleteAbort", "Empty", ""])
def test_every_other_state_lets_the_next_one_begin_even_none(state: str) -> None:
    completion = Completion()
    after(completion, QUICK_MS, SLOW_MS)
    completion.looked(state)
    assert not looks(completion)


def test_to_look_takes_no_longer_than_to_be_held_up() -> None:
    completion = Completion()
    after(completion, QUICK_MS, SLOW_MS)
    assert looks(completion, 1_000 + MAX_LOOKING_MS - 1)
    assert not looks(completion, 1_000 + MAX_LOOKING_MS)


def test_looks_in_vain_come_to_an_end_even_if_no_time_passes() -> None:
    completion = Completion()
    after(completion, QUICK_MS, SLOW_MS)
    for _ in range(MAX_LOOKS):
        assert looks(completion)
        completion.looked(BUSY)
    assert not looks(completion)


def test_only_what_enters_first_tells() -> None:
    completion = Completion()
    completion.ended(QUICK_MS, 1_000)
    completion.began(2_000)
    completion.entered(2_000 + QUICK_MS)
    completion.entered(2_000 + SLOW_MS)
    completion.ended(QUICK_MS, 3_000)
    assert not looks(completion, 3_000)


def test_a_slow_network_is_not_a_busy_coordinator() -> None:
    assert not after(Completion(), *[80] * 20, end_ms=75)


def test_where_the_first_look_always_finds_it_complete_nobody_looks_any_more() -> None:
    completion = Completion()
    after(completion, QUICK_MS, SLOW_MS)
    assert after(completion, *[QUICK_MS] * (NEVER_BUSY_TRANSACTIONS - 1))
    assert not after(completion, QUICK_MS)


def test_one_that_was_not_complete_begins_the_count_again() -> None:
    completion = Completion()
    after(completion, QUICK_MS, SLOW_MS)
    after(completion, *[QUICK_MS] * (NEVER_BUSY_TRANSACTIONS - 1))
    after(completion, QUICK_MS, seen=(BUSY, COMPLETE))
    assert after(completion, *[QUICK_MS] * (NEVER_BUSY_TRANSACTIONS - 1))


def test_where_a_coordinator_was_busy_things_go_one_after_the_other_for_long() -> None:
    completion = Completion()
    assert not completion.is_serial
    completion.contended()
    for _ in range(SERIAL_TRANSACTIONS - 1):
        completion.ended(QUICK_MS, 1_000)
    assert completion.is_serial
    completion.ended(QUICK_MS, 1_000)
    assert not completion.is_serial
