"""The sink as Spark calls it: writers that are made in a planner, travel to executors, and are made again to commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from oncelog.spark.options import Options
from oncelog.spark.sink.attempts import TaskResult
from oncelog.spark.sink.driver import abort_batch, commit_batch, plan_batch
from oncelog.spark.sink.errors import NotPlanned
from oncelog.spark.sink.settings import WHAT, Mode, SinkSettings, sink_settings
from oncelog.spark.sink.task import Place, TaskPlan, write_plainly, write_slot

BATCH_JOBS: Final = "batch"
"""The query id of all batch writes of a prefix: each is the next batch of it."""
QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"


@dataclass
class SlotReport(WriterCommitMessage):
    result: TaskResult


@dataclass
class RowsWritten(WriterCommitMessage):
    rows: int


def settings_of(options: Any, schema: StructType) -> SinkSettings:
    return sink_settings(Options(options, WHAT), {field.name: field.dataType.simpleString() for field in schema})


def stream_writer(settings: SinkSettings, *, is_planning: bool) -> DataSourceStreamArrowWriter:
    if settings.mode is not Mode.EXACTLY_ONCE:
        return PlainStreamWriter(settings)
    return ExactlyOnceStreamWriter(settings, plan_batch(settings) if is_planning else None)


def batch_writer(settings: SinkSettings) -> DataSourceArrowWriter:
    if settings.mode is not Mode.EXACTLY_ONCE:
        return PlainWriter(settings)
    return ExactlyOnceWriter(settings, plan_batch(settings))


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, settings: SinkSettings, plan: TaskPlan | None) -> None:
        self._settings = settings
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._plan is None:
            raise NotPlanned("this writer was made to commit, not to write")
        context = _context()
        query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
        batch_id = context.getLocalProperty(BATCH_ID_PROPERTY)
        assert query_id is not None
        assert batch_id is not None
        place = Place(query_id, int(batch_id), context.partitionId(), context.attemptNumber())
        return SlotReport(write_slot(self._settings, self._plan, place, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        commit_batch(self._settings, batchId, _results(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        abort_batch(self._settings, _results(messages))


class ExactlyOnceWriter(DataSourceArrowWriter):
    def __init__(self, settings: SinkSettings, plan: TaskPlan) -> None:
        self._settings = settings
        self._plan = plan
        done = plan.planned.last_done.get(BATCH_JOBS)
        self._batch_id = 0 if done is None else done.batch_id + 1

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        place = Place(BATCH_JOBS, self._batch_id, context.partitionId(), context.attemptNumber())
        return SlotReport(write_slot(self._settings, self._plan, place, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit_batch(self._settings, self._batch_id, _results(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        abort_batch(self._settings, _results(messages))


class PlainStreamWriter(DataSourceStreamArrowWriter):
    """Rows are visible when their task has sent them: there is nothing to commit."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return RowsWritten(write_plainly(self._settings, iterator))


class PlainWriter(DataSourceArrowWriter):
    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return RowsWritten(write_plainly(self._settings, iterator))


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls write() in a task"
    return context


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    """Of the tasks that reported; one that failed has no message."""
    return [message.result for message in messages if isinstance(message, SlotReport)]
