"""What a person reads."""

from __future__ import annotations

from oncelog.audit.history.checker import check
from oncelog.audit.history.model import Operation, Outcome, Records
from oncelog.audit.history.report import MAX_EXAMPLES, MEANINGS, Kind
from oncelog.types import TopicPartition

BILLS = TopicPartition("bills", 1)
VALUES = [f"bill {number}" for number in range(MAX_EXAMPLES + 5)]
ABORTED = Operation(
    "processor 3", 12, 1, 2, Outcome.FAILED, True, sends=[Records(BILLS, VALUES, list(range(len(VALUES))))]
)


def test_a_clean_history() -> None:
    assert check([ABORTED]).explain() == (
        "no violation\n1 processes sent 15 records and polled 0; 0 transactions were committed, 1 aborted, 0 undecided"
    )


def test_a_violation_names_what_is_wrong_with_a_few_examples() -> None:
    read = Operation("reader", 1, 3, 4, Outcome.OK, polls=[Records(BILLS, VALUES, list(range(len(VALUES))))])
    text = check([ABORTED, read]).explain()
    assert text.startswith("15 violations of 1 kinds\n2 processes sent 15 records and polled 15")
    assert "aborted read: 15 (a read_committed reader saw a value whose transaction did not commit)" in text
    assert "of transaction 12 of processor 3 can be read at offset" in text
    assert text.count("of transaction 12 of processor 3 can be read") == MAX_EXAMPLES
    assert text.endswith("\n  and 5 more")


def test_every_kind_has_a_meaning() -> None:
    assert MEANINGS.keys() == set(Kind)
