from __future__ import annotations

from typing import Any

import pytest

from oncelog.spark.pipeline.progress import Progress, read_progress

REPORT: dict[str, Any] = {
    "batchId": 3,
    "numInputRows": 1200,
    "processedRowsPerSecond": 2222.2,
    "durationMs": {"addBatch": 214, "commitOffsets": 20, "walCommit": 64, "triggerExecution": 540},
    "sources": [
        {
            "endOffset": {"orders": {"0": 90, "1": 50}},
            "latestOffset": {"orders": {"0": 100, "1": 50, "2": 7}},
        }
    ],
}


def test_a_report_becomes_numbers_and_a_line() -> None:
    progress = read_progress("paid", REPORT)
    assert progress == Progress("paid", 3, 1200, 2222.2, 540, 214, 84, 17)
    assert progress.line() == ("paid: batch 3, 1,200 rows, 2,222 rows/s, took 540 ms (write 214, commit 84), lag 17")
    assert progress.event()["event"] == "progress"


@pytest.mark.parametrize(
    "sources",
    [[], [{"endOffset": 7, "latestOffset": 7}], [{"endOffset": {"a": {"0": 1}}, "latestOffset": None}], None],
)
def test_a_source_that_does_not_tell_has_no_lag(sources: Any) -> None:
    progress = read_progress("paid", {**REPORT, "sources": sources})
    assert progress.lag is None
    assert "lag" not in progress.line()


@pytest.mark.parametrize("rate", ["NaN", float("nan"), float("inf"), None])
def test_a_batch_without_rows_or_time_has_no_rate(rate: Any) -> None:
    assert read_progress("paid", {"batchId": 0, "processedRowsPerSecond": rate}).rows_per_second == 0
