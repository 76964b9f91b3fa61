from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.client.transaction.prepared import PreparedTransaction
from oncelog.spark.sink.errors import NotFinished, RecordsGone
from oncelog.spark.sink.finishing import (
    Answer,
    Commit,
    Copy,
    Fate,
    Finish,
    Look,
    Salvage,
    Seen,
    after_commit,
    after_look,
    after_salvage,
    next_step,
    to_fence,
)
from oncelog.spark.sink.journal import Decided, Done
from tests.spark.sink.support import QUERY, prepared

ONE, TWO = prepared(0), prepared(1)
DECIDED = Decided(QUERY, 5, "ab", (ONE, TWO))
COPY_OF_TWO = replace(TWO, transaction=PreparedTransaction("billing-1-salvage", 5000, 0))
PLAN = Copy(TWO, "billing-1-salvage")


def test_all_are_committed_then_looked_at_then_copied_then_done() -> None:
    one, two = ONE.transaction, TWO.transaction
    assert next_step("billing", DECIDED, {}) == Commit((ONE, TWO))
    assert next_step("billing", DECIDED, {one: Fate.UNCLEAR, two: Fate.ABORTED}) == Look((ONE,))
    assert next_step("billing", DECIDED, {one: Fate.COMMITTED, two: Fate.ABORTED}) == Salvage((PLAN,))
    assert next_step("billing", DECIDED, {one: Fate.COMMITTED, two: Fate.COMMITTED}) == Finish(Done(QUERY, 5, "ab"))


def test_a_copy_takes_the_place_of_its_source_and_is_committed_next() -> None:
    with_copy = after_salvage(DECIDED, [(PLAN, COPY_OF_TWO)])
    assert with_copy == replace(DECIDED, attempts=(ONE, COPY_OF_TWO))
    fates = {ONE.transaction: Fate.COMMITTED, TWO.transaction: Fate.ABORTED}
    assert next_step("billing", with_copy, fates) == Commit((COPY_OF_TWO,))


def test_a_copy_that_lacks_records_stops() -> None:
    short = replace(COPY_OF_TWO, ranges=(TWO.ranges[0]._replace(records=2),))
    for copy in (short, replace(COPY_OF_TWO, ranges=())):
        with pytest.raises(RecordsGone, match=r"paid-1 10\.\.15"):
            after_salvage(DECIDED, [(PLAN, copy)])


def test_what_cannot_be_known_is_not_guessed() -> None:
    assert after_commit(DECIDED, ONE, Answer.UNCLEAR) is Fate.UNCLEAR
    with pytest.raises(NotFinished):
        after_commit(DECIDED, ONE, Answer.UNANSWERED)
    with pytest.raises(NotFinished):
        after_look(DECIDED, ONE, Seen.UNSETTLED)
    with pytest.raises(RecordsGone):
        after_look(DECIDED, ONE, Seen.GONE)


def test_open_transactions_are_fenced_unless_a_decision_names_them() -> None:
    later = ONE.transaction._replace(producer_epoch=3)
    foreign = PreparedTransaction("billing-2-0", 9, 9)
    driver = PreparedTransaction("billing-driver", 9, 9)
    found = [TWO.transaction, later, COPY_OF_TWO.transaction, foreign, driver]
    assert to_fence("billing", found, [DECIDED]) == (later, COPY_OF_TWO.transaction)
