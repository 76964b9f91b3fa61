"""The rules of the ledger, one by one."""

from __future__ import annotations

import pytest

from oncelog.spark.table.errors import Disagreement, RolledBack, SinkTaken, StagingLost, UnknownQuery
from oncelog.spark.table.ledger import (
    RUNS,
    Line,
    Report,
    Staged,
    Verdict,
    add_up,
    check_counts,
    check_epoch,
    check_newcomer,
    judge,
)


def report(slot: int, rows: int, batch: int = 3, epoch: int = 7) -> Report:
    return Report("q", batch, epoch, slot, Staged(slot, 100 + slot, rows) if rows else None)


def test_reports_add_up() -> None:
    batch = add_up([report(0, 5), report(1, 0), report(2, 6)])
    assert batch is not None
    assert (batch.rows, batch.attempts) == (11, [100, 102])
    assert add_up([report(0, 0), report(1, 0)]) is None
    assert add_up([]) is None


@pytest.mark.parametrize("other", [report(1, 1, batch=4), report(1, 1, epoch=8), report(0, 1)])
def test_reports_that_do_not_fit_together(other: Report) -> None:
    with pytest.raises(Disagreement):
        add_up([report(0, 1), other])


@pytest.mark.parametrize(
    ("last", "batch", "digest", "expected"),
    [
        (None, 0, None, Verdict.PUBLISH),
        (None, 5, "x", Verdict.PUBLISH),
        (Line("q", 2, "x"), 3, "y", Verdict.PUBLISH),
        (Line("q", 3, "x"), 3, "x", Verdict.REPLAYED),
        (Line("q", 3, None), 3, "x", Verdict.REPLAYED),
        (Line("q", 3, "x"), 3, None, Verdict.REPLAYED),
        (Line("q", 3, "x"), 3, "y", RolledBack),
        (Line("q", 3, "x"), 2, "x", RolledBack),
    ],
)
def test_what_becomes_of_a_batch(
    last: Line | None, batch: int, digest: str | None, expected: Verdict | type[Exception]
) -> None:
    if isinstance(expected, Verdict):
        assert judge(last, "q", batch, digest) is expected
    else:
        with pytest.raises(expected, match="the checkpoint was rolled back"):
            judge(last, "q", batch, digest)


def test_only_the_last_plan_publishes() -> None:
    check_epoch("shop", 7, 7)
    for found in (6, 8, None):
        with pytest.raises(SinkTaken):
            check_epoch("shop", found, 7)


def test_who_may_insert_without_an_id() -> None:
    check_newcomer("shop", "q", [])
    check_newcomer("shop", "q", ["p", "q"])
    check_newcomer("shop", f"{RUNS}monday", ["p"])
    with pytest.raises(UnknownQuery):
        check_newcomer("shop", "q", ["p"])


def test_every_attempt_is_counted() -> None:
    batch = add_up([report(0, 5), report(1, 6)])
    assert batch is not None
    check_counts(batch, {100: 5, 101: 6, 55: 1})
    for found in ({100: 5}, {100: 5, 101: 5}, {100: 6, 101: 5}, {}):
        with pytest.raises(StagingLost):
            check_counts(batch, found)
