"""What is known of the streaming queries of a process: their last batch, their lag, whether they run.

Owns the numbers and their names for Prometheus. Reports come in as Spark's dictionaries, with the time of day; what a
page says is made of what came in last. Threads: Spark's listener tells, whoever watches asks.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from oncelog.spark.watch.lag import OffsetsBehind, offsets_behind, offsets_behind_of_all

MAX_QUERIES: Final = 1_000
"""Above it, those that have ended are forgotten, the oldest first; then those that have reported least recently."""
ROWS: Final = "oncelog.rows"
"""The name under which rows are counted on their way to a sink that does not count them itself."""


@dataclass(frozen=True, slots=True)
class QueryState:
    """`id` stays over restarts, `run_id` is another one each time."""

    run_id: str
    id: str
    name: str
    batch: int = -1
    input_rows: int = 0
    """Since the query was started; so are the rows written."""
    output_rows: int = 0
    duration_ms: int = 0
    behind: OffsetsBehind | None = None
    behind_by_source: tuple[OffsetsBehind | None, ...] = ()
    reported_at_s: float = 0.0
    is_active: bool = True
    error: str | None = None


class Queries:
    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._by_run: dict[str, QueryState] = {}

    def started(self, run_id: str, query_id: str, name: str | None, wall_s: float) -> None:
        with self._lock:
            self._by_run[run_id] = QueryState(run_id, query_id, name or query_id, reported_at_s=wall_s)
            self._forget_some()

    def progressed(self, report: Mapping[str, Any], wall_s: float) -> None:
        run_id, query_id = str(report["runId"]), str(report["id"])
        sources = report.get("sources") or ()
        durations: Mapping[str, int] = report.get("durationMs") or {}
        with self._lock:
            known = self._by_run.pop(run_id, QueryState(run_id, query_id, report.get("name") or query_id))
            self._by_run[run_id] = replace(
                known,
                batch=report["batchId"],
                input_rows=known.input_rows + (report.get("numInputRows") or 0),
                output_rows=known.output_rows + (written_rows(report) or 0),
                duration_ms=durations.get("triggerExecution", 0),
                behind=offsets_behind_of_all(sources),
                behind_by_source=tuple(offsets_behind(source) for source in sources),
                reported_at_s=wall_s,
            )
            self._forget_some()

    def ended(self, run_id: str, error: str | None) -> None:
        with self._lock:
            known = self._by_run.get(run_id)
            if known is not None:
                self._by_run[run_id] = replace(known, is_active=False, error=error)
                self._lock.notify_all()

    def await_ends(self, running: Collection[str], timeout_s: float) -> bool:
        """Until all have ended but those that are `running`, by their run ids. False if it took too long."""

        def have_ended() -> bool:
            return all(not one.is_active or one.run_id in running for one in self._by_run.values())

        with self._lock:
            return self._lock.wait_for(have_ended, timeout_s)

    def states(self) -> list[QueryState]:
        with self._lock:
            return list(self._by_run.values())

    def _forget_some(self) -> None:
        while len(self._by_run) > MAX_QUERIES:
            ended = (run_id for run_id, one in self._by_run.items() if not one.is_active)
            del self._by_run[next(ended, None) or next(iter(self._by_run))]


def written_rows(report: Mapping[str, Any]) -> int | None:
    """What the batch brought to its sink, which may be more or less than it read. None if nobody has counted."""
    written = (report.get("sink") or {}).get("numOutputRows")
    if isinstance(written, int) and written >= 0:
        return written
    counted = (report.get("observedMetrics") or {}).get(ROWS) or {}
    return counted.get("rows")


# --- for Prometheus ---------------------------------------------------------------------------------------------------

METRICS: Final = {
    "oncelog_spark_query_active": ("gauge", "1 while the query runs, 0 after its end"),
    "oncelog_spark_query_failed": ("gauge", "1 if the query ended with an error"),
    "oncelog_spark_batch_id": ("gauge", "the last batch that was reported"),
    "oncelog_spark_input_rows_total": ("counter", "rows read since the query was started"),
    "oncelog_spark_output_rows_total": ("counter", "rows brought to the sink since the query was started"),
    "oncelog_spark_batch_duration_seconds": ("gauge", "how long the last batch took"),
    "oncelog_spark_last_progress_timestamp_seconds": ("gauge", "when the query last reported"),
    "oncelog_spark_records_lag": ("gauge", "offsets between the last batch and the end of all partitions"),
    "oncelog_spark_min_offsets_behind_latest": ("gauge", "of the partition that is least behind"),
    "oncelog_spark_max_offsets_behind_latest": ("gauge", "of the partition that is furthest behind"),
    "oncelog_spark_avg_offsets_behind_latest": ("gauge", "of a partition on average"),
}


def prometheus_text(states: list[QueryState]) -> str:
    """A query that was started again is shown by its last run alone."""
    latest = {(one.id, one.name): one for one in states}
    lines: list[str] = []
    for name, (kind, meaning) in METRICS.items():
        samples = [(state, value) for state in latest.values() if (value := _values(state)[name]) is not None]
        if samples:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{{{_labels(state)}}} {_number(value)}" for state, value in samples]
    return "\n".join(lines) + "\n"


def _values(state: QueryState) -> dict[str, float | None]:
    behind = state.behind
    return {
        "oncelog_spark_query_active": int(state.is_active),
        "oncelog_spark_query_failed": int(state.error is not None),
        "oncelog_spark_batch_id": state.batch if state.batch >= 0 else None,
        "oncelog_spark_input_rows_total": state.input_rows,
        "oncelog_spark_output_rows_total": state.output_rows,
        "oncelog_spark_batch_duration_seconds": state.duration_ms / 1000,
        "oncelog_spark_last_progress_timestamp_seconds": state.reported_at_s,
        "oncelog_spark_records_lag": None if behind is None else behind.total,
        "oncelog_spark_min_offsets_behind_latest": None if behind is None else behind.min,
        "oncelog_spark_max_offsets_behind_latest": None if behind is None else behind.max,
        "oncelog_spark_avg_offsets_behind_latest": None if behind is None else behind.avg,
    }


def _labels(state: QueryState) -> str:
    return ",".join(f'{key}="{_escaped(value)}"' for key, value in _label_values(state))


def _label_values(state: QueryState) -> Iterator[tuple[str, str]]:
    yield "query", state.name
    yield "id", state.id


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)
