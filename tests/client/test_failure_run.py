"""How many failures in a row are too many, and what the error says became of them."""

from __future__ import annotations

import pytest

from oncelog.client.failure_run import FailureRun, TooManyFailures


def said_after(run: FailureRun, place: str = "orders/0/9") -> str:
    with pytest.raises(TooManyFailures) as raised:
        run.failed(place, ValueError("no such table"))
    assert isinstance(raised.value.__cause__, ValueError)
    return str(raised.value)


def run_of(*places: str) -> FailureRun:
    run = FailureRun(len(places))
    for place in places:
        run.failed(place, ValueError())
    return run


def test_none_of_them_was_moved() -> None:
    said = said_after(run_of("orders/0/7", "orders/0/8"))
    assert said.startswith(
        "2 records in a row failed (orders/0/7, orders/0/8), and now orders/0/9: ValueError: no such table. So the"
        " fault is probably not theirs. None of them was moved to the dead-letter topic"
    )
    assert said.endswith("or raise max_failures_in_a_row (2)")


def test_all_before_were_moved() -> None:
    run = run_of("orders/0/8")
    run.moved()
    said = said_after(run)
    assert "1 record in a row failed (orders/0/8)" in said
    assert "Those before went to the dead-letter topic; orders/0/9 and what is behind it stay for the next run." in said


def test_some_were_moved() -> None:
    run = FailureRun(3)
    run.failed("orders/0/6", ValueError())
    run.moved()
    run.failed("orders/0/7", ValueError())
    run.failed("orders/0/8", ValueError())
    said = said_after(run)
    assert "1 of them went to the dead-letter topic; orders/0/7 and what is behind it stay" in said


def test_one_that_fails_again_counts_once() -> None:
    run = run_of("orders/0/7", "orders/0/8")
    run.failed("orders/0/7", ValueError())
    said_after(run)


def test_a_success_ends_the_run() -> None:
    run = run_of("orders/0/7", "orders/0/8")
    run.succeeded()
    run.failed("orders/0/9", ValueError())


def test_many_are_named_by_the_first_and_the_last() -> None:
    said = said_after(run_of(*(f"orders/0/{offset}" for offset in range(50))), "orders/0/50")
    assert "orders/0/8 and 41 more, up to orders/0/49), and now orders/0/50" in said
