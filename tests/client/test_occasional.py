from __future__ import annotations

import logging

import pytest

from oncelog.client.occasional import OccasionalWarning


def test_one_now_and_then_with_a_count_of_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    warning = OccasionalWarning(logging.getLogger("test"), every_ms=1_000)
    given = [warning.give(now_ms, "%s failed", now_ms) for now_ms in (5, 6, 1_004, 1_005, 9_000)]
    assert given == [True, False, False, True, True]
    assert [record.getMessage() for record in caplog.records] == [
        "5 failed",
        "1005 failed (and 2 more like this since the last warning)",
        "9000 failed",
    ]
