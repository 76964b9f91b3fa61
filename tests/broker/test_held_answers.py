from __future__ import annotations

from oncelog.broker.held_answers import HeldAnswers


def test_who_holds_most_gives_way() -> None:
    held: HeldAnswers[str] = HeldAnswers(max_bytes=100)
    assert held.note("slow", 60) is None
    assert held.note("other", 40) is None
    assert held.note("newcomer", 10) == "slow"
    assert held.total_bytes == 50


def test_it_may_be_the_newcomer() -> None:
    held: HeldAnswers[str] = HeldAnswers(max_bytes=100)
    held.note("other", 40)
    assert held.note("newcomer", 70) == "newcomer"
    assert held.total_bytes == 40


def test_what_is_taken_no_longer_counts() -> None:
    held: HeldAnswers[str] = HeldAnswers(max_bytes=100)
    held.note("slow", 90)
    held.note("slow", 20)
    assert held.note("other", 80) is None
    held.note("slow", 0)
    held.note("other", 0)
    assert held.total_bytes == 0
    assert held.note("gone", 0) is None
