"""How far a query is: from what Spark reports of a batch to numbers, and from numbers to a line for a person.

Pure: reports come in as Spark's dictionaries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

CHECKPOINT_STEPS = ("walCommit", "commitOffsets")


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one batch. `commit_ms` is what its entries in the checkpoint took; the sink's own commit is in `write_ms`."""

    sink: str
    batch: int
    rows: int
    rows_per_second: float
    duration_ms: int
    write_ms: int
    commit_ms: int
    lag: int | None
    """Records that are in the topics and not yet in the batch; None if the source does not tell."""

    def event(self) -> dict[str, Any]:
        return {"event": "progress", **asdict(self)}

    def line(self) -> str:
        lag = "" if self.lag is None else f", lag {self.lag:,}"
        return (
            f"{self.sink}: batch {self.batch}, {self.rows:,} rows, {self.rows_per_second:,.0f} rows/s, "
            f"took {self.duration_ms:,} ms (write {self.write_ms:,}, commit {self.commit_ms:,}){lag}"
        )


def read_progress(sink: str, report: Mapping[str, Any]) -> Progress:
    durations: Mapping[str, int] = report.get("durationMs") or {}
    return Progress(
        sink=sink,
        batch=report["batchId"],
        rows=report.get("numInputRows") or 0,
        rows_per_second=_number(report.get("processedRowsPerSecond")),
        duration_ms=durations.get("triggerExecution", report.get("batchDuration") or 0),
        write_ms=durations.get("addBatch", 0),
        commit_ms=sum(durations.get(step, 0) for step in CHECKPOINT_STEPS),
        lag=_lag(report.get("sources") or ()),
    )


def _number(value: Any) -> float:
    """Spark writes NaN and infinity as texts, or leaves them out."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def _lag(sources: Any) -> int | None:
    """Over the sources that say, for each partition, both how far they are and how far they could be."""
    known: list[int] = []
    for source in sources:
        end = dict(_offsets(source.get("endOffset")))
        latest = dict(_offsets(source.get("latestOffset")))
        if end and latest:
            known.append(sum(max(offset - end.get(where, 0), 0) for where, offset in latest.items()))
    return sum(known) if known else None


def _offsets(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """`{"topic": {"0": 17}}`, as Spark's own source writes it, at any depth."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _offsets(inner, (*path, key))
    elif isinstance(value, int) and path:
        yield path, value
