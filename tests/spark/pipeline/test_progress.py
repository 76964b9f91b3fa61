from __future__ import annotations

from typing import Any

import pytest

from oncelog.spark.pipeline.progress import Progress, read_progress
from oncelog.spark.watch.queries import ROWS

REPORT: dict[str, Any] = {
    "batchId": 3,
    "numInputRows": 1200,
    "processedRowsPerSecond": 2222.2,
    "sink": {"numOutputRows": 300},
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
    assert progress == Progress("paid", 3, 300, 555.6, 540, 214, 84, 17, 1200, 10)
    assert progress.line() == (
        "paid: batch 3, read 1,200, 300 rows, 556 rows/s, took 540 ms (write 214, commit 84), lag 17"
    )
    assert progress.event()["event"] == "progress"


@pytest.mark.parametrize(
    "sources",
    [[], [{"endOffset": 7, "latestOffset": 7}], [{"endOffset": {"a": {"0": 1}}, "latestOffset": None}], None],
)
def test_a_source_that_does_not_tell_has_no_lag(sources: Any) -> None:
    progress = read_progress("paid", {**REPORT, "sources": sources})
    assert progress.lag is None
    assert "lag" not in progress.line()


def test_rows_are_those_that_were_written() -> None:
    """By the sink's own count, or by one on the way to it."""
    counted = {**REPORT, "sink": {"numOutputRows": -1}, "observedMetrics": {ROWS: {"rows": 7}}}
    assert read_progress("files", counted).rows == 7
    uncounted = read_progress("console", {**REPORT, "sink": {"numOutputRows": -1}})
    assert uncounted.rows is None
    assert uncounted.line() == "console: batch 3, read 1,200, took 540 ms (write 214, commit 84), lag 17"


def test_a_batch_without_rows_or_time_has_no_rate() -> None:
    assert read_progress("paid", {"batchId": 0, "sink": {"numOutputRows": 0}}).rows_per_second == 0
