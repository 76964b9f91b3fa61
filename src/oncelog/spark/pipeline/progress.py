"""How far a query is: from what Spark reports of a batch to numbers, and from numbers to a line for a person.

Pure: reports come in as Spark's dictionaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oncelog.printable import counted
from oncelog.spark.watch.lag import offsets_behind_of_all
from oncelog.spark.watch.queries import written_rows

CHECKPOINT_STEPS = ("walCommit", "commitOffsets")


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one batch. `commit_ms` is what its entries in the checkpoint took; the sink's own commit is in `write_ms`."""

    sink: str
    batch: int
    rows: int | None
    """What the batch brought to the sink; None if nobody has counted."""
    rows_per_second: float
    duration_ms: int
    write_ms: int
    commit_ms: int
    lag: int | None
    """Records that are in the topics and not yet in the batch; None if the source does not tell."""
    rows_read: int = 0
    max_offsets_behind_latest: int | None = None
    """Of the partition that is furthest behind."""

    def event(self) -> dict[str, Any]:
        return {"event": "progress", **asdict(self)}

    def line(self) -> str:
        lag = "" if self.lag is None else f", lag {self.lag:,}"
        rows = "" if self.rows is None else f"{counted(self.rows, 'row')}, {self.rows_per_second:,.0f} rows/s, "
        return (
            f"{self.sink}: batch {self.batch}, read {self.rows_read:,}, {rows}"
            f"took {self.duration_ms:,} ms (write {self.write_ms:,}, commit {self.commit_ms:,}){lag}"
        )


def read_progress(sink: str, report: Mapping[str, Any]) -> Progress:
    durations: Mapping[str, int] = report.get("durationMs") or {}
    duration_ms = durations.get("triggerExecution", report.get("batchDuration") or 0)
    rows, rows_read = written_rows(report), report.get("numInputRows") or 0
    behind = offsets_behind_of_all(report.get("sources") or ())
    return Progress(
        sink=sink,
        batch=report["batchId"],
        rows=rows,
        rows_per_second=round((rows or 0) * 1000 / duration_ms, 1) if duration_ms else 0.0,
        duration_ms=duration_ms,
        write_ms=durations.get("addBatch", 0),
        commit_ms=sum(durations.get(step, 0) for step in CHECKPOINT_STEPS),
        lag=None if behind is None else behind.total,
        rows_read=rows_read,
        max_offsets_behind_latest=None if behind is None else behind.max,
    )
