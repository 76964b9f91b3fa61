"""How long a producer rests between two transactions: as long as it takes for the first answers to be quick."""

from __future__ import annotations

from oncelog.client.transaction.rest import GIVE_UP_TRANSACTIONS, MAX_REST_MS, QUICK_IN_A_ROW, SERIAL_TRANSACTIONS, Rest

QUICK_MS, HELD_UP_MS = 2, 24


def after(rest: Rest, *took_ms: int, end_ms: int = QUICK_MS) -> int:
    for one in took_ms:
        rest.ended(end_ms, 1_000)
        rest.began(2_000)
        rest.began(2_900)
        rest.entered(2_000 + one)
    return rest.length_ms


def test_nobody_rests_while_answers_are_quick() -> None:
    assert after(Rest(), *[QUICK_MS] * 50) == 0


def test_a_coordinator_that_is_busy_gets_a_moment() -> None:
    rest = Rest()
    assert after(rest, QUICK_MS, HELD_UP_MS) == 1
    assert after(rest, HELD_UP_MS) == 2
    assert after(rest, QUICK_MS) == 2
    rest.ended(QUICK_MS, 5_000)
    assert rest.until_ms == 5_002


def test_only_what_enters_first_tells() -> None:
    rest = Rest()
    after(rest, QUICK_MS)
    rest.entered(2_000 + HELD_UP_MS)
    assert rest.length_ms == 0


def test_a_slow_network_is_not_a_busy_coordinator() -> None:
    assert after(Rest(), *[80] * 20, end_ms=75) == 0


def test_after_a_long_quick_time_a_shorter_rest_is_tried() -> None:
    rest = Rest()
    after(rest, QUICK_MS, HELD_UP_MS, HELD_UP_MS)
    assert after(rest, *[QUICK_MS] * QUICK_IN_A_ROW) == 1


def test_a_rest_that_does_not_help_is_given_up_for_long() -> None:
    rest = Rest()
    assert after(rest, QUICK_MS, *[HELD_UP_MS] * 4) == MAX_REST_MS
    assert after(rest, HELD_UP_MS) == 0
    assert after(rest, *[HELD_UP_MS] * (GIVE_UP_TRANSACTIONS - 1)) == 0
    assert after(rest, HELD_UP_MS) == 1


def test_where_a_coordinator_was_busy_things_go_one_after_the_other_for_long() -> None:
    rest = Rest()
    assert not rest.is_serial
    rest.contended()
    after(rest, *[QUICK_MS] * (SERIAL_TRANSACTIONS - 1))
    assert rest.is_serial
    after(rest, QUICK_MS)
    assert not rest.is_serial
