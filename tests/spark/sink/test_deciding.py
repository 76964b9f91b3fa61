from __future__ import annotations

import pytest

from oncelog.spark.sink.attempts import Nothing, TaskResult, decide_by_ms
from oncelog.spark.sink.deciding import (
    AlreadyDone,
    Choice,
    Decide,
    NothingToDecide,
    check_term,
    choose,
    decide,
    withdraw,
)
from oncelog.spark.sink.errors import Disagreement, NearExpiry, PrefixInUse, RolledBack
from oncelog.spark.sink.identity import Term
from oncelog.spark.sink.journal import Decided, Done
from tests.spark.sink.support import QUERY, TERM, prepared, result

DONE_4, DONE_5, DONE_6 = (Done(QUERY, batch, "ab") for batch in (4, 5, 6))
RESULTS = [result(0, prepared(0)), result(1, Nothing.EMPTY), result(2, prepared(2))]


def test_a_task_skips_the_last_batch_only() -> None:
    assert choose({}, QUERY, 0) is Choice.WRITE
    assert choose({QUERY: DONE_4}, QUERY, 5) is Choice.WRITE
    assert choose({QUERY: DONE_5}, QUERY, 5) is Choice.SKIP
    assert choose({"another query": DONE_5}, QUERY, 5) is Choice.WRITE
    with pytest.raises(RolledBack):
        choose({QUERY: DONE_6}, QUERY, 5)


def test_what_the_tasks_prepared_is_decided() -> None:
    decided = Decided(QUERY, 5, "ab", (prepared(0), prepared(2)))
    assert decide({QUERY: DONE_4}, 5, RESULTS, "ab", 0) == Decide(decided)


def test_without_rows_nothing_is_decided() -> None:
    assert decide({}, 5, [], None, 0) == decide({}, 5, [result(0, Nothing.EMPTY)], None, 0) == NothingToDecide()


@pytest.mark.parametrize("digest", ["ab", None])
def test_a_batch_that_is_done_is_not_decided_again(digest: str | None) -> None:
    assert decide({QUERY: DONE_5}, 5, RESULTS, digest, 0) == AlreadyDone((prepared(0), prepared(2)))
    assert decide({QUERY: DONE_5}, 5, [result(0, Nothing.SKIPPED)], digest, 0) == AlreadyDone(())


def test_a_replay_from_other_offsets_stops() -> None:
    with pytest.raises(RolledBack, match="other source offsets"):
        decide({QUERY: DONE_5}, 5, [result(0, Nothing.SKIPPED)], "cd", 0)
    with pytest.raises(RolledBack, match="batch 6 is written already"):
        decide({QUERY: DONE_6}, 5, RESULTS, "ab", 0)


@pytest.mark.parametrize(
    "results",
    [
        [result(0, prepared(0)), result(1, prepared(1), query_id="other")],
        [result(0, prepared(0)), result(1, prepared(1), batch_id=6)],
        [result(0, prepared(0)), result(0, prepared(1))],
        [result(0, prepared(0)), result(1, Nothing.SKIPPED)],
        [result(0, Nothing.SKIPPED)],
    ],
    ids=["queries", "batches", "slots", "some skipped", "skipped, but not done"],
)
def test_results_that_do_not_fit_together_decide_nothing(results: list[TaskResult]) -> None:
    with pytest.raises(Disagreement):
        decide({QUERY: DONE_4}, 5, results, None, 0)


def test_nothing_is_decided_near_expiry() -> None:
    assert decide_by_ms(0, 900_000) == 870_000
    assert decide_by_ms(100, 10_000) == 7_600
    assert isinstance(decide({}, 5, RESULTS, None, 1000), Decide)
    with pytest.raises(NearExpiry, match="billing-0, billing-2"):
        decide({}, 5, RESULTS, None, 1001)


def test_what_is_decided_is_not_aborted() -> None:
    assert withdraw({}, RESULTS) == withdraw({QUERY: DONE_4}, RESULTS) == (prepared(0), prepared(2))
    assert withdraw({QUERY: Decided(QUERY, 5, None, ())}, RESULTS) == ()
    assert withdraw({QUERY: DONE_5}, RESULTS) == ()


def test_only_the_driver_that_planned_a_batch_commits_it() -> None:
    check_term(TERM, RESULTS)
    for found in (None, Term(TERM.producer_id, TERM.producer_epoch + 1)):
        with pytest.raises(PrefixInUse):
            check_term(found, RESULTS)
