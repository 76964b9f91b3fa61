"""Single rules, in histories of a few operations: what is a violation, and what only looks like one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncelog.audit.history.checker import check
from oncelog.audit.history.model import GroupOffset, Operation, Outcome, Records
from oncelog.audit.history.report import Kind
from oncelog.types import TopicPartition

IN, OUT = TopicPartition("in", 0), TopicPartition("out", 0)
ABC = Records(OUT, ["a", "b", "c"], [0, 1, 2])
A, B, C = (Records(OUT, [value], [offset]) for offset, value in enumerate("abc"))
SENT = Operation("writer", 1, 1, 2, Outcome.OK, sends=[ABC])


def read(*polls: Records, process: str = "reader", **fields: Any) -> Operation:
    return Operation(process, 1, 11, 12, Outcome.OK, polls=polls, **fields)


def consumed(process: str, at: int, *polls: int, offset: int, outcome: Outcome = Outcome.OK) -> Operation:
    """A transaction of a group that polled these offsets, and wrote nothing."""
    return Operation(
        process, 1, at, at + 1, outcome, is_transaction=True,
        polls=[Records(IN, [f"order {one}" for one in polls], polls)] if polls else [],
        offset_commits=[GroupOffset("billing", IN, offset)],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        pytest.param([SENT, read(ABC)], {}, id="all is read"),
        pytest.param(
            [SENT, read(Records(OUT, ["a", "b", "a"], [0, 1, 2]))],
            {Kind.DUPLICATE: 1, Kind.INCONSISTENT_OFFSET: 1, Kind.LOST_WRITE: 0},
            id="a run that was known, with another value",
        ),
        pytest.param([read(Records(OUT, ["a", "a"], [0, 1]))], {Kind.DUPLICATE: 1}, id="a run repeats a value"),
        pytest.param(
            [read(Records(OUT, ["a", "b"], [0, 0]))],
            {Kind.INCONSISTENT_OFFSET: 1, Kind.NONMONOTONIC_POLL: 1},
            id="a run repeats an offset",
        ),
        pytest.param([SENT, read(ABC, C)], {Kind.NONMONOTONIC_POLL: 1}, id="a record is polled again"),
        pytest.param([SENT, read(ABC), read(C, process="late")], {}, id="who comes late skips nothing"),
        pytest.param([read(Records(OUT, ["x"], [7]))], {}, id="nobody wrote down who fills this partition"),
        pytest.param(
            [
                Operation("one", 1, 1, 9, Outcome.OK, polls=[B], sends=[A]),
                Operation("two", 1, 1, 9, Outcome.OK, polls=[A], sends=[B]),
            ],
            {},
            id="no cycle without transactions",
        ),
    ],
)
def test_records(operations: list[Operation], expected: dict[Kind, int]) -> None:
    report = check(operations)
    assert report.counts == {kind: count for kind, count in expected.items() if count}, report.explain()


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        pytest.param([consumed("a", 1, 0, 1, offset=2), consumed("b", 5, 2, 3, offset=4)], {}, id="one after another"),
        pytest.param(
            [consumed("a", 1, 0, 1, offset=2), consumed("b", 5, 1, 2, offset=3)],
            {Kind.CONSUMED_TWICE: 1},
            id="two overlap",
        ),
        pytest.param(
            [consumed("a", 1, 0, 1, offset=2), consumed("b", 5, 1, 2, offset=3, outcome=Outcome.UNKNOWN)],
            {},
            id="one that may not have been committed overlaps",
        ),
        pytest.param(
            [
                consumed("a", 1, 0, offset=1),
                consumed("b", 5, 1, offset=2, outcome=Outcome.FAILED),
                consumed("c", 9, 2, offset=3),
            ],
            {Kind.NEVER_CONSUMED: 1},
            id="a hole that was aborted",
        ),
        pytest.param(
            [
                consumed("a", 1, 0, offset=1),
                consumed("b", 5, 1, offset=2, outcome=Outcome.UNKNOWN),
                consumed("c", 9, 2, offset=3),
            ],
            {},
            id="a hole that may have been committed",
        ),
        pytest.param(
            [consumed("a", 1, 0, offset=1), consumed("c", 9, 2, offset=3)], {}, id="a hole where no record is known"
        ),
        pytest.param(
            [consumed("a", 1, 0, 1, offset=2), consumed("b", 1, offset=0)], {}, id="both at once, in either order"
        ),
        pytest.param(
            [consumed("a", 1, 0, 1, offset=2), consumed("b", 5, offset=0)],
            {Kind.NONMONOTONIC_OFFSET_COMMIT: 1},
            id="one after the other, and back",
        ),
    ],
)
def test_groups(operations: list[Operation], expected: dict[Kind, int]) -> None:
    report = check(operations)
    assert report.counts == expected, report.explain()


def test_offsets_of_open_transactions_may_be_missed_by_those_who_do_not_wait() -> None:
    committed = consumed("a", 1, 0, 1, offset=2)
    looked = read(offset_reads=[GroupOffset("billing", IN, -1)])
    assert check([committed, looked]).counts == {Kind.LOST_OFFSET_COMMIT: 1}
    assert check([committed, replace(looked, reads_committed=False)]).is_clean
    assert check([committed, replace(looked, invoked=1)]).is_clean, "it may have looked before"


def test_who_sees_all_has_seen_it() -> None:
    """It is neither lost nor unseen; that those who wait for the commit have not come so far is their affair."""
    report = check([SENT, read(ABC, reads_committed=False)])
    assert report.is_clean
    assert not report.unseen
