"""What each answer means, over all codes: the table of a producer's errors, and nothing that is taken for stored or
refused without a reason."""

from __future__ import annotations

import pytest

from oncelog.client.verdict import Verdict, verdict_of
from oncelog.errors import ERRORS_BY_CODE

RULES = {
    0: Verdict.STORED,
    46: Verdict.STORED_EARLIER,
    45: Verdict.OUT_OF_ORDER,
    59: Verdict.FORGOTTEN,
    47: Verdict.FENCED,
    10: Verdict.TOO_LARGE,
    18: Verdict.TOO_LARGE,
    -1: Verdict.BROKEN,
    # Answered before anything is written: by the checks of a request, of its topic and its leader epoch.
    2: Verdict.REFUSED,
    3: Verdict.REFUSED,
    5: Verdict.REFUSED,
    19: Verdict.REFUSED,
    75: Verdict.REFUSED,
    89: Verdict.REFUSED,
    # A leader that lost its office, its disk or its replicas may have written before.
    6: Verdict.UNCERTAIN,
    7: Verdict.UNCERTAIN,
    13: Verdict.UNCERTAIN,
    20: Verdict.UNCERTAIN,
    56: Verdict.UNCERTAIN,
    74: Verdict.UNCERTAIN,
    100: Verdict.UNCERTAIN,
    # Asking again would not help.
    17: Verdict.INVALID,
    21: Verdict.INVALID,
    29: Verdict.INVALID,
    32: Verdict.INVALID,
    35: Verdict.INVALID,
    42: Verdict.INVALID,
    43: Verdict.INVALID,
    48: Verdict.INVALID,
    53: Verdict.INVALID,
    76: Verdict.INVALID,
    87: Verdict.INVALID,
    90: Verdict.INVALID,
}


@pytest.mark.parametrize(("code", "verdict"), RULES.items())
def test_the_table(code: int, verdict: Verdict) -> None:
    assert verdict_of(code) is verdict


def test_a_retriable_error_without_a_rule_proves_nothing() -> None:
    for code, error in ERRORS_BY_CODE.items():
        if code not in RULES:
            assert verdict_of(code) is (Verdict.UNCERTAIN if error.retriable else Verdict.INVALID), error


@pytest.mark.parametrize("code", [9_999, -2, 32_767])
def test_a_code_of_the_future_is_not_taken_for_stored(code: int) -> None:
    assert verdict_of(code) is Verdict.INVALID
